package figure

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/bench"
)

// IDs names the twelve figures in their order.
var IDs = []string{"time-seq", "tflops-seq", "memory-seq", "speedup-seq", "batch", "causal", "heads", "embedding", "head-dim",
	"forward-backward", "map", "summary"}

// Build derives the twelve figures. Those that the rows cannot make have no series, and Empty says what is missing.
func Build(sources []Source) []*Figure {
	s := newSet(sources)
	seq := overSeq(setting(16, 32, 0, 64, true), "seq").orTokens()
	out := []*Figure{
		s.line("time-seq", "Time against sequence length", seq, forwardTime),
		s.line("tflops-seq", "Throughput against sequence length", seq, forwardRate),
		s.line("memory-seq", "Memory against sequence length", seq, forwardMemory),
		s.line("speedup-seq", "Speed-up over standard attention", seq, speedUp),
		s.line("batch", "Time against batch", overBatch(), forwardTime),
		s.causal(),
		s.line("heads", "Throughput against heads", overHeads(), forwardRate),
		s.line("embedding", "Throughput against embedding", overEmbedding(), forwardRate),
		s.line("head-dim", "Throughput against head dimension", overHeadDim(), forwardRate),
		s.backward(),
		s.heat(),
		s.summary(),
	}
	for _, f := range out {
		f.Reports = facts[f.ID]
	}
	return out
}

// metric is a quantity of a row.
type metric struct {
	axis  string
	log   bool
	one   bool
	rate  bool
	value func(s *set, it item) (Point, bool)
}

var forwardTime = metric{axis: "forward, ms", log: true, value: func(_ *set, it item) (Point, bool) {
	p := it.row.Fwd
	return Point{Y: p.Ms, Lo: p.P20, Hi: p.P80, Pass: "fwd"}, p.Ms > 0
}}

var backwardTime = metric{axis: "ms", log: true, value: func(_ *set, it item) (Point, bool) {
	p := it.row.Bwd
	return Point{Y: p.Ms, Lo: p.P20, Hi: p.P80, Pass: "bwd"}, p.Ms > 0
}}

// The operations are the same in every run, so a rate's percentiles follow from the times'.
var forwardRate = metric{axis: "forward, TFLOP/s", rate: true, value: func(_ *set, it item) (Point, bool) {
	p := it.row.Fwd
	out := Point{Y: p.TFLOPS, Pass: "fwd"}
	if p.P20 > 0 && p.P80 > 0 {
		out.Lo, out.Hi = p.TFLOPS*p.Ms/p.P80, p.TFLOPS*p.Ms/p.P20
	}
	return out, p.TFLOPS > 0
}}

var forwardMemory = metric{axis: "beyond inputs and outputs, MiB", log: true, value: func(_ *set, it item) (Point, bool) {
	p := it.row.Fwd
	if p.PeakMiB == nil || p.Ms <= 0 {
		return Point{}, false
	}
	return Point{Y: *p.PeakMiB, Pass: "fwd"}, true
}}

var speedUp = metric{axis: "× the speed of standard attention", one: true, value: func(s *set, it item) (Point, bool) {
	base, p := s.baseOf(it), it.row.Fwd
	if base == nil || it.row.Impl == "standard" || it.row.Tuning != "" || p.Ms <= 0 {
		return Point{}, false
	}
	out := Point{Y: base.Fwd.Ms / p.Ms, Base: base, Pass: "fwd"}
	if p.P20 > 0 && p.P80 > 0 && base.Fwd.P20 > 0 && base.Fwd.P80 > 0 {
		out.Lo, out.Hi = base.Fwd.P20/p.P80, base.Fwd.P80/p.P20
	}
	return out, true
}}

// line makes a figure of one sweep.
func (s *set) line(id, title string, sw sweep, m metric) *Figure {
	f := &Figure{ID: id, Title: title, X: sw.name, Y: m.axis, LogX: true, LogY: m.log, One: m.one, Scale: 1}
	has := func(it item) bool { _, ok := m.value(s, it); return ok }
	tied, ok := s.choose(&sw, has)
	if !ok {
		return f.empty(sw.suite)
	}
	f.Fixed = fixed(tied, sw.name, true)
	s.collect(f, s.of(sw, tied), func(it item) (Point, bool) {
		p, ok := m.value(s, it)
		p.X, p.Row = sw.x(it.row.Case), it.row
		return p, ok
	}, nil)
	s.missing(f, sw, tied)
	if m.rate {
		f.unit()
	}
	return f
}

