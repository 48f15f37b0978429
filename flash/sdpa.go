package flash

import (
	"context"
	"errors"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// Layout is the order of a tensor's axes, as its shape gives them.
type Layout uint8

const (
	BHND Layout = iota // [batch, heads, length, dimension], PyTorch's for scaled_dot_product_attention
	BNHD               // [batch, length, heads, dimension], FlashAttention's and JAX's
)

// String is the layout's name.
func (l Layout) String() string {
	switch l {
	case BHND:
		return "BHND"
	case BNHD:
		return "BNHD"
	}
	return "no layout"
}

// SDPAOptions are what [Device.SDPA] takes beside queries, keys and values. The zero value is softmax(q·kᵀ/√D)·v. Shapes and types come
// from the tensors; [Problem] says what each option computes.
type SDPAOptions struct {
	Layout  Layout  // of q, k, v, o and their gradients; bias, mask and lse keep theirs whatever it is
	Causal  Causal  // PyTorch's is_causal is CausalTopLeft, FlashAttention's causal CausalBottomRight
	Window  Window  // of keys near a query's position; zero: none
	Scale   float64 // 0 means 1/√D
	Dropout float64 // probability of dropping a weight
	Seed    uint64  // of Dropout, with Offset; ignored without
	Offset  uint32  // likewise

	// Bias is added to scores: fp32 or q's type, [batch, heads, queries, keys], of which each but keys may be 1 for all of the problem's.
	// PyTorch calls it a floating attn_mask. nil: none
	Bias *Tensor
	// Mask says which keys a query may attend to: Bool or Bit, of Bias's shapes, or with 1 for all keys, where nonzero bytes, or bits, may
	// be. PyTorch calls it a boolean attn_mask. nil: all
	Mask *Tensor
	// Sinks are logits without a value, one for each query head: fp32 [1, 1, 1, heads]. nil: none
	Sinks *Tensor
	// QueryLengths and KeyLengths are how many queries and keys each batch entry has: Int32 [1, 1, 1, batch]. nil: all
	QueryLengths, KeyLengths *Tensor

	ScoreFunction score.Function     // what becomes of each score: FlexAttention's score_mod; zero: the score itself
	MaskFunction  score.MaskFunction // which keys a query may attend to besides: FlexAttention's mask_mod; zero: all
	Captured      Captured           // what the two capture

	// MaxLogit receives the largest score of each head, as Problem.MaxLogit says: fp32 [1, 1, batch, heads]. It has no gradient. nil: not
	// computed
	MaxLogit *Tensor

	NoBiasGradient bool         // Device.SDPAVJP leaves the gradient with respect to Bias out
	PlanOptions    []PlanOption // of the plan that is made
}

// SDPAGradients are the gradients that [Device.SDPAVJP] returns: new tensors, each of the shape of what it is the gradient with respect to.
type SDPAGradients struct {
	DQ, DK, DV *Tensor
	DBias      *Tensor  // nil without Bias, and with NoBiasGradient
	DSinks     *Tensor  // nil without Sinks
	DCaptured  Captured // fp32, nil where ScoreFunction has no derivative with respect to the tensor
}

// Close frees the gradients.
func (g *SDPAGradients) Close() error {
	if g == nil {
		return nil
	}
	return closeTensors(append(g.DCaptured[:], g.DQ, g.DK, g.DV, g.DBias, g.DSinks)...)
}

// closeTensors closes tensors that may be nil.
func closeTensors(tensors ...*Tensor) (err error) {
	for _, t := range tensors {
		err = errors.Join(err, t.Close())
	}
	return err
}

// SDPA is scaled dot-product attention on tensors, o = softmax(scale · q·kᵀ + bias) · v, in one call: q [B, Hq, Nq, D], k [B, Hk, Nk, D]
// and v [B, Hk, Nk, Dv] in the order of opts.Layout, of one type, and any strides whose last is 1. It returns o [B, Hq, Nq, Dv] of that
// type and layout, and lse [B, Hq, Nq, 1] in fp32, the log-sum-exp of each row, which [Device.SDPAVJP] takes. Both are new tensors, and the
// caller's to close.
//
// It plans, which costs microseconds for a problem that was planned before, runs and waits. A program that runs the same attention over and
// over saves workspace and descriptors with a [Plan] of its own, which also takes packed sequences, pages, and command buffers of the
// caller's.
//
// The error is an [*ArgumentError] for what does not fit together, an [*UnsupportedError] where no kernel of the device takes it, a
// [*MemoryError] where there is no room, the context's own where it is cancelled.
func (d *Device) SDPA(ctx context.Context, q, k, v *Tensor, opts SDPAOptions) (o, lse *Tensor, err error) {
	defer during("SDPA", &err)
	if err := opts.order(sdpaTensor{"q", &q}, sdpaTensor{"k", &k}, sdpaTensor{"v", &v}); err != nil {
		return nil, nil, err
	}
	p, err := opts.problem(q, k, v)
	if err != nil {
		return nil, nil, err
	}
	plan, err := d.Plan(p, opts.PlanOptions...)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err = errors.Join(err, plan.Close()); err != nil {
			err = errors.Join(err, closeTensors(o, lse))
			o, lse = nil, nil
		}
	}()
	if o, err = opts.allocate(d, p.DType, p.OShape()); err != nil {
		return nil, nil, err
	}
	if lse, err = d.NewLSE(p.Batch, p.Heads, p.QueryLen); err != nil {
		return o, nil, err
	}
	f := opts.forward(q, k, v, o, lse)
	f.MaxLogit = opts.MaxLogit
	if err := opts.order(sdpaTensor{"o", &f.O}); err != nil {
		return o, lse, err
	}
	return o, lse, plan.Forward(ctx, f)
}

