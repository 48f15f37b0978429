package kvcache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
)

// must gives a value that there is no going on without.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Two sequences decode from one prompt. Here all keys are alike, so that attention gives the mean of the values of all tokens so far; a
// program has its layers make q, k and v, and samples the next token from what comes out of the last one.
func ExampleCache() {
	dev := must(flash.Open())
	defer dev.Close() // and what was made on it
	ctx := context.Background()

	const heads, dim = 2, 8
	cache := must(kvcache.New(dev, kvcache.Options{
		Layers: 1, KeyHeads: 1, HeadDim: dim, Page: 4, Pages: 16, MaxSequences: 4, MaxLength: 32, DType: flash.F32,
	}))
	batch := must(cache.NewBatch(2, 3)) // up to two sequences, with up to three new tokens each

	// Plans are made once, and serve sequences of all lengths.
	attention := must(dev.Plan(batch.Problem(flash.Problem{Heads: heads, Causal: flash.CausalBottomRight})))
	appending := must(rows.PlanAppend(dev, batch.AppendProblem(rows.AppendProblem{})))
	p := attention.Problem()
	zeros := func(s [4]int) *flash.Tensor {
		return must(dev.TensorFrom(ctx, p.DType, make([]float32, s[0]*s[1]*s[2]*s[3]), s[0], s[1], s[2], s[3]))
	}
	q, o := zeros(p.QShape()), zeros(p.OShape())
	shape := [4]int{2, 1, 3, dim} // batch, key heads, tokens, columns
	k, v := zeros(shape), zeros(shape)

	// decode is one pass over new tokens, and gives what the last of each sequence attends to.
	decode := func(requests []kvcache.Request, values [2][]float32) (out [2]float32) {
		host := make([]float32, v.Elements())
		for row := range values {
			for i, x := range values[row] {
				for d := range dim {
					host[(row*3+i)*dim+d] = x
				}
			}
		}
		check(v.Upload(ctx, host))

		check(batch.Step(requests)) // an error that is kvcache.ErrOutOfPages: free a sequence, or wait
		check(batch.Submit())
		for layer := range cache.Options().Layers {
			check(appending.Append(ctx, batch.Append(layer, rows.Append{K: k, V: v})))
			check(attention.Forward(ctx, batch.Forward(layer, flash.Forward{Q: q, O: o})))
		}

		attended := make([]float32, o.Elements())
		check(o.Download(ctx, attended))
		for row := range values {
			if n := len(values[row]); n > 0 {
				out[row] = attended[(row*heads*3+n-1)*dim]
			}
		}
		return out
	}

	first := must(cache.Add())
	fmt.Println("the prompt:", decode([]kvcache.Request{{first, 3}}, [2][]float32{{1, 2, 3}})[0])

	second := must(cache.Fork(first)) // no page is taken before one of them goes on
	both := []kvcache.Request{{first, 1}, {second, 1}}
	for step := range 2 {
		x := float32(4 + step)
		fmt.Println("decoded:", decode(both, [2][]float32{{x}, {-x}}))
	}

	check(cache.Truncate(second, 3)) // what it decoded is taken back
	fmt.Println("again:", decode([]kvcache.Request{{}, {second, 1}}, [2][]float32{nil, {6}})[1])
	check(cache.Free(second))
	n := must(cache.Length(first))
	fmt.Println(n, "tokens in", 16-cache.FreePages(), "pages")
	// Output:
	// the prompt: 2
	// decoded: [2.5 0.5]
	// decoded: [3 -0.6]
	// again: 3
	// 5 tokens in 2 pages
}
