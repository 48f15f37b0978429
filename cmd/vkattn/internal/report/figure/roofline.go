package figure

import (
	"bytes"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Roofline is what a device allows at each arithmetic intensity, with what was reached. Rates are in TFLOP/s, intensities in
// operations a byte.
type Roofline struct {
	Device    string
	CopyGBps  float64
	Ceilings  []Ceiling // of arithmetic
	Points    []RooflinePoint
	Intensity string // what X is: "operations a byte"
	axisX     span
	axisY     span
}

// Ceiling is a peak of arithmetic.
type Ceiling struct {
	Name   string
	TFLOPS float64
}

// RooflinePoint is an implementation and pass of a problem.
type RooflinePoint struct {
	Name, Impl string
	Peer       bool    // as Series.Peer
	Variant    Variant // as Series.Variant
	X, Y       float64
	Asked      float64 // operations for each byte that workgroups ask for, caches or not; 0: not known. A line leads there.
}

// ranges leaves room around points, ridge and ceilings.
func (r *Roofline) ranges() error {
	top := 0.0
	for _, c := range r.Ceilings {
		top = max(top, c.TFLOPS)
	}
	if top <= 0 || r.CopyGBps <= 0 {
		return fmt.Errorf("a roofline needs the measured peaks of arithmetic and copy, which are %g TFLOP/s and %g GB/s", top, r.CopyGBps)
	}
	ridge := top * 1000 / r.CopyGBps
	loX, hiX, loY := ridge/20, ridge*20, top/50
	for _, p := range r.Points {
		loX, hiX, loY, top = min(loX, p.X/2), max(hiX, p.X*2), min(loY, p.Y/2), max(top, p.Y)
		if p.Asked > 0 {
			loX, hiX = min(loX, p.Asked/2), max(hiX, p.Asked*2)
		}
	}
	r.axisX = span{min: loX, max: hiX, ticks: logTicks(loX, hiX)}
	r.axisY = span{min: loY, max: top * 2, ticks: logTicks(loY, top*2)}
	return nil
}

// legendOf lists each implementation and pass once.
func (r *Roofline) legendOf() *Figure {
	f := &Figure{Title: "Roofline of " + r.Device}
	seen := map[string]bool{}
	for _, p := range r.Points {
		if !seen[p.Name] {
			seen[p.Name] = true
			f.Series = append(f.Series, p.series())
		}
	}
	return f
}

// series is what the point is one of. Its mark is that of the first file: a roofline has one.
func (p RooflinePoint) series() Series {
	return Series{Name: p.Name, Impl: p.Impl, Peer: p.Peer, Variant: p.Variant}
}

// samples are the points of a roofline with a short line, which tells the pass as in other figures.
type samples []RooflinePoint

// Plot implements plot.Plotter.
func (ps samples) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, pt := range ps {
		at := vg.Point{X: x(pt.X), Y: y(pt.Y)}
		// A rim keeps points apart that lie over each other.
		c.DrawGlyph(draw.GlyphStyle{Color: paper.color(), Radius: vg.Points(4.2), Shape: draw.CircleGlyph{}}, at)
		pt.series().sample(&c, at, false)
	}
}

