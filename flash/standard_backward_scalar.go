package flash

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// scalarStandardBackward is the backward pass of standard attention in fp32 arithmetic: shaders/standard_backward_*.comp, with the
// products of forward for dP and dQ.
var scalarStandardBackward = &backwardKernel{
	offer: offer{
		name:           "standard_backward_scalar",
		implementation: Standard,
		tier:           TierScalar,
		can:            attn.WithDropout,
		parameters:     groupBound,
		unsupported:    scalarLacks,
	},
	plan: planScalarStandardBackward,
}

func planScalarStandardBackward(e *environment, p *Problem, forward program, t *tuning) (backwardProgram, error) {
	shape, err := chooseStandardBackwardTile(&e.caps, p)
	if err != nil {
		return nil, err
	}
	s, err := newStandardBackward(e, p, forward.(*standardProgram), &shape, t)
	if err != nil {
		return nil, err
	}
	return s, s.build(s.dense())
}

// standardBackwardTile is a standardBackwardShape: tiles of the forward kernels, each for the problem that has the shape of its product.
type standardBackwardTile struct {
	weights standardTile // dP, and the rows of dS
	queries standardTile // dQ
	values  standardTile // dV: rows are keys
	keys    standardTile // dK, the same
}

func chooseStandardBackwardTile(c *capabilities, p *Problem) (t standardBackwardTile, err error) {
	turned := *p // sums over queries
	turned.QueryLen, turned.KeyLen = p.KeyLen, p.QueryLen
	for _, x := range []struct {
		to   *standardTile
		p    Problem
		dim  int
		turn bool
	}{{&t.weights, *p, p.ValueDim, false}, {&t.queries, *p, p.HeadDim, false}, {&t.values, turned, p.ValueDim, true}, {&t.keys, turned, p.HeadDim, true}} {
		x.p.HeadDim, x.p.ValueDim = x.dim, x.dim
		if *x.to, err = chooseStandardTile(c, &x.p, newTuning(nil)); err != nil {
			return t, err
		}
		for x.turn && x.to.productBR%8 != 0 { // keys come in units of 16 bytes
			x.to.productBR *= 2
			x.to.productMR *= 2
		}
		if why := x.to.check(&x.p, &c.facts.Limits); why != "" {
			return t, &declined{why: why}
		}
	}
	return t, nil
}

func (t *standardBackwardTile) String() string {
	return fmt.Sprintf("dp %v, dk %dx%d", &t.weights, t.keys.productBR, t.keys.productBC)
}

func (t *standardBackwardTile) model() traffic.BackwardStandard {
	return traffic.BackwardStandard{Weights: t.weights.model().Scores, Scores: backwardRows(t.weights.rowThreads, t.weights.rowKeep),
		Values: t.values.model().Product, Queries: t.queries.model().Product, Keys: t.keys.model().Product}
}

func (t *standardBackwardTile) pace() pace { return scalarPace }

func (t *standardBackwardTile) block(part standardGradient) (rows, cols int) {
	switch part {
	case gradWeights:
		return t.weights.scoresBlock()
	case gradScores:
		return t.weights.softmaxRows(), 0
	case gradValues:
		return t.values.productBR, 0
	case gradQueries:
		return t.queries.productBR, 0
	}
	return t.keys.productBR, 0
}

func (t *standardBackwardTile) kernel(part standardGradient, p *Problem, v gradientVariant) standardKernel {
	switch part {
	case gradWeights:
		byValues := *p
		byValues.HeadDim = p.ValueDim
		return t.weights.scores(&byValues, v.aligned)
	case gradScores:
		rows, keys := t.queries.productBlock()
		return standardKernel{"standard_backward_softmax." + p.DType.suffix(),
			backwardSoftmaxSpec(p, v, t.weights.rowThreads, t.weights.rowKeep, rows+keys, 0), pipeline.KernelInfo{}}
	case gradValues:
		return t.values.sums("standard_backward_product", p, p.ValueDim, v.aligned, v.accumulate, true)
	case gradQueries:
		return t.queries.sums("standard_product", p, p.HeadDim, v.aligned, v.accumulate, false)
	}
	return t.keys.sums("standard_backward_product", p, p.HeadDim, v.aligned, v.accumulate, false)
}
