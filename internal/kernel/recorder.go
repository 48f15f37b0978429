package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Operand is a tensor as a kernel sees it.
type Operand struct {
	Binding   pipeline.Binding // aligned down to what the device can bind
	Offset    uint32           // elements from the binding's start to the tensor's first
	Strides   [3]uint32        // elements, of batch, head and row
	KeyStride uint32           // of tensors by score: 0 where one element is for all keys
	Aligned   bool             // rows can be read in the pieces that suit kernels best: attn.Layout.Aligned
}

// Given says that there is such a tensor.
func (o *Operand) Given() bool { return o.Binding.Buffer != nil }

// Operands are the tensors of one forward pass. Without lse, lse is the zero operand and HasLSE false.
type Operands struct {
	Q, K, V, O, LSE Operand
	MaxLogit        Operand // where the problem has it
	Scores
	HasLSE  bool
	Drop    Draw
	Weights []pipeline.Binding // Forward.Weights; nil: the workspace holds them
	Blocks  pipeline.Binding   // the block mask, where the problem has one
}

// ValuesInKeys says whether row by row v begins where k does, so that it is k's first columns.
func (f *Operands) ValuesInKeys() bool {
	k, v := &f.K, &f.V
	return k.Binding.Buffer == v.Binding.Buffer && k.Binding.Offset == v.Binding.Offset && k.Offset == v.Offset && k.Strides == v.Strides
}

// List gives the tensors in the order of attn.ForwardOperands.
func (f *Operands) List() [len(attn.ForwardOperands)]*Operand {
	all := [len(attn.ForwardOperands)]*Operand{&f.Q, &f.K, &f.V, &f.O, &f.LSE, &f.MaxLogit}
	cache := f.Cache.list()
	at := len(all) - len(cache)
	copy(all[at:], cache[:])
	at -= len(f.Scores.Of)
	for i := range f.Scores.Of {
		all[at+i] = &f.Scores.Of[i]
	}
	return all
}

// AlignedInputs says whether rows of q, k and v can be read 16 bytes at a time, or as their types are read at best.
func (f *Operands) AlignedInputs() bool { return f.Q.Aligned && f.K.Aligned && f.V.Aligned }

// mostBindings is at least as many as any module declares.
const mostBindings = 24

// Recorder is what a program records into: a recording with the scratch buffers that the program asked for. It is reused.
type Recorder struct {
	Rec     *pipeline.Recording
	Scratch []pipeline.Binding
	Push    Pushes
	Access  [mostBindings + MostCaptured + 1]pipeline.Access // one more than a kernel has, for counting
	More    *pipeline.Buffer                                 // further arguments, mapped; nil where the problem has none
	Count   *CountingBuilds
}

// RecordingInfo is the room that so many dispatches of any kernels need.
func RecordingInfo(dispatches int, timestamps bool) pipeline.RecordingInfo {
	return pipeline.RecordingInfo{MaxDispatches: dispatches, MaxBindings: dispatches * len(Recorder{}.Access), Timestamps: timestamps}
}

// Dispatch runs a kernel over a grid, in as many dispatches as the grid has, with r.Push as arguments. baseAt is where the
// arguments base and total lie; total is what the kernel wants there: most often the grid's.
func (r *Recorder) Dispatch(k *pipeline.Kernel, access []pipeline.Access, baseAt int, g Grid, total uint32, label string) error {
	r.Push.Set(baseAt+4, total)
	access = r.Count.bind(access, label)
	for base := uint64(g.First); base < uint64(g.Total); base += uint64(g.Step) {
		r.Push.Set(baseAt, uint32(base))
		if err := r.Rec.Dispatch(k, access, r.Push.Bytes(), g.Size(uint32(base)), label); err != nil {
			return err
		}
	}
	return nil
}

// DispatchCounted is Dispatch of as many workgroups as the device has counted for each dispatch, one behind another in memory.
func (r *Recorder) DispatchCounted(k *pipeline.Kernel, access []pipeline.Access, baseAt int, g Grid, groups pipeline.Binding,
	label string) error {
	r.Push.Set(baseAt+4, g.Total)
	access = r.Count.bind(access, label)
	for base := uint64(0); base < uint64(g.Total); base += uint64(g.Step) {
		r.Push.Set(baseAt, uint32(base))
		if err := r.Rec.DispatchIndirect(k, access, r.Push.Bytes(), groups, label); err != nil {
			return err
		}
		groups.Offset += groups.Size
	}
	return nil
}
