package flash_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// A training step: forward with lse, then, once the gradient of the loss by o is known, the gradients with respect to q, k and v. Here the
// loss is the sum of o. Both keys are weighted alike; moving towards the second, whose value is larger, would raise it.
func ExamplePlan_Backward() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 1, QueryLen: 2, HeadDim: 8, Scale: 0.5}))
	p := plan.Problem()

	q := filled(dev, p.DType, p.QShape(), constant(1))
	k := filled(dev, p.DType, p.KShape(), constant(0))
	v := filled(dev, p.DType, p.VShape(), func(i int) float32 { return []float32{1, 3}[i/p.ValueDim] })
	o := must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim))
	lse := must(dev.NewLSE(p.Batch, p.Heads, p.QueryLen))
	f := flash.Forward{Q: q, K: k, V: v, O: o, LSE: lse}
	check(plan.Forward(ctx, f))

	do := filled(dev, p.DType, p.OShape(), constant(1))
	dq, dk, dv := filled(dev, p.DType, p.QShape(), constant(0)), filled(dev, p.DType, p.KShape(), constant(0)),
		filled(dev, p.DType, p.VShape(), constant(0))
	check(plan.Backward(ctx, flash.Backward{Forward: f, DO: do, DQ: dq, DK: dk, DV: dv}))

	// Standard attention's backward pass also takes the weights that forward kept: Plan.NewWeights.
	row := func(t *flash.Tensor, n int) float32 { return downloaded(t)[n*p.HeadDim] }
	fmt.Printf("dv %.2f %.2f\n", row(dv, 0), row(dv, 1)) // Σ_i p_ij · do_i
	fmt.Printf("dk %.2f %.2f\n", row(dk, 0), row(dk, 1)) // ½ · Σ_i ds_ij · q_i, ds = ½·(8 − 16) and ½·(24 − 16)
	fmt.Printf("dq %.2f\n", row(dq, 0)+0)                // k is 0
	// Output:
	// dv 1.00 1.00
	// dk -4.00 4.00
	// dq 0.00
}

// Dropout is drawn from a seed and an offset: the same two give the same weights, in the backward pass as well, and the next
// step takes the next offset.
func ExamplePlan_SubmitForward_dropout() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 1, QueryLen: 16, KeyLen: 64, HeadDim: 8, Dropout: 0.1}))
	fmt.Println("in effect:", plan.DropoutProbability()) // to the nearest 1/256

	p := plan.Problem()
	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(0)),
		K: filled(dev, p.DType, p.KShape(), constant(0)),
		V: filled(dev, p.DType, p.VShape(), constant(1)),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)),
	}
	step := func(seed uint64, offset uint32) []float32 {
		f.Seed, f.Offset = seed, offset
		pending := must(plan.SubmitForward(f))
		check(pending.Wait(ctx))
		return downloaded(f.O)
	}
	first := step(42, 0)
	fmt.Println("again the same:", slices.Equal(first, step(42, 0)))
	fmt.Println("the next step too:", slices.Equal(first, step(42, 1)))

	kept := 0
	mask := must(plan.DropoutMask(ctx, 42, 0))
	for _, keep := range mask {
		if keep {
			kept++
		}
	}
	fmt.Println("kept:", kept, "of", len(mask))
	// Output:
	// in effect: 0.1015625
	// again the same: true
	// the next step too: false
	// kept: 920 of 1024
}
