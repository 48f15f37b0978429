package figure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// IDs names the twelve figures in their order.
var IDs = []string{"time-seq", "tflops-seq", "memory-seq", "speedup-seq", "batch", "causal", "heads", "embedding", "head-dim",
	"forward-backward", "map", "summary"}

const peerView = "-peer" // ends the ID of Figure.Peer

// Files names the drawings that figures can make, without their endings: one of each, and those against a peer's baseline.
func Files() (out []string) {
	for _, id := range IDs {
		out = append(out, id)
		if id == "speedup-seq" || id == "summary" {
			out = append(out, id+peerView)
		}
	}
	return append(out, RingIDs...)
}

// Build derives the twelve figures. Those that the rows cannot make have no series, and Empty says what is missing.
func Build(sources []Source) []*Figure {
	s := newSet(sources)
	seq := overSeq(setting(16, 32, 0, 64, true), "seq").orTokens()
	out := []*Figure{
		s.line("time-seq", "Time against sequence length", seq, forwardTime),
		s.line("tflops-seq", "Throughput against sequence length", seq, forwardRate),
		s.line("memory-seq", "Memory against sequence length", seq, forwardMemory),
		s.againstBoth("speedup-seq", func(id string, m metric) *Figure { return s.line(id, "Speed-up over standard attention", seq, m) }),
		s.line("batch", "Time against batch", overBatch(), forwardTime),
		s.causal(),
		s.line("heads", "Throughput against heads", overHeads(), forwardRate),
		s.line("embedding", "Throughput against embedding", overEmbedding(), forwardRate),
		s.line("head-dim", "Throughput against head dimension", overHeadDim(), forwardRate),
		s.backward(),
		s.heat(),
		s.againstBoth("summary", s.summary),
	}
	for _, f := range out {
		f.Others = facts[f.ID]
	}
	return out
}

// metric is a quantity of a row.
type metric struct {
	axis     string
	log      bool
	one      bool
	rate     bool
	value    func(s *set, it item) (Point, bool)
	baseline string // as Figure.Baseline
}

var forwardTime = metric{axis: "forward, ms", log: true, value: func(_ *set, it item) (Point, bool) {
	return timePoint(it.row.Fwd, "fwd")
}}

var backwardTime = metric{axis: "ms", log: true, value: func(_ *set, it item) (Point, bool) {
	return timePoint(it.row.Bwd, "bwd")
}}

func forwardMeasured(it item) bool { return it.row.Fwd.Ms > 0 }

func timePoint(p result.Pass, name string) (Point, bool) {
	lo, hi := Span(p)
	return Point{Y: p.Ms, Lo: lo, Hi: hi, Pass: name}, p.Ms > 0
}

