package onnx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
)

// Attention has the attributes of the operator Attention; the zero value is that of a node without any. For each batch entry and query head
// h, with key head h' = h / (q_num_heads/kv_num_heads) and K, V those of past and new keys together,
//
//	s_ij = softcap·tanh(scale·Q[b,h,i]·K[b,h',j] / softcap) + attn_mask[b,h,i,j]     −∞ where a boolean attn_mask is false, and where
//	Y[b,h,i] = Σ_j softmax_j(s_ij) · V[b,h',j]                                       causal order, window or lengths hide key j
//
// Without a softcap the product itself stands in its place; softcap comes before the mask, as in ONNX's own test cases. Query i is at
// position p = past + i, past being the rows of past_key; without a past and with nonpad_kv_seqlen it is at nonpad_kv_seqlen[b] − Nq + i.
// With is_causal it sees keys j ≤ p, with a window those from p − left to p + right. A query that sees no key gives Y = 0.
type Attention struct {
	IsCausal              bool
	QNumHeads, KVNumHeads int     // of Q, K and V whose heads lie in their columns; 0: their second axis says
	Scale                 float64 // 0: not given, 1/√D
	Softcap               float64 // 0: none
	// Window is left_window_size and right_window_size of opset 25, as flash.SlidingWindow(left, right); zero: none.
	Window flash.Window
	// SoftmaxPrecision is a type of TensorProto: 1 (float), 10 (float16), 11 (double) or 16 (bfloat16); 0: not given. The softmax is
	// computed in fp32 whatever it says, so that 11 gets less than it asks for.
	SoftmaxPrecision int
	// QKMatmulOutputMode says what qk_matmul_output holds: 0 scale·Q·Kᵀ, 1 these after softcap, 2 s, 3 softmax(s).
	QKMatmulOutputMode int

	Present        bool // present_key and present_value are outputs
	QKMatmulOutput bool // qk_matmul_output is an output: by Standard attention, which has the matrix, and by way of the host
	PlanOptions    []flash.PlanOption
}

// AttentionInputs are the inputs of the operator.
type AttentionInputs struct {
	Q *flash.Tensor // [B, Hq, Nq, D], or [B, 1, Nq, Hq·D] with QNumHeads
	K *flash.Tensor // [B, Hk, N, D], or [B, 1, N, Hk·D] with KVNumHeads
	V *flash.Tensor // [B, Hk, N, Dv], or [B, 1, N, Hk·Dv]
	// AttnMask is [B|1, Hq|1, Nq|1, M], M up to the number of keys: keys from M on are hidden. Bool or Bit, or numbers. One with M below
	// that number is padded on the host.
	AttnMask           *flash.Tensor
	PastKey, PastValue *flash.Tensor // [B, Hk, past, D] and [B, Hk, past, Dv]; together
	NonpadKVSeqlen     *flash.Tensor // Int32 [1, 1, 1, B]: keys from there on are padding. Not with a past and causal order or a window
}

// AttentionOutputs are the outputs of the operator, nil where they are not asked for.
type AttentionOutputs struct {
	Y                        *flash.Tensor // [B, Hq, Nq, Dv], or [B, 1, Nq, Hq·Dv], as Q is
	PresentKey, PresentValue *flash.Tensor // [B, Hk, past + N, D] and [B, Hk, past + N, Dv]
	QKMatmulOutput           *flash.Tensor // [B, Hq, Nq, past + N], of Q's type
}

// Close frees the outputs.
func (o *AttentionOutputs) Close() error {
	return errors.Join(o.Y.Close(), o.PresentKey.Close(), o.PresentValue.Close(), o.QKMatmulOutput.Close())
}

// Run computes the operator. Errors are as the package says, those of [flash.Device.Plan] for a problem that no kernel takes, and the
// context's own.
func (a Attention) Run(ctx context.Context, dev *flash.Device, in AttentionInputs) (out AttentionOutputs, err error) {
	w := &workspace{ctx: ctx, dev: dev}
	defer func() {
		if err = errors.Join(err, w.close()); err != nil {
			err = errors.Join(err, out.Close())
			out = AttentionOutputs{}
		}
	}()
	r, err := a.prepare(w, in)
	if err != nil {
		return out, err
	}
	p := r.problem
	shape := p.OShape()
	if r.flat {
		shape = [4]int{p.Batch, 1, p.QueryLen, p.Heads * p.ValueDim}
	}
	y, err := w.tensor(p.DType, shape)
	if err != nil {
		return out, err
	}
	heads := p.Heads
	if !r.flat {
		heads = 0
	}
	if r.pass.O, _, err = split("Y", "q_num_heads", y, heads); err != nil {
		return out, err
	}
	if err := a.forward(ctx, dev, p, r.pass); err != nil {
		return out, err
	}
	if a.QKMatmulOutput {
		if out.QKMatmulOutput, err = a.matrix(w, r); err != nil {
			return out, err
		}
	}
	if a.Present {
		out.PresentKey, out.PresentValue = w.keep(r.pass.K), w.keep(r.pass.V)
	}
	out.Y = w.keep(y)
	return out, nil
}

