package figure

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a figure in points. It is small on purpose: on a telephone's width its letters are still read.
const (
	width  = 360
	plotH  = 236
	legend = 17 // height of a line of the legend
	title  = 22
	fixedH = 16 // of the line below it, which says what all points share
	pngDPI = 220

	letters   = 11 // points of all text but titles
	titleSize = 12
	fixedSize = 10
	least     = 6.5 // of what is too long
)

// SVG draws the figure as a file that stands for itself: white, with its title.
func (f *Figure) SVG() ([]byte, error) {
	w, h := f.size(true)
	c := vgsvg.New(w, h)
	if err := f.draw(draw.New(c), true); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return []byte(withFallbacks(b.String())), err
}

// withFallbacks names fonts of the same widths for machines without Liberation Sans.
func withFallbacks(svg string) string {
	return strings.ReplaceAll(svg, "font-family:Liberation Sans;", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
}

// PNG is SVG as pixels.
func (f *Figure) PNG() ([]byte, error) {
	w, h := f.size(true)
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(pngDPI))
	if err := f.draw(draw.New(c), true); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// Inline is an <svg> element for a page that defines Variables: without title, as wide as its place, in the page's colours.
func (f *Figure) Inline() (string, error) {
	w, h := f.size(false)
	c := vgsvg.New(w, h)
	if err := f.draw(draw.New(c), false); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	svg := withFallbacks(b.String())
	svg = svg[strings.Index(svg, "<svg"):]
	svg = sizeAttributes.ReplaceAllString(svg, `<svg role="img" aria-label="`+f.Title+`" viewBox="0 0 `+fmt.Sprintf("%g %g", w.Points(),
		h.Points())+`" `)
	for _, t := range tones() {
		svg = strings.ReplaceAll(svg, t.light, "var(--"+t.name+")")
	}
	return svg, nil
}

// sizeAttributes is the beginning of vgsvg's element: width, height and its own viewBox.
var sizeAttributes = regexp.MustCompile(`(?s)^<svg\s+width="[^"]*"\s+height="[^"]*"\s+viewBox="[^"]*"\s*`)

// size is the canvas: the plot, its legend's lines, and the title.
func (f *Figure) size(withTitle bool) (w, h vg.Length) {
	w, h = width, plotH
	switch f.Kind {
	case Bars:
		h = 34 + f.barHeight()*vg.Length(len(f.Series))
	case Map:
		h = 0
		for _, s := range f.Series {
			_, ys := s.axes()
			h += vg.Length(mapFrame + cellH*len(ys))
		}
	case Stacked, Timeline:
		h = f.partsHeight()
	default:
		h += vg.Length(legend*len(f.legendLines())) + 8
	}
	if withTitle {
		h += title
		if f.fixed() != "" {
			h += fixedH
		}
	}
	return w, h
}

func style(size float64, t tone) text.Style {
	return text.Style{Color: t.color(), Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)),
		Handler: plot.DefaultTextHandler}
}

func (f *Figure) draw(c draw.Canvas, withTitle bool) error {
	c.SetColor(paper.color())
	c.Fill(c.Rectangle.Path())
	if withTitle {
		c = f.drawTitle(c)
	}
	switch f.Kind {
	case Map:
		return f.drawMap(c)
	case Bars:
		return f.drawBars(c)
	case Stacked, Timeline:
		return f.drawParts(c)
	}
	lines := f.legendLines()
	f.drawLegend(c, lines)
	return f.drawLines(draw.Crop(c, 5, -8, 3, -vg.Length(legend*len(lines))-8))
}

// fixed is what all points share, with the baseline where the axis does not name it.
func (f *Figure) fixed() string {
	if f.Baseline == "" || strings.HasSuffix(f.X+f.Y, f.Baseline) {
		return f.Fixed
	}
	return f.Fixed + "; baseline: " + f.Baseline
}

// drawTitle writes the title, and below it what all points share, and gives the canvas below them.
func (f *Figure) drawTitle(c draw.Canvas) draw.Canvas {
	line := func(sty text.Style, s string, below vg.Length) {
		c.FillText(fitted(sty, s, c.Size().X-14), vg.Point{X: c.Min.X + 8, Y: c.Max.Y - below}, s)
	}
	line(style(titleSize, ink), f.Title, 16)
	fixed := f.fixed()
	if fixed == "" {
		return draw.Crop(c, 0, 0, 0, -title)
	}
	line(style(fixedSize, muted), fixed, 16+fixedH)
	return draw.Crop(c, 0, 0, 0, -title-fixedH)
}

