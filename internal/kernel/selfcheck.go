package kernel

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// selfCheckDispatches is more than a small problem has.
const selfCheckDispatches = 64

// Dropout of a self-check: what a kernel is compiled with is that there is any.
const SelfCheckDropout = 0.25

var SelfCheckDraw = Draw{Seed: 0x1234567890, Offset: 3}

// SelfCheckOf is the problem that self-checks of a kernel start from: what is compiled into it stays, the rest becomes small.
func SelfCheckOf(p *attn.Problem) attn.Problem {
	small := *p
	small.Batch, small.KeyHeads, small.Heads = 1, 1, 2
	small.Scale = 1 / math.Sqrt(float64(p.HeadDim))
	selfCheckMask(&small, p)
	small.Within = attn.Within{} // of which kernels know the band alone
	if p.DrawsWithin() {
		small.Within = attn.Within{Query: 77, Key: 3 * attn.DrawKeys, Head: 3, Heads: 9} // places of draws alone
	}
	if p.Padded() {
		small.Batch = 2 // of lengths that differ
	}
	if !p.Packed.None() {
		small.Batch = selfCheckEntries
	}
	DrawInEntries(&small)
	small.Dropout = 0
	if p.DropThreshold() > 0 {
		small.Dropout = SelfCheckDropout
	}
	return small
}

// DrawInEntries makes the whole of a self-check's problem that is a part, and has several entries, one with as many heads: of the oracle's
// draws each entry has as many.
func DrawInEntries(p *attn.Problem) {
	if p.Batch > 1 && p.Within.Heads > 0 {
		p.Within.Heads = p.Heads
	}
}

// fillSelfCheck fills values with normally distributed numbers as the storage type has them.
func fillSelfCheck(rng *rand.Rand, dtype attn.DType, values []float32) {
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	raw := make([]byte, dtype.Bytes(len(values)))
	attn.Encode(dtype, raw, values)
	attn.Decode(dtype, values, raw)
}

// SelfCheckInputs are random inputs of a small problem, in the words of the oracle; of packed sequences as a padded batch. What functions
// capture may be anything: where most rows could not be judged with numbers of one kind, others are tried.
func SelfCheckInputs(of *attn.Problem) *ref.Problem {
	in := selfCheckInputs(of, smallNumbers)
	if !captures(of) {
		return in
	}
	best := leftOf(of, in)
	for kind := smallNumbers + 1; kind < capturedKinds && best < 0.5; kind++ {
		other := selfCheckInputs(of, kind)
		if left := leftOf(of, other); left > best {
			in, best = other, left
		}
	}
	return in
}

func selfCheckInputs(of *attn.Problem, kind capturedKind) *ref.Problem {
	p := batchOf(of)
	in := &ref.Problem{Options: ref.Options{Scale: p.Scale}}
	seen(p, &in.Options)
	rng := rand.New(rand.NewPCG(1, uint64(p.HeadDim)))
	selfCheckScores(p, in, rng, kind)
	for _, x := range []struct {
		to    *ref.Tensor
		shape [4]int
	}{{&in.Q, p.QShape()}, {&in.K, [4]int{p.Batch, p.KeyHeads, p.KeyLen, p.HeadDim}},
		{&in.V, [4]int{p.Batch, p.KeyHeads, p.KeyLen, p.ValueDim}}} {
		*x.to = ref.NewTensor(x.shape[0], x.shape[1], x.shape[2], x.shape[3])
		fillSelfCheck(rng, p.DType, x.to.Data)
	}
	if of.Packed.None() {
		selfCheckLengths(p, in)
	} else {
		selfCheckLengthsOf(of, in)
	}
	if p.Dropout > 0 {
		in.Dropout = &ref.Dropout{P: p.Dropout, Seed: SelfCheckDraw.Seed, Offset: SelfCheckDraw.Offset, Head: p.Within.Head,
			Query: p.Within.Query, Key: p.Within.Key}
	}
	if !p.Blocks.None() && !p.Blocks.Classed {
		in.Blocks = RefBlocks(p, selfCheckBlocks(p.MaskShape()))
	}
	return in
}

// TryForward runs a kernel on random inputs for a small problem and compares with the oracle. wrong says what is wrong with the output, ""
// for nothing; err is a device that cannot be used. scratch is the sizes of the kernel's workspace.
func (e *Env) TryForward(p *attn.Problem, v Variant, scratch []uint64, record func(*Recorder, *Operands) error) (wrong string, err error) {
	return e.TryForwardWithin(0, p, v, scratch, record)
}

