package flash_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vkattn/vkattn/flash"
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

// filled makes a tensor whose element i, in the order b, h, n, d, is value(i).
func filled(dev *flash.Device, dtype flash.DType, shape [4]int, value func(i int) float32) *flash.Tensor {
	t := must(dev.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3]))
	values := make([]float32, t.Elements())
	for i := range values {
		values[i] = value(i)
	}
	check(t.Upload(context.Background(), values))
	return t
}

// downloaded gives all elements of a tensor.
func downloaded(t *flash.Tensor) []float32 {
	values := make([]float32, t.Elements())
	check(t.Download(context.Background(), values))
	return values
}

func constant(c float32) func(int) float32 { return func(int) float32 { return c } }

// A plan is made once and used many times. Here all keys are alike, so that every query weighs both values the same.
func Example() {
	dev, err := flash.Open() // the best device; flash.WithDevice("H200") chooses
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // and what was made on it

	plan, err := dev.Plan(flash.Problem{Batch: 1, Heads: 1, QueryLen: 2, HeadDim: 8, DType: flash.F16})
	if err != nil {
		log.Fatal(err)
	}
	p := plan.Problem() // defaults filled in; fmt.Println(plan) says which kernel, and why nothing faster

	q := filled(dev, p.DType, p.QShape(), constant(1))
	k := filled(dev, p.DType, p.KShape(), constant(0))
	v := filled(dev, p.DType, p.VShape(), func(i int) float32 { return []float32{1, 3}[i/p.ValueDim] })
	o := must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim))
	lse := must(dev.NewLSE(p.Batch, p.Heads, p.QueryLen)) // nil in its place: not wanted
	if err := plan.Forward(context.Background(), flash.Forward{Q: q, K: k, V: v, O: o, LSE: lse}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("o  ", downloaded(o))
	fmt.Printf("lse %.3f\n", downloaded(lse)) // log(exp 0 + exp 0)
	// Output:
	// o   [2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2]
	// lse [0.693 0.693]
}

// Attention is everything in one call, on slices. A causal mask lets the first query see the first key alone.
func ExampleAttention() {
	const length, dim = 3, 4
	q, k, v := make([]float32, length*dim), make([]float32, length*dim), make([]float32, length*dim)
	for i := range v {
		v[i] = float32(i / dim) // 0, 1, 2
	}
	o, err := flash.Attention(context.Background(), q, k, v,
		flash.Problem{Batch: 1, Heads: 1, QueryLen: length, HeadDim: dim, Causal: flash.CausalBottomRight})
	if err != nil {
		log.Fatal(err)
	}
	for i := range length {
		fmt.Println(o[i*dim : (i+1)*dim])
	}
	// Output:
	// [0 0 0 0]
	// [0.5 0.5 0.5 0.5]
	// [1 1 1 1]
}

// Grouped-query attention: four query heads read two key heads, two each.
func ExampleProblem_grouped() {
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 5, HeadDim: 16, DType: flash.F16}))
	p := plan.Problem()

	q := filled(dev, p.DType, p.QShape(), constant(1))
	k := filled(dev, p.DType, p.KShape(), constant(1))
	// 10 in one head, 20 in the other
	v := filled(dev, p.DType, p.VShape(), func(i int) float32 { return float32(10 * (1 + i/(p.KeyLen*p.ValueDim))) })
	o := must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim))
	check(plan.Forward(context.Background(), flash.Forward{Q: q, K: k, V: v, O: o}))
	for head := range p.Heads {
		fmt.Println("head", head, downloaded(o)[head*p.ValueDim])
	}
	// Output:
	// head 0 10
	// head 1 10
	// head 2 20
	// head 3 20
}

// A recording keeps its descriptors and workspace: the same tensors, or others, go through it again and again without another
// allocation. With timestamps it says how long the device took.
func ExamplePlan_NewRecording() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16}))
	p := plan.Problem()
	f := flash.Forward{
		Q: filled(dev, p.DType, p.QShape(), constant(1)),
		K: filled(dev, p.DType, p.KShape(), constant(1)),
		V: filled(dev, p.DType, p.VShape(), constant(0)),
		O: must(dev.NewTensor(p.DType, p.Batch, p.Heads, p.QueryLen, p.ValueDim)),
	}
	rec := must(plan.NewRecording(flash.WithTimestamps()))
	defer rec.Close()
	for step := range 3 {
		check(f.V.Upload(ctx, make([]float32, f.V.Elements())))
		check(rec.Forward(f)) // nothing to do when the tensors are those of the last time
		pending := must(rec.Submit())
		check(pending.Wait(ctx))
		took, timed := pending.GPUTime()
		fmt.Println("step", step, "took time:", !timed || took > 0)
	}
	// Output:
	// step 0 took time: true
	// step 1 took time: true
	// step 2 took time: true
}
