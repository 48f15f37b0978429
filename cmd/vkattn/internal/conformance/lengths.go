package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// drawLength draws a length: none, one, all, or anything between.
func drawLength(r *rand.Rand, most int) int {
	switch r.IntN(12) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return most
	}
	return r.IntN(most + 1)
}

// drawLengths draws the lengths of a case's batch entries, and spoils what lies beyond: nobody may use it.
func (c *Case) drawLengths(p flash.Problem, r *rand.Rand) {
	of := func(most int) (lens []int) {
		draw := c.lengths
		if draw == nil {
			draw = drawLength
		}
		for range p.Batch {
			lens = append(lens, draw(r, most))
		}
		return lens
	}
	in := &c.inputs
	if k := c.packed.queries; k != nil {
		in.QueryLens = k.used
		spoilBeyond(in.Q, in.QueryLens)
	}
	if k := c.packed.keys; k != nil {
		in.KeyLens = k.used
		spoilBeyond(in.K, in.KeyLens)
		spoilBeyond(in.V, in.KeyLens)
	}
	if p.KeyLengths && in.KeyLens == nil {
		in.KeyLens = of(p.KeyLen)
		spoilBeyond(in.K, in.KeyLens)
		spoilBeyond(in.V, in.KeyLens)
	}
	if p.QueryLengths && in.QueryLens == nil {
		in.QueryLens = of(p.QueryLen)
		spoilBeyond(in.Q, in.QueryLens)
	}
	if b := in.Bias; b != nil && b.B == p.Batch {
		if b.N > 1 {
			spoilBeyond(*b, in.QueryLens)
		}
		for e, n := range in.KeyLens {
			for row := e * b.H * b.N; row < (e+1)*b.H*b.N; row++ {
				spoil(b.Data[row*b.D+n : (row+1)*b.D])
			}
		}
	}
}

// spoilBeyond makes rows beyond lengths no numbers; nil: there are none.
func spoilBeyond(t ref.Tensor, lens []int) {
	for b, n := range lens {
		for h := range t.H {
			for i := n; i < t.N; i++ {
				spoil(t.Row(b, h, i))
			}
		}
	}
}

func spoil(values []float32) {
	for i := range values {
		values[i] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3])
	}
}

// lengthsTensor is lengths on a device, at an odd place between numbers that are none. Those of all there can be and of none are given as
// more and less, which kernels take for that.
func lengthsTensor(ctx context.Context, dev *flash.Device, lens []int, most, before int) (*flash.Tensor, error) {
	values := make([]int, len(lens))
	for i, l := range lens {
		switch values[i] = l; l {
		case 0:
			values[i] = -3
		case most:
			values[i] = most + 7
		}
	}
	return integersTensor(ctx, dev, [4]int{1, 1, 1, len(lens)}, values, before)
}

// integersTensor is integers on a device, at an odd place between others far from all.
func integersTensor(ctx context.Context, dev *flash.Device, shape [4]int, values []int, before int) (*flash.Tensor, error) {
	all := make([]float32, before+len(values)+3)
	for i := range all {
		all[i] = float32(-1 << 30)
	}
	for i, v := range values {
		all[before+i] = float32(v)
	}
	return withinTensor(ctx, dev, flash.Int32, shape, all, before)
}

// withinTensor is a tensor in row-major order within a larger one of these numbers, of four bytes each, from number first on.
func withinTensor(ctx context.Context, dev *flash.Device, dtype flash.DType, shape [4]int, all []float32,
	first int) (*flash.Tensor, error) {
	whole, err := dev.NewTensor(dtype, 1, 1, 1, len(all))
	if err != nil {
		return nil, err
	}
	if err = whole.Upload(ctx, all); err == nil {
		var t *flash.Tensor
		if t, err = whole.View(uint64(4*first), dtype, shape, [4]int{}); err == nil {
			return t, nil
		}
	}
	return nil, errors.Join(err, whole.Close())
}