// outputBounds are how far o may be off in a self-check, by storage type.
var outputBounds = map[attn.DType]float64{attn.F32: 1e-4, attn.F16: 5e-3, attn.BF16: 4e-2}

// statisticsBounds are how far lse and the largest scores may be off. Standard attention rounds its scores to the storage type; bf16 has
// eight bits.
var statisticsBounds = map[attn.DType]float64{attn.F32: 2e-3, attn.F16: 2e-3, attn.BF16: 8e-3}

// TryForwardWithin is TryForward with a bound of its own for o, unless it is 0.
func (e *Env) TryForwardWithin(bound float64, p *attn.Problem, v Variant, scratch []uint64,
	record func(*Recorder, *Operands) error) (wrong string, err error) {
	t := &selfCheckTensors{env: e}
	defer t.close()
	selfCheckPages(p)
	in := SelfCheckInputs(p)
	if v.InKeys {
		in.V = firstColumns(in.K, p.ValueDim)
	}
	f, err := t.forward(p, in, v, scratch, record)
	if err != nil {
		return "", err
	}
	o := t.download(p.DType, p.OShape(), &f.O)
	var lse []float32
	if v.LSE {
		lse = t.download(attn.F32, p.LSEShape(), &f.LSE)
	}
	if t.err != nil {
		return "", t.err
	}
	if !p.Packed.None() {
		none := make([]float64, Product(batchOf(p).OShape()))
		o = unpacked(p, &attn.Operand{Name: "O", Shape: (*attn.Problem).OShape}, o, none)
		for i := range none {
			none[i] = math.Inf(-1)
		}
		if v.LSE {
			lse = unpacked(p, &attn.Operand{Name: "LSE", Shape: (*attn.Problem).LSEShape}, lse, none[:Product(batchOf(p).LSEShape())])
		}
	}
	if wrong, err = compareForward(cmp.Or(bound, outputBounds[p.DType]), p, in, o, lse); wrong != "" || err != nil || !p.MaxLogit {
		return wrong, err
	}
	largest := t.download(attn.F32, p.MaxLogitShape(), &f.MaxLogit)
	if t.err != nil {
		return "", t.err
	}
	return compareMaxLogits(p, in, largest)
}

// compareMaxLogits says where the largest scores of heads are off, but of heads with a row that is left out.
func compareMaxLogits(p *attn.Problem, in *ref.Problem, got []float32) (wrong string, err error) {
	want, err := ref.MaxLogits(*in)
	if err != nil {
		return "", err
	}
	rows, err := judge(p, in)
	if err != nil {
		return "", err
	}
	for i, x := range rows {
		if x != x {
			want[i/in.Q.N] = x
		}
	}
	rough := 0.0
	if HasFunctions(p) {
		for as, times := range roughTypes(p) {
			plain, err := ref.PlainMaxLogits(*in, as)
			if err != nil {
				return "", err
			}
			rough += times * furthest(plain, want)
		}
	}
	return offAt(p, "max logit", got, ref.Array{B: p.Batch, H: p.Heads, N: 1, D: 1, Data: want}, statisticsBounds[p.DType], rough), nil
}

// firstColumns is the first n columns of a tensor.
func firstColumns(x ref.Tensor, n int) ref.Tensor {
	out := ref.NewTensor(x.B, x.H, x.N, n)
	for i := range x.B * x.H * x.N {
		copy(out.Data[i*n:(i+1)*n], x.Data[i*x.D:])
	}
	return out
}

// forward runs what record records on the inputs of a self-check, and gives the operands.
func (t *selfCheckTensors) forward(p *attn.Problem, in *ref.Problem, v Variant, scratch []uint64,
	record func(*Recorder, *Operands) error) (f Operands, err error) {
	f = Operands{Drop: SelfCheckDraw, HasLSE: v.LSE}
	values, err := selfCheckCache(p, in)
	if err != nil {
		return f, err
	}
	values["Q"] = in.Q.Data
	to, values := f.List(), scoreValues(in, values)
	startsOf(p, values)
	for i := range attn.ForwardOperands {
		if o := &attn.ForwardOperands[i]; o.In(p) && (!o.Optional || v.LSE) {
			t.place(to[i], o, p, v.Aligned, values[o.Name])
		}
	}
	if v.InKeys {
		f.V = f.K
	}
	r := t.recorder(p, in, &f, scratch)
	t.run(r, func() error { return record(r, &f) })
	return f, t.err
}

