package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// plainDim is the largest head dimension of kernels that are not for wide heads.
const plainDim = 256

// latent fills K with normal random numbers, and V with the first columns of K, as multi-head latent attention has it.
func latent(r *rand.Rand, q, k, v ref.Tensor) {
	normal(r, q, k, v)
	for row := range k.B * k.H * k.N {
		copy(v.Data[row*v.D:(row+1)*v.D], k.Data[row*k.D:])
	}
}

// wideHeads are head dimensions for which a row of O, or a tile of K, is cut into pieces: MLA's, whole fragments and what is none, one of
// the two dimensions wide alone, and beside each option that kernels treat in their own way.
func wideHeads(s *suite) {
	add := func(called string, p flash.Problem) *Case {
		p.Batch = 1
		if p.KeyHeads == 0 {
			p.Heads, p.KeyHeads = 2, 1
		}
		c := s.add(&Case{Name: name(p.DType, "wide/%s", called), Problem: p})
		if p.ValueDim > 0 && p.ValueDim < p.HeadDim {
			c.fill = latent
		}
		return c
	}
	for i, d := range [][2]int{{264, 24}, {576, 512}, {320, 320}, {288, 272}, {7, 300}, {576, 33}, {512, 576}} {
		for j, dtype := range dtypes {
			if i > 1 && i%len(dtypes) != j && s.small {
				continue
			}
			add(fmt.Sprintf("%d-dv%d", d[0], d[1]), flash.Problem{QueryLen: 19 + 14*(i%2), KeyLen: 41, HeadDim: d[0], ValueDim: d[1],
				DType: dtype, Causal: causals[(i+1)%3]})
		}
	}
	for i, dtype := range dtypes {
		add("261-dv29-packed", flash.Problem{Heads: 6, KeyHeads: 2, QueryLen: 3, KeyLen: 70, HeadDim: 261, ValueDim: 29, DType: dtype,
			Causal: causals[i]}).Layouts = all(Odd)
		add("decode", flash.Problem{Heads: 12, KeyHeads: 1, QueryLen: 1, KeyLen: 300, HeadDim: 576, ValueDim: 512, DType: dtype})
		// Four heads: of fewer, how far plain attention's gradients of the sinks are off says little.
		scores := flash.Problem{Heads: 4, KeyHeads: 2, QueryLen: 21, KeyLen: 37, HeadDim: 264, ValueDim: 24, DType: dtype, Sinks: true,
			Window:        flash.SlidingWindow(17, 3),
			ScoreFunction: score.Softcap(20), Bias: flash.PerScore{Batch: 1, Heads: 4, Queries: 21, Keys: 37, DType: dtype},
			Mask: flash.PerScore{Batch: 1, Heads: 1, Queries: 21, Keys: 37, DType: flash.Bool}}
		add("scores", scores)
		if s.small && i > 0 {
			continue
		}
		plain := flash.Problem{QueryLen: 40, KeyLen: 50, HeadDim: 320, ValueDim: 288, DType: dtype}
		dropped, blocks, negative := plain, plain, plain
		dropped.Dropout, negative.Scale = 0.25, -0.1
		blocks.Blocks = flash.Blocks{Queries: 16, Keys: 24}
		add("dropout", dropped).Seed = 5
		add("negative-scale", negative).NoLSE = true
		add("blocks", blocks).Share = 0.5
	}
	if !s.small {
		for _, causal := range causals[:2] {
			c := add(fmt.Sprintf("2048/%v", causal), flash.Problem{Heads: 16, KeyHeads: 1, QueryLen: 2048, HeadDim: 576, ValueDim: 512,
				DType: flash.F16, Causal: causal})
			c.Sample = 200
		}
		add("decode-16384", flash.Problem{Heads: 128, KeyHeads: 1, QueryLen: 1, KeyLen: 16384, HeadDim: 576, ValueDim: 512,
			DType: flash.F16}).Sample = 64
	}
	latents(s)
}

