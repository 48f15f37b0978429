package ring

import (
	"context"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
)

// Forward computes o and lse of the rank's queries over the keys of all ranks, as [flash.Problem] says of the whole. Tensors are the rank's
// own, of the shapes of Plan.Local, on the ring's device, and without a use of [flash.Tensor.Used], for a pass is many recordings; every
// rank calls it.
//
// While the device computes with one block, the next one arrives. What a launch gives is rounded to the storage type once, and sums over
// launches are fp32, in an order that depends on the rank and the number of ranks alone: the same inputs give the same bits.
//
// Of a padded batch a rank has its rows of every entry, used or not: QueryLengths and KeyLengths are those of the whole, the same of every
// rank, which ranks compare before any work ([*ShardError]).
//
// Packed sequences may begin and end anywhere in a rank's rows, and be longer than these: QueryStarts and KeyStarts, and QueryLengths and
// KeyLengths where the problem has them, are those of the whole likewise. Sinks are the same of every rank, and counted once. Bias and Mask
// have the rows of the rank's own queries and all keys of the whole (Plan.BiasShape, Plan.MaskShape); of packed sequences, whose places
// they are by, every rank has the problem's, and over heads those of its heads, for all queries.
//
// MaxLogit, where the problem has it, is the largest of all ranks' pairs, for each head of the whole, and every rank is given all of them:
// of shape [1, 1, Batch, Heads].
//
// Blocks is the block mask of the whole, of [Plan.Problem], the same of every rank, which ranks compare likewise: pairs of chunks without a
// block are left out.
//
// The context bounds the whole pass, and with it how long ranks wait for one that does not come. After an error the plan, and the
// communicator, cannot be used any more: ranks no longer agree on what was said.
func (p *Plan) Forward(ctx context.Context, f flash.Forward) error {
	return p.run(ctx, func(w *pass) error { return w.forward(&f) })
}

func (w *pass) forward(f *flash.Forward) error {
	if err := w.refuse("Forward", *f); err != nil {
		return err
	}
	local := w.Local()
	all := []wanted{{"Q", f.Q, local.QShape()}, {"K", f.K, local.KShape()}, {"V", f.V, local.VShape()}, {"O", f.O, local.OShape()}}
	if f.LSE != nil {
		all = append(all, wanted{"LSE", f.LSE, local.LSEShape()})
	}
	if w.problem.MaxLogit {
		all = append(all, wanted{"MaxLogit", f.MaxLogit, [4]int{1, 1, w.problem.Batch, w.problem.Heads}})
	}
	w.of = ofForward(f)
	if err := w.check("Forward", append(all, w.of.wanted(w.Plan)...)); err != nil {
		return err
	}
	if w.ring.Size() == 1 {
		return w.attend(&launch{problem: w.problem}, *f)
	}
	if err := w.takeSequences("Forward"); err != nil {
		return err
	}
	if w.overHeads() {
		return w.forwardHeads(f)
	}
	e, err := w.publish(pair{f.K, f.V})
	if err != nil {
		return err
	}
	if l := w.alone(); l != nil {
		in, err := w.forwardOf(l, f, pair{f.K, f.V})
		if err != nil {
			return err
		}
		in.O, in.LSE = f.O, f.LSE
		if err := w.beginLargest(1); err != nil {
			return err
		}
		if in.MaxLogit, err = w.largestRow(l, &l.problem, 0); err != nil {
			return err
		}
		if err := w.attend(l, in); err != nil {
			return err
		}
		return w.giveLargest(f.MaxLogit)
	}
	return w.forwardOver(e, f)
}

// forwardOver computes with the rank's own block, and then with others as they arrive.
func (w *pass) forwardOver(e *exchange, f *flash.Forward) error {
	sums, err := w.newOutputs(f)
	if err != nil {
		return err
	}
	launches := 0
	for _, s := range w.steps {
		launches += len(s.launches) * mostGroups
	}
	if err := w.beginLargest(launches); err != nil {
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
		if err := w.passed(i, before, e); err != nil {
			return err
		}
	}
	if err := sums.finish(w, f); err != nil {
		return err
	}
	return w.giveLargest(f.MaxLogit)
}

// alone is the only launch of a rank, if there is only one, and over all of its queries: its results need no sums.
func (w *pass) alone() *launch {
	if len(w.steps) != 1 || len(w.steps[0].launches) != 1 || w.steps[0].number != 0 || w.problem.Sinks || w.sched.packed != nil {
		return nil
	}
	l, rank := &w.steps[0].launches[0], w.ring.Rank()
	if l.queries.Len() == w.sched.queries.rows(rank) && l.keys.Len() == w.sched.keys.rows(rank) {
		return l
	}
	return nil
}

// outputs are the sums of a forward pass: of each segment of the rank's queries what all keys so far give, in fp32.
type outputs struct {
	segments []Span
	o        *flash.Tensor
	lse      [2]*flash.Tensor // by turns
	joins    []int            // how many parts a segment has
}

func (w *pass) newOutputs(f *flash.Forward) (s *outputs, err error) {
	rank := w.ring.Rank()
	s = &outputs{}
	s.segments = w.sched.ownQueries(rank, w.steps)
	s.joins = make([]int, len(s.segments))
	n := w.sched.queries.rows(rank)
	if s.o, err = w.tensor("sum.o", flash.F32, [4]int{w.sched.entries(), w.problem.Heads, n, w.problem.ValueDim}, n); err != nil {
		return nil, err
	}
	for turn := range s.lse {
		if s.lse[turn], err = w.tensor(fmt.Sprint("sum.lse", turn), flash.F32, [4]int{w.sched.entries(), w.problem.Heads, n, 1},
			n); err != nil {
			return nil, err
		}
	}
	if w.problem.Sinks {
		return s, s.beginWithSinks(w, f)
	}
	return s, nil
}

