package flash_test

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// A picture of what attends to what: causal attention where all keys are alike, so that each query looks at itself and all before it in
// equal parts. Of 8 × 8 weights the picture has 4 × 4 cells, each the mean of four; a viewer records it once and submits it for every
// frame.
func ExamplePlan_Map() {
	ctx := context.Background()
	dev := must(flash.Open())
	defer dev.Close()
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, Causal: flash.CausalBottomRight}))
	shape := plan.Problem().QShape()
	f := flash.Forward{Q: filled(dev, flash.F32, shape, constant(1)), K: filled(dev, flash.F32, shape, constant(0)),
		V: filled(dev, flash.F32, shape, constant(1)),
		O: filled(dev, flash.F32, shape, constant(0)), LSE: must(dev.NewLSE(1, 2, 8))}
	check(plan.Forward(ctx, f))

	m := flash.Map{Forward: f, Heads: flash.Range{Begin: 1, End: 2}, Out: must(dev.NewTensor(flash.F32, 1, 1, 4, 4)),
		Entropy: must(dev.NewTensor(flash.F32, 1, 1, 8, 1)), Distance: must(dev.NewTensor(flash.F32, 1, 1, 8, 1))}
	check(plan.Map(ctx, m))
	cells := downloaded(m.Out)
	for y := range 4 {
		fmt.Printf("%.3f\n", cells[4*y:4*y+4])
	}
	fmt.Printf("the last query: entropy %.3f = log 8, mean distance %.1f\n", downloaded(m.Entropy)[7], downloaded(m.Distance)[7])

	// Closer: queries and keys 6 and 7, a cell for each weight.
	frame := must(plan.NewMapRecording())
	defer frame.Close()
	m.Queries, m.Keys, m.Entropy, m.Distance = flash.Range{Begin: 6, End: 8}, flash.Range{Begin: 6, End: 8}, nil, nil
	m.Out = must(m.Out.View(0, flash.F32, [4]int{1, 1, 2, 2}, [4]int{}))
	check(frame.Map(m))
	check(must(frame.Submit()).Wait(ctx))
	fmt.Printf("%.3f\n", downloaded(m.Out))
	// Output:
	// [0.500 0.000 0.000 0.000]
	// [0.292 0.208 0.000 0.000]
	// [0.183 0.183 0.133 0.000]
	// [0.134 0.134 0.134 0.098]
	// the last query: entropy 2.079 = log 8, mean distance 3.5
	// [0.143 0.000 0.125 0.125]
}