// TryScores is TryForward for kernels that make the matrix of what the softmax is taken of, of rows of pitch elements, in one buffer of
// workspace. What lies outside the keys that a query sees by its position is not looked at.
func (e *Env) TryScores(p *attn.Problem, v Variant, pitch int, scratch []uint64,
	record func(*Recorder, *Operands) error) (wrong string, err error) {
	t := &selfCheckTensors{env: e}
	defer t.close()
	in := SelfCheckInputs(p)
	var matrix Operand
	_, err = t.forward(p, in, v, scratch, func(r *Recorder, f *Operands) error {
		matrix = Operand{Binding: r.Scratch[0], Strides: [3]uint32{uint32(p.Heads * p.QueryLen * pitch), uint32(p.QueryLen * pitch),
			uint32(pitch)}}
		f.Weights = r.Scratch
		return record(r, f)
	})
	if err != nil {
		return "", err
	}
	want, err := ref.Matrix(*in, ref.Masked)
	if err != nil {
		return "", err
	}
	rough := 0.0
	for as, times := range roughTypes(p) {
		plain, err := ref.PlainMatrix(*in, as)
		if err != nil {
			return "", err
		}
		rough += times * furthest(plain.Data, want.Data)
	}
	got := t.download(p.DType, [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen}, &matrix)
	for i := range got {
		b, row, key := i/p.KeyLen/p.QueryLen/p.Heads, i/p.KeyLen%p.QueryLen, i%p.KeyLen
		if one, ok := entryOf(p, in, b); !ok || row >= one.QueryLen || !one.Mask().Allows(row, key) {
			got[i] = float32(want.Data[i])
		}
	}
	return offAt(p, "s", got, want, map[attn.DType]float64{attn.F32: 1e-4, attn.F16: 5e-3, attn.BF16: 4e-2}[p.DType], rough), t.err
}

// entryOf is a batch entry of a self-check as a problem of its own, of as many queries and keys as it has; false: of none.
func entryOf(p *attn.Problem, in *ref.Problem, b int) (one attn.Problem, ok bool) {
	one = *p
	if in.QueryLens != nil {
		one.QueryLen = in.QueryLens[b]
	}
	if in.KeyLens != nil {
		one.KeyLen = in.KeyLens[b]
	}
	return one, one.QueryLen > 0 && one.KeyLen > 0
}

// CompareForward says where o or lse (nil: not compared) is off what the oracle makes of the inputs.
func CompareForward(p *attn.Problem, in *ref.Problem, o, lse []float32) (wrong string, err error) {
	return compareForward(outputBounds[p.DType], p, in, o, lse)
}

func compareForward(bound float64, p *attn.Problem, in *ref.Problem, o, lse []float32) (wrong string, err error) {
	wantO, wantLSE, rows, err := judgedForward(p, in)
	if err != nil {
		return "", err
	}
	rows.leaveOut(wantO.Data, wantO.D)
	rows.leaveOut(wantLSE.Data, 1)
	roughO, roughLSE, err := roughForward(p, in, wantO, wantLSE)
	if err != nil {
		return "", err
	}
	if wrong := offAt(p, "o", o, wantO, bound, roughO); wrong != "" || lse == nil {
		return wrong, nil
	}
	return offAt(p, "lse", lse, wantLSE, statisticsBounds[p.DType], roughLSE), nil
}

// offAt says where values are further from what they should be than the tolerance, relative beyond 1, and what functions may make of
// roundings. Tolerances are for normally distributed inputs, generous: it is mistakes that are looked for, not roundings. What should be no
// number, as functions may make it of numbers they are not meant for, tells nothing.
func offAt(p *attn.Problem, name string, got []float32, want ref.Array, tolerance, rough float64) string {
	for i, should := range want.Data {
		have := float64(got[i])
		if have == should || math.Abs(have-should) <= tolerance*math.Max(1, math.Abs(should))+rough { // false for NaN
			continue
		}
		if math.IsNaN(should) {
			continue
		}
		row := i / want.D
		return fmt.Sprintf("%s[%d, %d, %d, %d] is %.6g and should be %.6g (%v, scale %g)",
			name, row/want.N/want.H, row/want.N%want.H, row%want.N, i%want.D, have, should, p, p.Scale)
	}
	return ""
}

