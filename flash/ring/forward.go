package ring

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Forward computes o and lse of the rank's queries over the keys of all ranks, as [flash.Problem] says of the whole. Tensors are the rank's own, of the
// shapes of Plan.Local, on the ring's device; every rank calls it.
//
// While the device computes with one block, the next one arrives. What a launch gives is rounded to the storage type once, and sums over launches are
// fp32, in an order that depends on the rank and the number of ranks alone: the same inputs give the same bits.
//
// The context bounds the whole pass, and with it how long ranks wait for one that does not come. After an error the plan, and the communicator,
// cannot be used any more: ranks no longer agree on what was said.
func (p *Plan) Forward(ctx context.Context, f flash.Forward) error {
	return p.run(ctx, func(w *pass) error { return w.forward(&f) })
}

func (w *pass) forward(f *flash.Forward) error {
	local := w.Local()
	if err := w.check("Forward", []wanted{{"Q", f.Q, local.QShape()}, {"K", f.K, local.KShape()}, {"V", f.V, local.VShape()}, {"O", f.O, local.OShape()}}); err != nil {
		return err
	}
	if f.LSE != nil {
		if err := w.check("Forward", []wanted{{"LSE", f.LSE, local.LSEShape()}}); err != nil {
			return err
		}
	}
	if w.overHeads() {
		return w.forwardHeads(f)
	}
	e, err := w.publish(pair{f.K, f.V})
	if err != nil {
		return err
	}
	if l := w.alone(); l != nil {
		return w.attend(l, flash.Forward{Q: f.Q, K: f.K, V: f.V, O: f.O, LSE: f.LSE, Captured: f.Captured, Seed: f.Seed, Offset: f.Offset})
	}
	return w.forwardOver(e, f)
}

// forwardOver computes with the rank's own block, and then with others as they arrive.
func (w *pass) forwardOver(e *exchange, f *flash.Forward) error {
	sums, err := w.newOutputs()
	if err != nil {
		return err
	}
	if err := w.attendStep(sums, f, w.local(), pair{f.K, f.V}, nil); err != nil {
		return err
	}
	for i, s := range w.remote() {
		before := len(w.jobs)
		w.number = s.number
		if err := w.attendStep(sums, f, s, e.blocks[i], e.arrived[i]); err != nil {
			return err
		}
		if err := w.settle(before); err != nil { // the device has this step's work by now
			return err
		}
		if i > 0 {
			close(e.released[i-1])
		}
	}
	return sums.finish(w, f)
}

// alone is the only launch of a rank, if there is only one, and over all of its queries: its results need no sums.
func (p *Plan) alone() *launch {
	if len(p.steps) == 1 && len(p.steps[0].launches) == 1 && p.steps[0].number == 0 && p.steps[0].launches[0].queries.Len() == p.sched.queries.rows(p.ring.Rank()) &&
		p.steps[0].launches[0].keys.Len() == p.sched.keys.rows(p.ring.Rank()) {
		return &p.steps[0].launches[0]
	}
	return nil
}

// outputs are the sums of a forward pass: of each chunk of queries what all keys so far give, in fp32.
type outputs struct {
	spans []Span // rows of the rank's tensors
	o     []*flash.Tensor
	lse   [][2]*flash.Tensor // by turns
	joins []int              // how many parts
}

func (w *pass) newOutputs() (*outputs, error) {
	s := &outputs{}
	at := 0
	g := &w.problem
	for i, c := range w.sched.queries.spans[w.ring.Rank()] {
		s.spans = append(s.spans, Span{at, at + c.Len()})
		at += c.Len()
		o, err := w.tensor(fmt.Sprint("sum.o", i), flash.F32, [4]int{g.Batch, g.Heads, c.Len(), g.ValueDim}, c.Len())
		if err != nil {
			return nil, err
		}
		var lse [2]*flash.Tensor
		for turn := range lse {
			if lse[turn], err = w.tensor(fmt.Sprintf("sum.lse%d.%d", i, turn), flash.F32, [4]int{g.Batch, g.Heads, c.Len(), 1}, c.Len()); err != nil {
				return nil, err
			}
		}
		s.o, s.lse, s.joins = append(s.o, o), append(s.lse, lse), append(s.joins, 0)
	}
	return s, nil
}

