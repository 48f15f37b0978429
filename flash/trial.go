package flash

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/pipeline"
)

// trialDispatches is more than a small problem has.
const trialDispatches = 64

// Dropout of a trial: what a kernel is compiled with is that there is any.
const trialDropout = 0.25

var trialDraw = draw{seed: 0x1234567890, offset: 3}

// trialOf is the problem that trials of a kernel start from: what is compiled into it stays, the rest becomes small.
func trialOf(p *Problem) Problem {
	small := *p
	small.Batch, small.KeyHeads, small.Heads = 1, 1, 2
	small.Scale = 1 / math.Sqrt(float64(p.HeadDim))
	if p.Causal != CausalNone {
		small.Causal = CausalBottomRight
	}
	small.Dropout = 0
	if p.dropThreshold() > 0 {
		small.Dropout = trialDropout
	}
	return small
}

// fillTrial fills values with normally distributed numbers as the storage type has them.
func fillTrial(rng *rand.Rand, dtype DType, values []float32) {
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	raw := make([]byte, len(values)*dtype.Size())
	encode(dtype, raw, values)
	decode(dtype, values, raw)
}

// trialInputs are random inputs of a small problem, in the words of the oracle.
func trialInputs(p *Problem) *ref.Problem {
	in := &ref.Problem{Options: ref.Options{Scale: p.Scale}}
	in.Causal = [...]ref.Causal{CausalNone: ref.NotCausal, CausalBottomRight: ref.BottomRight, CausalTopLeft: ref.TopLeft}[p.Causal]
	rng := rand.New(rand.NewPCG(1, uint64(p.HeadDim)))
	for _, x := range []struct {
		to    *ref.Tensor
		shape [4]int
	}{{&in.Q, p.QShape()}, {&in.K, p.KShape()}, {&in.V, p.VShape()}} {
		*x.to = ref.NewTensor(x.shape[0], x.shape[1], x.shape[2], x.shape[3])
		fillTrial(rng, p.DType, x.to.Data)
	}
	if p.Dropout > 0 {
		in.Dropout = &ref.Dropout{P: p.Dropout, Seed: trialDraw.seed, Offset: trialDraw.offset}
	}
	if b := p.Blocks; !b.none() {
		shape := p.MaskShape()
		in.Blocks = &ref.BlockMask{H: shape[0], Rows: shape[1], Cols: shape[2], BQ: b.Queries, BK: b.Keys, Data: trialBlocks(shape)}
	}
	return in
}

// tryForward runs a kernel on random inputs for a small problem and compares with the oracle. wrong says what is wrong with the output, ""
// for nothing; err is a device that cannot be used. scratch is the sizes of the kernel's workspace.
func (e *environment) tryForward(p *Problem, v variant, scratch []uint64, record func(*recorder, *operands) error) (wrong string, err error) {
	t := &trialTensors{env: e}
	defer t.close()
	in := trialInputs(p)
	f := operands{drop: trialDraw}
	for _, x := range []struct {
		to     *operand
		shape  [4]int
		values []float32
	}{{&f.q, p.QShape(), in.Q.Data}, {&f.k, p.KShape(), in.K.Data}, {&f.v, p.VShape(), in.V.Data}, {&f.o, p.OShape(), nil}} {
		if *x.to, err = t.add(p.DType, x.shape, v.aligned, x.values); err != nil {
			return "", err
		}
	}
	if in.Blocks != nil {
		mask := packMask(p.MaskShape(), in.Blocks.Data)
		b, err := t.alloc(uint64(len(mask)))
		if err == nil {
			f.blocks = b.All()
			err = e.ctx.Upload(context.Background(), pipeline.Binding{Buffer: f.blocks.Buffer, Offset: f.blocks.Offset, Size: uint64(len(mask))}, mask)
		}
		if err != nil {
			return "", err
		}
	}
	if v.lse {
		f.hasLSE = true
		if f.lse, err = t.add(F32, p.LSEShape(), true, nil); err != nil {
			return "", err
		}
	}
	r := &recorder{count: e.counting}
	if r.scratch, err = t.allocAll(scratch); err != nil {
		return "", err
	}
	if err := e.once(func(rec *pipeline.Recording) error { r.rec = rec; return record(r, &f) }, trialDispatches); err != nil {
		return "", err
	}
	o, err := t.download(p.DType, p.OShape(), &f.o)
	if err != nil {
		return "", err
	}
	var lse []float32
	if v.lse {
		if lse, err = t.download(F32, p.LSEShape(), &f.lse); err != nil {
			return "", err
		}
	}
	return compareForward(p, in, o, lse)
}

// compareForward says where o or lse (nil: not compared) is off what the oracle makes of the inputs.
func compareForward(p *Problem, in *ref.Problem, o, lse []float32) (wrong string, err error) {
	wantO, wantLSE, err := ref.Forward(*in)
	if err != nil {
		return "", err
	}
	if wrong := offAt(p, "o", o, wantO, map[DType]float64{F32: 1e-4, F16: 5e-3, BF16: 4e-2}[p.DType]); wrong != "" || lse == nil {
		return wrong, nil
	}
	// Standard attention rounds its scores to the storage type; bf16 has eight bits.
	return offAt(p, "lse", lse, wantLSE, map[DType]float64{F32: 2e-3, F16: 2e-3, BF16: 8e-3}[p.DType]), nil
}

