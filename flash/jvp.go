package flash

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// JVP names the tensors of one pass in forward mode: the product of attention's Jacobian and tangents, which says how o and lse move where
// the inputs of a forward pass move as given. With z the weights of dropout (1 without), and f the score function:
//
//	p_ij  = exp(s_ij − lse_i)                                           computed anew: nothing of size Nq×Nk is stored
//	ṡ_ij  = f′(Scale·q_i·k_j) · Scale · (q̇_i·k_j + q_i·k̇_j) + ḃias_ij
//	lsė_i = Σ_j p_ij · ṡ_ij + exp(sink[h] − lse_i) · ṡink[h]
//	ȯ_i   = Σ_j z_ij · p_ij · (ṡ_ij · v_j + v̇_j) − lsė_i · o_i
//
// A tangent that is nil is zero, and its products are left out; one at least must be given. Captured tensors, and masks of every kind,
// stay. A query that sees nothing does not move, but for lse with its sink. The same inputs give the same bits.
//
// With any do and dlse it satisfies
//
//	Σ do·ȯ + Σ dlse·lsė = Σ dq·q̇ + Σ dk·k̇ + Σ dv·v̇ + Σ dbias·ḃias + Σ dsinks·ṡinks
//
// dq to dsinks being what [Backward] makes of them: forward mode costs five products of matrices where that costs seven, and gives one
// directional derivative of all outputs in place of all derivatives of one.
//
// Source: the chain rule through softmax, whose Jacobian is diag(p) − p·pᵀ; P as in Dao, FlashAttention-2 (2023), section 3.1.
type JVP struct {
	// The forward pass that is differentiated: what it was given, with O and LSE as it wrote them, whatever implementation it was. LSE must
	// be given. All of it is left as it is. PageTable, PageStarts, LastPages, KeyScales, ValueScales and Weights must be nil.
	// MaxLogit is not looked at.
	Forward

	QTangent, KTangent, VTangent *Tensor // q̇, k̇, v̇: of the type and shape of Q, K and V
	BiasTangent                  *Tensor // of the type and shape of Bias
	SinksTangent                 *Tensor // of the type and shape of Sinks

	OTangent   *Tensor // ȯ, output: of O's type and shape
	LSETangent *Tensor // lsė, output: fp32 in row-major order, of LSE's shape; nil: not wanted
}

// given lists the tensors in the order of attn.JVPOperands.
func (j *JVP) given() (all [len(attn.JVPOperands)]*Tensor) {
	forward, own := j.Forward.given(), [...]*Tensor{j.QTangent, j.KTangent, j.VTangent, j.OTangent, j.LSETangent, j.BiasTangent,
		j.SinksTangent}
	attn.Pick(all[:], attn.JVPPlaces, forward[:], own[:])
	return all
}

// tensors lists what a recording keeps: the tensors, the block mask's among them.
func (j *JVP) tensors(held *[mostHeld]*Tensor) {
	given := j.given()
	j.hold(held, given[:])
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (j *JVP) check(p *Plan, ops *kernel.Tangents) error {
	given, to := j.given(), ops.List()
	if err := j.refuseCaches("JVP", "tangents"); err != nil {
		return err
	}
	if j.Weights != nil {
		return badArgument("JVP.Weights", "given", "must be nil: weights are computed anew, of LSE")
	}
	if j.QTangent == nil && j.KTangent == nil && j.VTangent == nil && j.BiasTangent == nil && j.SinksTangent == nil {
		return badArgument("JVP", "without tangents",
			"one of QTangent, KTangent, VTangent, BiasTangent and SinksTangent at least must be given: nothing moves")
	}
	return j.place("JVP", attn.JVPOperands[:], p, given[:], to[:], &ops.Operands)
}