func (f *Figure) empty(suite string) *Figure {
	f.Empty = fmt.Sprintf("The files have no two rows for this figure. vkattn bench --suite %s measures them.", suite)
	return f
}

// of keeps the rows of a sweep.
func (s *set) of(sw sweep, tied bench.Case) func(item) bool {
	return func(it item) bool {
		t, ok := sw.tie(it.row.Case)
		return ok && t == tied
	}
}

// unit shows GFLOP/s where no point reaches a tenth of a TFLOP/s.
func (f *Figure) unit() {
	most := 0.0
	for _, s := range f.Series {
		for _, p := range s.Points {
			most = max(most, p.Y)
		}
	}
	if most > 0 && most < 0.1 {
		f.Scale, f.Y = 1000, "forward, GFLOP/s"
	}
}

// causal compares times with and without the mask.
func (s *set) causal() *Figure {
	sw := overSeq(setting(16, 8, 0, 64, false), "causal").bothMasks().orTokens()
	f := &Figure{ID: "causal", Title: "Causal or not", X: sw.name, Y: forwardTime.axis, LogX: true, LogY: true, Scale: 1}
	both := map[bench.Case]int{} // shapes measured with and without
	for _, it := range s.items {
		if it.row.Fwd.Ms > 0 {
			c := it.row.Case
			bit := 1
			if c.Causal {
				bit, c.Causal = 2, false
			}
			both[c] |= bit
		}
	}
	pair := func(it item) bool {
		c := it.row.Case
		c.Causal = false
		return both[c] == 3
	}
	tied, ok := s.choose(&sw, pair)
	if !ok {
		return f.empty(sw.suite)
	}
	f.Fixed = fixed(tied, sw.name, false)
	member := s.of(sw, tied)
	s.collect(f, func(it item) bool { return member(it) && pair(it) && !s.second(it) }, func(it item) (Point, bool) {
		p, ok := forwardTime.value(s, it)
		p.X, p.Row = sw.x(it.row.Case), it.row
		return p, ok
	}, func(it item) (string, bool) {
		if it.row.Causal {
			return ", causal", true
		}
		return "", false
	})
	s.missing(f, sw, tied)
	return f
}

// second says that a row is a peer's baseline where there is our own: figures with two curves for each implementation have no
// room for both.
func (s *set) second(it item) bool {
	return it.peer && it.row.Impl == "standard" && slices.ContainsFunc(s.items, func(o item) bool {
		return !o.peer && o.row.Case == it.row.Case && (o.row.Bwd.Ms > 0 || it.row.Bwd.Ms == 0)
	})
}

// backward sets the times of the two passes side by side, where there are backward rows.
func (s *set) backward() *Figure {
	sw := overSeq(setting(16, 32, 0, 64, true), "forward-backward").orTokens()
	f := &Figure{ID: "forward-backward", Title: "Forward and backward", X: sw.name, Y: backwardTime.axis, LogX: true, LogY: true, Scale: 1}
	tied, ok := s.choose(&sw, func(it item) bool { return it.row.Bwd.Ms > 0 })
	if !ok {
		return f.empty(sw.suite)
	}
	f.Fixed = fixed(tied, sw.name, true)
	member := s.of(sw, tied)
	for _, m := range []metric{forwardTime, backwardTime} {
		suffix := map[bool]string{true: ", backward", false: ", forward"}[m.axis == backwardTime.axis]
		part := &Figure{}
		s.collect(part, func(it item) bool { return member(it) && it.row.Bwd.Ms > 0 && !s.second(it) }, func(it item) (Point, bool) {
			p, ok := m.value(s, it)
			p.X, p.Row = sw.x(it.row.Case), it.row
			return p, ok
		}, func(item) (string, bool) { return suffix, suffix == ", backward" })
		f.Series = append(f.Series, part.Series...)
	}
	slices.SortStableFunc(f.Series, func(a, b Series) int { return rank(a.Impl) - rank(b.Impl) })
	return f
}

