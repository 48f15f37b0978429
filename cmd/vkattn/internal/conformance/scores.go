package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// scoreFeatures are the features of scores. What takes tensors gets them from scoreTensors, as the suite's own cases do.
var scoreFeatures = []feature{
	{name: "softcap", used: func(o *ref.Options) bool { return o.Softcap != 0 },
		set: func(o *ref.Options, p *flash.Problem) {
			p.ScoreFunction = then(p.ScoreFunction, score.Softcap(o.Softcap))
		}},
	{name: "ALiBi", used: func(o *ref.Options) bool { return o.Slopes != nil },
		set: func(o *ref.Options, p *flash.Problem) { p.ScoreFunction = then(p.ScoreFunction, score.ALiBi(o.Slopes)) }},
	{name: "bias", used: func(o *ref.Options) bool { return o.Bias != nil },
		set: func(o *ref.Options, p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: o.Bias.B, Heads: o.Bias.H, Queries: o.Bias.N, Keys: o.Bias.D}
		}},
	{name: "mask", used: func(o *ref.Options) bool { return o.Mask != nil },
		set: func(o *ref.Options, p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: o.Mask.B, Heads: o.Mask.H, Queries: o.Mask.N, Keys: o.Mask.M}
		}},
	{name: "sinks", used: func(o *ref.Options) bool { return o.Sinks != nil },
		set: func(o *ref.Options, p *flash.Problem) { p.Sinks = true }},
}

// drawScores draws what goes with the scores of a case: a bias near scores with an infinity or two, a mask of Share of the pairs, sinks,
// and what functions capture.
func (c *Case) drawScores(p flash.Problem, r *rand.Rand) {
	in := &c.inputs
	in.Score, in.Sees = p.ScoreFunction, p.MaskFunction
	if s := p.Bias; s != (flash.PerScore{}) {
		b := ref.NewTensor(s.Batch, s.Heads, s.Queries, s.Keys)
		for i := range b.Data {
			b.Data[i] = float32(r.NormFloat64())
			if r.IntN(50) == 0 {
				b.Data[i] = float32(math.Inf(-1))
			}
		}
		refType(s.DType).RoundAll(b.Data)
		in.Bias = &b
	}
	if s := p.Mask; s != (flash.PerScore{}) {
		m := &ref.Mask{B: s.Batch, H: s.Heads, N: s.Queries, M: s.Keys}
		for range s.Batch * s.Heads * s.Queries * s.Keys {
			m.Data = append(m.Data, r.IntN(3) > 0)
		}
		in.Mask = m
	}
	if p.Sinks {
		for range p.Heads {
			in.Sinks = append(in.Sinks, float32(2*r.NormFloat64()))
		}
	}
	data := score.Data{}
	for _, t := range p.Captures() {
		if t.Type == score.Int32 {
			values, run := make([]int32, t.Elements()), 13
			if p.MaskBlocks != (flash.Blocks{}) {
				run = 75 // more than most blocks, so that there are blocks of each class
			}
			for i := range values {
				values[i] = int32(i / run)
			}
			data[t.Name] = values
			continue
		}
		values := make([]float32, t.Elements())
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		data[t.Name] = values
	}
	in.Captured = data
}

// scoreTensors are the tensors on a device that go with the scores of a case, and the gradients with respect to them.
type scoreTensors struct {
	bias, mask, sinks *arena
	lengths, starts   [2]*flash.Tensor // of keys and queries
	lists             *flash.Tensor
	cache             cacheTensors
	dbias, dsinks     *arena
	captured          flash.Captured
	dcaptured         [flash.MaxCaptured]*arena                     // nil where there is no gradient
	first             [len(scoreAnswers) + flash.MaxCaptured][]byte // of the gradients, in the first run
}

