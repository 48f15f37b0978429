package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Weights is the matrix P of one forward pass of standard attention, of Batch·Heads·QueryLen·KeyLen elements of the problem's
// type: what its backward pass needs besides tensors. Give it to Forward, which then writes P there and not into its
// workspace, and to Backward. Dropout needs no room: a weight that was dropped has its sign bit set. Any number of Weights of
// one plan may be in use, one for each forward pass whose backward pass is still to come. Download reads it.
type Weights struct {
	plan     *Plan
	parts    []*Tensor // a slab each
	bindings []pipeline.Binding
}

// NewWeights allocates room for what a backward pass needs of a forward pass besides tensors. It is nil where that is nothing, as
// with Flash: Forward.Weights and Backward.Weights are nil then too. The error is a *MemoryError where the device has no room.
func (p *Plan) NewWeights() (_ *Weights, err error) {
	defer during("NewWeights", &err)
	if err := p.usable(); err != nil {
		return nil, err
	}
	k, ok := p.program.(kernel.Keeper)
	if !ok {
		return nil, nil
	}
	sizes := k.Kept()
	if err := p.dev.roomFor("weights", sizes); err != nil {
		return nil, err
	}
	w := &Weights{plan: p}
	for _, size := range sizes {
		row := (p.problem.KeyLen + 7) / 8 * 8
		t, err := p.dev.allocate("weights", p.problem.DType, [4]int{1, 1, int(size) / p.problem.DType.Size() / row, row}, attn.Contiguous)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.parts, w.bindings = append(w.parts, t), append(w.bindings, t.bound.Binding)
	}
	return w, nil
}

// Bytes is the size of the matrix.
func (w *Weights) Bytes() (n uint64) {
	if w != nil {
		for _, t := range w.parts {
			n += t.Bytes()
		}
	}
	return n
}

// Close frees the matrix after waiting for work of this library that uses it. Closing again, or nil, does nothing.
func (w *Weights) Close() error {
	if w == nil {
		return nil
	}
	var err error
	for _, t := range w.parts {
		err = errors.Join(err, t.Close())
	}
	return err
}

// fits checks what Forward or Backward was given in the place that name says. A backward pass needs it.
func (w *Weights) fits(name string, p *Plan, needed bool) error {
	_, keeps := p.program.(kernel.Keeper)
	switch {
	case w == nil && needed && keeps:
		return badArgument(name, nil, "must be the Weights that Forward was given: %v has no other way to P", p.Implementation())
	case w == nil:
		return nil
	case !keeps:
		return badArgument(name, fmt.Sprintf("%d bytes", w.Bytes()), "must be nil: %v keeps no weights", p.Implementation())
	case w.plan != p:
		return badArgument(name, fmt.Sprintf("%d bytes", w.Bytes()), "must come from this plan's NewWeights")
	}
	return w.usable(name)
}

func (w *Weights) usable(name string) error {
	if w != nil {
		for _, t := range w.parts {
			if err := t.usable(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// all is what kernels bind, nil without weights.
func (w *Weights) all() []pipeline.Binding {
	if w == nil {
		return nil
	}
	return w.bindings
}

// mark counts a recording in or out of the users of the buffers.
func (w *Weights) mark(n int32) {
	if w != nil {
		for _, t := range w.parts {
			t.mem.busy.Add(n)
		}
	}
}