// TryBackward runs the kernels of a backward pass on random inputs for a small problem and compares with the oracle. forward makes what
// the pass needs besides o and lse, which the oracle makes without it; nil: nothing. scratch is the sizes of the workspace.
func (e *Env) TryBackward(p *attn.Problem, v GradientVariant, forward Program, scratch []uint64,
	record func(*Recorder, *Gradients) error) (wrong string, err error) {
	t := &selfCheckTensors{env: e}
	defer t.close()
	in := SelfCheckInputs(p)
	rng := rand.New(rand.NewPCG(2, uint64(p.HeadDim)))
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	fillSelfCheck(rng, p.DType, do.Data)
	spoilBeyond(do, in.QueryLens)
	var dlse []float32
	if v.DLSE {
		dlse = make([]float32, Product(batchOf(p).LSEShape()))
		fillSelfCheck(rng, attn.F32, dlse)
	}
	o, lse, rows, err := judgedForward(p, in)
	if err != nil {
		return "", err
	}
	rows.put(do.Data, do.D, 0)
	rows.put(dlse, 1, 0)
	want, err := ref.Backward(*in, do, dlse)
	if err != nil {
		return "", err
	}
	rough, err := roughGradients(p, in, do, dlse, want)
	if err != nil {
		return "", err
	}
	if err := rows.roundings(in, do, dlse, rough); err != nil {
		return "", err
	}
	given := Float32s(lse.Data)
	rows.put(given, 1, float32(math.Inf(1)))
	g := Gradients{Operands: Operands{Drop: SelfCheckDraw}, Accumulate: v.Accumulate, HasDLSE: v.DLSE}
	values := scoreValues(in, map[string][]float32{"Q": in.Q.Data, "K": in.K.Data, "V": in.V.Data, "O": Float32s(o.Data), "LSE": given,
		"DO": do.Data, "DLSE": dlse})
	startsOf(p, values)
	gradients := gradientsByName(want)
	made := func(x *attn.Operand) bool { // an output that the kernels in question write
		return x.Output && v.Captured == "" && (v.By == "" && !x.Optional || v.By != "" && x.Of == v.By || v.With != "" && x.Of == v.With)
	}
	to := g.List()
	for i := range attn.BackwardOperands {
		x := &attn.BackwardOperands[i]
		if !x.In(p) || x.Output && !made(x) || x.Optional && !x.Output && !v.DLSE {
			continue
		}
		aligned := v.Aligned
		if x.Output && (v.By != "" || v.With != "" && x.Of == v.With) {
			aligned = v.AlignedBy
		}
		if x.Output && v.Accumulate {
			start := make([]float32, Product(x.Shape(batchOf(p))))
			for j := range start {
				start[j] = float32(j%7) - 3
				gradients[x.Name].Data[j] += float64(start[j])
			}
			values[x.Name] = start
		}
		t.place(to[i], x, p, aligned, values[x.Name])
	}
	r := t.recorder(p, in, &g.Operands, nil)
	captured := t.capturedGradient(p, v.Captured, &g, want)
	if forward != nil {
		f := g.Operands
		f.HasLSE = true
		if k, ok := forward.(Keeper); ok {
			g.Weights = t.allocAll(k.Kept())
			f.Weights = g.Weights
		}
		r.Scratch = t.allocAll(forward.Scratch())
		t.run(r, func() error { return forward.Record(r, &f) })
	}
	r.Scratch = t.allocAll(scratch)
	t.run(r, func() error { return record(r, &g) })
	near := map[attn.DType]float64{attn.F32: 1e-3, attn.F16: 1e-2, attn.BF16: 8e-2}[p.DType]
	for i := range attn.BackwardOperands {
		x := &attn.BackwardOperands[i]
		if !made(x) {
			continue
		}
		got := unpacked(p, x, t.download(x.DType(p), x.Shape(p), to[i]), gradients[x.Name].Data)
		if wrong := offAt(p, strings.ToLower(x.Name), got, gradients[x.Name], near, rough[x.Name]); wrong != "" {
			return wrong, t.err
		}
	}
	if captured != nil {
		should := ref.Array{B: 1, H: 1, N: 1, D: captured.elements, Data: want.DCaptured[v.Captured]}
		got := t.download(attn.F32, [4]int{1, 1, 1, captured.elements}, &captured.Operand)
		return offAt(p, "d"+v.Captured, got, should, near, rough[v.Captured]), t.err
	}
	return "", t.err
}

func Float32s(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
