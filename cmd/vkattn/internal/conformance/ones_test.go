package conformance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// sizesOfOne are the sizes of problems in which an axis has a length of 1 that is the problem's own, all of them first: batch, heads,
// queries, keys.
var sizesOfOne = [][4]int{{1, 1, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 5}, {1, 2, 1, 1}, {2, 1, 1, 1}, {2, 2, 3, 1}}

// ofOne is an option that a problem of such sizes may have. Nothing of it may be other than for larger ones.
type ofOne struct {
	name  string
	set   func(p *flash.Problem, c *Case)
	light bool // with fewer kernels than others: both passes on matrices where they take long to compile
}

func biasOfOne(p *flash.Problem, _ *Case) {
	p.Bias = flash.PerScore{DType: flash.F32, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
}

func maskOfOne(t flash.DType) func(p *flash.Problem, _ *Case) {
	return func(p *flash.Problem, _ *Case) {
		p.Mask = flash.PerScore{DType: t, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
	}
}

// optionsOfOne are all of them, alone and some together.
func optionsOfOne() []ofOne {
	table := func(p *flash.Problem) score.Function {
		f, err := score.New(score.S().Add(score.Capture("table", p.QueryLen, p.KeyLen).At(score.Query(), score.Key())))
		if err != nil {
			panic(err) // an expression of this file
		}
		return f
	}
	pages := func(size int, compressed bool) func(p *flash.Problem, c *Case) {
		return func(p *flash.Problem, c *Case) { PagesFor(p, size, compressed); c.lengths = around(size) }
	}
	return []ofOne{
		{"plain", func(*flash.Problem, *Case) {}, false},
		{"softcap-bias", func(p *flash.Problem, c *Case) { biasOfOne(p, c); p.ScoreFunction = score.Softcap(5) }, true},
		{"bottom-right", func(p *flash.Problem, _ *Case) { p.Causal = flash.CausalBottomRight }, false},
		{"top-left", func(p *flash.Problem, _ *Case) { p.Causal = flash.CausalTopLeft }, false},
		{"window", func(p *flash.Problem, _ *Case) { p.Window = flash.SlidingWindow(0, 0) }, false},
		{"dropout", func(p *flash.Problem, _ *Case) { p.Dropout = 0.25 }, false},
		{"bias", biasOfOne, false},
		{"bias-typed", func(p *flash.Problem, c *Case) { biasOfOne(p, c); p.Bias.DType = p.DType }, false},
		{"bias-shared", func(p *flash.Problem, c *Case) {
			biasOfOne(p, c)
			p.Bias.Batch, p.Bias.Heads, p.Bias.Queries, p.Sinks = 1, 1, 1, true
		}, false},
		{"mask", maskOfOne(flash.Bool), false},
		{"bits", maskOfOne(flash.Bit), false},
		{"softcap-mask", func(p *flash.Problem, c *Case) { maskOfOne(flash.Bool)(p, c); p.ScoreFunction = score.Softcap(5) }, false},
		{"blocks", func(p *flash.Problem, c *Case) {
			p.Blocks, c.Share = flash.Blocks{Queries: 1, Keys: 1, PerHead: true, PerBatch: true}, 0.5
		}, false},
		{"blocks-32", func(p *flash.Problem, c *Case) {
			p.Blocks, c.Share = flash.Blocks{Queries: 32, Keys: 32}, 1
			p.ScoreFunction = score.Softcap(5)
		}, false},
		{"table", func(p *flash.Problem, _ *Case) { p.ScoreFunction = table(p) }, false},
		{"documents", func(p *flash.Problem, _ *Case) {
			p.MaskFunction = score.Documents(score.CaptureInt("documents", p.Batch, max(p.QueryLen, p.KeyLen)))
		}, false},
		{"classes", func(p *flash.Problem, _ *Case) {
			p.MaskFunction = score.PrefixLM(2)
			p.MaskBlocks = flash.Blocks{Queries: 32, Keys: 32}
		}, false},
		{"sinks", func(p *flash.Problem, _ *Case) { p.Sinks = true }, false},
		{"lengths", func(p *flash.Problem, c *Case) {
			p.KeyLengths, p.QueryLengths = true, true
			biasOfOne(p, c)
			p.ScoreFunction = score.Softcap(5)
		}, false},
		{"packed", func(p *flash.Problem, c *Case) {
			biasOfOne(p, c)
			p.DType, p.ScoreFunction, p.Sinks = flash.F32, score.Softcap(5), true
			c.packed.queries = &packing{} // drawn below
		}, false},
		{"pages", pages(1, false), false},
		{"pages-bias", func(p *flash.Problem, c *Case) {
			pages(16, true)(p, c)
			biasOfOne(p, c)
			p.ScoreFunction = score.Softcap(5)
		},
			false},
		{"q8", func(p *flash.Problem, _ *Case) {
			p.HeadDim, p.ValueDim, p.KeyType, p.ValueType = 32, 32, flash.Q8_0, flash.Q8_0
		}, false},
		{"f8-bias", func(p *flash.Problem, c *Case) {
			biasOfOne(p, c)
			p.KeyType, p.ValueType, p.ScoreFunction = flash.F8E4M3, flash.F8E4M3, score.Softcap(5)
		}, false},
		{"all", func(p *flash.Problem, c *Case) {
			biasOfOne(p, c)
			maskOfOne(flash.Bit)(p, c)
			p.ScoreFunction, p.Sinks, p.Dropout, p.KeyLengths, p.Window = table(p), true, 0.25, true, flash.SlidingWindow(0, 0)
		}, false},
	}
}

// TestSizesOfOne: a length of 1 is a length like any other, with every option, in both passes and on every tier.
func TestSizesOfOne(t *testing.T) {
	dev := device(t)
	targets := Targets(dev, Options{Families: []string{"flash2", "standard", BlockSparse}})
	for i, x := range optionsOfOne() {
		for j, size := range sizesOfOne {
			if testing.Short() && (i+j)%len(sizesOfOne) != 0 { // each option with one of the sizes
				continue
			}
			p := flash.Problem{Batch: size[0], Heads: size[1], QueryLen: size[2], KeyLen: size[3], HeadDim: 8, DType: dtypes[i%len(dtypes)]}
			c := &Case{Gradients: true, Seed: uint64(i)}
			x.set(&p, c)
			if c.Problem = p; c.packed.queries != nil {
				c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(j))), true)
			}
			c.Name = fmt.Sprintf("%s/%v", x.name, size)
			if c.Gradients = p.Pages.Size == 0 && p.KeyType == 0; !c.Gradients {
				c.Only = []flash.Implementation{flash.Flash}
			}
			for k, target := range targets {
				if testing.Short() && target.family() != "flash2/scalar" && (i+k)%3 != 0 { // each kernel with a third of the options
					continue
				}
				if heavy := target.light; heavy {
					if !x.light && (testing.Short() || target.Tuning["form"] > 1) || testing.Short() && target.Tuning["form"] > 1 {
						continue
					}
					target.light = false // its backward pass too
				}
				if target.skip(c) != "" {
					continue
				}
				t.Run(c.Name+" on "+target.String(), func(t *testing.T) { passes(t, dev, c, target) })
			}
		}
	}
}
