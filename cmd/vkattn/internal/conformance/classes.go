package conformance

import (
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/maskdraw"
)

// classes are problems with mask functions whose blocks are classed beforehand: blocks of whole tiles and of parts of them, functions that
// leave whole blocks, edges and nothing, masks by batch entry and by head, with what else hides scores, changes them or drops weights.
func classes(s *suite) {
	heads := 4
	made := func(allowed score.Bool) score.MaskFunction {
		m, err := score.NewMask(allowed)
		if err != nil {
			panic(err) // an expression of this file
		}
		return m
	}
	both := func(masks ...score.MaskFunction) score.MaskFunction {
		m, err := score.ComposeMasks(masks...)
		if err != nil {
			panic(err)
		}
		return m
	}
	documents := func(p *flash.Problem) score.MaskFunction {
		return score.Documents(score.CaptureInt("documents", p.Batch, p.KeyLen))
	}
	byHead := made(score.Key().Div(score.ConstInt(20)).Add(score.Head()).Mod(score.ConstInt(3)).Greater(score.ConstInt(0)))
	byBoth := made(score.Key().Add(score.Query()).Div(score.ConstInt(33)).Add(score.Head()).Add(score.Batch()).
		Mod(score.ConstInt(2)).Equal(score.ConstInt(0)))
	blocky := made(score.Key().Div(score.ConstInt(24)).Sub(score.Query().Div(score.ConstInt(32))).Mod(score.ConstInt(3)).
		Greater(score.ConstInt(0)))
	for i, x := range []struct {
		name         string
		size         flash.Blocks
		nq, nk, kind int // lengths, 0 as below; causal order
		set          func(p *flash.Problem)
		core         bool
	}{
		{"documents", flash.Blocks{Queries: 32, Keys: 32}, 150, 150, 1, func(p *flash.Problem) { p.MaskFunction = documents(p) }, true},
		{"documents-odd", flash.Blocks{Queries: 12, Keys: 20}, 0, 0, 0,
			func(p *flash.Problem) { p.MaskFunction, p.Dropout = documents(p), 0.25 },
			true},
		{"prefix", flash.Blocks{Queries: 32, Keys: 64}, 100, 140, 0, func(p *flash.Problem) { p.MaskFunction = score.PrefixLM(70) }, true},
		{"prefix-softcap", flash.Blocks{Queries: 64, Keys: 32}, 0, 0, 0, func(p *flash.Problem) {
			p.MaskFunction, p.ScoreFunction, p.Sinks = score.PrefixLM(40), score.Softcap(2), true
		}, false},
		{"dilated", flash.Blocks{Queries: 32, Keys: 16}, 0, 0, 2, func(p *flash.Problem) { p.MaskFunction = score.Dilated(3, 12) }, false},
		{"window", flash.Blocks{Queries: 32, Keys: 32}, 150, 170, 0, func(p *flash.Problem) {
			p.MaskFunction, p.Window = documents(p), flash.SlidingWindow(50, 20)
		}, false},
		{"heads", flash.Blocks{Queries: 32, Keys: 32}, 140, 170, 1, func(p *flash.Problem) { p.MaskFunction = byHead }, true},
		{"heads-and-batch", flash.Blocks{Queries: 64, Keys: 64}, 150, 200, 0, func(p *flash.Problem) {
			p.MaskFunction, p.Window, p.Dropout = byBoth, flash.SlidingWindow(90, -1), 0.25
		}, false},
		{"nothing", flash.Blocks{Queries: 32, Keys: 32}, 0, 0, 0, func(p *flash.Problem) {
			p.MaskFunction = made(score.Key().Greater(score.ConstInt(1000)))
		}, false},
		{"wide", flash.Blocks{Queries: 16, Keys: 16}, 50, 1100, 0, func(p *flash.Problem) { // three words of columns
			p.MaskFunction, p.Heads, p.KeyHeads = made(score.Key().Div(score.ConstInt(90)).Mod(score.ConstInt(3)).Equal(score.ConstInt(1))),
				2, 1
		}, true},
		{"long", flash.Blocks{Queries: 16, Keys: 32}, 1100, 70, 0, func(p *flash.Problem) { // of rows
			p.MaskFunction, p.Heads,
				p.KeyHeads = made(score.Query().Div(score.ConstInt(90)).Mod(score.ConstInt(3)).Equal(score.ConstInt(1))), 2, 1
		}, false},
		{"usual", flash.UsualMaskBlocks, 300, 500, 1, func(p *flash.Problem) { p.MaskFunction = documents(p) }, false},
		{"one", flash.Blocks{Queries: 1000, Keys: 1000}, 0, 0, 1, func(p *flash.Problem) { p.MaskFunction = documents(p) }, false},
		{"decoding", flash.Blocks{Queries: 64, Keys: 64}, 1, 500, 1, func(p *flash.Problem) { p.MaskFunction = documents(p) }, false},
		{"all", flash.Blocks{Queries: 32, Keys: 32}, 150, 170, 2, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: flash.F32, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
			p.ScoreFunction, p.Sinks, p.Dropout, p.MaskFunction = score.ALiBi([]float32{0.5, 0.25, 0.125, 0.0625}), true, 0.25,
				both(documents(p), byHead)
		}, false},
		{"lengths", flash.Blocks{Queries: 32, Keys: 32}, 0, 0, 1, func(p *flash.Problem) {
			p.Batch, p.KeyLengths, p.QueryLengths, p.MaskFunction = 5, true, true, blocky
		}, true},
		{"packed", flash.Blocks{Queries: 32, Keys: 32}, 100, 120, 0, func(p *flash.Problem) {
			p.Batch, p.MaskFunction, p.Packed.Keys = 6, byHead, 1
		}, true},
		{"packed-odd", flash.Blocks{Queries: 12, Keys: 20}, 100, 90, 1, func(p *flash.Problem) {
			p.Batch, p.MaskFunction, p.Window, p.Packed.Keys = 6, both(byBoth, blocky), flash.SlidingWindow(60, -1), 1
		}, false},
		{"packed-top-left", flash.Blocks{Queries: 16, Keys: 16}, 0, 0, 2, func(p *flash.Problem) {
			p.Batch, p.MaskFunction, p.Sinks, p.Packed.Keys = 6, blocky, true, 1
		}, false},
		{"capturing", flash.Blocks{Queries: 32, Keys: 32}, 0, 0, 1, func(p *flash.Problem) { // a score function captures too, and before
			slopes := score.Capture("slopes", heads)
			p.ScoreFunction, p.MaskFunction = score.ALiBiFrom(slopes), documents(p)
		}, false},
	} {
		for j, dtype := range dtypes {
			if i%len(dtypes) != j && (s.small || i > 2) {
				continue
			}
			p := flash.Problem{Batch: 2, Heads: heads, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: s.dim(16), DType: dtype,
				Causal: causals[x.kind], MaskBlocks: x.size}
			if x.nq > 0 {
				p.QueryLen, p.KeyLen = x.nq, x.nk
			}
			x.set(&p)
			packed := p.Packed != flash.Packed{}
			p.Packed = flash.Packed{}
			c := s.add(&Case{Name: name(dtype, "classes/%s", x.name), Core: x.core, Problem: p, Seed: uint64(i)})
			if packed {
				c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(j)+30)), true)
			}
			if i%4 == 1 {
				c.Layouts = all(Odd)
			}
		}
	}
	// Functions, blocks and shapes at random, all of one specialization of a kernel where the device has one for it.
	r := rand.New(rand.NewPCG(7, 11))
	for i := range 4 {
		p := flash.Problem{Batch: 1 + r.IntN(2), Heads: 2 + 2*r.IntN(2), KeyHeads: 1 + r.IntN(2), QueryLen: 40 + r.IntN(130),
			KeyLen:  40 + r.IntN(130),
			HeadDim: s.dim(16), DType: dtypes[i%3], Causal: causals[r.IntN(3)], MaskBlocks: flash.Blocks{Queries: 8 << r.IntN(4),
				Keys: 8 << r.IntN(4)}}
		p.MaskFunction = made(maskdraw.Condition(r))
		if r.IntN(2) == 0 {
			p.Window = flash.SlidingWindow(20+r.IntN(60), r.IntN(60)-1)
		}
		s.add(&Case{Name: name(p.DType, "classes/random-%d", i), Problem: p})
	}
}