func (a *Attention) forward(ctx context.Context, dev *flash.Device, p flash.Problem, f flash.Forward) (err error) {
	plan, err := dev.Plan(p, a.PlanOptions...)
	if err != nil {
		return err
	}
	return errors.Join(plan.Forward(ctx, f), plan.Close())
}

// attention is a node's problem and pass.
type attention struct {
	problem flash.Problem
	pass    flash.Forward
	flat    bool
}

// prepare checks attributes and inputs.
func (a *Attention) prepare(w *workspace, in AttentionInputs) (r attention, err error) {
	if !slices.Contains([]int{0, 1, 10, 11, 16}, a.SoftmaxPrecision) {
		return r, badArgument("softmax_precision", a.SoftmaxPrecision, "must be 1 (float), 10 (float16), 11 (double) or 16 (bfloat16)")
	}
	if a.QKMatmulOutputMode < 0 || a.QKMatmulOutputMode > 3 {
		return r, badArgument("qk_matmul_output_mode", a.QKMatmulOutputMode, "must be from 0 to 3")
	}
	if !(a.Softcap >= 0) || math.IsInf(a.Softcap, 0) {
		return r, badArgument("softcap", a.Softcap, "must be a number of at least 0")
	}
	if err := a.operands(w, in, &r); err != nil {
		return r, err
	}
	p := &r.problem
	if *p, err = flash.ProblemOf(r.pass.Q, r.pass.K, r.pass.V); err != nil {
		return r, err
	}
	p.Scale = a.Scale
	if a.Softcap > 0 {
		p.ScoreFunction = score.Softcap(a.Softcap)
	}
	if err := a.positions(in, p); err != nil {
		return r, err
	}
	if err := integers("nonpad_kv_seqlen", in.NonpadKVSeqlen, [4]int{1, 1, 1, p.Batch}); err != nil {
		return r, err
	}
	r.pass.KeyLengths, p.KeyLengths = in.NonpadKVSeqlen, in.NonpadKVSeqlen != nil
	if err := r.mask(w, in.AttnMask); err != nil {
		return r, err
	}
	*p, err = p.Normalize()
	return r, err
}

// operands splits heads and puts the past in front.
func (a *Attention) operands(w *workspace, in AttentionInputs, r *attention) (err error) {
	flats := [3]bool{}
	for i, x := range []struct {
		name, attribute string
		from            *flash.Tensor
		heads           int
		to              **flash.Tensor
	}{{"Q", "q_num_heads", in.Q, a.QNumHeads, &r.pass.Q}, {"K", "kv_num_heads", in.K, a.KVNumHeads, &r.pass.K},
		{"V", "kv_num_heads", in.V, a.KVNumHeads, &r.pass.V}} {
		if *x.to, flats[i], err = split(x.name, x.attribute, x.from, x.heads); err != nil {
			return err
		}
	}
	r.flat = slices.Contains(flats[:], true)
	for i, t := range []*flash.Tensor{in.Q, in.K, in.V} {
		if name := "QKV"[i : i+1]; r.flat && t.Shape()[1] != 1 {
			return badArgument(name, fmt.Sprint(t.Shape()), "must have its heads in its columns, as another of Q, K and V has")
		}
	}
	if (in.PastKey == nil) != (in.PastValue == nil) {
		return badArgument("past_key", in.PastKey, "must be given with past_value, and that with it")
	}
	for _, x := range []struct {
		name string
		past *flash.Tensor
		of   **flash.Tensor
	}{{"past_key", in.PastKey, &r.pass.K}, {"past_value", in.PastValue, &r.pass.V}} {
		if x.past != nil {
			want := (*x.of).Shape()
			want[2] = in.PastKey.Shape()[2]
			if x.past.Shape() != want || x.past.DType() != (*x.of).DType() {
				return badArgument(x.name, x.past, "must be %v of type %v, as past_key and the new rows are", want, (*x.of).DType())
			}
		}
		if x.past != nil || a.Present {
			if *x.of, err = w.behind(x.past, *x.of); err != nil {
				return err
			}
		}
	}
	return nil
}