// heat maps the throughput of the fastest of our algorithms over batch and sequence length.
func (s *set) heat() *Figure {
	f := &Figure{ID: "map", Title: "Throughput over batch and sequence length", X: "sequence length", Y: "batch", Kind: Map, Scale: 1}
	tie := func(c bench.Case) (bench.Case, bool) {
		ok := square(c)
		c.Impl, c.B, c.N, c.Nq = "", 0, 0, 0
		return c, ok
	}
	sw := sweep{name: "batch and sequence length", suite: "map", want: setting(0, 32, 0, 64, true), tie: tie,
		x: func(c bench.Case) float64 { return float64(c.N)*1e6 + float64(c.B) }} // a cell of the map
	impl := "flash2"
	member := func(it item) bool { return !it.peer && it.row.Impl == impl && it.row.Fwd.TFLOPS > 0 }
	if !slices.ContainsFunc(s.items, member) { // no rows of ours: the peer's
		for _, it := range s.items {
			if it.row.Fwd.TFLOPS > 0 {
				first := it.series
				member = func(it item) bool { return it.series == first && it.row.Fwd.TFLOPS > 0 }
				break
			}
		}
	}
	tied, ok := s.choose(&sw, member)
	if !ok {
		return f.empty(sw.suite)
	}
	f.Fixed = fixed(tied, sw.name, true)
	in := s.of(sw, tied)
	s.collect(f, func(it item) bool { return in(it) && member(it) }, func(it item) (Point, bool) {
		p, ok := forwardRate.value(s, it)
		p.X, p.X2, p.Row = float64(it.row.N), float64(it.row.B), it.row
		return p, ok
	}, nil)
	for i := range f.Series {
		f.Series[i].trim()
	}
	f.Series = slices.DeleteFunc(f.Series, func(s Series) bool { return len(s.Points) < 4 })
	if len(f.Series) == 0 {
		return f.empty(sw.suite)
	}
	y := f.Y
	f.unit()
	if f.Scale != 1 {
		f.Title += ", GFLOP/s"
	} else {
		f.Title += ", TFLOP/s"
	}
	f.Y = y
	return f
}

// trim drops the rows and columns of a map that hold one cell alone, as other sweeps leave them.
func (s *Series) trim() {
	for {
		rows, cols := map[float64]int{}, map[float64]int{}
		for _, p := range s.Points {
			rows[p.X2]++
			cols[p.X]++
		}
		n := len(s.Points)
		s.Points = slices.DeleteFunc(s.Points, func(p Point) bool { return rows[p.X2] < 2 || cols[p.X] < 2 })
		if len(s.Points) == n {
			return
		}
	}
}

// summary is the geometric mean of every implementation's speed against standard attention, over all shapes.
func (s *set) summary() *Figure {
	f := &Figure{ID: "summary", Title: "Speed against standard attention, all shapes", X: speedUp.axis + ", geometric mean", Kind: Bars, One: true, Scale: 1}
	ratios := &Figure{}
	s.collect(ratios, func(item) bool { return true }, func(it item) (Point, bool) {
		p, ok := speedUp.value(s, it)
		p.Row = it.row
		return p, ok
	}, nil)
	for _, r := range ratios.Series {
		var v []float64
		for _, p := range r.Points {
			v = append(v, p.Y)
		}
		r.Points = []Point{{Y: bench.GeoMean(v), Lo: slices.Min(v), Hi: slices.Max(v), Shapes: len(v), Pass: "fwd"}}
		f.Series = append(f.Series, r)
	}
	if len(f.Series) == 0 {
		f.Empty = "The files have no shape that standard attention was measured on beside another implementation. vkattn bench --suite reports measures them."
	}
	return f
}

// Get returns the figure of that name.
func Get(figures []*Figure, id string) *Figure {
	for _, f := range figures {
		if f.ID == id {
			return f
		}
	}
	return nil
}
