package flash

import "github.com/vkattn/vkattn/internal/kernel"

// BackwardUses holds the uses of the tensors of a Backward; zero values are the defaults.
type BackwardUses struct{ Q, K, V, O, LSE, DO, DLSE, DQ, DK, DV TensorUse }

// Backward names the tensors of one backward pass. From the inputs of a forward pass, its outputs, and the gradient do of a
// loss by o (and optionally dlse, that by lse), it computes the gradients by q, k and v. With z the weights of dropout (1
// without):
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
	Q, K, V *Tensor // inputs of the forward pass
	O, LSE  *Tensor // what it wrote
	DO      *Tensor // the loss's gradient by o, of O's type and shape
	DLSE    *Tensor // that by lse, fp32 in row-major order, of LSE's shape; nil: zero

	// The gradients by q, k and v: outputs, of the type and shape of Q, K and V. They are overwritten, or added to with
	// Accumulate, and overlap no other tensor of the pass.
	DQ, DK, DV *Tensor
	Accumulate bool

	Weights *Weights // those that standard attention's forward pass of these tensors was given, left as they are; else nil
	Seed    uint64   // of the forward pass; ignored where Problem.Dropout is 0
	Offset  uint32   // likewise

	Uses BackwardUses // what barriers a recording begins and ends with; the zero value is right for most
}

func (b *Backward) places() [10]place {
	return [10]place{{"Q", b.Q}, {"K", b.K}, {"V", b.V}, {"O", b.O}, {"LSE", b.LSE}, {"DO", b.DO}, {"DLSE", b.DLSE},
		{"DQ", b.DQ}, {"DK", b.DK}, {"DV", b.DV}}
}

// tensors lists the tensors with their uses.
func (b *Backward) tensors() [10]heldTensor {
	u := &b.Uses
	return [10]heldTensor{{b.Q, u.Q}, {b.K, u.K}, {b.V, u.V}, {b.O, u.O}, {b.LSE, u.LSE}, {b.DO, u.DO}, {b.DLSE, u.DLSE},
		{b.DQ, u.DQ}, {b.DK, u.DK}, {b.DV, u.DV}}
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (b *Backward) check(d *Device, p *Problem, g *kernel.Gradients) error {
	for _, t := range [...]struct {
		name   string
		tensor *Tensor
		shape  [4]int
	}{
		{"Backward.Q", b.Q, p.QShape()}, {"Backward.K", b.K, p.KShape()}, {"Backward.V", b.V, p.VShape()},
		{"Backward.O", b.O, p.OShape()}, {"Backward.DO", b.DO, p.OShape()},
		{"Backward.DQ", b.DQ, p.QShape()}, {"Backward.DK", b.DK, p.KShape()}, {"Backward.DV", b.DV, p.VShape()},
	} {
		if err := t.tensor.fits(t.name, d, p.DType, t.shape); err != nil {
			return err
		}
	}
	if err := b.LSE.statistics("Backward.LSE", d, p); err != nil {
		return err
	}
	if b.DLSE != nil {
		if err := b.DLSE.statistics("Backward.DLSE", d, p); err != nil {
			return err
		}
	}
	places := b.places()
	if err := b.DQ.writable("Backward.DQ", "DQ", places[:]); err != nil {
		return err
	}
	if err := b.DK.writable("Backward.DK", "DK", places[:]); err != nil {
		return err
	}
	if err := b.DV.writable("Backward.DV", "DV", places[:]); err != nil {
		return err
	}
	g.Q, g.K, g.V, g.O, g.Lse, g.Do = b.Q.bound, b.K.bound, b.V.bound, b.O.bound, b.LSE.bound, b.DO.bound
	g.Dq, g.Dk, g.Dv = b.DQ.bound, b.DK.bound, b.DV.bound
	g.Dlse, g.HasDLSE = kernel.Operand{}, b.DLSE != nil
	if b.DLSE != nil {
		g.Dlse = b.DLSE.bound
	}
	g.Accumulate, g.Drop = b.Accumulate, kernel.Draw{Seed: b.Seed, Offset: b.Offset}
	return nil
}

// statistics checks a tensor of one number a row: lse or dlse.
func (t *Tensor) statistics(name string, d *Device, p *Problem) error {
	if err := t.fits(name, d, F32, p.LSEShape()); err != nil {
		return err
	}
	if !t.layout.Dense() {
		return badArgument(name, t, "must be in row-major order")
	}
	return nil
}
