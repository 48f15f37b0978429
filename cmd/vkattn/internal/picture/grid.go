package picture

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Panel is the map of one head.
type Panel struct {
	Title         string
	Rows, Columns int
	Cells         []float32 // row by row, queries down
}

// Grid is maps of heads side by side: queries down, keys across, one scale of colours for all.
type Grid struct {
	Title         string
	Caption       []string // lines below
	Panels        []Panel
	Queries, Keys [2]int // what all panels are of: first and end, in tokens
	Colors        *Colors
	Range         Range
	Unit          string // of a cell's number
}

// NoNumbers is how many cells are no numbers, NaN or infinite, and how many there are.
func (g *Grid) NoNumbers() (n, of int) {
	for _, p := range g.Panels {
		for _, x := range p.Cells {
			if !isNumber(float64(x)) {
				n++
			}
		}
		of += len(p.Cells)
	}
	return n, of
}

func isNumber(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// noNumber is the pixel at (x, y) of a cell that is no number: red and white stripes, which no scale of colours has.
func noNumber(x, y int) color.NRGBA {
	const wide = 8
	if (x+y)/wide%2 == 0 {
		return color.NRGBA{0xD4, 0x1F, 0x2A, 255}
	}
	return color.NRGBA{255, 255, 255, 255}
}

// Sizes in points.
const (
	gap       = 12
	margin    = 14
	axis      = 40 // for ticks and the name of an axis
	heading   = 16 // of a panel
	titleRoom = 26
	barWidth  = 11
	barRoom   = 62
	lineRoom  = 13
	small     = 9
	normal    = 10
	large     = 13
	pngDPI    = 144
)

var (
	ink   = color.NRGBA{0x1B, 0x1F, 0x24, 255}
	muted = color.NRGBA{0x5E, 0x67, 0x72, 255}
)

// layout is how many columns and rows of panels there are, and their width and height.
func (g *Grid) layout() (columns, rows int, side, height vg.Length) {
	n := len(g.Panels)
	columns = max(1, int(math.Ceil(math.Sqrt(float64(n)))))
	side = vg.Length(math.Min(math.Max(480/float64(columns), 90), 330))
	share := float64(g.Queries[1]-g.Queries[0]) / float64(g.Keys[1]-g.Keys[0])
	return columns, (n + columns - 1) / columns, side, side * vg.Length(math.Min(math.Max(share, 0.3), 2))
}

func (g *Grid) size() (w, h vg.Length) {
	columns, rows, side, height := g.layout()
	w = 2*margin + axis + vg.Length(columns)*(side+gap) + barRoom
	if least := vg.Length(0.47*normal*float64(len([]rune(g.Title)))*large/normal) + 2*margin; w < least {
		w = least
	}
	for _, line := range g.Caption {
		w = max(w, vg.Length(0.5*small*float64(len([]rune(line))))+2*margin)
	}
	h = 2*margin + titleRoom + vg.Length(rows)*(height+heading+gap/2) + axis + vg.Length(len(g.Caption))*lineRoom
	return w, h
}

// check says what is wrong with the grid.
func (g *Grid) check() error {
	if len(g.Panels) == 0 {
		return fmt.Errorf("a picture of no head")
	}
	for _, p := range g.Panels {
		if p.Rows < 1 || p.Columns < 1 || len(p.Cells) != p.Rows*p.Columns {
			return fmt.Errorf("%d cells of %d × %d", len(p.Cells), p.Rows, p.Columns)
		}
	}
	return nil
}

// PNG draws the grid as pixels.
func (g *Grid) PNG() ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	w, h := g.size()
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(pngDPI))
	g.draw(draw.New(c))
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// SVG draws the grid with text and lines as such, and panels as pixels.
func (g *Grid) SVG() ([]byte, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	w, h := g.size()
	c := vgsvg.New(w, h)
	g.draw(draw.New(c))
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	svg := strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	return []byte(svg), err
}

