package figure

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// axes are the values of a heat map's two axes, ascending.
func (s Series) axes() (xs, ys []float64) {
	for _, p := range s.Points {
		if !slices.Contains(xs, p.X) {
			xs = append(xs, p.X)
		}
		if !slices.Contains(ys, p.X2) {
			ys = append(ys, p.X2)
		}
	}
	slices.Sort(xs)
	slices.Sort(ys)
	return xs, ys
}

const (
	cellH    = 27 // height of a row of a heat map
	mapFrame = 60 // of a map without its rows: name, numbers and name of the axis
	barH     = 42 // of a bar with a line of text
	barLine  = 15 // of another line
)

// barText is what stands beside a bar's name.
func barText(p Point) string {
	shapes := "1 shape"
	if p.Shapes != 1 {
		shapes = fmt.Sprintf("%d shapes, %s to %s", p.Shapes, plain(p.Lo), plain(p.Hi))
	}
	return fmt.Sprintf("%s × (%s)", plain(p.Y), shapes)
}

// barHeight leaves two lines for the text of all bars where that of one has no room in one.
func (f *Figure) barHeight() vg.Length {
	sty := style(letters, ink)
	for _, s := range f.Series {
		if sty.Width(s.Name+"   "+barText(s.Points[0])) > width-24 {
			return barH + barLine
		}
	}
	return barH
}

// drawMap draws a map for each series, one below the other, all on one scale of colours.
func (f *Figure) drawMap(c draw.Canvas) error {
	most, least := 0.0, math.Inf(1)
	for _, s := range f.Series {
		for _, p := range s.Points {
			most, least = max(most, p.Y), min(least, p.Y)
		}
	}
	label, axis, name := style(letters, muted), style(letters, ink), style(letters, ink)
	label.XAlign, label.YAlign, axis.XAlign = text.XCenter, text.YCenter, text.XCenter
	top := c.Max.Y
	for _, s := range f.Series {
		xs, ys := s.axes()
		left, right := c.Min.X+56, c.Max.X-12
		cellW := (right - left) / vg.Length(len(xs))
		c.FillText(name, vg.Point{X: left, Y: top - 13}, s.Name)
		bottom := top - 20 - cellH*vg.Length(len(ys))
		for _, p := range s.Points {
			x := left + cellW*vg.Length(slices.Index(xs, p.X))
			y := bottom + cellH*vg.Length(slices.Index(ys, p.X2))
			share := 1.0
			if most > least {
				share = (p.Y - least) / (most - least)
			}
			fill, on := heatColor(share)
			box := vg.Rectangle{Min: vg.Point{X: x + 1, Y: y + 1}, Max: vg.Point{X: x + cellW - 1, Y: y + cellH - 1}}
			c.SetColor(fill)
			c.Fill(box.Path())
			value := plain(f.Value(p.Y))
			if p.Doubtful() {
				value += " ○"
			}
			number := fitted(label, value, cellW-4)
			number.Color = on
			c.FillText(number, vg.Point{X: x + cellW/2, Y: y + cellH/2}, value)
		}
		for i, x := range xs {
			c.FillText(label, vg.Point{X: left + cellW*(vg.Length(i)+0.5), Y: bottom - 9}, Number(x))
		}
		side := label
		side.XAlign = text.XRight
		for i, y := range ys {
			c.FillText(side, vg.Point{X: left - 5, Y: bottom + cellH*(vg.Length(i)+0.5)}, Number(y))
		}
		c.FillText(axis, vg.Point{X: (left + right) / 2, Y: bottom - 31}, f.X)
		upright := axis
		upright.Rotation = math.Pi / 2
		c.FillText(upright, vg.Point{X: c.Min.X + 16, Y: (bottom + top - 20) / 2}, f.Y)
		top = bottom - (mapFrame - 20)
	}
	return nil
}

// drawBars draws a bar for each series, with its value and the span from the worst to the best shape; the line at 1 is the baseline.
func (f *Figure) drawBars(c draw.Canvas) error {
	most := 1.0
	for _, s := range f.Series {
		most = max(most, s.Points[0].Hi, s.Points[0].Y)
	}
	left, right := c.Min.X+10, c.Max.X-14
	scale := (right - left) / vg.Length(most)
	y := c.Max.Y - 13
	one, height := left+scale, f.barHeight()
	for _, s := range f.Series {
		p := s.Points[0]
		sty := style(letters, ink)
		c.FillText(fitted(sty, s.Name, right-left), vg.Point{X: left, Y: y}, s.Name)
		if height > barH {
			y -= barLine
		}
		sty.XAlign = text.XRight
		c.FillText(sty, vg.Point{X: right, Y: y}, barText(p))
		box := vg.Rectangle{Min: vg.Point{X: left, Y: y - 17}, Max: vg.Point{X: left + scale*vg.Length(p.Y), Y: y - 5}}
		tone := toneOf(s.Impl).color()
		if s.Peer { // open, as its mark
			c.SetColor(paper.color())
			c.Fill(box.Path())
			inner := vg.Rectangle{Min: box.Min.Add(vg.Point{X: 0.8, Y: 0.8}), Max: box.Max.Sub(vg.Point{X: 0.8, Y: 0.8})}
			c.SetLineStyle(draw.LineStyle{Color: tone, Width: vg.Points(1.6)})
			c.Stroke(inner.Path())
		} else {
			c.SetColor(tone)
			c.Fill(box.Path())
		}
		mid := y - 21
		lo, hi := left+scale*vg.Length(p.Lo), left+scale*vg.Length(p.Hi)
		whisker := draw.LineStyle{Color: ink.color(), Width: vg.Points(1)}
		c.StrokeLine2(whisker, lo, mid, hi, mid)
		c.StrokeLine2(whisker, lo, mid-2.5, lo, mid+2.5)
		c.StrokeLine2(whisker, hi, mid-2.5, hi, mid+2.5)
		for _, line := range []draw.LineStyle{{Color: paper.color(), Width: vg.Points(2.4)}, {Color: muted.color(), Width: vg.Points(1)}} {
			c.StrokeLine2(line, one, y-26, one, y-3)
		}
		y -= barH
	}
	axis := style(letters, ink)
	axis.XAlign = text.XCenter
	c.FillText(axis, vg.Point{X: (left + right) / 2, Y: c.Min.Y + 6}, f.X)
	return nil
}
