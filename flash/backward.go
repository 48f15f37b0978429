package flash

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Backward names the tensors of one backward pass. From the inputs of a forward pass, its outputs, and the gradient do of a loss with
// respect to o (and optionally dlse, that with respect to lse), it computes the gradients with respect to q, k and v. With z the weights of
// dropout (1 without):
//
//	p_ij  = exp(s_ij − lse_i)                        Flash computes it anew: nothing of size Nq×Nk is stored
//	δ_i   = Σ_d do_id · o_id − dlse_i
//	dv_j  = Σ_i z_ij · p_ij · do_i
//	ds_ij = p_ij · (z_ij · Σ_d do_id · v_jd − δ_i)
//	dq_i  = Scale · Σ_j ds_ij · k_j
//	dk_j  = Scale · Σ_i ds_ij · q_i
//
// Sums over the query heads that share a key head are part of dk and dv. A query with no key to attend to has gradient 0.
// The same inputs give the same bits.
//
// Standard attention reads P in place of computing it. Its backward pass is that of attention unfused (PyTorch's math backend):
// dP = dO·Vᵀ and then dS are matrices of the size of P, in the type of the tensors, in the workspace.
//
// Source: Dao, FlashAttention-2 (2023), section 3.1 and algorithm 2, where δ is called D.
type Backward struct {
	// The forward pass whose gradients are wanted: what it was given, with O and LSE as it wrote them. LSE must be given, and of standard
	// attention the Weights that the forward pass was given. All of it is left as it is. PageTable, PageStarts, LastPages, KeyScales and
	// ValueScales must be nil: caches have no gradients. MaxLogit is not looked at.
	Forward

	DO   *Tensor // the loss's gradient with respect to o, of O's type and shape
	DLSE *Tensor // that with respect to lse, fp32 in row-major order, of LSE's shape; nil: zero

	// The gradients with respect to q, k and v: outputs, of the type and shape of Q, K and V. They are overwritten, or added to with
	// Accumulate, and overlap no other tensor of the pass.
	DQ, DK, DV *Tensor
	Accumulate bool

	// The gradients with respect to bias and sinks, of their shapes: outputs like DQ; nil: not wanted. What a bias was broadcast over is
	// summed, in a fixed order.
	DBias, DSinks *Tensor
	// The gradients with respect to what the score functions capture, in the order of Captured: outputs of type F32, of the tensors'
	// shapes, in row-major order; nil: not wanted. [score.Function.Gradient] says which tensors have one. They are summed as integers, fine
	// enough for fp32, so that the order has no effect; where a term is infinite or NaN, the whole gradient is NaN.
	DCaptured Captured
}

// given lists the tensors in the order of attn.BackwardOperands.
func (b *Backward) given() (all [len(attn.BackwardOperands)]*Tensor) {
	forward, own := b.Forward.given(), [...]*Tensor{b.DO, b.DLSE, b.DQ, b.DK, b.DV, b.DBias, b.DSinks}
	attn.Pick(all[:], attn.BackwardPlaces, forward[:], own[:])
	return all
}

// tensors lists what a recording keeps: the tensors, the block mask's among them.
func (b *Backward) tensors(held *[mostHeld]*Tensor) {
	given := b.given()
	b.hold(held, given[:])
	copy(held[mostHeld-2*MaxCaptured:], b.DCaptured[:])
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (b *Backward) check(p *Plan, g *kernel.Gradients) error {
	given, to := b.given(), g.List()
	if err := b.refuseCaches("Backward", "gradients"); err != nil {
		return err
	}
	if err := b.place("Backward", attn.BackwardOperands[:], p, given[:], to[:], &g.Operands); err != nil {
		return err
	}
	if err := b.placeCaptured(p, g, given[:]); err != nil {
		return err
	}
	g.HasDLSE, g.Accumulate = b.DLSE != nil, b.Accumulate
	if p.attn.Lists.None() {
		return nil
	}
	return b.refuseByScore()
}

// refuseByScore refuses gradients that no kernel makes where queries have lists of keys.
func (b *Backward) refuseByScore() error {
	const rule = "must be nil beside Problem.Lists: there are gradients with respect to q, k, v and sinks alone"
	if b.DBias != nil {
		return badArgument("Backward.DBias", b.DBias, rule)
	}
	for _, t := range b.DCaptured {
		if t != nil {
			return badArgument("Backward.DCaptured", t, rule)
		}
	}
	return nil
}

// refuseCaches refuses what a forward pass may have, and what is made of it cannot. It does not allocate unless it fails.
func (f *Forward) refuseCaches(pass, made string) error {
	for _, x := range [...]struct {
		name   string
		tensor *Tensor
	}{{"PageTable", f.PageTable}, {"PageStarts", f.PageStarts}, {"LastPages", f.LastPages}, {"KeyScales", f.KeyScales},
		{"ValueScales", f.ValueScales}} {
		if x.tensor != nil {
			return badArgument(pass+"."+x.name, x.tensor, "must be nil: caches have no %s", made)
		}
	}
	return nil
}

// placeCaptured checks the gradients with respect to captured tensors and puts them where kernels find them. It does not allocate unless it
// fails.
func (b *Backward) placeCaptured(p *Plan, g *kernel.Gradients, given []*Tensor) error {
	const name = "Backward.DCaptured"
	g.DCaptured, g.HasDCaptured = [MaxCaptured]pipeline.Binding{}, b.DCaptured != Captured{}
	if !g.HasDCaptured {
		return nil
	}
	if err := b.DCaptured.place("Backward", "DCaptured", p, &g.DCaptured); err != nil {
		return err
	}
	for i, t := range b.DCaptured {
		if t == nil {
			continue
		}
		for j, other := range given {
			if t.overlaps(other) {
				return badArgument(name, t, "an output must not overlap another tensor of the pass: %s is %v",
					attn.BackwardOperands[j].Name, other)
			}
		}
		for j, other := range b.Captured {
			if t.overlaps(other) || i != j && t.overlaps(b.DCaptured[j]) {
				return badArgument(name, t,
					"an output must not overlap another tensor of the pass, as it does one of Captured or DCaptured")
			}
		}
	}
	return nil
}