func style(size vg.Length, c color.Color, x text.XAlignment, y text.YAlignment) draw.TextStyle {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	return draw.TextStyle{Color: c, Font: f, XAlign: x, YAlign: y, Handler: plot.DefaultTextHandler}
}

func (g *Grid) draw(c draw.Canvas) {
	w, h := g.size()
	c.SetColor(color.White)
	c.Fill(rectangle(0, 0, w, h).Path())
	c.FillText(style(large, ink, text.XLeft, text.YTop), vg.Point{X: margin, Y: h - margin}, g.Title)
	columns, rows, side, height := g.layout()
	top := h - margin - titleRoom
	left := vg.Length(margin + axis)
	for i, p := range g.Panels {
		x := left + vg.Length(i%columns)*(side+gap)
		y := top - vg.Length(i/columns)*(height+heading+gap/2) - heading - height // lower edge
		c.FillText(style(normal, ink, text.XLeft, text.YBottom), vg.Point{X: x, Y: y + height + 3}, p.Title)
		at := rectangle(x, y, side, height)
		c.DrawImage(at, g.pixels(&p, side, height))
		c.StrokeLine2(draw.LineStyle{Color: muted, Width: 0.5}, x, y, x+side, y)
		c.StrokeLine2(draw.LineStyle{Color: muted, Width: 0.5}, x, y, x, y+height)
		if i%columns == 0 {
			g.ticks(c, g.Queries, vg.Point{X: x, Y: y + height}, -height, true)
		}
		if i+columns >= len(g.Panels) {
			g.ticks(c, g.Keys, vg.Point{X: x, Y: y}, side, false)
		}
	}
	bottom := top - vg.Length(rows)*(height+heading+gap/2) + gap/2
	inner := vg.Length(min(columns, len(g.Panels)))*(side+gap) - gap
	c.FillText(style(normal, ink, text.XCenter, text.YTop), vg.Point{X: left + inner/2, Y: bottom - 18}, "key (token)")
	turned := style(normal, ink, text.XCenter, text.YTop)
	turned.Rotation = math.Pi / 2
	c.FillText(turned, vg.Point{X: margin - 2, Y: (top + bottom) / 2}, "query (token)")
	g.bar(c, left+inner+gap+6, bottom, top-heading-bottom)
	for i, line := range g.Caption {
		c.FillText(style(small, muted, text.XLeft, text.YBottom),
			vg.Point{X: margin, Y: vg.Length(margin) + vg.Length(len(g.Caption)-1-i)*lineRoom}, line)
	}
}

func rectangle(x, y, w, h vg.Length) vg.Rectangle {
	return vg.Rectangle{Min: vg.Point{X: x, Y: y}, Max: vg.Point{X: x + w, Y: y + h}}
}

// pixels are the cells as an image, each many pixels large where they are few, so that no viewer smears them.
func (g *Grid) pixels(p *Panel, width, height vg.Length) image.Image {
	const most = pngDPI / 72.0
	times := func(cells int, length vg.Length) int {
		return max(1, int(math.Ceil(2*most*length.Points()/float64(cells))))
	}
	across, down := times(p.Columns, width), times(p.Rows, height)
	out := image.NewNRGBA(image.Rect(0, 0, p.Columns*across, p.Rows*down))
	for y := range p.Rows {
		for x := range p.Columns {
			cell := float64(p.Cells[y*p.Columns+x])
			colour := g.Colors.At(g.Range.Of(cell))
			for i := range down {
				for j := range across {
					if !isNumber(cell) {
						colour = noNumber(x*across+j, y*down+i)
					}
					out.SetNRGBA(x*across+j, y*down+i, colour)
				}
			}
		}
	}
	return out
}