// fitted makes a style small enough for a text to have room, but no smaller than least.
func fitted(sty text.Style, s string, room vg.Length) text.Style {
	for sty.Width(s) > room && sty.Font.Size > least {
		sty.Font.Size -= 0.25
	}
	return sty
}

const swatch = 24 // width of a legend's sample

// legendLines breaks the legend into lines that fit.
func (f *Figure) legendLines() [][]Series {
	sty := style(letters, ink)
	var lines [][]Series
	room := vg.Length(0)
	for _, s := range f.Series {
		need := swatch + 14 + sty.Width(s.Name)
		if len(lines) == 0 || need > room {
			lines = append(lines, nil)
			room = width - 8
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], s)
		room -= need
	}
	return lines
}

func (f *Figure) drawLegend(c draw.Canvas, lines [][]Series) {
	y := c.Max.Y - legend
	for _, line := range lines {
		x := c.Min.X + 10
		for _, s := range line {
			s.sample(&c, vg.Point{X: x + (swatch-6)/2, Y: y + 4}, len(s.Points) == 1)
			sty := fitted(style(letters, ink), s.Name, c.Max.X-x-swatch)
			c.FillText(sty, vg.Point{X: x + swatch, Y: y}, s.Name)
			x += swatch + 14 + sty.Width(s.Name)
		}
		y -= legend
	}
}

// newPlot is an empty plot in the figures' style, its axes without names: see named.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color = rule.color()
		a.LineStyle.Width = vg.Points(0.8)
		a.Tick.Label.Color, a.Tick.Label.Font = muted.color(), style(letters, muted).Font
		a.Tick.LineStyle.Color, a.Tick.Length = muted.color(), 4
		a.Padding = 5
	}
	return p
}

// named writes the names of the axes at the edges of a canvas and gives what is left of it. A plot's own labels take room at
// its ends when they are long.
func named(c draw.Canvas, x, y string) draw.Canvas {
	sty := style(letters, ink)
	sty.XAlign = text.XCenter
	c.FillText(sty, vg.Point{X: (c.Min.X+c.Max.X)/2 + 20, Y: c.Min.Y + 4}, x)
	upright := fitted(sty, y, c.Size().Y-10)
	upright.Rotation = math.Pi / 2
	c.FillText(upright, vg.Point{X: c.Min.X + 10, Y: (c.Min.Y+c.Max.Y)/2 + 8}, y)
	return draw.Crop(c, 16, 0, 18, 0)
}

func (f *Figure) drawLines(c draw.Canvas) error {
	c = named(c, f.X, f.Y)
	p := newPlot()
	x, y := f.ranges()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = x.min, x.max, y.min, y.max
	if f.LogX {
		p.X.Scale = plot.LogScale{}
	}
	if f.LogY {
		p.Y.Scale = plot.LogScale{}
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(x.ticks), plot.ConstantTicks(y.ticks)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = rule.color(), vg.Points(0.6)
	p.Add(grid)
	if f.One && y.min < 1 && y.max > 1 {
		one, err := plotter.NewLine(plotter.XYs{{X: x.min, Y: 1}, {X: x.max, Y: 1}})
		if err != nil {
			return err
		}
		one.LineStyle = draw.LineStyle{Color: muted.color(), Width: vg.Points(0.9), Dashes: []vg.Length{1.5, 2}}
		p.Add(one)
	}
	if err := f.addGuides(p, x); err != nil {
		return err
	}
	for _, s := range f.layers() {
		xys := make(plotter.XYs, 0, len(s.Points))
		for _, pt := range s.Points {
			v := f.Value(pt.Y)
			if f.LogY {
				v = max(v, y.min) // nothing beyond inputs and outputs lies at the bottom
			}
			xys = append(xys, plotter.XY{X: pt.X, Y: v})
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return fmt.Errorf("figure %s, series %s: %w", f.ID, s.Name, err)
		}
		line.LineStyle = s.line()
		dots, err := plotter.NewScatter(xys)
		if err != nil {
			return fmt.Errorf("figure %s, series %s: %w", f.ID, s.Name, err)
		}
		dots.GlyphStyle = s.glyph()
		p.Add(line, spreadBars{f, s}, dots)
	}
	p.Add(rings{f})
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = x.min, x.max, y.min, y.max // Add has widened them
	p.Draw(c)
	return nil
}

// layers are the series from the bottom to the top: ours over a peer's, whose open marks are larger, so that both are seen where they
// meet.
func (f *Figure) layers() []Series {
	out := slices.Clone(f.Series)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b Series) int {
		switch {
		case a.Peer == b.Peer:
			return 0
		case a.Peer:
			return -1
		}
		return 1
	})
	return out
}

// rings are around the points whose rounds disagree.
type rings struct{ f *Figure }

