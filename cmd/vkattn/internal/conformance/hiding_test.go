package conformance

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestHidingThatProtects: NaN and infinities in keys, values and queries that lengths, slots of packed sequences and pages leave out reach
// no output, in either pass, on any tier: the ways of which docs/library.md says that they protect.
func TestHidingThatProtects(t *testing.T) {
	dev := device(t)
	base := flash.Problem{Batch: 3, Heads: 2, QueryLen: 20, KeyLen: 45, HeadDim: 8, DType: flash.F16, Causal: flash.CausalBottomRight}
	few, padded := base, base
	few.QueryLen, few.Causal = 2, flash.CausalNone
	padded.KeyLengths, padded.QueryLengths = true, true
	short := func(r *rand.Rand, most int) int { return most - 1 - r.IntN(most/2) }
	for _, x := range []struct {
		name string
		of   flash.Problem
		set  func(p *flash.Problem, c *Case)
	}{
		{"lengths of keys", base, func(p *flash.Problem, c *Case) { p.KeyLengths, c.lengths = true, short }},
		{"lengths of keys, few queries", few, func(p *flash.Problem, c *Case) { p.KeyLengths, c.lengths = true, short }},
		{"lengths of queries", base, func(p *flash.Problem, c *Case) { p.QueryLengths, c.lengths = true, short }},
		{"packed", padded, func(p *flash.Problem, c *Case) {
			c.lengths = short
			p.Packed = c.Pack(rand.New(rand.NewPCG(3, 4)), true).Problem.Packed
		}},
		{"pages", base, func(p *flash.Problem, c *Case) { PagesFor(p, 16, false); c.lengths = short }},
		{"pages, compressed", few, func(p *flash.Problem, c *Case) { PagesFor(p, 16, true); c.lengths = short }},
	} {
		c := &Case{Name: x.name, Problem: x.of, Only: []flash.Implementation{flash.Flash}}
		p := x.of
		x.set(&p, c)
		c.Problem = p
		c.Gradients = p.Pages.Size == 0
		require.NoError(t, c.prepare())
		spoiled := map[float64]int{}
		for _, values := range [][]float32{c.inputs.Q.Data, c.inputs.K.Data, c.inputs.V.Data} {
			for _, v := range values {
				if v := float64(v); math.IsInf(v, 0) {
					spoiled[v]++
				} else if v != v {
					spoiled[0]++
				}
			}
		}
		require.Len(t, spoiled, 3, "%s: there is NaN, and infinity of each sign", x.name)
		for _, target := range Targets(dev, Options{Families: []string{"flash2"}}) {
			if target.light && (target.Tuning["form"] > 1 || testing.Short() && x.name != "lengths of keys") {
				continue
			}
			target.light = false // its backward pass too
			if target.skip(c) != "" {
				continue
			}
			t.Run(x.name+" on "+target.String(), func(t *testing.T) {
				require.Equal(t, c.Gradients, passes(t, dev, c, target).Gradients)
			})
		}
	}
}