// ticks marks tokens along an axis from `at`, over a length that is negative downwards.
func (g *Grid) ticks(c draw.Canvas, of [2]int, at vg.Point, length vg.Length, down bool) {
	line := draw.LineStyle{Color: muted, Width: 0.5}
	n := of[1] - of[0]
	for _, t := range Ticks(of[0], of[1]) {
		along := length * vg.Length((float64(t-of[0])+0.5)/float64(n)) // the middle of the token
		if down {
			c.StrokeLine2(line, at.X-3, at.Y+along, at.X, at.Y+along)
			c.FillText(style(small, muted, text.XRight, text.YCenter), vg.Point{X: at.X - 5, Y: at.Y + along}, strconv.Itoa(t))
		} else {
			c.StrokeLine2(line, at.X+along, at.Y-3, at.X+along, at.Y)
			c.FillText(style(small, muted, text.XCenter, text.YTop), vg.Point{X: at.X + along, Y: at.Y - 5}, strconv.Itoa(t))
		}
	}
}

// Ticks are about four round numbers from first up to, not including, end.
func Ticks(first, end int) (out []int) {
	step := 1
	for _, step = range roundSteps(end - first) {
		if (end-first)/step <= 4 {
			break
		}
	}
	for t := (first + step - 1) / step * step; t < end; t += step {
		out = append(out, t)
	}
	return out
}

// roundSteps are 1, 2, 5, 10, … up to n.
func roundSteps(n int) (out []int) {
	for tens := 1; tens <= n; tens *= 10 {
		out = append(out, tens, 2*tens, 5*tens)
	}
	return out
}

// bar draws the scale of colours with its numbers.
func (g *Grid) bar(c draw.Canvas, x, y, height vg.Length) {
	const steps = 256
	img := image.NewNRGBA(image.Rect(0, 0, 1, steps))
	for i := range steps {
		img.SetNRGBA(0, steps-1-i, g.Colors.At(float64(i)/(steps-1)))
	}
	c.DrawImage(rectangle(x, y, barWidth, height), img)
	label := style(small, muted, text.XLeft, text.YCenter)
	mark := func(v float64, name string) {
		at := y + height*vg.Length(g.Range.Of(v))
		c.StrokeLine2(draw.LineStyle{Color: muted, Width: 0.5}, x+barWidth, at, x+barWidth+3, at)
		c.FillText(label, vg.Point{X: x + barWidth + 5, Y: at}, name)
	}
	if g.Range.Log {
		low, high := int(math.Ceil(math.Log10(g.Range.Low)-1e-9)), int(math.Floor(math.Log10(g.Range.High)+1e-9))
		for e := low; e <= high; e++ {
			mark(math.Pow(10, float64(e)), power(e))
		}
	} else {
		step := math.Pow(10, math.Floor(math.Log10(g.Range.High)))
		for _, share := range []float64{0.2, 0.5, 1, 2} {
			if n := g.Range.High / (share * step); n <= 5 {
				step *= share
				break
			}
		}
		for i := 0; float64(i)*step <= g.Range.High*(1+1e-9); i++ {
			mark(float64(i)*step, strconv.FormatFloat(float64(i)*step, 'g', 2, 64))
		}
	}
	if n, _ := g.NoNumbers(); n > 0 {
		stripes := image.NewNRGBA(image.Rect(0, 0, 4*barWidth, 4*barWidth))
		for i := range 4 * barWidth {
			for j := range 4 * barWidth {
				stripes.SetNRGBA(i, j, noNumber(i, j))
			}
		}
		c.DrawImage(rectangle(x, y-2*barWidth-2, barWidth, barWidth), stripes)
		c.FillText(label, vg.Point{X: x + barWidth + 5, Y: y - 3*barWidth/2 - 2}, "no number")
	}
	turned := style(small, ink, text.XCenter, text.YBottom)
	turned.Rotation = math.Pi / 2
	c.FillText(turned, vg.Point{X: x - 3, Y: y + height/2}, g.Unit)
}

// power is a power of ten in print.
func power(e int) string {
	digits := strings.NewReplacer("-", "−").Replace(strconv.Itoa(e))
	switch e {
	case 0:
		return "1"
	case -1:
		return "0.1"
	case -2:
		return "0.01"
	case -3:
		return "0.001"
	}
	return "1e" + digits
}