// The operations are the same in every run, so a rate's percentiles follow from the times'.
var forwardRate = metric{axis: "forward, TFLOP/s", rate: true, value: func(_ *set, it item) (Point, bool) {
	p := it.row.Fwd
	out := Point{Y: p.TFLOPS, Pass: "fwd"}
	if lo, hi := Span(p); lo > 0 {
		out.Lo, out.Hi = p.TFLOPS*p.Ms/hi, p.TFLOPS*p.Ms/lo
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

const longestAxis = 45 // characters that have room beside a plot

// speedUp is how many times as fast as a baseline, the same one for all series.
func speedUp(baseline string) metric {
	name := baselineName(baseline)
	axis := "× the speed of " + name
	if len(axis) > longestAxis {
		axis = "× the speed of the baseline"
	}
	return metric{axis: axis, one: true, value: func(s *set, it item) (Point, bool) {
		base, p := s.base[baseKey{baseline, it.row.Shape()}], it.row.Fwd
		if base == nil || it.series == baseline || it.row.Tuning != "" || p.Ms <= 0 {
			return Point{}, false
		}
		out := Point{Y: base.Fwd.Ms / p.Ms, Base: base, Pass: "fwd"}
		lo, hi := Span(p)
		if from, to := Span(base.Fwd); lo > 0 && from > 0 {
			out.Lo, out.Hi = from/hi, to/lo
		}
		return out, true
	}, baseline: name}
}

// baselineName says whose standard attention it is, which of ours its series does not.
func baselineName(series string) string {
	if rest, ok := strings.CutPrefix(series, "standard"); ok && !strings.HasPrefix(rest, " (") {
		return "standard (vkattn)" + rest
	}
	return series
}

// againstBoth makes a figure against our standard attention, and beside it the same against a peer's; where one alone was measured,
// against that.
func (s *set) againstBoth(id string, make func(id string, m metric) *Figure) *Figure {
	ours, peers := s.baselines()
	switch {
	case ours == "":
		return make(id, speedUp(peers))
	case peers == "":
		return make(id, speedUp(ours))
	}
	f, peer := make(id, speedUp(ours)), make(id+peerView, speedUp(peers))
	switch {
	case len(peer.Series) == 0:
		return f
	case len(f.Series) == 0:
		peer.ID = id
		return peer
	}
	f.Peer = peer
	return f
}

// line makes a figure of one sweep.
func (s *set) line(id, title string, sw sweep, m metric) *Figure {
	f := &Figure{ID: id, Title: title, X: sw.name, Y: m.axis, LogX: true, LogY: m.log, One: m.one, Scale: 1, Baseline: m.baseline}
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
	in := s.of(sw, tied)
	s.absent(f, forwardMeasured, func(it item) bool { return in(it) && has(it) })
	if m.rate {
		f.Y = "forward, " + s.unit(f).Name
	}
	return f
}

func (f *Figure) empty(suite string) *Figure {
	f.Fixed, f.Absent = "", nil
	f.Empty = fmt.Sprintf("The files have no two rows for this figure. vkattn bench --suite %s measures them.", suite)
	return f
}

// of keeps the rows of a sweep.
func (s *set) of(sw sweep, tied result.Case) func(item) bool {
	return func(it item) bool {
		t, ok := sw.tie(it.row.Case)
		return ok && t == tied
	}
}

// unit chooses what the rates of a figure are shown in, as a run's rows are: files of CPUs alone in theirs.
func (s *set) unit(f *Figure) result.Unit {
	var rates []float64
	for _, series := range f.Series {
		for _, p := range series.Points {
			rates = append(rates, p.Y)
		}
	}
	cpus := !slices.ContainsFunc(s.sources, func(from Source) bool { return !from.CPU })
	unit := result.RateUnit(cpus && len(s.sources) > 0, rates...)
	f.Scale = unit.Scale
	return unit
}

// causal compares times with and without the mask.
func (s *set) causal() *Figure {
	sw := overSeq(setting(16, 8, 0, 64, false), "causal").bothMasks().orTokens()
	f := &Figure{ID: "causal", Title: "Causal or not", X: sw.name, Y: forwardTime.axis, LogX: true, LogY: true, Scale: 1}
	both := map[result.Case]int{} // shapes measured with and without
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
	}, func(it item) (string, Variant) {
		if it.row.Causal {
			return ", causal", Causal
		}
		return ", not causal", Usual
	})
	s.missing(f, sw, tied)
	s.absent(f, forwardMeasured, func(it item) bool { return member(it) && pair(it) })
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
	measured := func(it item) bool { return it.row.Bwd.Ms > 0 }
	tied, ok := s.choose(&sw, measured)
	if !ok {
		return f.empty(sw.suite)
	}
	f.Fixed = fixed(tied, sw.name, true)
	member := s.of(sw, tied)
	for _, pass := range []struct {
		metric
		suffix string
		v      Variant
	}{{forwardTime, ", forward", Usual}, {backwardTime, ", backward", Backward}} {
		part := &Figure{}
		s.collect(part, func(it item) bool { return member(it) && measured(it) && !s.second(it) }, func(it item) (Point, bool) {
			p, ok := pass.value(s, it)
			p.X, p.Row = sw.x(it.row.Case), it.row
			return p, ok
		}, func(item) (string, Variant) { return pass.suffix, pass.v })
		f.Series = append(f.Series, part.Series...)
		f.Doubts = append(f.Doubts, part.Doubts...)
	}
	slices.SortStableFunc(f.Series, func(a, b Series) int { return rank(a.Impl) - rank(b.Impl) })
	s.absent(f, measured, member)
	return f
}

// heat maps the throughput of the fastest of our algorithms over batch and sequence length.
func (s *set) heat() *Figure {
	f := &Figure{ID: "map", Title: "Throughput over batch and sequence length", X: "sequence length", Y: "batch", Kind: Map, Scale: 1}
	tie := func(c result.Case) (result.Case, bool) {
		ok := square(c)
		c.Impl, c.B, c.N, c.Nq = "", 0, 0, 0
		return c, ok
	}
	sw := sweep{name: "batch and sequence length", suite: "map", want: setting(0, 32, 0, 64, true), tie: tie,
		x: func(c result.Case) float64 { return float64(c.N)*1e6 + float64(c.B) }} // a cell of the map
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
	f.Doubts = nil
	f.doubts() // of the cells that are left
	s.absent(f, member, in)
	if len(f.Series) == 0 {
		return f.empty(sw.suite)
	}
	f.Title += ", " + s.unit(f).Name
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

// summary is the geometric mean of every implementation's speed against a baseline, over all shapes that both were measured on.
func (s *set) summary(id string, m metric) *Figure {
	f := &Figure{ID: id, Title: "Speed against standard attention, all shapes", X: m.axis, Kind: Bars, One: true, Scale: 1,
		Baseline: m.baseline}
	ratios := &Figure{}
	s.collect(ratios, func(item) bool { return true }, func(it item) (Point, bool) {
		p, ok := m.value(s, it)
		p.Row = it.row
		return p, ok
	}, nil)
	for _, r := range ratios.Series {
		var v []float64
		for _, p := range r.Points {
			v = append(v, p.Y)
		}
		r.Points = []Point{{Y: result.GeoMean(v), Lo: slices.Min(v), Hi: slices.Max(v), Shapes: len(v), Pass: "fwd"}}
		f.Series = append(f.Series, r)
	}
	if len(f.Series) == 0 {
		f.Empty = "The files have no shape that standard attention was measured on beside another implementation. vkattn bench --suite " +
			"reports measures them."
	} else {
		f.Fixed = "forward: geometric mean, and from the worst to the best shape"
		s.absent(f, forwardMeasured, func(it item) bool { _, ok := m.value(s, it); return ok })
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
