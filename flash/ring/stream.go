package ring

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Stream is attention larger than a device: queries are on it, keys and values in memory of the host, from where blocks of them come one after the other
// while the device computes with the one before. It is a ring of one rank whose blocks come from the host: the same launches, and the same sums in fp32.
//
// A stream has its buffers to itself: one pass at a time.
type Stream struct {
	plan   *Plan
	blocks []Span // of keys
}

// StreamForward is a forward pass. Tensors are those of [flash.Forward]; K and V are in memory of the host, in row-major order as [flash.Problem] has
// their shapes, from its first byte on.
type StreamForward struct {
	Q, O, LSE *flash.Tensor // LSE may be nil
	K, V      *flash.HostMemory
	Captured  flash.Captured // by Problem.Score and Sees
	Seed      uint64
	Offset    uint32
}

// StreamBackward is a backward pass: of [flash.Backward], with K and V, and the gradients by them, in memory of the host. Every byte of DK and DV is
// overwritten.
type StreamBackward struct {
	Q, O, LSE, DO, DLSE, DQ *flash.Tensor // DLSE may be nil
	K, V, DK, DV            *flash.HostMemory
	Captured                flash.Captured
	Seed                    uint64
	Offset                  uint32
}

// NewStream plans attention whose keys and values come in blocks of that many tokens, of which the device holds four with their gradients; 0 chooses
// blocks of 256 MiB or less. Blocks come beside kernels on a device that was opened with [flash.WithCopyQueues]. The error is that of [Ring.Plan].
func NewStream(dev *flash.Device, problem flash.Problem, block int) (_ *Stream, err error) {
	problem, err = problem.Normalize()
	if err != nil {
		return nil, err
	}
	if err := supported(&problem); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"Packed", problem.Packed != flash.Packed{}}, {"Bias", problem.Bias != flash.PerScore{}}, {"Mask", problem.Mask != flash.PerScore{}}, {"Sinks", problem.Sinks}} {
		if f.set {
			return nil, badArgument("Problem."+f.name, "set", "must be zero: it is not streamed from the host")
		}
	}
	if block < 0 {
		return nil, badArgument("block", block, "must be a number of tokens, or 0")
	}
	token := problem.Batch * problem.KeyHeads * (problem.HeadDim + problem.ValueDim) * problem.DType.Size()
	if block == 0 {
		block = max(granule, (256<<20)/token/granule*granule)
	}
	n := max(1, (problem.KeyLen+block-1)/block)
	if problem.Dropout != 0 {
		n = max(1, min(n, problem.KeyLen/granule)) // blocks begin where draws do
	}
	comms, err := Local(1)
	if err != nil {
		return nil, err
	}
	r, err := New(comms[0], dev)
	if err != nil {
		return nil, err
	}
	p := newPlan(r, problem, Shard{Order: Plain})
	s := &Stream{plan: p}
	s.blocks = chunks(problem.KeyLen, n)
	sched := &schedule{problem: problem, ranks: n, order: Plain, queries: layout{n, make([][]Span, n)}, keys: newLayout(problem.KeyLen, n, Plain)}
	sched.whole, sched.positional = p.sched.whole, p.sched.positional
	sched.queries.spans[0] = chunks(problem.QueryLen, min(n, problem.QueryLen))
	p.sched = sched
	seen := make([]bool, len(sched.queries.spans[0]))
	for b, k := range s.blocks {
		var qs Span
		all := true
		for i, q := range sched.queries.spans[0] {
			band := sched.band(q, k)
			if band.kind == none {
				continue
			}
			if qs.Len() == 0 {
				qs.Begin = i
			}
			qs.End = i + 1
			seen[i] = true
			all = all && band.kind == whole
		}
		if qs.Len() > 0 {
			p.steps = append(p.steps, step{number: len(p.steps) + 1, owner: b, launches: []launch{sched.neighbours(b, qs, all)}})
		}
	}
	for i := range seen { // queries that see nothing are told so
		if !seen[i] {
			p.steps = append(p.steps, step{number: len(p.steps) + 1, owner: 0, launches: []launch{sched.neighbours(0, Span{i, i + 1}, false)}})
		}
	}
	return s, p.prepare()
}

