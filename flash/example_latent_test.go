package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Multi-head latent attention decodes with one key head that all query heads read, and whose first ValueDim columns are the values: v is a
// view of k, and the cache holds each row once. Here keys differ in their first column alone, which queries do not look at, so that every
// query head gives the mean of it.
func ExampleProblem_latent() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	p := must(flash.Problem{
		Batch: 1, Heads: 16, KeyHeads: 1, QueryLen: 1, KeyLen: 64, HeadDim: 576, ValueDim: 512, DType: flash.F16, KeyLengths: true,
	}.Normalize())
	plan := must(dev.Plan(p))
	defer plan.Close()

	k := filled(dev, p.DType, p.KShape(), func(i int) float32 {
		if i%p.HeadDim == 0 {
			return float32(i / p.HeadDim) // the token's number
		}
		return 0.5
	})
	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), func(i int) float32 { return float32(min(i%p.HeadDim, 1)) }), // 0 in the first column
		K: k,
		V: must(k.View(0, p.DType, p.VShape(), k.Strides())), // the first ValueDim columns, where they lie
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)),
	}
	f.KeyLengths = filled(dev, flash.Int32, [4]int{1, 1, 1, p.Batch}, constant(41)) // tokens 0 to 40
	check(plan.Forward(ctx, f))
	o := downloaded(f.O)
	fmt.Println(o[0], o[1], o[p.ValueDim])
	// Output: 20 0.5 20
}