// attendStep submits what a step computes with a block, by the groups of heads that it arrives in; nil: it is there.
func (w *pass) attendStep(s *outputs, f *flash.Forward, of step, block pair, arrived []ready) error {
	g := &w.problem
	for i := range of.launches {
		l := &of.launches[i]
		o, err := w.tensor("part.o", g.DType, l.problem.OShape(), f.Q.Shape()[2])
		if err != nil {
			return err
		}
		lse, err := w.tensor("part.lse", flash.F32, l.problem.LSEShape(), f.Q.Shape()[2])
		if err != nil {
			return err
		}
		in := flash.Forward{O: o, LSE: lse, Captured: f.Captured, Seed: f.Seed, Offset: f.Offset}
		for _, x := range []struct {
			to **flash.Tensor
			of *flash.Tensor
			at Span
		}{{&in.Q, f.Q, l.queries}, {&in.K, block.k, l.keys}, {&in.V, block.v, l.keys}} {
			if *x.to, err = rows(x.of, x.at); err != nil {
				return err
			}
		}
		groups := max(1, len(arrived))
		for g := range groups {
			if arrived != nil {
				if err := w.arrival(arrived[g]); err != nil {
					return err
				}
			}
			part, some := l.group(groups), in
			if err := eachHeads(g, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE); err != nil {
				return err
			}
			if err := w.attend(&part, some); err != nil {
				return err
			}
		}
		for c := l.queryChunks.Begin; c < l.queryChunks.End; c++ {
			if err := s.join(w, c, l, o, lse); err != nil {
				return err
			}
		}
	}
	return nil
}

// join adds a launch's part of a chunk.
func (s *outputs) join(w *pass, chunk int, l *launch, o, lse *flash.Tensor) error {
	at := Span{s.spans[chunk].Begin - l.queries.Begin, s.spans[chunk].End - l.queries.Begin}
	o, err := rows(o, at)
	if err != nil {
		return err
	}
	if lse, err = rows(lse, at); err != nil {
		return err
	}
	turn := s.joins[chunk] % 2
	s.joins[chunk]++
	if s.joins[chunk] == 1 {
		if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: lse, Y: s.lse[chunk][0]}); err != nil {
			return err
		}
		return w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: o, Y: s.o[chunk]})
	}
	return w.accumulate(flash.AccumulateJoin, flash.Accumulate{X: o, Y: s.o[chunk], XLSE: lse, YLSE: s.lse[chunk][1-turn], LSE: s.lse[chunk][turn]})
}

// finish writes the caller's tensors.
func (s *outputs) finish(w *pass, f *flash.Forward) error {
	for c, at := range s.spans {
		o, err := rows(f.O, at)
		if err != nil {
			return err
		}
		if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: s.o[c], Y: o}); err != nil {
			return err
		}
		if f.LSE == nil {
			continue
		}
		lse, err := rows(f.LSE, at)
		if err != nil {
			return err
		}
		if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: s.lse[c][(s.joins[c]+1)%2], Y: lse}); err != nil {
			return err
		}
	}
	return nil
}

// wanted is a tensor of a pass.
type wanted struct {
	name  string
	given *flash.Tensor
	shape [4]int
}

// check says which of a caller's tensors does not fit. What of them the shape does not tell is for the launches to say.
func (w *pass) check(call string, all []wanted) error {
	for _, x := range all {
		switch {
		case x.given == nil:
			return badArgument(call+"."+x.name, "nil", "must be a tensor of shape %v", x.shape)
		case x.given.Shape() != x.shape:
			return badArgument(call+"."+x.name, x.given, "must have shape %v, of the rank's own tokens (Plan.Local)", x.shape)
		}
	}
	return nil
}
