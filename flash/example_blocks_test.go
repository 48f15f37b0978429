package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Block-sparse attention: of four blocks of 64 × 64 scores the one at the upper right is zero, and costs nothing.
func ExampleDevice_NewBlockMask() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{
		Batch: 1, Heads: 1, QueryLen: 128, HeadDim: 16, DType: flash.F16, Blocks: flash.Blocks{Queries: 64, Keys: 64},
	}))
	p := plan.Problem()

	mask := must(dev.NewBlockMask(ctx, p, []bool{ // of shape p.MaskShape()
		true, false,
		true, true,
	}))
	defer mask.Close()
	blocks, of := mask.Nonzero()
	fmt.Println(blocks, "of", of, "blocks")

	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(0)),
		K: filled(dev, p.DType, p.KShape(), constant(0)),
		V: filled(dev, p.DType, p.VShape(), func(i int) float32 { return []float32{1, 3}[i/(64*p.ValueDim)] }),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)), Blocks: mask,
	}
	pending := must(plan.SubmitForward(f))
	check(pending.Wait(ctx))
	o := downloaded(f.O)
	fmt.Println("query 0:", o[0], "query 127:", o[127*p.ValueDim])
	// Output:
	// 3 of 4 blocks
	// query 0: 1 query 127: 2
}
