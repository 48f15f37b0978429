package ring

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// Gradients with respect to what score functions capture. A launch gives its pairs' part of one, and every rank has the sum of all launches
// of all ranks: these tensors are small beside keys, and the same of every rank.

// hasGradients says of each tensor that a problem's functions capture whether there is a gradient with respect to it.
func hasGradients(p *flash.Problem) (all []score.Tensor, has []bool) {
	all = p.Captures()
	for _, t := range all {
		_, err := p.ScoreFunction.Gradient(t.Name)
		has = append(has, err == nil)
	}
	return all, has
}

// capturedShape is that of a captured tensor: as declared, with leading ones.
func capturedShape(t *score.Tensor) [4]int {
	shape := [4]int{1, 1, 1, 1}
	copy(shape[4-len(t.Shape):], t.Shape)
	return shape
}

// checkCaptured says which gradient with respect to a captured tensor is wanted that there is none of, or where it cannot be written.
func (w *pass) checkCaptured(call string, given flash.Captured) error {
	all, has := hasGradients(&w.problem)
	for i, t := range given {
		name := fmt.Sprintf("%s.DCaptured[%d]", call, i)
		switch {
		case t == nil:
		case i >= len(all):
			return badArgument(name, t, "must be nil: the functions capture %d tensors by name", len(all))
		case !has[i]:
			return badArgument(name, t, "must be nil: there is no gradient with respect to %s", all[i].Name)
		case t.DType() != flash.F32 || t.Shape() != capturedShape(&all[i]):
			return badArgument(name, t, "must be of type %v and shape %v", flash.F32, capturedShape(&all[i]))
		}
	}
	return nil
}

// likeCaptured are buffers of a name for those gradients that are wanted.
func (w *pass) likeCaptured(name string, wanted flash.Captured) (out flash.Captured) {
	for i, t := range wanted {
		if t != nil {
			out[i] = w.tensor(fmt.Sprint(name, ".dcaptured", i), flash.F32, t.Shape(), t.Shape()[2])
		}
	}
	return out
}

// beginCaptured begins the sums over launches.
func (g *gradients) beginCaptured(w *pass) {
	g.dcaptured = w.likeCaptured("sum", g.b.DCaptured)
	for _, t := range g.dcaptured {
		if t != nil {
			w.fill(t, 0)
		}
	}
}

// addCaptured adds a launch's part.
func (w *pass) addCaptured(g *gradients, part flash.Captured) {
	for i, t := range part {
		if t != nil {
			w.accumulate(flash.AccumulateAdd, flash.Accumulate{X: t, Y: g.dcaptured[i]})
		}
	}
}

// reduceCaptured sums over ranks, and gives every rank what it wants.
func (w *pass) reduceCaptured(b *flash.Backward, mine flash.Captured) error {
	_, has := hasGradients(&w.problem)
	for i := range has {
		if !has[i] {
			continue
		}
		if err := w.reduce(fmt.Sprintf("DCaptured[%d]", i), mine[i], b.DCaptured[i], b.Accumulate); err != nil {
			return err
		}
	}
	return nil
}