// SVG draws it as a file that stands for itself.
func (r *Roofline) SVG() ([]byte, error) {
	w, h := r.legendOf().size(true)
	c := vgsvg.New(w, h)
	if err := r.draw(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return []byte(withFallbacks(b.String())), err
}

// PNG is SVG as pixels.
func (r *Roofline) PNG() ([]byte, error) {
	w, h := r.legendOf().size(true)
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(pngDPI))
	if err := r.draw(draw.New(c)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

func (r *Roofline) draw(c draw.Canvas) error {
	if err := r.ranges(); err != nil {
		return err
	}
	f := r.legendOf()
	c.SetColor(paper.color())
	c.Fill(c.Rectangle.Path())
	c = f.drawTitle(c)
	lines := f.legendLines()
	f.drawLegend(c, lines)
	c = draw.Crop(c, 5, -8, 3, -vg.Length(legend*len(lines))-8)

	c = named(c, r.Intensity, "TFLOP/s")
	p := newPlot()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = r.axisX.min, r.axisX.max, r.axisY.min, r.axisY.max
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(r.axisX.ticks), plot.ConstantTicks(r.axisY.ticks)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = rule.color(), vg.Points(0.6)
	p.Add(grid)
	var labels captions
	top := 0.0
	for _, ceiling := range r.Ceilings {
		top = max(top, ceiling.TFLOPS)
	}
	for _, ceiling := range r.Ceilings {
		if ceiling.TFLOPS <= 0 {
			continue
		}
		from := max(ceiling.TFLOPS*1000/r.CopyGBps, p.X.Min)
		line, err := plotter.NewLine(plotter.XYs{{X: from, Y: ceiling.TFLOPS}, {X: p.X.Max, Y: ceiling.TFLOPS}})
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: ink.color(), Width: vg.Points(1.2)}
		p.Add(line)
		const near = 1.5 // times as much is far enough above for the lower one's caption
		labels = append(labels, caption{x: p.X.Max, y: ceiling.TFLOPS, text: fmt.Sprintf("%s %s TFLOP/s", ceiling.Name,
			plain(ceiling.TFLOPS)),
			left: true, below: ceiling.TFLOPS < top && ceiling.TFLOPS*near > top})
	}
	ridge := top * 1000 / r.CopyGBps
	labels = append(labels, caption{x: ridge, y: top, text: "ridge " + plain(ridge), left: true})
	// The roof of memory: rate = intensity × bandwidth.
	left := max(p.X.Min, p.Y.Min*1000/r.CopyGBps)
	roof, err := plotter.NewLine(plotter.XYs{{X: left, Y: left * r.CopyGBps / 1000}, {X: ridge, Y: top}})
	if err != nil {
		return err
	}
	roof.LineStyle = draw.LineStyle{Color: ink.color(), Width: vg.Points(1.2)}
	p.Add(roof)
	points := slices.Clone(r.Points)
	slices.SortStableFunc(points, func(a, b RooflinePoint) int { // ours on top
		switch {
		case a.Peer && !b.Peer:
			return -1
		case b.Peer && !a.Peer:
			return 1
		}
		return 0
	})
	for _, pt := range points {
		if pt.Asked > 0 {
			way, err := plotter.NewLine(plotter.XYs{{X: pt.Asked, Y: pt.Y}, {X: pt.X, Y: pt.Y}})
			if err != nil {
				return fmt.Errorf("roofline, %s: %w", pt.Name, err)
			}
			way.LineStyle = draw.LineStyle{Color: toneOf(pt.Impl).color(), Width: vg.Points(0.8)}
			p.Add(way)
			end, err := plotter.NewScatter(plotter.XYs{{X: pt.Asked, Y: pt.Y}})
			if err != nil {
				return fmt.Errorf("roofline, %s: %w", pt.Name, err)
			}
			end.GlyphStyle = draw.GlyphStyle{Color: toneOf(pt.Impl).color(), Radius: vg.Points(2.5), Shape: draw.PlusGlyph{}}
			p.Add(end)
		}
	}
	p.Add(samples(points))
	p.Add(append(labels, caption{x: left, y: left * r.CopyGBps / 1000, text: fmt.Sprintf("copy %s GB/s", plain(r.CopyGBps))}))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = r.axisX.min, r.axisX.max, r.axisY.min, r.axisY.max
	p.Draw(c)
	return nil
}

// captions are texts at points of a plot; unlike plotter.Labels they take no room from it.
type captions []caption

type caption struct {
	x, y  float64
	text  string
	left  bool // of the point, just above; else to its right
	below bool // just below, not above
}

// Plot implements plot.Plotter.
func (cs captions) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, s := range cs {
		sty := style(letters-1, muted)
		at := vg.Point{X: x(s.x), Y: y(s.y) + 3}
		if s.left {
			sty.XAlign = text.XRight
		} else {
			at.X, at.Y = at.X+16, at.Y+1
		}
		if s.below {
			at.Y -= 15
		}
		c.FillText(sty, at, s.text)
	}
}