// neighbours is a launch of neighbouring chunks of queries with a block.
func (s *schedule) neighbours(block int, qs Span, all bool) launch {
	l := s.make(0, block, qs, Span{0, 1})
	l.pairs = s.whole.Part(l.problem.Within.Query, l.queries.Len(), l.problem.Within.Key, l.keys.Len()).Pairs()
	if all {
		unmask(&l.problem)
		if !s.positional {
			l.problem.Within = flash.Within{}
		}
	}
	return l
}

// Blocks is how many blocks keys and values come in.
func (s *Stream) Blocks() int { return len(s.blocks) }

// Plan describes what runs, and what of it waited.
func (s *Stream) Plan() *Plan { return s.plan }

// Forward computes o and lse. K and V may not change until it returns. Errors are those of [Plan.Forward].
func (s *Stream) Forward(ctx context.Context, f StreamForward) error {
	return s.plan.run(ctx, func(w *pass) error {
		p := &w.problem
		all := []wanted{{"Q", f.Q, p.QShape()}, {"O", f.O, p.OShape()}}
		if f.LSE != nil {
			all = append(all, wanted{"LSE", f.LSE, p.LSEShape()})
		}
		if err := w.check("StreamForward", all); err != nil {
			return err
		}
		if err := w.checkHost("StreamForward", hostPair{f.K, f.V}, "K", "V"); err != nil {
			return err
		}
		e, err := w.fromHost(s, hostPair{f.K, f.V})
		if err != nil {
			return err
		}
		w.of = operands{captured: f.Captured, seed: f.Seed, offset: f.Offset}
		return w.forwardOver(e, &flash.Forward{Q: f.Q, O: f.O, LSE: f.LSE})
	})
}

// Backward computes the gradients. DK and DV are complete when it returns.
func (s *Stream) Backward(ctx context.Context, b StreamBackward) error {
	return s.plan.run(ctx, func(w *pass) error {
		p := &w.problem
		all := []wanted{{"Q", b.Q, p.QShape()}, {"O", b.O, p.OShape()}, {"LSE", b.LSE, p.LSEShape()}, {"DO", b.DO, p.OShape()}, {"DQ", b.DQ, p.QShape()}}
		if b.DLSE != nil {
			all = append(all, wanted{"DLSE", b.DLSE, p.LSEShape()})
		}
		if err := w.check("StreamBackward", all); err != nil {
			return err
		}
		if err := w.checkHost("StreamBackward", hostPair{b.K, b.V}, "K", "V"); err != nil {
			return err
		}
		if err := w.checkHost("StreamBackward", hostPair{b.DK, b.DV}, "DK", "DV"); err != nil {
			return err
		}
		e, err := w.fromHost(s, hostPair{b.K, b.V})
		if err != nil {
			return err
		}
		w.of = operands{captured: b.Captured, seed: b.Seed, offset: b.Offset}
		g, err := w.newGradients(&flash.Backward{Q: b.Q, O: b.O, LSE: b.LSE, DO: b.DO, DLSE: b.DLSE, DQ: b.DQ}, false)
		if err != nil {
			return err
		}
		covered := make([]bool, len(s.blocks))
		out := w.toHost(s, hostPair{b.DK, b.DV}, covered)
		for i, st := range w.remote() {
			if err := w.giveStep(g, st, i, e, out); err != nil {
				return err
			}
		}
		return g.finish(w)
	})
}

// Close frees the stream's buffers.
func (s *Stream) Close() error { return s.plan.Close() }

// hostPair is keys and values, or gradients by them, of all tokens in memory of the host.
type hostPair struct{ k, v *flash.HostMemory }

