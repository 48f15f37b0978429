package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// ScalarBackward is the backward pass of standard attention in fp32 arithmetic: shaders/standard_backward_*.comp, with the
// products of forward for dP and dQ.
var ScalarBackward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "standard_backward_scalar",
		Implementation: kernel.Standard,
		Tier:           kernel.TierScalar,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths,
		Parameters:     kernel.GroupBound,
		Unsupported:    kernel.ScalarLacks,
	},
	Plan: planScalarBackward,
}

func planScalarBackward(e *kernel.Env, p *attn.Problem, forward kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	shape, err := chooseStandardBackwardTile(&e.Caps, p)
	if err != nil {
		return nil, err
	}
	// The functions of others stand in forward's kernels alone, unless they have derivatives.
	return planGradients("standard_backward_scalar", true, e, p, forward.(*Program), &shape, t)
}

// standardBackwardTile is a standardBackwardShape: tiles of the forward kernels, each for the problem that has the shape of its product.
type standardBackwardTile struct {
	weights ScalarTile // dP, and the rows of dS
	queries ScalarTile // dQ
	values  ScalarTile // dV: rows are keys
	keys    ScalarTile // dK, the same
}

func chooseStandardBackwardTile(c *kernel.Capabilities, p *attn.Problem) (t standardBackwardTile, err error) {
	turned := *p // sums over queries
	turned.QueryLen, turned.KeyLen = p.KeyLen, p.QueryLen
	for _, x := range []struct {
		to   *ScalarTile
		p    attn.Problem
		dim  int
		turn bool
	}{{&t.weights, *p, p.ValueDim, false}, {&t.queries, *p, p.HeadDim, false}, {&t.values, turned, p.ValueDim, true},
		{&t.keys, turned, p.HeadDim, true}} {
		x.p.HeadDim, x.p.ValueDim = x.dim, x.dim
		if *x.to, err = ChooseScalarTile(c, &x.p, kernel.NewTuning(nil)); err != nil {
			return t, err
		}
		for x.turn && x.to.productBR%8 != 0 { // keys come in units of 16 bytes
			x.to.productBR *= 2
			x.to.productMR *= 2
		}
		if why := x.to.Check(&x.p, &c.Facts.Limits); why != "" {
			return t, &kernel.Declined{Why: why}
		}
	}
	return t, nil
}

func (t *standardBackwardTile) String() string {
	return fmt.Sprintf("dp %v, dk %dx%d", &t.weights, t.keys.productBR, t.keys.productBC)
}

// selfCheck is a small problem for the kernels, whose rows must not be longer than the kernel of dS keeps.
func (t *standardBackwardTile) selfCheck(of *attn.Problem) attn.Problem {
	p := kernel.SelfCheckOf(of)
	p.QueryLen = max(t.weights.scoresBR, t.queries.productBR, t.values.productBC, t.keys.productBC) + 3
	p.KeyLen = max(t.weights.scoresBC, 2*t.queries.productBC, t.values.productBR, t.keys.productBR) + 3
	if keep := backwardKeeps(t.weights.RowKeep); keep > 0 {
		p.KeyLen = min(p.KeyLen, 4*t.weights.RowThreads*keep)
	}
	return p
}

func (t *standardBackwardTile) Model() traffic.BackwardStandard {
	return traffic.BackwardStandard{Weights: t.weights.Model().Scores, Scores: backwardRows(t.weights.RowThreads, t.weights.RowKeep),
		Values: t.values.Model().Product, Queries: t.queries.Model().Product, Keys: t.keys.Model().Product}
}

func (t *standardBackwardTile) pace() kernel.Pace { return kernel.ScalarPace }

func (t *standardBackwardTile) block(part gradient) (rows, cols int) {
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

func (t *standardBackwardTile) Kernel(part gradient, p *attn.Problem, v kernel.GradientVariant) pass.Stage {
	switch part {
	case gradWeights:
		byValues := *p
		byValues.HeadDim = p.ValueDim
		return t.weights.Scores(&byValues, v.Aligned)
	case gradScores:
		return pass.Stage{Module: "standard_backward_softmax." + p.DType.Suffix(),
			Constants: BackwardSoftmaxSpec(p, v, t.weights.RowThreads, t.weights.RowKeep, p.Mask().ReadBehind(t.queries.productBlock()), 0)}
	case gradValues:
		return t.values.Sums("standard_backward_product", p, p.ValueDim, v.Aligned, v.Accumulate, true)
	case gradQueries:
		return t.queries.Sums("standard_product", p, p.HeadDim, v.Aligned, v.Accumulate, false)
	}
	return t.keys.Sums("standard_backward_product", p, p.HeadDim, v.Aligned, v.Accumulate, false)
}
