package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
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

// standardBackwardTile is a standardBackwardShape.
type standardBackwardTile struct {
	gradientTiles[ScalarTile, *ScalarTile]
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

func (t *standardBackwardTile) selfCheck(of *attn.Problem) attn.Problem { return t.small(of, 3) }

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