// positions says which keys a query sees. In flash the last query stands at the last key, that of its batch entry where there are lengths;
// where the operator has it elsewhere, queries and keys are part of a longer problem, in which it is so.
func (a *Attention) positions(in AttentionInputs, p *flash.Problem) error {
	left, right := a.Window.Reach()
	if a.IsCausal {
		right = -1 // keys beyond are hidden anyway
	}
	windowed := left >= 0 || right >= 0
	if !a.IsCausal && !windowed {
		return nil
	}
	if windowed {
		p.Window = flash.SlidingWindow(left, right)
	}
	if a.IsCausal {
		p.Causal = flash.CausalBottomRight
	}
	past := 0
	if in.PastKey != nil {
		past = in.PastKey.Shape()[2]
	}
	switch {
	case in.NonpadKVSeqlen != nil && in.PastKey != nil:
		return unsupported("nonpad_kv_seqlen with past_key and is_causal or a window")
	case in.NonpadKVSeqlen != nil, past == p.KeyLen-p.QueryLen:
	case past == 0 && !windowed:
		p.Causal = flash.CausalTopLeft
	default:
		queries := max(p.QueryLen, p.KeyLen-past)
		p.Within = flash.Within{Queries: queries, Keys: queries + past}
	}
	return nil
}

// mask takes attn_mask.
func (r *attention) mask(w *workspace, m *flash.Tensor) (err error) {
	if m == nil {
		return nil
	}
	p, shape := &r.problem, m.Shape()
	full := [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen}
	for i, n := range shape {
		if n != full[i] && !(i < 3 && n == 1) && !(i == 3 && n < full[3]) {
			return badArgument("attn_mask", fmt.Sprint(shape), "must broadcast to %v, or have fewer columns", full)
		}
	}
	boolean := m.DType() == flash.Bool || m.DType() == flash.Bit
	switch {
	case boolean || m.DType() == p.DType:
	case m.DType() == flash.F16 || m.DType() == flash.BF16 || m.DType() == flash.F32:
		if m, err = w.wide(m); err != nil {
			return err
		}
	default:
		return unsupported("attn_mask of type %v", m.DType())
	}
	if shape[3] < full[3] {
		if m, err = w.pad(m, full[3], boolean); err != nil {
			return err
		}
	}
	of := flash.PerScore{DType: m.DType(), Batch: shape[0], Heads: shape[1], Queries: shape[2], Keys: full[3]}
	if boolean {
		r.pass.Mask, p.Mask = m, of
	} else {
		r.pass.Bias, p.Bias = m, of
	}
	return nil
}

// pad gives a mask more columns, of keys that are hidden.
func (w *workspace) pad(m *flash.Tensor, columns int, boolean bool) (*flash.Tensor, error) {
	narrow := make([]float32, m.Elements())
	if err := m.Download(w.ctx, narrow); err != nil {
		return nil, err
	}
	hidden := float32(math.Inf(-1))
	if boolean {
		hidden = 0
	}
	shape := m.Shape()
	var data []float32
	for row := range slices.Chunk(narrow, shape[3]) {
		data = append(data, row...)
		data = append(data, slices.Repeat([]float32{hidden}, columns-shape[3])...)
	}
	shape[3] = columns
	out, err := w.tensor(m.DType(), shape)
	if err != nil {
		return nil, err
	}
	return out, out.Upload(w.ctx, data)
}

// matrix is qk_matmul_output.
func (a *Attention) matrix(w *workspace, r attention) (_ *flash.Tensor, err error) {
	p, f := r.problem, r.pass
	shape := [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen}
	if a.QKMatmulOutputMode < 2 {
		early, err := flash.ProblemOf(f.Q, f.K, f.V)
		if err != nil {
			return nil, err
		}
		early.Scale = p.Scale
		if a.QKMatmulOutputMode == 1 {
			early.ScoreFunction = p.ScoreFunction
		}
		p, f = early, flash.Forward{Q: f.Q, K: f.K}
	}
	plan, err := w.dev.Plan(p, append(slices.Clone(a.PlanOptions), flash.WithImplementation(flash.Standard))...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	data := make([]float32, shape[0]*shape[1]*shape[2]*shape[3])
	if a.QKMatmulOutputMode == 3 {
		err = weights(w.ctx, plan, f, data)
	} else {
		err = plan.Scores(w.ctx, f, data)
	}
	if err != nil {
		return nil, err
	}
	t, err := w.tensor(p.DType, shape)
	if err != nil {
		return nil, err
	}
	if err := t.Upload(w.ctx, data); err != nil {
		return nil, err
	}
	return w.keep(t), nil
}

func weights(ctx context.Context, plan *flash.Plan, f flash.Forward, data []float32) (err error) {
	w, err := plan.NewWeights()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f.Weights = w
	if err := plan.Forward(ctx, f); err != nil {
		return err
	}
	return w.Download(ctx, data)
}
