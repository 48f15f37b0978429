package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// maxLogitAnswer is the largest scores as golden vectors call them.
const maxLogitAnswer = "max_logit"

// findMaxLogits computes the largest score of each head, of all of its rows, where the case asks for it.
func (c *Case) findMaxLogits(t ref.DType) (err error) {
	if !c.Problem.MaxLogit {
		return nil
	}
	if c.maxLogit, err = ref.MaxLogits(c.inputs); err != nil {
		return err
	}
	if c.vector != nil { // what the file says is what is right
		if err := agree(maxLogitAnswer, c.vector, c.maxLogit); err != nil {
			return err
		}
		c.maxLogit = ref.Widen(c.vector.Answers[maxLogitAnswer])
	}
	c.plainMax, err = ref.PlainMaxLogits(c.inputs, t)
	return err
}

// maxLogitArena is their buffer, nil where the case does not ask for them.
func (c *Case) maxLogitArena(dev *flash.Device) (*arena, error) {
	if !c.Problem.MaxLogit {
		return nil, nil
	}
	at := place(Dense, flash.F32, [4]int{1, 1, c.Problem.Batch, c.Problem.Heads})
	if c.Layouts.O != Dense { // they are in row-major order, and may begin anywhere
		at.offset++
		at.total += 8
	}
	return newArena(dev, at)
}

// checkMaxLogits judges them as lse: both are as exact as scores.
func (c *Case) checkMaxLogits(target Target, raw []byte, r *Result) {
	if raw == nil {
		return
	}
	t, plain := refType(c.Problem.DType), c.plainMax
	if target.Implementation != flash.Standard && t != ref.F32 {
		plain = nil // its scores are never rounded to 16 bits
	}
	v := ref.CheckLSE(ref.Widen(ref.F32.Decode(raw)), c.maxLogit, plain, t)
	r.note("max logit", v)
	if !v.OK {
		r.fail("max logit: %v (batch %d, head %d)", v, v.At/c.Problem.Heads, v.At%c.Problem.Heads)
	}
}

