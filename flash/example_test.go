package flash_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vkattn/vkattn/flash"
)

// A plan is made once and used many times.
func Example() {
	dev, err := flash.Open() // the best device; flash.WithDevice("H200") chooses
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	plan, err := dev.Plan(flash.Problem{
		Batch: 2, Heads: 32, KeyHeads: 8, QueryLen: 4096, HeadDim: 128,
		DType: flash.F16, Causal: flash.CausalBottomRight,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan) // tier, kernel, tile, workspace, and why nothing faster

	tensor := func(shape [4]int) *flash.Tensor {
		t, err := dev.NewTensor(flash.F16, shape[0], shape[1], shape[2], shape[3])
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	p := plan.Problem()
	q, k, v, o := tensor(p.QShape()), tensor(p.KShape()), tensor(p.VShape()), tensor(p.OShape())
	if err := plan.Forward(context.Background(), q, k, v, o, nil); err != nil {
		log.Fatal(err)
	}
}

// Attention is everything in one call, on slices.
func ExampleAttention() {
	q := make([]float32, 1*8*100*64)
	k, v := make([]float32, len(q)), make([]float32, len(q))
	o, err := flash.Attention(context.Background(), q, k, v, flash.Problem{Batch: 1, Heads: 8, QueryLen: 100, HeadDim: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(o))
}

// A program with a VkDevice of its own records attention between its own commands.
func ExampleAttach() {
	var external flash.External // its instance, physical device, device, queue, enabled features
	var buffer flash.BufferRef  // its VkBuffer
	var cmd uintptr             // its VkCommandBuffer, being recorded

	dev, err := flash.Attach(external)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // leaves what is the program's alone
	plan, err := dev.Plan(flash.Problem{Batch: 1, Heads: 8, QueryLen: 512, HeadDim: 64, DType: flash.F16})
	if err != nil {
		log.Fatal(err)
	}
	shape := plan.Problem().QShape()
	var t [4]*flash.Tensor // q, k, v, o, one behind the other in the buffer
	for i := range t {
		if t[i], err = dev.TensorOn(buffer, uint64(i)*8*512*64*2, flash.F16, shape, [4]int{}); err != nil {
			log.Fatal(err)
		}
	}
	rec, err := plan.RecordForward(cmd, flash.Forward{Q: t[0], K: t[1], V: t[2], O: t[3]})
	if err != nil {
		log.Fatal(err)
	}
	// … submit cmd, wait for it …
	rec.Close()
}
