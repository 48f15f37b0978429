package flash

import "github.com/vkattn/vkattn/pipeline"

// Use says how the world outside a recording touches a tensor: pipeline stages (VkPipelineStageFlags) and accesses
// (VkAccessFlags). The zero Use is the default: compute and transfer commands before, those and the host after.
type Use = pipeline.Use

// Untouched declares that a tensor needs no barrier on that side: the caller's own barriers take care of it.
var Untouched = pipeline.Untouched

// TensorUse is how a tensor is used before and after a recording.
type TensorUse struct{ Prior, Next Use }

// ForwardUses holds the uses of the tensors of a Forward; zero values are the defaults.
type ForwardUses struct{ Q, K, V, O, LSE TensorUse }

// Forward names the tensors of one forward pass; their shapes are those of Problem's QShape, KShape, VShape, OShape and
// LSEShape. LSE is fp32 in row-major order, and may be nil: then it is not written. O and LSE are overwritten and may
// overlap neither each other nor the inputs; inputs may overlap.
type Forward struct {
	Q, K, V, O, LSE *Tensor
	Uses            ForwardUses
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (f *Forward) check(d *Device, p *Problem, ops *operands) error {
	if err := f.Q.fits("Forward.Q", d, p.DType, p.QShape()); err != nil {
		return err
	}
	if err := f.K.fits("Forward.K", d, p.DType, p.KShape()); err != nil {
		return err
	}
	if err := f.V.fits("Forward.V", d, p.DType, p.VShape()); err != nil {
		return err
	}
	if err := f.O.fits("Forward.O", d, p.DType, p.OShape()); err != nil {
		return err
	}
	if f.LSE != nil {
		if err := f.LSE.fits("Forward.LSE", d, F32, p.LSEShape()); err != nil {
			return err
		}
		if !f.LSE.layout.dense() {
			return badArgument("Forward.LSE", f.LSE, "must be in row-major order")
		}
		if err := f.LSE.writable("Forward.LSE", f); err != nil {
			return err
		}
	}
	if err := f.O.writable("Forward.O", f); err != nil {
		return err
	}
	ops.q, ops.k, ops.v, ops.o = f.Q.bound, f.K.bound, f.V.bound, f.O.bound
	ops.lse, ops.hasLSE = operand{}, f.LSE != nil
	if f.LSE != nil {
		ops.lse = f.LSE.bound
	}
	return nil
}

// fits checks one tensor against what the problem wants in its place.
func (t *Tensor) fits(name string, d *Device, dtype DType, shape [4]int) error {
	if err := t.usable(name); err != nil {
		return err
	}
	if t.dev != d {
		return badArgument(name, t, "must be a tensor of the plan's device")
	}
	if t.dtype != dtype {
		return badArgument(name, t, "must be of type %v", dtype)
	}
	if t.layout.shape != shape {
		return badArgument(name, t, "must have shape %v", shape)
	}
	return nil
}

// writable checks that an output shares memory with no other tensor of the pass, nor with itself.
func (t *Tensor) writable(name string, f *Forward) error {
	if t.folded {
		return badArgument(name, t, "elements of an output must not share memory")
	}
	others := [...]*Tensor{f.Q, f.K, f.V, f.O, f.LSE}
	names := [...]string{"Q", "K", "V", "O", "LSE"}
	handle := t.mem.buf.Handle()
	for i, o := range others {
		if o != nil && o != t && o.mem.buf.Handle() == handle && t.layout.overlaps(&o.layout) {
			return badArgument(name, t, "an output must not overlap another tensor of the pass: %s is %v", names[i], o)
		}
		if o == t && names[i] != name[len("Forward."):] { // one tensor in two places
			return badArgument(name, t, "an output must not overlap another tensor of the pass: it is %s too", names[i])
		}
	}
	return nil
}

// tensors lists the tensors with their uses.
func (f *Forward) tensors() [5]struct {
	tensor *Tensor
	use    TensorUse
} {
	return [5]struct {
		tensor *Tensor
		use    TensorUse
	}{{f.Q, f.Uses.Q}, {f.K, f.Uses.K}, {f.V, f.Uses.V}, {f.O, f.Uses.O}, {f.LSE, f.Uses.LSE}}
}