// Plot implements plot.Plotter.
func (r rings) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, s := range r.f.Series {
		for i := range s.Points {
			if pt := &s.Points[i]; pt.Doubtful() {
				ring(&c, vg.Point{X: x(pt.X), Y: y(max(r.f.Value(pt.Y), p.Y.Min))})
			}
		}
	}
}

// spreadBars draws the Span of every point.
type spreadBars struct {
	f *Figure
	s Series
}

// Plot implements plot.Plotter.
func (b spreadBars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: b.s.tone().color(), Width: vg.Points(1)}
	for _, pt := range b.s.Points {
		lo, hi := b.f.Value(pt.Lo), b.f.Value(pt.Hi)
		if lo <= 0 || hi < lo {
			continue
		}
		at, from, to := x(pt.X), y(max(lo, p.Y.Min)), y(min(hi, p.Y.Max))
		if to-from < 1.5 { // hidden by the marker anyway
			continue
		}
		c.StrokeLine2(sty, at, from, at, to)
		for _, end := range []vg.Length{from, to} {
			c.StrokeLine2(sty, at-2.5, end, at+2.5, end)
		}
	}
}

// span is an axis: its ends and ticks.
type span struct {
	min, max float64
	ticks    []plot.Tick
}

// ranges lays the axes out: every x that was measured is a tick, as far as labels have room; y begins at zero unless it is
// logarithmic.
func (f *Figure) ranges() (x, y span) {
	xs := map[float64]bool{}
	lo, hi := math.Inf(1), 0.0
	x.min, x.max = math.Inf(1), 0
	for _, s := range f.Series {
		for _, p := range s.Points {
			xs[p.X] = true
			x.min, x.max = min(x.min, p.X), max(x.max, p.X)
			for _, v := range []float64{p.Y, p.Lo, p.Hi} {
				if v = f.Value(v); v > 0 {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
	}
	for _, g := range f.Guides {
		for _, v := range []float64{g.at(x.min), g.at(x.max)} {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if math.IsInf(lo, 1) { // all is zero
		lo, hi = 0.5, 1
	}
	x.ticks = sizeTicks(xs, x.min, x.max)
	if x.max == x.min {
		x.min, x.max = x.min/2, x.max*2
	}
	if f.LogY {
		y.min, y.max = lo/1.3, hi*1.3
		y.ticks = logTicks(y.min, y.max)
		return x, y
	}
	y.max = hi * 1.06
	if len(f.Guides) > 0 { // room for the name of the highest
		y.max = hi * 1.12
	}
	if f.One {
		y.max = max(y.max, 1.1)
	}
	y.ticks = evenTicks(y.max)
	return x, y
}

// sizeTicks labels the measured sizes, those left out that would touch the one before.
func sizeTicks(xs map[float64]bool, lo, hi float64) []plot.Tick {
	var out []plot.Tick
	room, last := float64(width-80), math.Inf(-1)
	for _, x := range slices.Sorted(maps.Keys(xs)) {
		label := Number(x)
		at := 0.0
		if hi > lo {
			at = room * math.Log(x/lo) / math.Log(hi/lo)
		}
		need := 6.5*float64(len(label)) + 6
		if at-last < need {
			label = ""
		} else {
			last = at
		}
		out = append(out, plot.Tick{Value: x, Label: label})
	}
	return out
}

// logTicks are labelled at 1, 2, 5 times the powers of ten, over more than three decades at the powers alone; all others of 1 to 9
// times these are ticks without a label.
func logTicks(lo, hi float64) []plot.Tick {
	var out []plot.Tick
	labelled := map[int]bool{1: true, 2: true, 5: true}
	if hi/lo > 1000 {
		labelled = map[int]bool{1: true}
	}
	labels := 0
	for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
		for m := 1; m <= 9; m++ {
			v := float64(m) * math.Pow(10, e)
			if v < lo || v > hi {
				continue
			}
			tick := plot.Tick{Value: v}
			if labelled[m] {
				tick.Label = plain(v)
				labels++
			}
			out = append(out, tick)
		}
	}
	if labels == 0 || labels == 1 && hi/lo > 1.7 { // a narrow range: its ends
		out = []plot.Tick{{Value: lo * 1.3, Label: plain(lo * 1.3)}, {Value: hi / 1.3, Label: plain(hi / 1.3)}}
	}
	return out
}

// evenTicks are about five round steps from zero.
func evenTicks(hi float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(hi/4)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if hi/(m*step) <= 6 {
			step *= m
			break
		}
	}
	var out []plot.Tick
	for i := 0; float64(i)*step <= hi; i++ {
		out = append(out, plot.Tick{Value: float64(i) * step, Label: plain(float64(i) * step)})
	}
	return out
}
