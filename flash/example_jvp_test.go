package flash_test

import (
	"context"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
)

// A directional derivative: how o and lse move where q, k and v move along tangents. The same is computed here by two more
// forward passes, a step to either side, as far as their difference is exact.
func ExamplePlan_JVP() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 2, QueryLen: 6, HeadDim: 8, Causal: flash.CausalBottomRight}))
	p := plan.Problem()

	// Inputs, and where they move to: q + step·q̇ and so on.
	wave := func(phase float64, i int) float64 { return math.Sin(phase + 1.7*float64(i)) }
	input := func(shape [4]int, phase, step float64) *flash.Tensor {
		return filled(dev, p.DType, shape, func(i int) float32 { return float32(wave(phase, i) + step*wave(phase+2, i)) })
	}
	tangent := func(shape [4]int, phase float64) *flash.Tensor {
		return filled(dev, p.DType, shape, func(i int) float32 { return float32(wave(phase+2, i)) })
	}
	forward := func(step float64) flash.Forward {
		f := flash.Forward{Q: input(p.QShape(), 0, step), K: input(p.KShape(), 1, step), V: input(p.VShape(), 3, step),
			O: filled(dev, p.DType, p.OShape(), constant(0)), LSE: must(dev.NewLSE(p.Batch, p.Heads, p.QueryLen))}
		check(plan.Forward(ctx, f))
		return f
	}

	j := flash.JVP{Forward: forward(0),
		QTangent: tangent(p.QShape(), 0), KTangent: tangent(p.KShape(), 1), VTangent: tangent(p.VShape(), 3),
		OTangent: filled(dev, p.DType, p.OShape(), constant(0)), LSETangent: must(dev.NewLSE(p.Batch, p.Heads, p.QueryLen))}
	check(plan.JVP(ctx, j))

	const step = 1. / 64
	after, before := forward(step), forward(-step)
	agrees := func(derivative, after, before *flash.Tensor) bool {
		d, a, b := downloaded(derivative), downloaded(after), downloaded(before)
		largest := 0.0
		for i := range d {
			if math.Abs(float64(a[i]-b[i])/(2*step)-float64(d[i])) > 2e-3 {
				return false
			}
			largest = max(largest, math.Abs(float64(d[i])))
		}
		return largest > 0.1 // something does move
	}
	fmt.Println("o:", agrees(j.OTangent, after.O, before.O))
	fmt.Println("lse:", agrees(j.LSETangent, after.LSE, before.LSE))
	// Output:
	// o: true
	// lse: true
}