// statistics is a segment's part of lse: in row-major order by itself, as joins want it.
func (s *outputs) statistics(turn int, at Span) (*flash.Tensor, error) {
	t := s.lse[turn%2]
	shape := t.Shape()
	offset := t.Offset() + uint64(4*shape[0]*shape[1]*at.Begin)
	shape[2] = at.Len()
	return t.View(offset, flash.F32, shape, [4]int{})
}

// forwardOf is the inputs of a launch with a block.
func (w *pass) forwardOf(l *launch, f *flash.Forward, block pair) (in flash.Forward, err error) {
	in = flash.Forward{Captured: w.of.captured, Seed: w.of.seed, Offset: w.of.offset}
	if in.Q, err = w.rows(f.Q, l.queries); err != nil {
		return in, err
	}
	keys, err := w.keysOf(l, block)
	if err != nil {
		return in, err
	}
	in.K, in.V = keys.k, keys.v
	if in.QueryStarts, in.KeyStarts, err = w.startsOf(l); err != nil {
		return in, err
	}
	in.QueryLengths, in.KeyLengths = w.lengthsOf(l)
	if in.Bias, err = w.biasOf(l); err != nil {
		return in, err
	}
	if in.Blocks, err = w.blocksOf(l); err != nil {
		return in, err
	}
	in.Mask, err = w.maskOf(l)
	return in, err
}

// attendStep submits what a step computes with a block, by the groups of heads that it arrives in; nil: it is there.
func (w *pass) attendStep(s *outputs, f *flash.Forward, of step, block pair, arrived []ready) error {
	for i := range of.launches {
		l := &of.launches[i]
		o, err := w.tensor("part.o", w.problem.DType, l.problem.OShape(), f.Q.Shape()[2])
		if err != nil {
			return err
		}
		lse, err := w.tensor("part.lse", flash.F32, l.problem.LSEShape(), f.Q.Shape()[2])
		if err != nil {
			return err
		}
		if arrived != nil && l.pad > 0 { // rows are copied from it
			if err := w.arrival(arrived[0]); err != nil {
				return err
			}
		}
		in, err := w.forwardOf(l, f, block)
		if err != nil {
			return err
		}
		in.O, in.LSE = o, lse
		if err := w.eachGroup(l, arrived, func(part *launch, n, groups int) error {
			some := in
			if err := eachHeads(n, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE); err != nil {
				return err
			}
			if some.MaxLogit, err = w.largestRow(l, &part.problem, n); err != nil {
				return err
			}
			return w.attend(part, some)
		}); err != nil {
			return err
		}
		if err := inside(s.segments, l.ownQueries, func(i int, at Span) error { return s.join(w, i, at, l, o, lse) }); err != nil {
			return err
		}
	}
	return nil
}

// eachGroup goes over the groups of heads that a launch's block arrives in, each when it is there; nil: all at once.
func (w *pass) eachGroup(l *launch, arrived []ready, submit func(part *launch, n, groups int) error) error {
	groups := max(1, len(arrived))
	for n := range groups {
		if arrived != nil {
			if err := w.arrival(arrived[n]); err != nil {
				return err
			}
		}
		part := l.group(groups)
		if err := submit(&part, n, groups); err != nil {
			return err
		}
	}
	return nil
}

// join adds a launch's part of a segment.
func (s *outputs) join(w *pass, i int, at Span, l *launch, o, lse *flash.Tensor) error {
	o, err := rows(o, at.from(l.queries))
	if err != nil {
		return err
	}
	if lse, err = rows(lse, at.from(l.queries)); err != nil {
		return err
	}
	sum, err := rows(s.o, at)
	if err != nil {
		return err
	}
	before, err := s.statistics(s.joins[i]+1, at)
	if err != nil {
		return err
	}
	after, err := s.statistics(s.joins[i], at)
	if err != nil {
		return err
	}
	s.joins[i]++
	if s.joins[i] == 1 {
		return w.copies(lse, after, o, sum)
	}
	return w.accumulate(flash.AccumulateJoin, flash.Accumulate{X: o, Y: sum, XLSE: lse, YLSE: before, LSE: after})
}

// finish writes the caller's tensors. Queries that see no key of any rank are told so.
func (s *outputs) finish(w *pass, f *flash.Forward) error {
	for i, at := range s.segments {
		o, err := w.rows(f.O, at)
		if err != nil {
			return err
		}
		var lse *flash.Tensor
		if f.LSE != nil {
			if lse, err = w.rows(f.LSE, at); err != nil {
				return err
			}
		}
		if s.joins[i] == 0 {
			if err := w.fill(o, 0); err != nil {
				return err
			}
			if lse != nil {
				if err := w.fill(lse, float32(math.Inf(-1))); err != nil {
					return err
				}
			}
			continue
		}
		sum, err := rows(s.o, at)
		if err != nil {
			return err
		}
		if err := w.copies(sum, o); err != nil {
			return err
		}
		if lse != nil {
			sum, err := s.statistics(s.joins[i]+1, at)
			if err != nil {
				return err
			}
			if err := w.copies(sum, lse); err != nil {
				return err
			}
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
