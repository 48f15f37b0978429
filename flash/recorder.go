package flash

import "github.com/vkattn/vkattn/pipeline"

// operand is a tensor as a kernel sees it.
type operand struct {
	binding pipeline.Binding // aligned down to what the device can bind
	offset  uint32           // elements from the binding's start to the tensor's first
	strides [3]uint32        // elements, of batch, head and row
	aligned bool             // every row starts on 16 bytes and is a multiple of 16 bytes long
}

// operands are the tensors of one forward pass. Without lse, lse is the zero operand and hasLSE false.
type operands struct {
	q, k, v, o, lse operand
	hasLSE          bool
	drop            draw
	weights         []pipeline.Binding // Forward.Weights; nil: the workspace holds them
	blocks          pipeline.Binding   // the block mask, where the problem has one
}

// alignedInputs says whether rows of q, k and v can be read 16 bytes at a time.
func (f *operands) alignedInputs() bool { return f.q.aligned && f.k.aligned && f.v.aligned }

// recorder is what a program records into: a recording with the scratch buffers that the program asked for. It is reused.
type recorder struct {
	rec     *pipeline.Recording
	scratch []pipeline.Binding
	push    pushes
	access  [9]pipeline.Access // one more than a kernel has, for counting
	count   *countingBuilds
}

// dispatch runs a kernel over a grid, in as many dispatches as the grid has, with r.push as arguments. baseAt is where
// pushes.grid put the constants base and total; total is what the kernel wants there: most often the grid's.
func (r *recorder) dispatch(k *pipeline.Kernel, access []pipeline.Access, baseAt int, g grid, total uint32, label string) error {
	r.push.set(baseAt+4, total)
	access = r.count.bind(access, label)
	for base := uint64(0); base < uint64(g.total); base += uint64(g.step) {
		r.push.set(baseAt, uint32(base))
		if err := r.rec.Dispatch(k, access, r.push.bytes(), g.size(uint32(base)), label); err != nil {
			return err
		}
	}
	return nil
}
