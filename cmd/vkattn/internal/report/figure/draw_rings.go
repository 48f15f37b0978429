package figure

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// tonesOfParts are those of stacked bars and of timelines: kernels and sums look the same in both.
var tonesOfParts = map[Kind][]tone{
	Stacked:  {series[0], series[2], series[4], series[8]},
	Timeline: {series[0], series[2], series[4], series[5]},
}

const (
	stackH  = 36 // of a bar with its line of text
	laneH   = 15
	rankH   = 17 // the line that names a rank
	axisH   = 34
	partGap = 6  // below the legend
	laneX   = 60 // room for the names of lanes
)

// partLines breaks the legend of parts into lines that fit.
func (f *Figure) partLines() (lines [][]int) {
	sty := style(letters, ink)
	room := vg.Length(0)
	for i, name := range f.Parts {
		need := swatch + sty.Width(name)
		if len(lines) == 0 || need > room {
			lines = append(lines, nil)
			room = width - 16
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], i)
		room -= need
	}
	return lines
}

// partsHeight is the height of a figure of parts.
func (f *Figure) partsHeight() vg.Length {
	h := vg.Length(legend*len(f.partLines())) + partGap + axisH
	if f.Kind == Stacked {
		return h + vg.Length(stackH*len(f.Series))
	}
	ranks := map[int]bool{}
	for _, s := range f.Series {
		ranks[s.Rank] = true
	}
	return h + vg.Length(laneH*len(f.Series)+rankH*len(ranks))
}

// drawParts draws stacked bars or a timeline below the legend of their parts.
func (f *Figure) drawParts(c draw.Canvas) error {
	colors := tonesOfParts[f.Kind]
	lines := f.partLines()
	y := c.Max.Y - legend
	for _, line := range lines {
		x := c.Min.X + 10
		for _, i := range line {
			fill(c, x, y-1, x+12, y+8, colors[i])
			sty := style(letters, ink)
			c.FillText(sty, vg.Point{X: x + 16, Y: y}, f.Parts[i])
			x += swatch + sty.Width(f.Parts[i])
		}
		y -= legend
	}
	c = draw.Crop(c, 0, 0, 0, -vg.Length(legend*len(lines))-partGap)
	if f.Kind == Stacked {
		f.drawStacks(c, colors)
		return nil
	}
	f.drawTimeline(c, colors)
	return nil
}

// fill fills a box.
func fill(c draw.Canvas, x0, y0, x1, y1 vg.Length, t tone) {
	c.SetColor(t.color())
	box := vg.Rectangle{Min: vg.Point{X: x0, Y: y0}, Max: vg.Point{X: x1, Y: y1}}
	c.Fill(box.Path())
}

// drawStacks draws a bar for each series, as long as all others: shares of its time.
func (f *Figure) drawStacks(c draw.Canvas, colors []tone) {
	left, right := c.Min.X+10, c.Max.X-14
	y := c.Max.Y - 14
	for _, s := range f.Series {
		sty := style(letters, ink)
		ms := plain(s.Whole) + " ms"
		c.FillText(fitted(sty, s.Name, right-left-sty.Width(ms)-8), vg.Point{X: left, Y: y}, s.Name)
		end := sty
		end.XAlign = text.XRight
		c.FillText(end, vg.Point{X: right, Y: y}, ms)
		x := left
		for i, p := range s.Points {
			w := (right - left) * vg.Length(p.Y/s.Whole)
			to := min(right, x+w)
			fill(c, x, y-18, to, y-5, colors[i])
			share := fmt.Sprintf("%.0f %%", 100*p.Y/s.Whole)
			in := style(letters, paper)
			if in.Width(share)+4 < w {
				in.XAlign = text.XCenter
				c.FillText(in, vg.Point{X: (x + to) / 2, Y: y - 15}, share)
			}
			x = to
		}
		y -= stackH
	}
	name := style(letters, ink)
	name.XAlign = text.XCenter
	c.FillText(name, vg.Point{X: (left + right) / 2, Y: c.Min.Y + 10}, f.X)
}

// drawTimeline draws the lanes of each rank over the time of the pass.
func (f *Figure) drawTimeline(c draw.Canvas, colors []tone) {
	left, right := c.Min.X+laneX, c.Max.X-14
	whole := 0.0
	for _, s := range f.Series {
		whole = max(whole, s.Whole)
	}
	at := func(ms float64) vg.Length { return left + (right-left)*vg.Length(ms/whole) }
	y := c.Max.Y
	top, rank := y, -1
	ticks := evenTicks(whole)
	bottom := c.Min.Y + axisH
	for _, t := range ticks {
		c.StrokeLine2(draw.LineStyle{Color: rule.color(), Width: vg.Points(0.6)}, at(t.Value), bottom, at(t.Value), top-4)
		sty := style(letters, muted)
		sty.XAlign = text.XCenter
		c.FillText(sty, vg.Point{X: at(t.Value), Y: bottom - 13}, t.Label)
	}
	for _, s := range f.Series {
		if s.Rank != rank {
			rank = s.Rank
			y -= rankH
			c.FillText(style(letters, ink), vg.Point{X: c.Min.X + 8, Y: y + 4}, "rank "+strconv.Itoa(rank))
		}
		y -= laneH
		c.FillText(fitted(style(letters, muted), s.Name, laneX-12), vg.Point{X: c.Min.X + 8, Y: y + 3}, s.Name)
		for _, p := range s.Points {
			x0, x1 := at(p.Lo), at(p.Hi)
			fill(c, x0, y+1, max(x1, x0+0.3), y+laneH-2, colors[int(p.X)]) // what is short is seen, too
			label := strconv.Itoa(int(p.X2))
			in := style(letters, paper)
			if int(p.X) == 0 && in.Width(label)+3 < x1-x0 {
				in.XAlign = text.XCenter
				c.FillText(in, vg.Point{X: (x0 + x1) / 2, Y: y + 3.5}, label)
			}
		}
	}
	name := style(letters, ink)
	name.XAlign = text.XCenter
	c.FillText(name, vg.Point{X: (left + right) / 2, Y: c.Min.Y + 6}, f.X)
}

// addGuides draws what values would be at best.
func (f *Figure) addGuides(p *plot.Plot, x span) error {
	for _, g := range f.Guides {
		line, err := plotter.NewLine(plotter.XYs{{X: x.min, Y: g.at(x.min)}, {X: x.max, Y: g.at(x.max)}})
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: muted.color(), Width: vg.Points(1), Dashes: []vg.Length{1.5, 2}}
		p.Add(line, guideName{g, x})
	}
	return nil
}

func (g Guide) at(x float64) float64 {
	if g.Diagonal {
		return x
	}
	return g.Y
}

// guideName writes a guide's name above its line.
type guideName struct {
	g Guide
	x span
}

// Plot implements plot.Plotter.
func (n guideName) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := style(letters, muted)
	at := n.x.min
	if n.g.Diagonal { // to the left of its middle
		at = math.Sqrt(n.x.min * n.x.max)
		sty.XAlign = text.XRight
		c.FillText(sty, vg.Point{X: x(at) - 4, Y: y(n.g.at(at)) + 5}, n.g.Name)
		return
	}
	c.FillText(sty, vg.Point{X: x(at) + 3, Y: y(n.g.at(at)) + 3}, n.g.Name)
}
