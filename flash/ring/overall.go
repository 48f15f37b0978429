package ring

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
)

// What belongs to all queries: sinks (sinks.go), and biases that queries share, or sequences of several ranks. Every rank has them, and
// every rank is given the whole gradient with respect to them.

// sharedBias says whether queries share the bias, so that its gradient is a sum over launches, and ranks.
func (s *schedule) sharedBias() bool {
	b := s.problem.Bias
	return b != flash.PerScore{} && (b.Queries == 1 && s.problem.QueryLen > 1 || s.packed != nil && !s.padded)
}

// summedBias says whether launches share numbers of the bias: those of sharedBias, or of entries that have launches of their own.
func (s *schedule) summedBias() bool {
	return s.sharedBias() || s.padded && s.problem.Bias != flash.PerScore{}
}

// beginBias begins the gradient with respect to the bias: where queries share it a sum, else 0 wherever no launch writes.
func (g *gradients) beginBias(w *pass) {
	if g.b.DBias == nil {
		return
	}
	if w.sched.summedBias() {
		g.dbias = w.tensor("sum.dbias", flash.F32, w.BiasShape(), w.BiasShape()[2])
		w.fill(g.dbias, 0)
		return
	}
	if g.b.Accumulate {
		return
	}
	rank := w.ring.Rank()
	for i, q := range w.sched.queries.spans[rank] {
		for owner := range w.sched.ranks {
			for j, k := range w.sched.keys.spans[owner] {
				if w.sched.band(q, k).kind == none {
					l := w.sched.make(rank, owner, Span{i, i + 1}, Span{j, j + 1})
					w.fill(w.slice(g.b.DBias, l.problem.Bias, &l), 0)
				}
			}
		}
	}
}

// biasGradient is where a launch writes its gradient with respect to the bias: into the caller's tensor, where it need not be added to
// anything.
func (w *pass) biasGradient(g *gradients, l *launch) *flash.Tensor {
	if g.b.DBias == nil {
		return nil
	}
	if of := l.problem.Bias; g.b.Accumulate || w.sched.summedBias() {
		return w.likeBias("part.dbias", of.DType, [4]int{of.Batch, of.Heads, of.Queries, of.Keys})
	}
	return w.slice(g.b.DBias, l.problem.Bias, l)
}

// likeBias is a tensor for a launch's part of what has the shape of the bias.
func (w *pass) likeBias(name string, dtype flash.DType, shape [4]int) *flash.Tensor {
	most := w.BiasShape()
	columns := min(most[3], w.sched.keys.most())
	if w.sched.packed != nil {
		columns = most[3] // all places of a sequence
	}
	whole := w.tensor(name, dtype, [4]int{most[0], most[1], most[2], columns}, most[2])
	return w.view(whole, 0, dtype, shape, [4]int{})
}

// addBias adds a launch's gradient with respect to the bias where it was not written in place.
func (w *pass) addBias(g *gradients, l *launch, part *flash.Tensor) {
	switch {
	case part == nil:
	case w.sched.summedBias():
		w.accumulate(flash.AccumulateAdd, flash.Accumulate{X: part, Y: w.slice(g.dbias, l.problem.Bias, l)})
	case g.b.Accumulate:
		w.addTo(w.slice(g.b.DBias, l.problem.Bias, l), part, w.likeBias("sum.dbias", flash.F32, part.Shape()))
	}
}

// addTo adds a part to a tensor of any type, by way of a sum in fp32.
func (w *pass) addTo(to, part, sum *flash.Tensor) {
	w.copies(to, sum)
	w.accumulate(flash.AccumulateAdd, flash.Accumulate{X: part, Y: sum})
	w.copies(sum, to)
}

// overAllQueries gives every rank the gradients with respect to what all queries share: the sum of what ranks have, in the order of ranks.
func (w *pass) overAllQueries(g *gradients) error {
	if w.problem.Sinks {
		var sum *flash.Tensor
		if g.b.DSinks != nil {
			sum = w.sinkGradient(g.b)
		}
		if err := w.reduce("DSinks", sum, g.b.DSinks, g.b.Accumulate); err != nil {
			return err
		}
	}
	if err := w.reduceCaptured(g.b, g.dcaptured); err != nil {
		return err
	}
	switch {
	case w.sched.sharedBias():
		return w.reduce("DBias", g.dbias, g.b.DBias, g.b.Accumulate)
	case g.dbias == nil:
	case !g.b.Accumulate:
		w.copies(g.dbias, g.b.DBias)
	default:
		w.addTo(g.b.DBias, g.dbias, w.tensor("all.DBias", flash.F32, g.dbias.Shape(), g.dbias.Shape()[2]))
	}
	return w.err
}

// reduce sums a tensor over ranks and writes it where the caller wants it; nil of every rank: nobody wants it.
func (w *pass) reduce(name string, mine, to *flash.Tensor, add bool) error {
	if w.err != nil {
		return w.err
	}
	var raw []byte
	if mine != nil {
		values := make([]float32, mine.Elements())
		if err := mine.Download(w.ctx, values); err != nil {
			return err
		}
		for _, x := range values {
			raw = binary.NativeEndian.AppendUint32(raw, math.Float32bits(x))
		}
	}
	all, err := w.ring.comm.AllGather(w.ctx, raw)
	if err != nil {
		return err
	}
	sums := make([]float64, len(raw)/4)
	for rank, x := range all {
		if len(x) != len(raw) {
			return &RankError{Rank: w.ring.name(rank), Err: fmt.Errorf("it does not ask for Backward.%s as rank %d does: every rank gives "+
				"it, or none", name, w.ring.name(w.ring.Rank()))}
		}
		for i := range sums {
			sums[i] += float64(math.Float32frombits(binary.NativeEndian.Uint32(x[4*i:])))
		}
	}
	if mine == nil {
		return nil
	}
	values := make([]float32, len(sums))
	for i, x := range sums {
		values[i] = float32(x)
	}
	if err := w.settle(len(w.jobs)); err != nil {
		return err
	}
	if err := mine.Upload(w.ctx, values); err != nil {
		return err
	}
	if add {
		w.addTo(to, mine, w.tensor("all."+name, flash.F32, to.Shape(), to.Shape()[2]))
	} else {
		w.copies(mine, to)
	}
	return w.err
}
