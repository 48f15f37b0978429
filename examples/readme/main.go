// Command readme is the program that README.md shows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/vkattn/vkattn/flash"
)

func main() {
	q, k, v := make([]float32, 2*8*512*64), make([]float32, 2*2*512*64), make([]float32, 2*2*512*64)
	o := make([]float32, len(q))
	if err := attend(context.Background(), q, k, v, o); err != nil {
		log.Fatal(err)
	}
}

func attend(ctx context.Context, q32, k32, v32, o32 []float32) error {
	dev, err := flash.Open() // the best device; flash.Attach uses a VkDevice of your own
	if err != nil {
		return err
	}
	defer dev.Close() // and what was made on it

	plan, err := dev.Plan(flash.Problem{ // batch 2, 8 query heads on 2 key heads, fp16
		Batch: 2, Heads: 8, KeyHeads: 2, QueryLen: 512, HeadDim: 64, DType: flash.F16, Causal: flash.CausalBottomRight,
	})
	if err != nil {
		return err
	}
	fmt.Println(plan) // tier, kernel, tile, workspace bytes, and why nothing faster

	q, errQ := dev.NewTensor(flash.F16, 2, 8, 512, 64) // flash.TensorOn lays one over a buffer of your own
	k, errK := dev.NewTensor(flash.F16, 2, 2, 512, 64)
	v, errV := dev.NewTensor(flash.F16, 2, 2, 512, 64)
	o, errO := dev.NewTensor(flash.F16, 2, 8, 512, 64)
	if err := errors.Join(errQ, errK, errV, errO); err != nil {
		return err
	}
	if err := errors.Join(q.Upload(ctx, q32), k.Upload(ctx, k32), v.Upload(ctx, v32)); err != nil {
		return err
	}
	if err := plan.Forward(ctx, flash.Forward{Q: q, K: k, V: v, O: o}); err != nil { // without LSE: no log-sum-exp wanted
		return err
	}
	return o.Download(ctx, o32)
}
