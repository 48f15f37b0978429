// Command readme is the program that README.md shows.
package main

import (
	"context"
	"errors"
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

	q, errQ := dev.TensorFrom(ctx, flash.F16, q32, 2, 8, 512, 64) // batch 2, 8 query heads, 512 tokens, head dimension 64
	k, errK := dev.TensorFrom(ctx, flash.F16, k32, 2, 2, 512, 64) // on 2 key heads
	v, errV := dev.TensorFrom(ctx, flash.F16, v32, 2, 2, 512, 64)
	if err := errors.Join(errQ, errK, errV); err != nil {
		return err
	}
	o, _, err := dev.SDPA(ctx, q, k, v, flash.SDPAOptions{Causal: flash.CausalBottomRight})
	if err != nil {
		return err
	}
	return o.Download(ctx, o32)
}
