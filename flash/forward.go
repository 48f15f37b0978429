package flash

import (
	"github.com/vkattn/vkattn/pipeline"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Use says how the world outside a recording touches a tensor: pipeline stages (VkPipelineStageFlags) and accesses
// (VkAccessFlags). The zero Use is the default: compute and transfer commands before, those and the host after.
type Use = pipeline.Use

// Untouched declares that a tensor needs no barrier on that side: the caller's own barriers take care of it.
//
//	f.Uses.O.Next = flash.Untouched
var Untouched = pipeline.Untouched

// TensorUse is how a tensor is used before a recording and after it: what the recording's first barrier waits for, and what its
// last one makes wait. Zero values are the defaults of [Use].
type TensorUse struct{ Prior, Next Use }

// ForwardUses holds the uses of the tensors of a Forward; zero values are the defaults.
type ForwardUses struct{ Q, K, V, O, LSE TensorUse }

// Forward names the tensors of one forward pass, which computes o and lse as [Problem] says. Inputs may overlap one another;
// outputs are overwritten, and overlap no other tensor of the pass.
type Forward struct {
	Q, K, V *Tensor // inputs, of the problem's DType and of shapes Problem.QShape, KShape, VShape
	O       *Tensor // output, of the problem's DType and Problem.OShape
	LSE     *Tensor // output, fp32 in row-major order, of Problem.LSEShape: what a backward pass needs; nil: not written

	Weights *Weights   // of standard attention whose backward pass is to follow, from Plan.NewWeights; nil: P stays in the workspace, and is lost
	Blocks  *BlockMask // of Problem.Blocks, from Device.NewBlockMask; nil where that is zero
	// Seed and Offset say which weights dropout drops; a training step takes a new offset, or a new seed. They are ignored
	// where Problem.Dropout is 0.
	Seed   uint64
	Offset uint32

	Uses ForwardUses // what barriers a recording begins and ends with; the zero value is right for most
}

// check validates the tensors against the problem and gives what kernels are given. It does not allocate unless it fails.
func (f *Forward) check(d *Device, p *Problem, ops *kernel.Operands) error {
	places := f.places()
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
		if err := f.LSE.statistics("Forward.LSE", d, p); err != nil {
			return err
		}
		if err := f.LSE.writable("Forward.LSE", "LSE", places[:]); err != nil {
			return err
		}
	}
	if err := f.O.writable("Forward.O", "O", places[:]); err != nil {
		return err
	}
	if err := f.Blocks.fits(d, p); err != nil {
		return err
	}
	if ops.Blocks = (pipeline.Binding{}); f.Blocks != nil {
		ops.Blocks = f.Blocks.words.bound.Binding
	}
	ops.Q, ops.K, ops.V, ops.O = f.Q.bound, f.K.bound, f.V.bound, f.O.bound
	ops.Lse, ops.HasLSE = kernel.Operand{}, f.LSE != nil
	ops.Drop = kernel.Draw{Seed: f.Seed, Offset: f.Offset}
	if f.LSE != nil {
		ops.Lse = f.LSE.bound
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
	if t.layout.Shape != shape {
		return badArgument(name, t, "must have shape %v", shape)
	}
	return nil
}

// place is a tensor with the name of the argument that it is.
type place struct {
	name   string
	tensor *Tensor
}

func (f *Forward) places() [5]place {
	return [5]place{{"Q", f.Q}, {"K", f.K}, {"V", f.V}, {"O", f.O}, {"LSE", f.LSE}}
}

// writable checks that an output shares memory with no other tensor of the pass, nor with itself. argument is its name in
// errors, name that of its place.
func (t *Tensor) writable(argument, name string, others []place) error {
	if t.folded {
		return badArgument(argument, t, "elements of an output must not share memory")
	}
	handle := t.mem.buf.Handle()
	for _, o := range others {
		if o.tensor == nil || o.name == name {
			continue
		}
		if o.tensor == t { // one tensor in two places
			return badArgument(argument, t, "an output must not overlap another tensor of the pass: it is %s too", o.name)
		}
		if o.tensor.mem.buf.Handle() == handle && t.layout.Overlaps(&o.tensor.layout) {
			return badArgument(argument, t, "an output must not overlap another tensor of the pass: %s is %v", o.name, o.tensor)
		}
	}
	return nil
}

// heldTensor is a tensor of a recording with its use outside.
type heldTensor struct {
	tensor *Tensor
	use    TensorUse
}

// tensors lists the tensors with their uses, the block mask's among them.
func (f *Forward) tensors() [6]heldTensor {
	held := [6]heldTensor{{f.Q, f.Uses.Q}, {f.K, f.Uses.K}, {f.V, f.Uses.V}, {f.O, f.Uses.O}, {f.LSE, f.Uses.LSE}}
	if f.Blocks != nil {
		held[5].tensor = f.Blocks.words
	}
	return held
}
