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
func (g *gradients) beginBias(w *pass) (err error) {
	if g.b.DBias == nil {
		return nil
	}
	if w.sched.summedBias() {
		if g.dbias, err = w.tensor("sum.dbias", flash.F32, w.BiasShape(), w.BiasShape()[2]); err != nil {
			return err
		}
		return w.fill(g.dbias, 0)
	}
	if g.b.Accumulate {
		return nil
	}
	rank := w.ring.Rank()
	for i, q := range w.sched.queries.spans[rank] {
		for owner := range w.sched.ranks {
			for j, k := range w.sched.keys.spans[owner] {
				if w.sched.band(q, k).kind != none {
					continue
				}
				l := w.sched.make(rank, owner, Span{i, i + 1}, Span{j, j + 1})
				none, err := slice(g.b.DBias, l.problem.Bias, &l)
				if err != nil {
					return err
				}
				if err := w.fill(none, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// biasGradient is where a launch writes its gradient with respect to the bias: into the caller's tensor, where it need not be added to
// anything.
func (w *pass) biasGradient(g *gradients, l *launch) (*flash.Tensor, error) {
	if g.b.DBias == nil {
		return nil, nil
	}
	if of := l.problem.Bias; g.b.Accumulate || w.sched.summedBias() {
		return w.likeBias("part.dbias", of.DType, [4]int{of.Batch, of.Heads, of.Queries, of.Keys})
	}
	return slice(g.b.DBias, l.problem.Bias, l)
}

// likeBias is a tensor for a launch's part of what has the shape of the bias.
func (w *pass) likeBias(name string, dtype flash.DType, shape [4]int) (*flash.Tensor, error) {
	most := w.BiasShape()
	columns := min(most[3], w.sched.keys.most())
	if w.sched.packed != nil {
		columns = most[3] // all places of a sequence
	}
	whole, err := w.tensor(name, dtype, [4]int{most[0], most[1], most[2], columns}, most[2])
	if err != nil {
		return nil, err
	}
	return whole.View(0, dtype, shape, [4]int{})
}

// addBias adds a launch's gradient with respect to the bias where it was not written in place.
func (w *pass) addBias(g *gradients, l *launch, part *flash.Tensor) error {
	switch {
	case part == nil:
		return nil
	case w.sched.summedBias():
		sum, err := slice(g.dbias, l.problem.Bias, l)
		if err != nil {
			return err
		}
		return w.accumulate(flash.AccumulateAdd, flash.Accumulate{X: part, Y: sum})
	case g.b.Accumulate:
		to, err := slice(g.b.DBias, l.problem.Bias, l)
		if err != nil {
			return err
		}
		sum, err := w.likeBias("sum.dbias", flash.F32, part.Shape())
		if err != nil {
			return err
		}
		return w.addTo(to, part, sum)
	}
	return nil
}

// addTo adds a part to a tensor of any type, by way of a sum in fp32.
func (w *pass) addTo(to, part, sum *flash.Tensor) error {
	if err := w.copies(to, sum); err != nil {
		return err
	}
	if err := w.accumulate(flash.AccumulateAdd, flash.Accumulate{X: part, Y: sum}); err != nil {
		return err
	}
	return w.copies(sum, to)
}

// overAllQueries gives every rank the gradients with respect to what all queries share: the sum of what ranks have, in the order of ranks.
func (w *pass) overAllQueries(g *gradients) error {
	if w.problem.Sinks {
		var sum *flash.Tensor
		if g.b.DSinks != nil {
			var err error
			if sum, err = w.sinkGradient(g.b); err != nil {
				return err
			}
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
		return nil
	case !g.b.Accumulate:
		return w.copies(g.dbias, g.b.DBias)
	}
	sum, err := w.tensor("all.DBias", flash.F32, g.dbias.Shape(), g.dbias.Shape()[2])
	if err != nil {
		return err
	}
	return w.addTo(g.b.DBias, g.dbias, sum)
}

// reduce sums a tensor over ranks and writes it where the caller wants it; nil of every rank: nobody wants it.
func (w *pass) reduce(name string, mine, to *flash.Tensor, add bool) error {
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
	if !add {
		return w.copies(mine, to)
	}
	sum, err := w.tensor("all."+name, flash.F32, to.Shape(), to.Shape()[2])
	if err != nil {
		return err
	}
	return w.addTo(to, mine, sum)
}