func (c *Case) scoreTensors(ctx context.Context, dev *flash.Device) (s *scoreTensors, err error) {
	p, in := c.Problem, &c.inputs
	s = &scoreTensors{}
	listed := p.Lists != flash.Lists{} // then there is no gradient with respect to biases and what functions capture
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	given := func(to **arena, l Layout, dtype flash.DType, shape [4]int, values []float32) {
		if err != nil {
			return
		}
		if *to, err = newArena(dev, place(l, dtype, shape)); err != nil {
			return
		}
		if to == &s.mask { // around the elements, all may be attended to
			raw := bytes.Repeat([]byte{0xff}, (*to).bytes())
			err = errors.Join((*to).whole.UploadBytes(ctx, raw), (*to).tensor.Upload(ctx, values))
			return
		}
		err = (*to).input(ctx, values)
	}
	shape := func(s flash.PerScore) [4]int { return [4]int{s.Batch, s.Heads, s.Queries, s.Keys} }
	if in.Bias != nil {
		given(&s.bias, c.Layouts.Q, p.Bias.DType, shape(p.Bias), in.Bias.Data)
		if err == nil && !listed {
			s.dbias, err = newArena(dev, place(c.Layouts.O, p.Bias.DType, shape(p.Bias)))
		}
	}
	if in.Mask != nil {
		values := make([]float32, len(in.Mask.Data))
		for i, b := range in.Mask.Data {
			if b {
				values[i] = 1
			}
		}
		given(&s.mask, c.Layouts.K, p.Mask.DType, shape(p.Mask), values)
	}
	if in.Sinks != nil {
		given(&s.sinks, Dense, flash.F32, [4]int{1, 1, 1, p.Heads}, in.Sinks)
		if err == nil {
			s.dsinks, err = newArena(dev, place(Dense, flash.F32, [4]int{1, 1, 1, p.Heads}))
		}
	}
	for i, lens := range [2][]int{in.KeyLens, in.QueryLens} {
		if err == nil && lens != nil && [2]bool{p.KeyLengths, p.QueryLengths}[i] {
			s.lengths[i], err = lengthsTensor(ctx, dev, lens, [2]int{p.KeyLen, p.QueryLen}[i], i+1)
		}
	}
	for i, k := range [2]*packing{c.packed.keys, c.packed.queries} {
		if err == nil && k != nil {
			s.starts[i], err = k.startsTensor(ctx, dev, i+1)
		}
	}
	if err == nil {
		s.lists, err = c.listsTensor(ctx, dev)
	}
	if err == nil {
		s.cache, err = c.cacheTensors(ctx, dev)
	}
	for i, t := range p.Captures() {
		if err != nil {
			return s, err
		}
		shape := [4]int{1, 1, 1, 1}
		copy(shape[4-len(t.Shape):], t.Shape)
		dtype := flash.F32
		if t.Type == score.Int32 {
			dtype = flash.Int32
		}
		if s.captured[i], err = dev.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3]); err != nil {
			return s, err
		}
		switch values := in.Captured[t.Name].(type) {
		case []float32:
			err = s.captured[i].Upload(ctx, values)
			if _, none := p.ScoreFunction.Gradient(t.Name); err == nil && none == nil && !listed {
				s.dcaptured[i], err = newArena(dev, place(Dense, flash.F32, shape))
			}
		case []int32:
			floats := make([]float32, len(values))
			for j, v := range values {
				floats[j] = float32(v)
			}
			err = s.captured[i].Upload(ctx, floats)
		}
	}
	return s, err
}

// scoreAnswers are the gradients with respect to what goes with scores, but for what functions capture, as golden vectors call them.
var scoreAnswers = [...]string{"dbias", "dsinks"}

// answers are their buffers, in that order.
func (s *scoreTensors) answers() []*arena { return []*arena{s.dbias, s.dsinks} }

// scoreGradients are the oracle's gradients with respect to all that goes with scores, by name; nil where there is none.
func scoreGradients(g *ref.Gradients) map[string][]float64 {
	all := map[string][]float64{"dbias": g.DBias.Data, "dsinks": g.DSinks}
	for name, x := range g.DCaptured {
		all[capturedName(name)] = x
	}
	return all
}

// capturedName is what a captured tensor is called beside scoreAnswers.
func capturedName(name string) string { return "captured " + name }

// want asks a backward pass for the gradients that there are buffers for.
func (s *scoreTensors) want(b *flash.Backward) {
	b.DBias, b.DSinks = tensorOf(s.dbias), tensorOf(s.dsinks)
	for i, a := range s.dcaptured {
		b.DCaptured[i] = tensorOf(a)
	}
}

// inputs are the buffers of what goes with scores.
func (s *scoreTensors) inputs() []*arena { return []*arena{s.bias, s.mask, s.sinks} }