// paddedBatches are batches with lengths of keys, of queries and of both: none, one, all and ragged, with causal orders and windows aligned
// entry by entry, and with whatever else goes with scores.
func paddedBatches(s *suite) {
	slopes := []float32{0.5, 0.25, 0.125, 0.0625}
	for i, x := range []struct {
		name          string
		keys, queries bool
		set           func(p *flash.Problem)
		core          bool
	}{
		{"keys", true, false, func(p *flash.Problem) {}, true},
		{"queries", false, true, func(p *flash.Problem) {}, true},
		{"causal", true, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }, true},
		{"causal-keys", true, false, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }, false},
		{"causal-queries", false, true, func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }, false},
		{"top-left", true, true, func(p *flash.Problem) { p.Causal = flash.CausalTopLeft }, true},
		{"window", true, true, func(p *flash.Problem) { p.Window = flash.SlidingWindow(20, 9) }, false},
		{"window-causal", true, true, func(p *flash.Problem) { p.Causal, p.Window = flash.CausalBottomRight, flash.SlidingWindow(13, -1) },
			true},
		{"window-top-left", true, true, func(p *flash.Problem) { p.Causal, p.Window = flash.CausalTopLeft, flash.SlidingWindow(30, 2) },
			false},
		{"dropout", true, true, func(p *flash.Problem) { p.Causal, p.Dropout = flash.CausalBottomRight, 0.25 }, false},
		{"alibi", true, true, func(p *flash.Problem) { p.ScoreFunction = score.ALiBi(slopes) }, true},
		{"softcap", true, true, func(p *flash.Problem) { p.ScoreFunction, p.Causal = score.Softcap(2), flash.CausalBottomRight }, false},
		{"bias", true, true, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, true},
		{"bias-shared", true, true, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: flash.F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: p.KeyLen}
		}, false},
		{"mask", true, true, func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
		{"sinks", true, true, func(p *flash.Problem) { p.Sinks, p.Causal = true, flash.CausalBottomRight }, true},
		{"relative", true, true, func(p *flash.Problem) {
			p.ScoreFunction = score.RelativeBias(score.Capture("buckets", 8, p.Heads), score.T5Bucket(true, 8, 40))
		}, false},
		{"blocks", true, true, func(p *flash.Problem) {
			p.Blocks, p.Causal = flash.Blocks{Queries: 32, Keys: 32}, flash.CausalBottomRight
		}, false},
		{"blocks-odd", true, true, func(p *flash.Problem) { p.Blocks = flash.Blocks{Queries: 12, Keys: 20, PerHead: true, PerBatch: true} },
			true},
	} {
		for j, dtype := range dtypes {
			if i > 0 && i%3 != j && !(x.core && j == 0) {
				continue
			}
			p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: s.dim(16), DType: dtype,
				KeyLengths: x.keys, QueryLengths: x.queries}
			x.set(&p)
			c := &Case{Name: name(dtype, "lengths/%s", x.name), Core: x.core, Problem: p, Share: 0.5, Seed: uint64(i)}
			if i%4 == 2 {
				c.Layouts = all(Odd)
			}
			s.add(c)
		}
	}
	for i, n := range []int{1, 3} { // few queries, keys in parts
		for j, causal := range causals[:2] {
			p := flash.Problem{Batch: 4, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 700, HeadDim: s.dim(32), DType: dtypes[(2*i+j)%3],
				Causal:     causal,
				KeyLengths: true, QueryLengths: n > 1}
			s.add(&Case{Name: name(p.DType, "lengths/few-%d-%v", n, causal), Core: true, Problem: p})
			c := s.add(&Case{Name: name(p.DType, "lengths/parts-%d-%v", n, causal), Problem: p, Core: true,
				Only:   []flash.Implementation{flash.Flash},
				Tuning: map[string]int{"parts": 3}})
			c.Problem.Sinks = j == 1
		}
	}
	for i, most := range []func(*rand.Rand, int) int{ // all entries alike
		func(*rand.Rand, int) int { return 0 },
		func(_ *rand.Rand, most int) int { return most },
	} {
		p := flash.Problem{Batch: 2, Heads: 2, QueryLen: 40, KeyLen: 50, HeadDim: s.dim(16), DType: flash.F16, Causal: causals[i],
			KeyLengths: true, QueryLengths: true}
		s.add(&Case{Name: fmt.Sprintf("lengths/%s", []string{"none", "full"}[i]), Problem: p, lengths: most})
	}
}