// forward is the pass of the options over these tensors.
func (o *SDPAOptions) forward(q, k, v, out, lse *Tensor) Forward {
	return Forward{Q: q, K: k, V: v, O: out, LSE: lse, Bias: o.Bias, Mask: o.Mask, Sinks: o.Sinks, QueryLengths: o.QueryLengths,
		KeyLengths: o.KeyLengths, Captured: o.Captured, Seed: o.Seed, Offset: o.Offset}
}

// SDPAVJP is the vector-Jacobian product of [Device.SDPA]: given its inputs and options, what it returned, and do, the gradient of a loss
// with respect to o, it returns those with respect to q, k, v and what of opts has one. [Backward] gives the mathematics.
//
// Errors are those of SDPA.
func (d *Device) SDPAVJP(ctx context.Context, q, k, v, o, lse, do *Tensor, opts SDPAOptions) (_ *SDPAGradients, err error) {
	defer during("SDPAVJP", &err)
	if err := opts.order(sdpaTensor{"q", &q}, sdpaTensor{"k", &k}, sdpaTensor{"v", &v}, sdpaTensor{"o", &o},
		sdpaTensor{"do", &do}); err != nil {
		return nil, err
	}
	p, err := opts.problem(q, k, v)
	if err != nil {
		return nil, err
	}
	p.MaxLogit = false
	plan, err := d.Plan(p, opts.PlanOptions...)
	if err != nil {
		return nil, err
	}
	g := &SDPAGradients{}
	defer func() {
		if err = errors.Join(err, plan.Close()); err != nil {
			err = errors.Join(err, g.Close())
			g = nil
		}
	}()
	if err := g.allocate(d, &opts, p); err != nil {
		return nil, err
	}
	b := Backward{Forward: opts.forward(q, k, v, o, lse), DO: do, DQ: g.DQ, DK: g.DK, DV: g.DV, DBias: g.DBias, DSinks: g.DSinks,
		DCaptured: g.DCaptured}
	if err := opts.order(sdpaTensor{"dq", &b.DQ}, sdpaTensor{"dk", &b.DK}, sdpaTensor{"dv", &b.DV}); err != nil {
		return nil, err
	}
	if err := plan.Backward(ctx, b); err != nil {
		return nil, err
	}
	return g, nil
}

// allocate makes the gradients of a problem.
func (g *SDPAGradients) allocate(d *Device, opts *SDPAOptions, p Problem) (err error) {
	for _, t := range []struct {
		to    **Tensor
		shape [4]int
	}{{&g.DQ, p.QShape()}, {&g.DK, p.KShape()}, {&g.DV, p.VShape()}} {
		if *t.to, err = opts.allocate(d, p.DType, t.shape); err != nil {
			return err
		}
	}
	if opts.Bias != nil && !opts.NoBiasGradient {
		if g.DBias, err = d.allocate("tensor", opts.Bias.DType(), opts.Bias.Shape(), attn.Contiguous); err != nil {
			return err
		}
	}
	if opts.Sinks != nil {
		if g.DSinks, err = d.NewTensor(F32, 1, 1, 1, p.Heads); err != nil {
			return err
		}
	}
	for i, c := range p.Captures() {
		if _, none := p.ScoreFunction.Gradient(c.Name); none != nil || opts.Captured[i] == nil {
			continue
		}
		if g.DCaptured[i], err = d.allocate("tensor", F32, opts.Captured[i].Shape(), attn.Contiguous); err != nil {
			return err
		}
	}
	return nil
}