// offAt says where values are further from what they should be than the tolerance, relative beyond 1. Tolerances are for normally
// distributed inputs, generous: it is mistakes that are looked for, not roundings.
func offAt(p *Problem, name string, got []float32, want ref.Array, tolerance float64) string {
	for i, should := range want.Data {
		have := float64(got[i])
		if have == should || math.Abs(have-should) <= tolerance*math.Max(1, math.Abs(should)) { // false for NaN
			continue
		}
		row := i / want.D
		return fmt.Sprintf("%s[%d, %d, %d, %d] is %.6g and should be %.6g (%v, scale %g)",
			name, row/want.N/want.H, row/want.N%want.H, row%want.N, i%want.D, have, should, p, p.Scale)
	}
	return ""
}

// tryBackward runs the kernels of a backward pass on random inputs for a small problem and compares with the oracle. forward makes what
// the pass needs besides o and lse, which the oracle makes without it; nil: nothing. scratch is the sizes of the workspace.
func (e *environment) tryBackward(p *Problem, v gradientVariant, forward program, scratch []uint64, record func(*recorder, *gradients) error) (wrong string, err error) {
	t := &trialTensors{env: e}
	defer t.close()
	in := trialInputs(p)
	rng := rand.New(rand.NewPCG(2, uint64(p.HeadDim)))
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	fillTrial(rng, p.DType, do.Data)
	var dlse []float32
	if v.dlse {
		dlse = make([]float32, product(p.LSEShape()))
		fillTrial(rng, F32, dlse)
	}
	o, lse, err := ref.Forward(*in)
	if err != nil {
		return "", err
	}
	want, err := ref.Backward(*in, do, dlse)
	if err != nil {
		return "", err
	}
	g := gradients{accumulate: v.accumulate, hasDLSE: v.dlse, drop: trialDraw}
	type result struct {
		name  string
		to    *operand
		shape [4]int
		want  ref.Array
	}
	results := []result{{"dq", &g.dq, p.QShape(), want.DQ}, {"dk", &g.dk, p.KShape(), want.DK}, {"dv", &g.dv, p.VShape(), want.DV}}
	type tensor struct {
		to      *operand
		dtype   DType
		shape   [4]int
		aligned bool
		values  []float32
	}
	tensors := []tensor{{&g.q, p.DType, p.QShape(), v.aligned, in.Q.Data}, {&g.k, p.DType, p.KShape(), v.aligned, in.K.Data},
		{&g.v, p.DType, p.VShape(), v.aligned, in.V.Data}, {&g.do, p.DType, p.OShape(), v.aligned, do.Data},
		{&g.o, p.DType, p.OShape(), v.aligned, float32s(o.Data)}, {&g.lse, F32, p.LSEShape(), true, float32s(lse.Data)}}
	if v.dlse {
		tensors = append(tensors, tensor{&g.dlse, F32, p.LSEShape(), true, dlse})
	}
	for _, r := range results {
		var start []float32
		if v.accumulate {
			start = make([]float32, product(r.shape))
			for i := range start {
				start[i] = float32(i%7) - 3
				r.want.Data[i] += float64(start[i])
			}
		}
		tensors = append(tensors, tensor{r.to, p.DType, r.shape, v.aligned, start})
	}
	for _, x := range tensors {
		if *x.to, err = t.add(x.dtype, x.shape, x.aligned, x.values); err != nil {
			return "", err
		}
	}
	r := &recorder{count: e.counting}
	if forward != nil {
		f := operands{q: g.q, k: g.k, v: g.v, o: g.o, lse: g.lse, hasLSE: true, drop: g.drop}
		if k, ok := forward.(keeper); ok {
			if g.weights, err = t.allocAll(k.kept()); err != nil {
				return "", err
			}
			f.weights = g.weights
		}
		if r.scratch, err = t.allocAll(forward.scratch()); err != nil {
			return "", err
		}
		if err := e.once(func(rec *pipeline.Recording) error { r.rec = rec; return forward.record(r, &f) }, trialDispatches); err != nil {
			return "", err
		}
	}
	if r.scratch, err = t.allocAll(scratch); err != nil {
		return "", err
	}
	if err := e.once(func(rec *pipeline.Recording) error { r.rec = rec; return record(r, &g) }, trialDispatches); err != nil {
		return "", err
	}
	for _, x := range results {
		got, err := t.download(p.DType, x.shape, x.to)
		if err != nil {
			return "", err
		}
		if wrong := offAt(p, x.name, got, x.want, map[DType]float64{F32: 1e-3, F16: 1e-2, BF16: 8e-2}[p.DType]); wrong != "" {
			return wrong, nil
		}
	}
	return "", nil
}

func float32s(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
