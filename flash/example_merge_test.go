package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Cascade attention: two requests that share a prefix attend to it together, as two rows of queries that read its keys once, and each to
// keys of its own; a merge gives what attention to all keys of a request gives. All keys are alike here, so that values weigh the same:
// three of the prefix are 1, the requests' own 5 and 9.
func ExampleDevice_PlanMerge() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	const requests, heads, prefix, dim = 2, 2, 3, 8
	shared := must(dev.Plan(flash.Problem{Batch: 1, Heads: heads, QueryLen: requests, KeyLen: prefix, HeadDim: dim}))
	own := must(dev.Plan(flash.Problem{Batch: requests, Heads: heads, QueryLen: 1, KeyLen: 1, HeadDim: dim}))
	merge := must(dev.PlanMerge(flash.MergeProblem{Parts: 2, Batch: requests, Heads: heads, QueryLen: 1, ValueDim: dim}))

	rows := [4]int{requests, heads, 1, dim}
	q := filled(dev, flash.F32, rows, constant(1))
	ofPrefix := flash.Part{O: must(dev.NewTensor(flash.F32, requests, heads, 1, dim)), LSE: must(dev.NewLSE(1, heads, requests))}
	ofOwn := flash.Part{O: must(dev.NewTensor(flash.F32, requests, heads, 1, dim)), LSE: must(dev.NewLSE(requests, heads, 1))}
	all := flash.Part{O: must(dev.NewTensor(flash.F32, requests, heads, 1, dim)), LSE: must(dev.NewLSE(requests, heads, 1))}

	// The same memory with requests as rows: [1, heads, requests, dim].
	asRows := func(t *flash.Tensor) *flash.Tensor {
		return must(t.View(0, t.DType(), [4]int{1, heads, requests, dim}, [4]int{0, dim, heads * dim, 1}))
	}
	check(shared.Forward(ctx, flash.Forward{Q: asRows(q), O: asRows(ofPrefix.O), LSE: ofPrefix.LSE,
		K: filled(dev, flash.F32, [4]int{1, heads, prefix, dim}, constant(0)), V: filled(dev, flash.F32, [4]int{1, heads, prefix, dim},
			constant(1))}))
	// And rows as requests again: [requests, heads, 1, 1].
	ofPrefix.LSE = must(ofPrefix.LSE.View(0, flash.F32, [4]int{requests, heads, 1, 1}, [4]int{1, requests, 1, 1}))

	check(own.Forward(ctx, flash.Forward{Q: q, O: ofOwn.O, LSE: ofOwn.LSE,
		K: filled(dev, flash.F32, rows, constant(0)),
		V: filled(dev, flash.F32, rows, func(i int) float32 { return float32(5 + i/(heads*dim)*4) })}))
	check(merge.Merge(ctx, flash.Merge{Parts: []flash.Part{ofPrefix, ofOwn}, O: all.O, LSE: all.LSE}))

	o := downloaded(all.O)
	fmt.Printf("o   %.3f %.3f\n", o[0], o[heads*dim]) // (1 + 1 + 1 + 5) / 4, (1 + 1 + 1 + 9) / 4
	fmt.Printf("lse %.3f\n", downloaded(all.LSE))
	// Output:
	// o   2.000 3.000
	// lse [1.386 1.386 1.386 1.386]
}
