package flash

import (
	"context"
	"errors"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Scores computes the matrix s [Batch, Heads, QueryLen, KeyLen] of [Problem], what the softmax is taken of, into s, in row-major order:
// scaled, −∞ where a query may not look, and as the kernel stores it, rounded to the problem's type. There must be room for as many
// elements, no more. Of the tensors of f it reads those that scores are made of, and takes no notice of the others, which may be nil: V, O,
// LSE, Weights.
//
// It is there for looking at scores, and waits: each call allocates a matrix and frees it. Only [Standard] attention has one to give; the
// weights p = exp(s − lse) of a forward pass are in its [Weights]. The error is an [*ArgumentError] for any other plan, or for a tensor
// that does not fit, a [*MemoryError] where there is no room.
func (p *Plan) Scores(ctx context.Context, f Forward, s []float32) (err error) {
	defer during("Scores", &err)
	if err := unlessEnded(ctx); err != nil {
		return err
	}
	if err := p.usable(); err != nil {
		return err
	}
	if _, ok := p.program.(kernel.Scorer); !ok {
		return badArgument("Plan", p.Implementation(), "must be of %v attention: others store no scores", Standard)
	}
	w, err := p.NewWeights()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.room("s", len(s)); err != nil {
		return err
	}
	r, err := p.NewRecording()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.scores(f, w); err != nil {
		return err
	}
	if err := awaited(ctx, r.Submit); err != nil {
		return err
	}
	return w.matrix(ctx, s, float32(math.Inf(-1)))
}

// scores prepares the recording for the matrix of scores alone.
func (r *Recording) scores(f Forward, w *Weights) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, p := r.pass, r.pass.plan
	f.V, f.O, f.LSE, f.Blocks, f.MaskBlocks, f.Weights = nil, nil, nil, nil, nil, w
	given, to := f.given(), c.ops.List()
	for i, t := range given {
		o := &attn.ForwardOperands[i]
		*to[i] = kernel.Operand{}
		if !o.Scores || t == nil && !o.In(&p.attn) {
			continue
		}
		if err := t.suits("Forward", o, p.dev, &p.attn); err != nil {
			return err
		}
		*to[i] = t.placed(o)
	}
	if err := f.Captured.place("Forward", "Captured", p, &c.ops.Captured); err != nil {
		return err
	}
	f.tensors((*[mostHeld]*Tensor)(r.tensors))
	for i := range given {
		if !attn.ForwardOperands[i].Scores {
			r.tensors[i] = nil
		}
	}
	r.weights, c.ops.Weights = w, w.all()
	return r.commands("scores of ", attn.ForwardOperands[:], Tier(p.kernel.Tier),
		func() error { return p.program.(kernel.Scorer).RecordScores(&r.writer, &c.ops) })
}

// Download copies the matrix P [Batch, Heads, QueryLen, KeyLen] of the latest forward pass into p, in row-major order, after work that was
// submitted earlier: 0 where a query may not look, rounded to the problem's type, and of dropout before its scale, with the sign set where
// it drops. There must be room for as many elements, no more.
func (w *Weights) Download(ctx context.Context, p []float32) (err error) {
	defer during("Weights.Download", &err)
	if w == nil || w.plan == nil {
		return badArgument("Weights", "nil or zero", "must come from Plan.NewWeights, of a plan that keeps weights")
	}
	if err := w.usable("Weights"); err != nil {
		return err
	}
	if err := w.room("p", len(p)); err != nil {
		return err
	}
	return w.matrix(ctx, p, 0)
}

// room checks the length of what the matrix is to be copied into.
func (w *Weights) room(name string, got int) error {
	p := &w.plan.attn
	shape := [4]int{p.Batch, p.Heads, p.QueryLen, p.KeyLen}
	if want, ok := attn.Elements(shape); !ok || uint64(got) != want {
		return badArgument("len("+name+")", got, "must be %d, for shape %v", want, shape)
	}
	return nil
}

// matrix copies rows without their padding. What kernels may leave as it was, because no query sees it, becomes hidden.
func (w *Weights) matrix(ctx context.Context, to []float32, hidden float32) error {
	p := &w.plan.attn
	mask, row := p.Mask(), 0
	for _, t := range w.parts {
		part := make([]float32, t.Elements())
		if err := t.Download(ctx, part); err != nil {
			return err
		}
		for pitch := t.layout.Shape[3]; len(part) > 0; part, row = part[pitch:], row+1 {
			out := to[row*p.KeyLen : (row+1)*p.KeyLen]
			copy(out, part)
			if p.Padded() { // lengths move what is seen, and kernels write whole rows
				continue
			}
			for j := range out {
				if !mask.Allows(row%p.QueryLen, j) {
					out[j] = hidden
				}
			}
		}
	}
	return nil
}