// outputs are the buffers of all gradients.
func (s *scoreTensors) outputs() []*arena {
	return append(s.answers(), s.dcaptured[:]...)
}

// poison fills the gradients' buffers before a run.
func (s *scoreTensors) poison(ctx context.Context, run int) (err error) {
	for _, a := range s.outputs() {
		if a != nil {
			err = errors.Join(err, a.poison(ctx, run))
		}
	}
	return err
}

// read compares the gradients with respect to bias, sinks and what functions capture with what is right, and in later runs with the first
// in bits.
func (s *scoreTensors) read(ctx context.Context, c *Case, run int, r *Result) error {
	type gradient struct {
		name  string
		a     *arena
		right [2][]float64
	}
	var all []gradient
	for i, name := range scoreAnswers {
		all = append(all, gradient{name, s.answers()[i], c.grads.others[name]})
	}
	for i, t := range c.Problem.Captures() {
		all = append(all, gradient{"d" + t.Name, s.dcaptured[i], c.grads.others[capturedName(t.Name)]})
	}
	for i, x := range all {
		if x.a == nil {
			continue
		}
		out, err := x.a.output(ctx, x.name, run)
		if err != nil {
			return err
		}
		if run > 0 {
			if !bytes.Equal(out, s.first[i]) {
				return fmt.Errorf("%s of run %d differs from the first in bits", x.name, run+1)
			}
			continue
		}
		s.first[i] = out
		t := refType(x.a.dtype)
		c.judge(x.name, t.Decode(out), x.right[0], x.right[1], refType(c.Problem.DType), r)
	}
	return nil
}

func (s *scoreTensors) close() error {
	for _, a := range append(s.outputs(), s.inputs()...) {
		a.close()
	}
	var err error
	for _, t := range append(slices.Concat(s.captured[:], s.lengths[:], s.starts[:], s.cache[:]), s.lists) {
		err = errors.Join(err, t.Close())
	}
	return err
}

// classes are those of a problem's mask functions; nil without.
func (s *scoreTensors) classes(ctx context.Context, dev *flash.Device, p flash.Problem) (*flash.MaskBlocks, error) {
	if p.MaskBlocks == (flash.Blocks{}) {
		return nil, nil
	}
	var captured []*flash.Tensor
	all := p.Captures()
	for _, want := range p.MaskFunction.Captures() {
		for i, t := range all {
			if !want.Table() && t.Name == want.Name {
				captured = append(captured, s.captured[i])
			}
		}
	}
	return dev.NewMaskBlocks(ctx, p, captured...)
}

// give gives them to a forward pass.
func (s *scoreTensors) give(f *flash.Forward) {
	f.Bias, f.Mask, f.Sinks, f.Captured = tensorOf(s.bias), tensorOf(s.mask), tensorOf(s.sinks), s.captured
	f.KeyLengths, f.QueryLengths = s.lengths[0], s.lengths[1]
	f.KeyStarts, f.QueryStarts = s.starts[0], s.starts[1]
	f.Lists = s.lists
	f.PageTable, f.PageStarts, f.LastPages, f.KeyScales, f.ValueScales = s.cache[0], s.cache[1], s.cache[2], s.cache[3], s.cache[4]
}

// tensorOf is the tensor of an arena that may not be.
func tensorOf(a *arena) *flash.Tensor {
	if a == nil {
		return nil
	}
	return a.tensor
}