// maxLogits are problems that ask for the largest score of each head: by every mask, of whatever becomes of scores, wherever keys lie.
func maxLogits(s *suite) {
	slopes := []float32{0.5, 0.25, 0.125, 0.0625}
	causal := func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }
	for i, x := range []struct {
		name string
		core bool
		set  func(p *flash.Problem)
		fill Fill
	}{
		{"plain", true, func(p *flash.Problem) {}, nil},
		{"causal", true, causal, nil},
		{"negative", true, causal, opposed(-1)}, // every score
		{"negative-scale", false, func(p *flash.Problem) { p.Scale = -0.8 }, nil},
		{"grown", true, func(p *flash.Problem) {}, rising},
		{"fallen", false, func(p *flash.Problem) {}, falling},
		{"window", false, func(p *flash.Problem) { p.Window = flash.SlidingWindow(9, 3) }, nil},
		{"none", true, func(p *flash.Problem) { p.KeyLengths = true }, nil},
		{"softcap", false, func(p *flash.Problem) { p.ScoreFunction = score.Softcap(2) }, nil},
		{"alibi", true, func(p *flash.Problem) { p.ScoreFunction = score.ALiBi(slopes) }, opposed(-1)},
		{"documents", false, func(p *flash.Problem) {
			p.QueryLen, p.MaskFunction = p.KeyLen, score.Documents(score.CaptureInt("documents", p.Batch, p.KeyLen))
		}, nil},
		{"bias", false, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, nil},
		{"mask", false, func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, nil},
		{"sinks", true, func(p *flash.Problem) { p.Sinks = true }, opposed(-1)}, // which are above all scores
		{"dropout", false, func(p *flash.Problem) { p.Dropout = 0.5 }, nil},
		{"lengths", true, func(p *flash.Problem) { causal(p); p.KeyLengths, p.QueryLengths = true, true }, nil},
		{"few", true, func(p *flash.Problem) { p.QueryLen = 2 }, nil},
		{"few-lengths", false, func(p *flash.Problem) { p.QueryLen, p.KeyLengths, p.QueryLengths = 3, true, true }, opposed(-1)},
		{"hidden", true, func(p *flash.Problem) { p.Causal = flash.CausalTopLeft }, rising}, // no query sees the largest products
	} {
		for j, dtype := range dtypes {
			if i > 1 && i%3 != j && !(x.core && j == 0) {
				continue
			}
			p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 150, HeadDim: s.dim(32), DType: dtype, MaxLogit: true}
			x.set(&p)
			c := &Case{Name: name(dtype, "max-logit/%s", x.name), Core: x.core, Problem: p, Layouts: all(Layout(i) % layoutEnd),
				NoLSE: i%2 == 1, Seed: uint64(i), fill: x.fill}
			if x.name == "none" {
				c.lengths = func(*rand.Rand, int) int { return 0 }
			}
			s.add(c)
		}
	}
	for i, n := range []int{1, 3, 50} {
		p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 700, HeadDim: s.dim(32), DType: dtypes[i], MaxLogit: true}
		c := &Case{Name: name(p.DType, "max-logit/packed-%d", n), Core: true, Problem: p, Only: []flash.Implementation{flash.Flash},
			Tuning: map[string]int{"parts": 1 + i}}
		s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), 12)), i != 1))
	}
	for i, n := range []int{2, 40} {
		p := flash.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 150, HeadDim: s.dim(64), DType: dtypes[i],
			Causal: flash.CausalBottomRight, MaxLogit: true}
		PagesFor(&p, 16, i == 1)
		s.add(&Case{Name: name(p.DType, "max-logit/pages-%d", n), Core: i == 0, Problem: p, Only: []flash.Implementation{flash.Flash}})
		q := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 90, HeadDim: 32, DType: dtypes[1-i], MaxLogit: true,
			KeyType: []flash.DType{flash.Q8_0, flash.F8E4M3}[i]}
		s.add(&Case{Name: name(q.DType, "max-logit/quantised-%d", n), Core: i == 0, Problem: q, Only: []flash.Implementation{flash.Flash}})
	}
	for i, blocks := range []flash.Blocks{{Queries: 64, Keys: 64}, {Queries: 16, Keys: 48, PerHead: true}} {
		s.add(&Case{Name: fmt.Sprintf("max-logit/blocks-%d/f16", i), Core: i == 0, Share: 0.5, Problem: flash.Problem{Batch: 2, Heads: 2,
			QueryLen: 130, KeyLen: 150, HeadDim: s.dim(32), DType: flash.F16, Blocks: blocks, MaxLogit: true}})
	}
	for i, dim := range []int{264, 576} {
		s.add(&Case{Name: fmt.Sprintf("max-logit/wide-%d/f16", dim), Problem: flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 33,
			KeyLen: 50, HeadDim: dim, ValueDim: 24, DType: flash.F16, MaxLogit: true, Causal: causals[i]}})
	}
	for i, n := range []int{2, 20} {
		s.add(&Case{Name: fmt.Sprintf("max-logit/parts-%d/f16", n), Core: true, Only: []flash.Implementation{flash.Flash},
			Tuning: map[string]int{"parts": 3}, fill: []Fill{rising, opposed(-1)}[i], Problem: flash.Problem{Batch: 2, Heads: 4,
				KeyHeads: 2, QueryLen: n, KeyLen: 300, HeadDim: s.dim(32), DType: flash.F16, MaxLogit: true}})
	}
	s.add(&Case{Name: "max-logit/slabs/f16", Core: true, Only: []flash.Implementation{flash.Standard},
		Tuning: map[string]int{"max_slab": 1 << 15}, Problem: flash.Problem{Batch: 2, Heads: 2, QueryLen: 70, KeyLen: 150,
			HeadDim: s.dim(32), DType: flash.F16, Causal: flash.CausalBottomRight, MaxLogit: true}})
	grid := flash.Problem{Batch: 2, Heads: 2, QueryLen: 130, KeyLen: 97, HeadDim: s.dim(32), DType: flash.F32, MaxLogit: true}
	s.add(&Case{Name: "max-logit/dispatches/f32", Problem: grid, Tuning: map[string]int{"max_groups": 1}})
}

// rising and falling fill keys so that scores grow, or fall, along them: by less from one tile to the next than kernels move references
// for.
func rising(r *rand.Rand, q, k, v ref.Tensor)  { slope(r, q, k, v, 1) }
func falling(r *rand.Rand, q, k, v ref.Tensor) { slope(r, q, k, v, -1) }

func slope(r *rand.Rand, q, k, v ref.Tensor, sign float32) {
	normal(r, q, k, v)
	for i := range q.Data {
		q.Data[i] = q.Data[i]/16 + 1
	}
	for b := range k.B {
		for h := range k.H {
			for j := range k.N {
				row := k.Row(b, h, j)
				for d := range row {
					row[d] = row[d]/64 + sign*float32(j)/float32(2*k.N)
				}
			}
		}
	}
}

// poison fills buffers that there are before a run.
func poison(ctx context.Context, run int, a *arena) error {
	if a == nil {
		return nil
	}
	return a.poison(ctx, run)
}
