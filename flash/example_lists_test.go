package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Sparse attention by lists: each query sees the keys that its own list names, in any order; −1 is no key. Here all keys are alike, and
// value j is j everywhere, so that a query's output is the mean of its list.
func ExampleLists() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	const queries, keys, longest = 3, 100, 4
	p := must(flash.Problem{
		Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: queries, KeyLen: keys, HeadDim: 8, DType: flash.F16,
		Lists: flash.Lists{Keys: longest},
	}.Normalize())
	plan := must(dev.Plan(p))
	defer plan.Close()

	lists := must(dev.NewTensor(flash.Int32, p.Batch, 1, queries, longest))
	check(lists.Upload(ctx, []float32{3, 1, -1, -1, 99, 0, -1, 9, 7, 50, 60, 3}))

	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(1)),
		K: filled(dev, p.DType, p.KShape(), constant(0)),
		V: filled(dev, p.DType, p.VShape(), func(i int) float32 { return float32(i / p.ValueDim) }),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)), Lists: lists,
	}
	check(plan.Forward(ctx, f))
	o := downloaded(f.O)
	for i := range queries {
		fmt.Println(o[i*p.ValueDim])
	}
	// Output:
	// 2
	// 36
	// 30
}