// allocate makes a tensor of a shape [batch, heads, length, dimension] in the options' layout.
func (o *SDPAOptions) allocate(d *Device, dtype DType, shape [4]int) (*Tensor, error) {
	if o.Layout == BNHD {
		shape[1], shape[2] = shape[2], shape[1]
	}
	return d.allocate("tensor", dtype, shape, attn.Contiguous)
}

// sdpaTensor is an argument, by the name that errors call it.
type sdpaTensor struct {
	name   string
	tensor **Tensor
}

// order replaces tensors in the options' layout by views of them as [batch, heads, length, dimension].
func (o *SDPAOptions) order(tensors ...sdpaTensor) error {
	if o.Layout > BNHD {
		return badArgument("opts.Layout", uint8(o.Layout), "must be BHND or BNHD")
	}
	for _, n := range tensors {
		t := *n.tensor
		if err := t.usable(n.name); err != nil {
			return err
		}
		if o.Layout == BHND {
			continue
		}
		shape, strides := t.Shape(), t.Strides()
		shape[1], shape[2] = shape[2], shape[1]
		strides[1], strides[2] = strides[2], strides[1]
		view, err := t.View(t.Offset(), t.DType(), shape, strides)
		if err != nil {
			return err
		}
		*n.tensor = view
	}
	return nil
}

// problem is what the options and tensors, of shapes [batch, heads, length, dimension], make together.
func (o *SDPAOptions) problem(q, k, v *Tensor) (Problem, error) {
	p, err := ProblemOf(q, k, v)
	if err != nil {
		return p, err
	}
	p.Causal, p.Window, p.Scale, p.Dropout, p.ScoreFunction, p.MaskFunction = o.Causal, o.Window, o.Scale, o.Dropout, o.ScoreFunction,
		o.MaskFunction
	p.Sinks, p.QueryLengths, p.KeyLengths = o.Sinks != nil, o.QueryLengths != nil, o.KeyLengths != nil
	p.MaxLogit = o.MaxLogit != nil
	p.Bias, p.Mask = perScoreOf(o.Bias), perScoreOf(o.Mask)
	return p.Normalize()
}

// perScoreOf describes a tensor that goes with scores.
func perScoreOf(t *Tensor) PerScore {
	if t == nil {
		return PerScore{}
	}
	s := t.Shape()
	return PerScore{DType: t.DType(), Batch: s[0], Heads: s[1], Queries: s[2], Keys: s[3]}
}

// ProblemOf is the plain attention of queries q [B, Hq, Nq, D], keys k [B, Hk, Nk, D] and values v [B, Hk, Nk, Dv]: their sizes and type,
// for [Device.Plan] as it is or with more fields set. Quantised keys and values are of type Q8_0 or one that follows it, beside queries
// of F32, F16 or BF16.
//
// The error is an [*ArgumentError] that names the tensor whose shape does not go with the others'.
func ProblemOf(q, k, v *Tensor) (Problem, error) {
	for _, t := range []struct {
		name   string
		tensor *Tensor
	}{{"q", q}, {"k", k}, {"v", v}} {
		if err := t.tensor.usable(t.name); err != nil {
			return Problem{}, err
		}
	}
	qs, ks, vs := q.Shape(), k.Shape(), v.Shape()
	p := Problem{Batch: qs[0], Heads: qs[1], QueryLen: qs[2], HeadDim: qs[3], KeyHeads: ks[1], KeyLen: ks[2], ValueDim: vs[3],
		DType: q.DType()}
	if want := [4]int{p.Batch, ks[1], ks[2], p.HeadDim}; ks != want {
		return p, badArgument("k", k, "must be of shape %v, whose batch and head dimension are those of q %v", want, qs)
	}
	if want := [4]int{p.Batch, p.KeyHeads, p.KeyLen, vs[3]}; vs != want {
		return p, badArgument("v", v, "must be of shape %v, whose batch, heads and length are those of k %v", want, ks)
	}
	for _, t := range []struct {
		name   string
		tensor *Tensor
		to     *DType
	}{{"k", k, &p.KeyType}, {"v", v, &p.ValueType}} {
		switch dtype := t.tensor.DType(); {
		case attn.DType(dtype).Quantised():
			*t.to = dtype
		case dtype != p.DType:
			return p, badArgument(t.name, t.tensor, "must be of q's type, %v, or quantised", p.DType)
		}
	}
	return p.Normalize()
}
