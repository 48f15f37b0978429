package figure

import (
	"math"
	"strconv"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// How a series looks, the same in every figure:
//
//	colour         its implementation
//	mark           who measured it: filled is this program, open another one; its shape is the file
//	line           its pass and mask: dashed is backward; dotted is causal, where the figure shows the same without the mask, too
//	ring around    the rounds that the point was made of disagree: Disagreement
//	bar            Span
//
// No two series of a figure look alike: see marks.

// Legend says so to readers.
const Legend = "Colour: the implementation. Mark: filled is vkattn, open is another library; its shape is the file. " +
	"Line: dashed is the backward pass; dotted is causal, where the same without the mask stands beside it. " +
	"Bars: 20th to 80th percentile and the rounds. A ring: its rounds disagree by more than 3 %."

// Variant is what of an implementation a series shows.
type Variant int

const (
	Usual    Variant = iota // the forward pass
	Backward                // the backward pass
	Causal                  // with the mask, beside the same without
)

// dashes are the line's pattern in points.
func (v Variant) dashes() []vg.Length {
	switch v {
	case Backward:
		return []vg.Length{5, 2.5}
	case Causal:
		return []vg.Length{1.2, 2.2}
	}
	return nil
}

// marks gives series their marks: the shape of their file, or where that and the colour are another's already, one that is free.
type marks struct {
	sources int
	of      map[string]int // by series
	taken   map[look]string
}

// look is what tells two series of one variant apart.
type look struct {
	tone tone
	peer bool
	mark int
}

func newMarks(sources int) *marks {
	return &marks{sources: sources, of: map[string]int{}, taken: map[look]string{}}
}

func (m *marks) mark(it item) int {
	if mark, ok := m.of[it.series]; ok {
		return mark
	}
	l := look{toneOf(it.row.Impl), it.peer, it.source}
	for next := m.sources; m.taken[l] != ""; next++ {
		l.mark = next
	}
	m.taken[l], m.of[it.series] = it.series, l.mark
	return l.mark
}

// shapes are polygons by the angles of their corners, in degrees from the right; none is a circle.
var shapes = [][]float64{nil, {45, 135, 225, 315}, {90, 210, 330}, {0, 90, 180, 270}, {30, 150, 270}}

// glyph is a mark: open ones are filled with the page's colour, so that lines end at them.
type glyph struct {
	mark int
	open bool
}

// DrawGlyph implements draw.GlyphDrawer.
func (g glyph) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	var path vg.Path
	if g.mark >= len(shapes) || shapes[g.mark] == nil {
		r := sty.Radius
		if g.mark >= len(shapes) {
			r += 1.2 // room for a number
		}
		path.Move(vg.Point{X: at.X + r, Y: at.Y})
		path.Arc(at, r, 0, 2*math.Pi)
	} else {
		r := sty.Radius * 1.25 // as large to the eye as the circle
		for i, degrees := range shapes[g.mark] {
			angle := degrees * math.Pi / 180
			p := vg.Point{X: at.X + r*vg.Length(math.Cos(angle)), Y: at.Y + r*vg.Length(math.Sin(angle))}
			if i == 0 {
				path.Move(p)
			} else {
				path.Line(p)
			}
		}
	}
	path.Close()
	on := paper.color()
	c.SetColor(sty.Color)
	if g.open {
		on = sty.Color
		c.SetColor(paper.color())
	}
	c.Fill(path)
	c.SetColor(sty.Color)
	c.SetLineStyle(draw.LineStyle{Color: sty.Color, Width: vg.Points(1.2)})
	c.Stroke(path)
	if g.mark >= len(shapes) { // more files than shapes: their numbers
		number := style(5.5, ink)
		number.Color, number.XAlign, number.YAlign = on, text.XCenter, text.YCenter
		c.FillText(number, at, strconv.Itoa(g.mark+1))
	}
}

// ring marks a doubtful point.
func ring(c *draw.Canvas, at vg.Point) {
	c.DrawGlyph(draw.GlyphStyle{Color: ink.color(), Radius: vg.Points(5.2), Shape: draw.RingGlyph{}}, at)
}

// tone is the series' colour.
func (s Series) tone() tone {
	if s.Colour > 0 {
		return series[(s.Colour-1)%len(series)]
	}
	return toneOf(s.Impl)
}

func (s Series) line() draw.LineStyle {
	return draw.LineStyle{Color: s.tone().color(), Width: vg.Points(1.6), Dashes: s.Variant.dashes()}
}

func (s Series) glyph() draw.GlyphStyle {
	radius := 2.6
	if s.Peer {
		radius = 3.2
	}
	return draw.GlyphStyle{Color: s.tone().color(), Radius: vg.Points(radius), Shape: glyph{s.Mark, s.Peer}}
}

// sample draws what the legend shows of a series, about a point: without a line, where it has one point alone.
func (s Series) sample(c *draw.Canvas, at vg.Point, lonely bool) {
	if !lonely {
		c.StrokeLine2(s.line(), at.X-9, at.Y, at.X+9, at.Y)
	}
	c.DrawGlyph(s.glyph(), at)
}