// latents are many rows on few wide keys, of few queries, with what decoding has besides: lengths, pages, packed queries, whatever becomes
// of scores.
func latents(s *suite) {
	for i, x := range []struct {
		name string
		core bool
		set  func(p *flash.Problem)
	}{
		{"lengths", true, func(p *flash.Problem) { p.Batch, p.KeyLengths, p.QueryLengths = 5, true, true }},
		{"pages", true, func(p *flash.Problem) { PagesFor(p, 16, false) }},
		{"scores", true, func(p *flash.Problem) {
			p.ScoreFunction, p.Sinks, p.MaxLogit = score.Softcap(5), true, true
			p.Bias = flash.PerScore{Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen, DType: p.DType}
		}},
		{"lists", true, func(p *flash.Problem) { p.QueryLen, p.Lists = 5, flash.Lists{Keys: 37} }},
		{"lists-pages", true, func(p *flash.Problem) {
			PagesFor(p, 16, false)
			p.Lists, p.Sinks, p.MaxLogit = flash.Lists{Keys: 70, PerHead: true}, true, true
		}},
		{"lists-scores", true, func(p *flash.Problem) {
			p.Heads, p.KeyHeads, p.Lists = 26, 2, flash.Lists{Keys: 50}
			p.ScoreFunction = score.Softcap(5)
			p.Bias = flash.PerScore{Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen, DType: p.DType}
		}},
		{"fp8", true, func(p *flash.Problem) { p.KeyType, p.ValueType = flash.F8E4M3, flash.F8E5M2; PagesFor(p, 16, false) }},
		{"q8", true, func(p *flash.Problem) {
			p.HeadDim, p.ValueDim, p.KeyType, p.ValueType = 288, 32, flash.Q8_0, flash.Q8_0
			PagesFor(p, 16, false)
		}},
		{"q5", true, func(p *flash.Problem) {
			p.HeadDim, p.ValueDim, p.KeyType, p.ValueType = 288, 64, flash.Q5_0, flash.IQ4_NL
		}},
		{"values-q8", true, func(p *flash.Problem) {
			p.KeyType, p.ValueType, p.ValueDim = flash.F8E5M2, flash.Q8_0, 32
			p.Lists = flash.Lists{Keys: 40}
		}},
		{"pages-compressed", false, func(p *flash.Problem) { PagesFor(p, 4, true) }},
		{"window", false, func(p *flash.Problem) { p.Window, p.MaxLogit = flash.SlidingWindow(30, 0), true }},
		{"many", false, func(p *flash.Problem) { p.Heads, p.KeyHeads, p.QueryLen = 38, 2, 3 }},
		{"queries", false, func(p *flash.Problem) { p.Heads, p.KeyHeads, p.QueryLen, p.Causal = 1, 1, 19, flash.CausalTopLeft }},
	} {
		for j, dtype := range dtypes {
			if i%len(dtypes) != j && !(dtype == flash.F16 && (x.core || !s.small)) {
				continue
			}
			p := flash.Problem{Batch: 2, Heads: 12, KeyHeads: 1, QueryLen: 2, KeyLen: 90, HeadDim: 264, ValueDim: 24, DType: dtype,
				Causal: flash.CausalBottomRight}
			x.set(&p)
			s.add(&Case{Name: name(dtype, "latent/%s", x.name), Core: x.core, Problem: p, fill: latent, Layouts: all(Layout(i) % layoutEnd),
				lengths: around(16), Only: []flash.Implementation{flash.Flash}})
		}
	}
	packed := &Case{Name: name(flash.F16, "latent/packed"), fill: latent, Only: []flash.Implementation{flash.Flash},
		Problem: flash.Problem{Batch: 4, Heads: 12, KeyHeads: 1, QueryLen: 3, KeyLen: 70, HeadDim: 264, ValueDim: 24, DType: flash.F16,
			Causal: flash.CausalBottomRight}}
	s.add(packed.Pack(rand.New(rand.NewPCG(1, 2)), false))
}

// edges draws in turn lengths around the ends of tiles: none, one, a tile, one more, and all.
func edges() func(*rand.Rand, int) int {
	i := 0
	return func(_ *rand.Rand, most int) int {
		i++
		return min([]int{0, most, 1, 32, 64, 33}[(i*5+i/6)%6], most)
	}
}

// paddedWideHeads are padded batches and packed sequences of head dimensions whose P and dS of backward passes may stand in memory, with
// what else kernels treat in their own way.
func paddedWideHeads(s *suite) {
	causal := func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }
	options := []struct {
		name string
		set  func(p *flash.Problem)
	}{
		{"causal", causal},
		{"window", func(p *flash.Problem) { causal(p); p.Window = flash.SlidingWindow(29, -1) }},
		{"dropout", func(p *flash.Problem) { causal(p); p.Dropout = 0.25 }},
		{"softcap-sinks", func(p *flash.Problem) {
			p.Heads, p.KeyHeads, p.Sinks, p.ScoreFunction = 4, 2, true, score.Softcap(20) // four heads: as those of wide/scores
		}},
		{"plain", func(p *flash.Problem) {}},
	}
	for i, d := range [][3]int{{192, 192, 140}, {256, 256, 120}, {512, 512, 80}, {576, 512, 75}} { // and queries
		for j, dtype := range []flash.DType{flash.F16, flash.BF16} {
			for k, x := range options {
				for l, kind := range []string{"lengths", "packed"} {
					if s.small && (j > 0 || k != i+l) {
						continue
					}
					p := flash.Problem{Batch: 6, Heads: 2, KeyHeads: 1, QueryLen: d[2], KeyLen: 70, HeadDim: d[0], ValueDim: d[1],
						DType: dtype}
					x.set(&p)
					p.Batch = min(p.Batch, 12/p.Heads)
					p.KeyLengths = kind == "lengths" || k == 1 // of packed sequences: slots longer than what is used
					p.QueryLengths = p.KeyLengths && k != 2
					c := &Case{Name: name(dtype, "%s/wide-%d-%s", kind, d[0], x.name), Problem: p, Seed: uint64(k), lengths: edges()}
					if kind == "packed" {
						c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(k))), k != 4) // once queries alone
					}
					s.add(c)
				}
			}
		}
	}
}