// scored are problems with functions, biases, masks and sinks of their scores, one at a time and many at once, on every kernel.
func scored(s *suite) {
	heads := 4
	slopes := []float32{0.5, 0.25, 0.125, 0.0625}
	custom,
		err := score.New(score.S().Add(score.Capture("table", 7, heads).At(score.Position().Sub(score.Key()).Abs().Mod(score.ConstInt(7)),
		score.Head())))
	if err != nil {
		panic(err) // an expression of this file
	}
	capped, err := score.Compose(score.ALiBi(slopes), score.Softcap(3))
	if err != nil {
		panic(err)
	}
	swin, err := score.Compose(score.RelativeBias(score.Capture("window", 11*13, heads), score.SwinBucket(6, 7)), score.Softcap(3))
	if err != nil {
		panic(err)
	}
	bias := func(p *flash.Problem, own ...bool) {
		of := func(i, n int) int {
			if own[i] {
				return n
			}
			return 1
		}
		p.Bias = flash.PerScore{DType: p.DType, Batch: of(0, p.Batch), Heads: of(1, p.Heads), Queries: of(2, p.QueryLen), Keys: p.KeyLen}
	}
	for i, x := range []struct {
		name string
		set  func(p *flash.Problem)
		core bool
	}{
		{"alibi", func(p *flash.Problem) { p.ScoreFunction = score.ALiBi(slopes) }, true},
		{"softcap", func(p *flash.Problem) { p.ScoreFunction = score.Softcap(2) }, true},
		{"alibi-softcap", func(p *flash.Problem) { p.ScoreFunction = capped }, false},
		{"table", func(p *flash.Problem) { p.ScoreFunction = custom }, false},
		{"t5", func(p *flash.Problem) {
			p.ScoreFunction = score.RelativeBias(score.Capture("buckets", 8, heads), score.T5Bucket(true, 8, 40))
		}, false},
		{"swin", func(p *flash.Problem) { // a window of patches, capped, so that the derivative by the table is not 1
			p.QueryLen, p.KeyLen, p.Causal, p.ScoreFunction = 42, 42, flash.CausalNone, swin
		}, false},
		{"prefix", func(p *flash.Problem) { p.MaskFunction, p.Causal = score.PrefixLM(20), flash.CausalNone }, false},
		{"documents", func(p *flash.Problem) {
			p.QueryLen, p.MaskFunction = p.KeyLen, score.Documents(score.CaptureInt("documents", p.Batch, p.KeyLen))
		}, true},
		{"bias", func(p *flash.Problem) { bias(p, true, true, true) }, true},
		{"bias-fp32", func(p *flash.Problem) { bias(p, false, true, true); p.Bias.DType = flash.F32 }, false},
		{"bias-rows", func(p *flash.Problem) { bias(p, true, false, false) }, false},
		{"mask", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, true},
		{"padding", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}, false},
		{"sinks", func(p *flash.Problem) { p.Sinks = true }, true},
		{"all", func(p *flash.Problem) {
			bias(p, false, true, true)
			p.ScoreFunction, p.Sinks, p.Window = score.Softcap(4), true, flash.SlidingWindow(60, -1)
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}, true},
		{"mask-bits", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bit, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, true},
		{"padding-bits", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bit, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}, false},
		{"bits-odd", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bit, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}, true},
		{"softcap-window", func(p *flash.Problem) { p.ScoreFunction, p.Window = capped, flash.SlidingWindow(30, 10) }, true},
		{"swin-window", func(p *flash.Problem) { // all of this at once, the window's edges within tiles
			p.QueryLen, p.KeyLen, p.Causal, p.ScoreFunction = 42, 42, flash.CausalNone, swin
			bias(p, true, true, true)
			p.Window, p.Sinks = flash.SlidingWindow(20, 5), true
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
	} {
		for j, dtype := range dtypes {
			if !s.small || i%3 == j || x.core && j == 1 {
				p := flash.Problem{Batch: 2, Heads: heads, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: s.dim(16), DType: dtype,
					Causal: causals[i%2]}
				x.set(&p)
				c := &Case{Name: name(dtype, "scores/%s", x.name), Core: x.core, Problem: p}
				if i%4 == 1 {
					c.Problem.Dropout, c.Seed = 0.25, uint64(i)
				}
				if i%5 == 2 {
					c.Layouts = all(Odd)
				}
				s.add(c)
			}
		}
	}
	for i, n := range []int{1, 3} { // few queries
		p := flash.Problem{Batch: 2, Heads: heads, KeyHeads: 1, QueryLen: n, KeyLen: 300, HeadDim: s.dim(32), DType: dtypes[i],
			Causal:        flash.CausalBottomRight,
			ScoreFunction: capped, Sinks: true, Mask: flash.PerScore{DType: []flash.DType{flash.Bool, flash.Bit}[i], Batch: 2, Heads: 1,
				Queries: 1,
				Keys:    300}}
		bias(&p, false, true, false)
		s.add(&Case{Name: fmt.Sprintf("scores/few-%d/%v", n, refType(p.DType)), Problem: p})
	}
}
