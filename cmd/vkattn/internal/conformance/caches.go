package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// around draws in turn the lengths around the end of a page: none, one, one less than a page, a page, one more, and all.
func around(page int) func(*rand.Rand, int) int {
	next := 0
	return func(_ *rand.Rand, most int) int {
		next++
		return min(most, []int{most, 0, 1, page - 1, page, page + 1}[(next-1)%6])
	}
}

// PagesFor are pages of size rows for all keys of a problem, with some more of the pool between; compressed with room for more numbers.
func PagesFor(p *flash.Problem, size int, compressed bool) {
	each := attn.CeilDiv(p.KeyLen, size)
	p.Pages = flash.Pages{Size: size, Count: p.Batch*each + 3, PerSequence: each + 2}
	if p.KeyLengths = !compressed; compressed {
		p.Pages.PerSequence, p.Pages.Indices = 0, p.Batch*(each+1)+5
	}
}

// caches are keys and values in pages, and quantised: pools in both orders, pages of one row and of hundreds, tables dense and compressed,
// entries of lengths around the end of a page, some with a prefix in common, between pages that hold no numbers.
func caches(s *suite) {
	paged(s)
	packedOverPages(s)
	quantised(s)
}

func paged(s *suite) {
	slopes := []float32{0.5, 0.25, 0.125, 0.0625}
	diagonals, err := score.NewMask(score.Key().Sub(score.Query()).Div(score.ConstInt(24)).Mod(score.ConstInt(3)).
		Greater(score.ConstInt(0)))
	if err != nil {
		panic(err) // an expression of this file
	}
	for i, x := range []struct {
		name       string
		queries    int
		page       int
		compressed bool
		layout     Layout // of the pools: Dense is HND, BNHD is NHD
		dtype      flash.DType
		core       bool
		set        func(p *flash.Problem)
	}{
		{"one", 1, 16, false, Dense, flash.F16, true, nil},
		{"one-compressed", 1, 16, true, BNHD, flash.BF16, true, nil},
		{"rows", 1, 1, false, BNHD, flash.F32, false, nil},
		{"rows-compressed", 3, 1, true, Dense, flash.F16, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"pairs", 2, 2, false, Odd, flash.F16, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"speculative", 3, 16, false, BNHD, flash.F16, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"large", 1, 256, false, Dense, flash.F16, false, nil},
		{"largest", 4, 512, true, BNHD, flash.BF16, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"sinks", 3, 64, false, Dense, flash.F32, true, func(p *flash.Problem) { p.Sinks, p.Causal = true, flash.CausalBottomRight }},
		{"alibi", 1, 16, true, Dense, flash.F16, false, func(p *flash.Problem) { p.ScoreFunction = score.ALiBi(slopes) }},
		{"window", 2, 16, false, Dense, flash.F16, false, func(p *flash.Problem) { p.Window = flash.SlidingWindow(20, 3) }},
		{"block", 16, 16, false, BNHD, flash.F16, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"prefill", 70, 16, false, Dense, flash.F16, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"prefill-compressed", 70, 64, true, BNHD, flash.BF16, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"prefill-odd", 70, 2, false, OddBNHD, flash.F32, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"prefill-rows", 33, 1, true, Odd, flash.F16, false, nil},
		{"prefill-large", 70, 256, false, Dense, flash.F16, true, nil},
		{"lengths", 70, 16, false, Dense, flash.F32, true, func(p *flash.Problem) {
			p.QueryLengths, p.Causal = true,
				flash.CausalBottomRight
		}},
		{"bias", 20, 16, false, Dense, flash.F16, false, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}},
		{"scores", 20, 16, true, Dense, flash.F32, true, func(p *flash.Problem) {
			p.ScoreFunction, p.Sinks, p.Window = score.ALiBi(slopes), true, flash.SlidingWindow(40, -1)
		}},
		{"dropout", 20, 64, false, Dense, flash.F16, false, func(p *flash.Problem) { p.Dropout, p.Causal = 0.25, flash.CausalTopLeft }},
		{"mask", 20, 64, false, BNHD, flash.BF16, false, func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bit, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}},
		{"blocks", 70, 16, false, BNHD, flash.F16, true, func(p *flash.Problem) {
			p.Causal, p.Blocks = flash.CausalBottomRight, flash.Blocks{Queries: 32, Keys: 32}
		}},
		{"blocks-one", 1, 16, true, Dense, flash.F32, false, func(p *flash.Problem) {
			p.Blocks = flash.Blocks{Queries: 1, Keys: 20, PerBatch: true, PerHead: true}
		}},
		{"blocks-odd", 50, 4, true, Odd, flash.BF16, true, func(p *flash.Problem) {
			p.Blocks, p.Window, p.Dropout = flash.Blocks{Queries: 12, Keys: 20, PerHead: true}, flash.SlidingWindow(60, 9), 0.25
		}},
		{"classes", 70, 64, false, Dense, flash.F32, true, func(p *flash.Problem) {
			p.Causal, p.MaskBlocks, p.MaskFunction = flash.CausalBottomRight, flash.Blocks{Queries: 32, Keys: 32}, diagonals
		}},
		{"classes-all", 64, 16, false, Dense, flash.F16, true, func(p *flash.Problem) { // entries without lengths of their own
			p.MaskBlocks, p.MaskFunction, p.KeyLengths, p.Causal = flash.Blocks{Queries: 16, Keys: 16}, score.PrefixLM(40), false,
				flash.CausalBottomRight
		}},
	} {
		p := flash.Problem{Batch: 6, Heads: 4, KeyHeads: 1 + i%2, QueryLen: x.queries, KeyLen: 150, HeadDim: s.dim(64),
			ValueDim: 2 * s.dim(16), DType: x.dtype}
		if i%3 == 2 {
			p.HeadDim, p.ValueDim = s.dim(32), s.dim(32)
		}
		if x.page > 64 {
			p.KeyLen = 5 * x.page / 2
		}
		if x.queries == 3 {
			p.KeyHeads = 2
		}
		PagesFor(&p, x.page, x.compressed)
		if x.set != nil {
			x.set(&p)
		}
		s.add(&Case{Name: name(x.dtype, "caches/%s", x.name), Core: x.core, Problem: p, Seed: uint64(i), Share: 0.5,
			Layouts: Layouts{K: x.layout, V: x.layout},
			Only:    []flash.Implementation{flash.Flash}, lengths: around(x.page)})
	}
	for i, n := range []int{1, 12} { // keys in parts, no lengths: all entries have all keys
		p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 700, HeadDim: s.dim(64), DType: flash.F16,
			Causal: flash.CausalBottomRight}
		PagesFor(&p, 16, false)
		p.KeyLengths = false
		s.add(&Case{Name: fmt.Sprintf("caches/parts-%d/f16", n), Core: i == 0, Problem: p, Only: []flash.Implementation{flash.Flash}})
	}
	for i, n := range []int{2, 40} { // numbers of no page: zeros
		p := flash.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 150, HeadDim: s.dim(64), DType: dtypes[1-i],
			Causal: flash.CausalBottomRight}
		PagesFor(&p, 16, i == 1)
		s.add(&Case{Name: name(p.DType, "caches/lost-%d", n), Core: true, Problem: p, Only: []flash.Implementation{flash.Flash},
			lengths: around(100), lost: true})
	}
}

