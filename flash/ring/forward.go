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
	w.of = f
	all := append(w.wantedOfForward(&local), wanted{"K", f.K, local.KShape()}, wanted{"V", f.V, local.VShape()})
	if err := w.check("Forward", all); err != nil {
		return err
	}
	if w.ring.Size() == 1 {
		w.attend(&launch{problem: w.problem}, *f)
		return w.err
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
		in := w.forwardOf(l, f, pair{f.K, f.V})
		in.O, in.LSE = f.O, f.LSE
		w.beginLargest(1)
		in.MaxLogit = w.largestRow(l, &l.problem, 0)
		w.attend(l, in)
		return w.giveLargest(f.MaxLogit)
	}
	return w.forwardOver(e, f)
}

// wantedOfForward are the tensors of a forward pass but for keys and values.
func (w *pass) wantedOfForward(p *flash.Problem) []wanted {
	all := append(w.operandsWanted(), wanted{"Q", w.of.Q, p.QShape()}, wanted{"O", w.of.O, p.OShape()})
	if w.of.LSE != nil {
		all = append(all, wanted{"LSE", w.of.LSE, p.LSEShape()})
	}
	if p.MaxLogit {
		all = append(all, wanted{"MaxLogit", w.of.MaxLogit, [4]int{1, 1, p.Batch, p.Heads}})
	}
	return all
}

// forwardOver computes with the rank's own block, and then with others as they arrive.
func (w *pass) forwardOver(e *exchange, f *flash.Forward) error {
	sums := w.newOutputs(f)
	launches := 0
	for _, s := range w.steps {
		launches += len(s.launches) * mostGroups
	}
	w.beginLargest(launches)
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
	sums.finish(w, f)
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

func (w *pass) newOutputs(f *flash.Forward) *outputs {
	rank, p := w.ring.Rank(), &w.problem
	s := &outputs{segments: w.sched.ownQueries(rank, w.steps)}
	s.joins = make([]int, len(s.segments))
	n := w.sched.queries.rows(rank)
	s.o = w.tensor("sum.o", flash.F32, [4]int{w.sched.entries(), p.Heads, n, p.ValueDim}, n)
	for turn := range s.lse {
		s.lse[turn] = w.tensor(fmt.Sprint("sum.lse", turn), flash.F32, [4]int{w.sched.entries(), p.Heads, n, 1}, n)
	}
	if p.Sinks {
		s.beginWithSinks(w, f)
	}
	return s
}

// statistics is a segment's part of lse: in row-major order by itself, as joins want it.
func (s *outputs) statistics(w *pass, turn int, at Span) *flash.Tensor {
	t := s.lse[turn%2]
	shape := t.Shape()
	offset := t.Offset() + uint64(4*shape[0]*shape[1]*at.Begin)
	shape[2] = at.Len()
	return w.view(t, offset, flash.F32, shape, [4]int{})
}

// forwardOf is the inputs of a launch with a block.
func (w *pass) forwardOf(l *launch, f *flash.Forward, block pair) flash.Forward {
	keys := w.keysOf(l, block)
	in := flash.Forward{Q: w.rows(f.Q, l.queries), K: keys.k, V: keys.v, Bias: w.biasOf(l), Mask: w.maskOf(l), Blocks: w.blocksOf(l),
		Captured: w.of.Captured, Seed: w.of.Seed, Offset: w.of.Offset}
	in.QueryStarts, in.KeyStarts = w.startsOf(l)
	in.QueryLengths, in.KeyLengths = w.lengthsOf(l)
	return in
}

// attendStep submits what a step computes with a block, by the groups of heads that it arrives in; nil: it is there.
func (w *pass) attendStep(s *outputs, f *flash.Forward, of step, block pair, arrived []ready) error {
	for i := range of.launches {
		l := &of.launches[i]
		o := w.tensor("part.o", w.problem.DType, l.problem.OShape(), f.Q.Shape()[2])
		lse := w.tensor("part.lse", flash.F32, l.problem.LSEShape(), f.Q.Shape()[2])
		if err := w.padsArrive(l, arrived); err != nil {
			return err
		}
		in := w.forwardOf(l, f, block)
		in.O, in.LSE = o, lse
		if err := w.eachGroup(l, arrived, func(part *launch, n, groups int) {
			some := in
			w.eachHeads(n, groups, &some.Q, &some.K, &some.V, &some.O, &some.LSE)
			some.MaxLogit = w.largestRow(l, &part.problem, n)
			w.attend(part, some)
		}); err != nil {
			return err
		}
		inside(s.segments, l.ownQueries, func(i int, at Span) { s.join(w, i, at, l, o, lse) })
	}
	return nil
}

// padsArrive waits for a launch's block where rows are copied from it; nil: it is there.
func (w *pass) padsArrive(l *launch, arrived []ready) error {
	if arrived == nil || l.pad == 0 {
		return nil
	}
	return w.arrival(arrived[0])
}

// eachGroup goes over the groups of heads that a launch's block arrives in, each when it is there; nil: all at once.
func (w *pass) eachGroup(l *launch, arrived []ready, submit func(part *launch, n, groups int)) error {
	groups := max(1, len(arrived))
	for n := range groups {
		if arrived != nil {
			if err := w.arrival(arrived[n]); err != nil {
				return err
			}
		}
		part := l.group(groups)
		submit(&part, n, groups)
	}
	return nil
}

// join adds a launch's part of a segment.
func (s *outputs) join(w *pass, i int, at Span, l *launch, o, lse *flash.Tensor) {
	part := at.from(l.queries)
	o, lse = w.rows(o, part), w.rows(lse, part)
	sum, before, after := w.rows(s.o, at), s.statistics(w, s.joins[i]+1, at), s.statistics(w, s.joins[i], at)
	s.joins[i]++
	if s.joins[i] == 1 {
		w.copies(lse, after, o, sum)
		return
	}
	w.accumulate(flash.AccumulateJoin, flash.Accumulate{X: o, Y: sum, XLSE: lse, YLSE: before, LSE: after})
}

// finish writes the caller's tensors. Queries that see no key of any rank are told so.
func (s *outputs) finish(w *pass, f *flash.Forward) {
	for i, at := range s.segments {
		w.give(s.o, f.O, at, s.joins[i])
		switch {
		case f.LSE == nil:
		case s.joins[i] == 0:
			w.fill(w.rows(f.LSE, at), float32(math.Inf(-1)))
		default:
			w.copies(s.statistics(w, s.joins[i]+1, at), w.rows(f.LSE, at))
		}
	}
}

// give writes some rows of a tensor of the caller's: of a sum, or 0 where it has no parts.
func (w *pass) give(sum, to *flash.Tensor, at Span, parts int) {
	if parts == 0 {
		w.fill(w.rows(to, at), 0)
		return
	}
	w.copies(w.rows(sum, at), w.rows(to, at))
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
