package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Sparse attention by lists: each query sees the keys that its own list names, in any order. Queries are batch entries of one row, keys lie
// in pages of one row, and a list is a row of the table of pages; how many of its numbers count is the entry's length. Here all keys are
// alike, and value j is j everywhere, so that a query's output is the mean of its list.
func ExamplePages() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	const queries, keys, longest = 3, 100, 4
	p := must(flash.Problem{
		Batch: queries, Heads: 2, KeyHeads: 1, QueryLen: 1, KeyLen: longest, HeadDim: 8, DType: flash.F16,
		Pages: flash.Pages{Size: 1, Count: keys, PerSequence: longest}, KeyLengths: true,
	}.Normalize())
	plan := must(dev.Plan(p))
	defer plan.Close()

	lists, lengths := [][]float32{{3, 1, 0, 0}, {99, 0, 9, 0}, {7, 50, 60, 3}}, []float32{2, 3, 4}
	numbers := must(dev.NewTensor(flash.Int32, 1, 1, queries, longest))
	var all []float32
	for _, list := range lists {
		all = append(all, list...)
	}
	check(numbers.Upload(ctx, all))
	counts := must(dev.NewTensor(flash.Int32, 1, 1, 1, queries))
	check(counts.Upload(ctx, lengths))

	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(1)),
		K: filled(dev, p.DType, p.KShape(), constant(0)),
		V: filled(dev, p.DType, p.VShape(), func(i int) float32 { return float32(i / p.ValueDim) }),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)), PageTable: numbers, KeyLengths: counts,
	}
	check(plan.Forward(ctx, f))
	o := downloaded(f.O)
	for i := range queries {
		fmt.Println(o[i*p.Heads*p.ValueDim])
	}
	// Output:
	// 2
	// 36
	// 30
}