// packedOverPages are packed queries beside keys in pages: chunks of prompts and single tokens in one pass.
func packedOverPages(s *suite) {
	for i, n := range []int{3, 40} {
		p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 150, HeadDim: s.dim(32), DType: dtypes[1-i],
			Causal: flash.CausalBottomRight}
		PagesFor(&p, 16, false)
		c := &Case{Name: name(p.DType, "caches/packed-%d", n), Core: true, Problem: p, Seed: uint64(i),
			Only: []flash.Implementation{flash.Flash}}
		s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), 77)), false))
	}
	for i, dtype := range dtypes { // with a block mask, from each sequence's first query and key on
		p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 40, KeyLen: 150, HeadDim: s.dim(32), DType: dtype,
			Causal: causals[i], Blocks: flash.Blocks{Queries: 16 - i, Keys: 32 - i, PerBatch: i > 0}}
		PagesFor(&p, 16, false)
		c := &Case{Name: name(dtype, "caches/packed-blocks"), Core: i < 2, Problem: p, Share: 0.5,
			Only: []flash.Implementation{flash.Flash}}
		s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), 78)), false))
	}
}

// quantised are keys and values of each quantised type, alone and together, as tensors and in pages, for few queries and many.
func quantised(s *suite) {
	const q8, q4, f8 = flash.Q8_0, flash.Q4_0, flash.F8E4M3
	const q4m, q5, q5m, iq4, e5m2 = flash.Q4_1, flash.Q5_0, flash.Q5_1, flash.IQ4_NL, flash.F8E5M2
	for i, x := range []struct {
		name         string
		queries      int
		keys, values flash.DType // 0: as the queries
		page         int         // 0: as tensors
		dims         [2]int
		layout       Layout
		dtype        flash.DType
		core         bool
		set          func(p *flash.Problem)
	}{
		{"q8", 1, q8, q8, 0, [2]int{64, 32}, Dense, flash.F16, false, nil},
		{"q4", 2, q4, q4, 0, [2]int{32, 64}, BNHD, flash.F16, false, nil},
		{"f8", 1, f8, f8, 0, [2]int{40, 24}, Dense, flash.F16, false, nil},
		{"q8-fp32", 1, q8, q8, 0, [2]int{128, 64}, BNHD, flash.F32, false, nil},
		{"q4-fp32", 3, q4, q4, 0, [2]int{64, 96}, Odd, flash.F32, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"f8-odd", 2, f8, f8, 0, [2]int{19, 33}, Odd, flash.F32, false, nil},
		{"keys", 1, q8, 0, 0, [2]int{64, 64}, Dense, flash.BF16, false, nil},
		{"values", 1, 0, q4, 0, [2]int{64, 64}, Odd, flash.BF16, false, nil},
		{"mixed", 4, q8, q4, 16, [2]int{64, 32}, BNHD, flash.F16, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"pages", 1, q4, q8, 2, [2]int{96, 96}, Dense, flash.F16, false, nil},
		{"pages-f8", 3, f8, q8, 16, [2]int{64, 32}, Dense, flash.BF16, false, func(p *flash.Problem) {
			p.Sinks, p.Causal = true,
				flash.CausalBottomRight
		}},
		{"q8-many", 40, q8, q8, 0, [2]int{32, 32}, Dense, flash.F16, true, nil},
		{"q4-many", 40, q4, q4, 0, [2]int{32, 32}, BNHD, flash.F16, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"f8-many", 40, f8, f8, 0, [2]int{32, 32}, Odd, flash.BF16, true, nil},
		{"q4-many-bf16", 33, q4, q8, 16, [2]int{32, 32}, Dense, flash.BF16, true,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"f8-many-fp32", 33, f8, q4, 16, [2]int{32, 64}, BNHD, flash.F32, false,
			func(p *flash.Problem) { p.Causal, p.Sinks = flash.CausalBottomRight, true }},
		{"mixed-many", 20, q8, q4, 16, [2]int{32, 32}, BNHD, flash.F16, true,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"values-many", 40, 0, f8, 64, [2]int{24, 19}, Dense, flash.F16, true,
			func(p *flash.Problem) { p.ScoreFunction = score.Softcap(3) }},
		// rows of these types that begin at words, in the middle of one, and both in turn
		{"q4_1", 1, q4m, q4m, 0, [2]int{64, 32}, Dense, flash.F16, false, nil},
		{"q5_0", 2, q5, q5, 0, [2]int{96, 64}, BNHD, flash.F16, false, nil},
		{"q5_1", 1, q5m, q5m, 0, [2]int{32, 96}, Odd, flash.F16, false, nil},
		{"iq4_nl", 3, iq4, iq4, 0, [2]int{64, 32}, OddBNHD, flash.F16, false, nil},
		{"e5m2", 1, e5m2, e5m2, 0, [2]int{40, 24}, Dense, flash.F16, false, nil},
		{"q4_1-fp32", 2, q4m, q5, 0, [2]int{96, 32}, Odd, flash.F32, false,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"q5_0-fp32", 1, q5, iq4, 0, [2]int{32, 96}, Odd, flash.F32, false, nil},
		{"q5_1-pages", 3, q5m, q4m, 2, [2]int{64, 96}, BNHD, flash.F32, false, nil},
		{"iq4_nl-pages", 1, iq4, q5m, 16, [2]int{96, 64}, Dense, flash.BF16, false, func(p *flash.Problem) { p.Sinks = true }},
		{"e5m2-odd", 2, e5m2, e5m2, 0, [2]int{19, 33}, Odd, flash.F32, false, nil},
		{"q4_1-many", 40, q4m, q4m, 0, [2]int{32, 32}, Dense, flash.F16, true, nil},
		{"q5_0-many", 40, q5, iq4, 16, [2]int{32, 32}, Odd, flash.F16, true,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"q5_1-many-bf16", 33, q5m, q5, 0, [2]int{32, 32}, BNHD, flash.BF16, true, nil},
		{"iq4_nl-many", 20, iq4, q5m, 0, [2]int{32, 32}, Odd, flash.F16, true,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"e5m2-many", 40, e5m2, e5m2, 16, [2]int{24, 19}, Odd, flash.F16, true, nil},
		{"e5m2-many-fp32", 33, e5m2, q4m, 0, [2]int{32, 64}, BNHD, flash.F32, false,
			func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }},
		{"blocks-many", 40, q8, q4, 16, [2]int{32, 32}, Dense, flash.F16, true, func(p *flash.Problem) {
			p.Causal, p.Blocks = flash.CausalBottomRight, flash.Blocks{Queries: 16, Keys: 32, PerBatch: true}
		}},
		{"blocks-odd-fp32", 33, f8, q5, 0, [2]int{32, 64}, BNHD, flash.F32, false,
			func(p *flash.Problem) { p.Blocks = flash.Blocks{Queries: 7, Keys: 12, PerHead: true} }},
		{"scores-many", 40, q8, f8, 0, [2]int{32, 32}, Dense, flash.F16, false, func(p *flash.Problem) {
			p.ScoreFunction, p.Window = score.ALiBi([]float32{0.5, 0.25, 0.125, 0.0625}), flash.SlidingWindow(30, -1)
			p.Bias = flash.PerScore{DType: p.DType, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}},
	} {
		p := flash.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: x.queries, KeyLen: 101, HeadDim: x.dims[0], ValueDim: x.dims[1],
			DType:   x.dtype,
			KeyType: x.keys, ValueType: x.values, KeyLengths: true}
		if x.queries == 4 {
			p.KeyHeads = 4
		}
		if x.page > 0 {
			PagesFor(&p, x.page, i%2 == 0)
		}
		if x.set != nil {
			x.set(&p)
		}
		s.add(&Case{Name: name(x.dtype, "caches/quantised/%s", x.name), Core: x.core, Problem: p, Share: 0.5,
			Layouts: Layouts{K: x.layout, V: x.layout},
			Only:    []flash.Implementation{flash.Flash}, lengths: around(max(1, x.page))})
	}
	// keys in parts, of which some have none of a short entry's
	s.add(&Case{Name: name(flash.F16, "caches/quantised/f8-parts"), Only: []flash.Implementation{flash.Flash}, lengths: around(1),
		Tuning: map[string]int{"parts": 3}, Problem: flash.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 2, KeyLen: 700, HeadDim: 40,
			ValueDim: 24, DType: flash.F16, KeyType: f8, ValueType: f8, KeyLengths: true, Sinks: true}})
}
