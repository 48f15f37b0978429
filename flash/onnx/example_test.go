package onnx_test

import (
	"context"
	"fmt"
	"log"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/onnx"
)

// A node of a decoder: two query heads on one key head, both in the columns of their tensors, and a past of one key.
func Example() {
	ctx := context.Background()
	dev, err := flash.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	tensor := func(values []float32, heads, length, dim int) *flash.Tensor {
		t, err := dev.TensorFrom(ctx, flash.F32, values, 1, heads, length, dim)
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	node := onnx.Attention{IsCausal: true, QNumHeads: 2, KVNumHeads: 1, Present: true}
	out, err := node.Run(ctx, dev, onnx.AttentionInputs{
		Q:       tensor([]float32{0, 0, 0, 0}, 1, 1, 4), // [batch 1, length 1, 2 heads · 2]
		K:       tensor([]float32{3, 4}, 1, 1, 2),
		V:       tensor([]float32{30, 40}, 1, 1, 2),
		PastKey: tensor([]float32{1, 2}, 1, 1, 2), PastValue: tensor([]float32{10, 20}, 1, 1, 2),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()
	y, keys := make([]float32, 4), make([]float32, 4)
	if err := out.Y.Download(ctx, y); err != nil {
		log.Fatal(err)
	}
	if err := out.PresentKey.Download(ctx, keys); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y, keys) // scores of 0: the mean of both values, for either head
	// Output: [20 30 20 30] [1 2 3 4]
}
