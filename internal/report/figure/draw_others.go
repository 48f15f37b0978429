package figure

import (
	"slices"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func sortFloats(v []float64) { slices.Sort(v) }

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

// drawMap draws a map for each series, one below the other, all on one scale of colours.
func (f *Figure) drawMap(c draw.Canvas) error {
	most, least := 0.0, 0.0
	for _, s := range f.Series {
		for _, p := range s.Points {
			most = max(most, p.Y)
			if least == 0 || p.Y < least {
				least = p.Y
			}
		}
	}
	label, small, name := style(9, muted), style(9, ink), style(9, ink)
	label.XAlign, label.YAlign = text.XCenter, text.YCenter
	small.XAlign, small.YAlign = text.XCenter, text.YCenter
	top := c.Max.Y
	for _, s := range f.Series {
		xs, ys := s.axes()
		left, right := c.Min.X+56, c.Max.X-12
		cellW, cellH := (right-left)/vg.Length(len(xs)), vg.Length(26)
		c.FillText(name, vg.Point{X: left, Y: top - 12}, s.Name)
		bottom := top - 18 - cellH*vg.Length(len(ys))
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
			small.Color = on
			c.FillText(small, vg.Point{X: x + cellW/2, Y: y + cellH/2}, digits(f.Value(p.Y)))
		}
		for i, x := range xs {
			c.FillText(label, vg.Point{X: left + cellW*(vg.Length(i)+0.5), Y: bottom - 8}, Number(x))
		}
		side := label
		side.XAlign = text.XRight
		for i, y := range ys {
			c.FillText(side, vg.Point{X: left - 5, Y: bottom + cellH*(vg.Length(i)+0.5)}, Number(y))
		}
		axis := style(9, ink)
		axis.XAlign = text.XCenter
		c.FillText(axis, vg.Point{X: (left + right) / 2, Y: bottom - 27}, f.X)
		axis.Rotation = 1.5707963
		c.FillText(axis, vg.Point{X: c.Min.X + 16, Y: (bottom + top - 18) / 2}, f.Y)
		top = bottom - 32
	}
	return nil
}

// drawBars draws a bar for each series, with its value and the span from the worst to the best shape.
func (f *Figure) drawBars(c draw.Canvas) error {
	most := 1.0
	for _, s := range f.Series {
		most = max(most, s.Points[0].Hi, s.Points[0].Y)
	}
	left, right := c.Min.X+10, c.Max.X-14
	scale := (right - left) / vg.Length(most)
	name, value := style(9, ink), style(9, ink)
	value.XAlign = text.XRight
	y := c.Max.Y - 12
	one := left + scale
	for _, s := range f.Series {
		p := s.Points[0]
		c.FillText(name, vg.Point{X: left, Y: y}, s.Name)
		c.FillText(value, vg.Point{X: right, Y: y}, digits(p.Y)+" ×  (from "+digits(p.Lo)+" to "+digits(p.Hi)+")")
		box := vg.Rectangle{Min: vg.Point{X: left, Y: y - 14}, Max: vg.Point{X: left + scale*vg.Length(p.Y), Y: y - 4}}
		c.SetColor(toneOf(s.Impl).color())
		c.Fill(box.Path())
		c.StrokeLine2(draw.LineStyle{Color: paper.color(), Width: vg.Points(1), Dashes: []vg.Length{1.5, 1.5}}, one, y-14, one, y-4)
		whisker := draw.LineStyle{Color: ink.color(), Width: vg.Points(1)}
		mid := y - 9
		lo, hi := left+scale*vg.Length(p.Lo), left+scale*vg.Length(p.Hi)
		c.StrokeLine2(whisker, lo, mid, hi, mid)
		c.StrokeLine2(whisker, lo, mid-2.5, lo, mid+2.5)
		c.StrokeLine2(whisker, hi, mid-2.5, hi, mid+2.5)
		y -= 30
	}
	axis := style(9, ink)
	axis.XAlign = text.XCenter
	c.FillText(axis, vg.Point{X: (left + right) / 2, Y: c.Min.Y + 6}, f.X)
	return nil
}

// digits keeps three significant digits.
func digits(v float64) string { return plain(v) }
