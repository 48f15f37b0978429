package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// Two documents of 128 tokens in one sequence: blocks of scores across them are left out, and those within one need no look at single
// scores.
func ExampleDevice_NewMaskBlocks() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	const n = 256
	p := must(flash.Problem{
		Batch: 1, Heads: 1, QueryLen: n, HeadDim: 16, DType: flash.F16, Causal: flash.CausalBottomRight,
		MaskFunction: score.Documents(score.CaptureInt("ids", n)), MaskBlocks: flash.Blocks{Queries: 64, Keys: 64},
	}.Normalize())
	plan := must(dev.Plan(p))
	defer plan.Close()

	ids := must(dev.NewTensor(flash.Int32, 1, 1, 1, n))
	document := func(token int) float32 { return float32(token / 128) }
	all := make([]float32, n)
	for j := range all {
		all[j] = document(j)
	}
	check(ids.Upload(ctx, all))
	mask := must(dev.NewMaskBlocks(ctx, p, ids))
	defer mask.Close()
	none, whole, edge, err := mask.Count(ctx)
	check(err)
	fmt.Println(none, "blocks of none,", whole, "whole,", edge, "edges")

	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(0)),
		K: filled(dev, p.DType, p.KShape(), constant(0)),
		V: filled(dev, p.DType, p.VShape(), func(i int) float32 { return document(i / p.ValueDim) }),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)), Captured: flash.Captured{ids}, MaskBlocks: mask,
	}
	check(plan.Forward(ctx, f))
	o := downloaded(f.O)
	fmt.Println("query 127:", o[127*p.ValueDim], "query 128:", o[128*p.ValueDim])
	// Output:
	// 10 blocks of none, 6 whole, 0 edges
	// query 127: 0 query 128: 1
}