// checkHost says which memory is missing or too short.
func (w *pass) checkHost(call string, h hostPair, k, v string) error {
	g := &w.problem
	rows := g.Batch * g.KeyHeads * g.KeyLen * g.DType.Size()
	for _, x := range []struct {
		name string
		of   *flash.HostMemory
		want int
	}{{k, h.k, rows * g.HeadDim}, {v, h.v, rows * g.ValueDim}} {
		if got := len(x.of.Bytes()); got < x.want {
			return badArgument(call+"."+x.name, fmt.Sprintf("%d bytes", got), "must be at least %d bytes of the host: all keys, or values, in row-major order", x.want)
		}
	}
	return nil
}

// runs calls f with each run of bytes that a block has in one piece, on the device and on the host: one for each batch entry and head.
func (w *pass) runs(block Span, on pair, host hostPair, f func(t *flash.Tensor, offset uint64, h *flash.HostMemory, at, n uint64) error) error {
	g := &w.problem
	for _, x := range []struct {
		t    *flash.Tensor
		h    *flash.HostMemory
		cols int
	}{{on.k, host.k, g.HeadDim}, {on.v, host.v, g.ValueDim}} {
		row := x.cols * g.DType.Size()
		for i := range g.Batch * g.KeyHeads {
			if err := f(x.t, uint64(i*block.Len()*row), x.h, uint64((i*g.KeyLen+block.Begin)*row), uint64(block.Len()*row)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fromHost brings blocks, one after the other.
func (w *pass) fromHost(s *Stream, host hostPair) (*exchange, error) {
	steps := w.remote()
	e := newExchange(len(steps), 1)
	for i, st := range steps {
		var err error
		if e.blocks[i], err = w.pair(fmt.Sprint("block", i%slots), w.problem.DType, s.blocks[st.owner].Len()); err != nil {
			return nil, err
		}
	}
	w.others.Go(func() (err error) {
		var copies moves
		defer func() { err = copies.end(err) }()
		for i, st := range steps {
			var free, end flash.Point
			if i >= slots {
				if free, err = e.released[i-slots].await(w.ctx); err != nil {
					return err
				}
			}
			if err := w.runs(s.blocks[st.owner], e.blocks[i], host, func(t *flash.Tensor, offset uint64, h *flash.HostMemory, at, n uint64) error {
				m, err := w.mover.StartToDevice(w.ctx, t, offset, h, at, n, free)
				if err != nil {
					return err
				}
				end = m.End()
				return copies.add(m, nil)
			}); err != nil {
				return err
			}
			e.arrived[i][0].is(end)
		}
		return nil
	})
	return e, nil
}

// toHost takes gradients of blocks as they are computed. Each block's are complete then: every query is on the device. What no step computes is 0.
func (w *pass) toHost(s *Stream, host hostPair, covered []bool) *delivery {
	steps := w.remote()
	d := &delivery{sent: readies(len(steps)), given: make(chan given, len(steps))}
	w.others.Go(func() (err error) {
		var copies moves
		defer func() { err = copies.end(err) }()
		for range steps {
			x, err := d.next(w.ctx)
			if err != nil {
				return err
			}
			if b := steps[x.step].owner; !covered[b] { // else it is a step of queries that see nothing
				covered[b] = true
				if err := x.wait(); err != nil {
					return err
				}
				if err := w.runs(s.blocks[b], x.pair, host, func(t *flash.Tensor, offset uint64, h *flash.HostMemory, at, n uint64) error {
					m, err := w.mover.StartToHost(w.ctx, h, at, t, offset, n, x.at)
					if err != nil {
						return err
					}
					return copies.add(m, nil)
				}); err != nil {
					return err
				}
				if err := copies.end(nil); err != nil {
					return err
				}
			}
			d.sent[x.step].is(flash.Point{})
		}
		for b, done := range covered {
			if !done {
				_ = w.runs(s.blocks[b], pair{}, host, func(_ *flash.Tensor, _ uint64, h *flash.HostMemory, at, n uint64) error {
					clear(h.Bytes()[at : at+n])
					return nil
				})
			}
		}
		return nil
	})
	return d
}
