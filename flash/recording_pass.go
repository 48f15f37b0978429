package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// passCommands is what a recording of a pass, forward or backward, has beside other recordings.
type passCommands struct {
	plan      *Plan
	direction direction
	ops       kernel.Operands  // of a forward pass
	grads     kernel.Gradients // of a backward one
	tangents  kernel.Tangents  // of one in forward mode
	forward   Forward          // what the recording holds
	backward  Backward         // the same of a backward pass
	jvp       JVP              // and of one in forward mode
	sizes     []uint64         // of the workspace that is not allocated yet: a forward pass that keeps its weights needs none
	sums      uint64           // size of what only gradients with respect to captured tensors need, until it is allocated
	sumsAt    int              // and its place in the workspace
}

func newRecording(p *Plan, opts recordingOptions) (*Recording, error) {
	d := p.dev
	var needs interface {
		Scratch() []uint64
		Dispatches() int
	} = p.program
	switch opts.pass {
	case passBackward:
		choice, err := p.backward()
		if err != nil {
			return nil, err
		}
		needs = choice.program
	case passJVP:
		choice, err := p.forwardMode()
		if err != nil {
			return nil, err
		}
		needs = choice.program
	}
	n := needs.Dispatches()
	r := &Recording{dev: d, name: "Recording", first: "Forward (or Backward, or JVP)",
		tensors: p.withTables(make([]*Tensor, mostHeld))}
	r.pass = &passCommands{plan: p, direction: opts.pass, sizes: needs.Scratch()}
	if s, ok := needs.(*scoreGradients); ok && s.sums > 0 {
		c := r.pass
		c.sums, c.sumsAt = s.sums, s.sumsAt()
		c.sizes[c.sumsAt] = 0
	}
	err := r.open(kernel.RecordingInfo(n, opts.timestamps))
	if err != nil {
		return nil, err
	}
	r.writer.Count = d.env.Counting
	if _, keeps := needs.(kernel.Keeper); !keeps {
		if err := r.room(); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if kernel.NeedsMore(&p.attn) || opts.pass == passJVP {
		if r.writer.More, err = r.own("arguments", kernel.MoreBytes, vk.Upload); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// room allocates the workspace of a pass, once, but for places of size 0, which are left free.
func (r *Recording) room() error {
	c := r.pass
	if c.sizes == nil {
		return nil
	}
	if err := r.dev.roomFor("workspace", c.sizes); err != nil {
		return err
	}
	for i, size := range c.sizes {
		if size == 0 {
			r.writer.Scratch = append(r.writer.Scratch, pipeline.Binding{})
			continue
		}
		b, err := r.dev.env.Ctx.Alloc("workspace", size, vk.DeviceLocal)
		if err != nil {
			c.sizes = c.sizes[i:]
			return r.dev.fail(err)
		}
		r.rec.Own(b)
		r.writer.Scratch = append(r.writer.Scratch, b.All())
	}
	c.sizes = nil
	return nil
}

// roomForSums allocates what gradients with respect to captured tensors are added up in, once: it may be larger than all else.
func (r *Recording) roomForSums() error {
	c := r.pass
	if c.sums == 0 {
		return nil
	}
	if err := r.dev.roomFor("workspace", []uint64{c.sums}); err != nil {
		return err
	}
	b, err := r.dev.env.Ctx.Alloc("workspace", c.sums, vk.DeviceLocal)
	if err != nil {
		return r.dev.fail(err)
	}
	r.rec.Own(b)
	r.writer.Scratch[c.sumsAt], c.sums = b.All(), 0
	return nil
}

// roomFor refuses buffers that the device has no room for as a whole, before any of them is allocated.
func (d *Device) roomFor(label string, sizes []uint64) error {
	var total uint64
	for _, s := range sizes {
		total += s
	}
	if total == 0 {
		return nil
	}
	heaps, err := d.dev.HeapBudget()
	if err != nil {
		return d.fail(err)
	}
	i := d.dev.DeviceHeap()
	if i < 0 || i >= len(heaps) {
		return nil
	}
	h := heaps[i]
	limit := h.Size
	if h.Budget != 0 {
		limit = h.Budget
	}
	if free := limit - min(limit, max(h.Usage, d.env.Ctx.Usage().Current)); total > free {
		return fmt.Errorf("flash: %w", &MemoryError{Label: label, Needed: total, Available: free, Rule: "free in the device's memory"})
	}
	return nil
}

// Forward prepares the recording for these tensors, in place of what it held before. After the first time it allocates
// nothing, and when nothing changed it does nothing.
func (r *Recording) Forward(f Forward) (err error) {
	defer during("Recording.Forward", &err)
	if err := r.beginPass(passForward); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.pass
	if err := f.check(c.plan, &c.ops); err != nil {
		return err
	}
	if err := f.Weights.fits("Forward.Weights", c.plan, false); err != nil {
		return err
	}
	if r.ready && f == c.forward {
		return nil
	}
	if f.Weights == nil {
		if err := r.room(); err != nil {
			return err
		}
	}
	f.tensors((*[mostHeld]*Tensor)(r.tensors))
	r.weights, c.ops.Weights = f.Weights, f.Weights.all()
	c.forward = f
	return r.commands("", attn.ForwardOperands[:], Tier(c.plan.kernel.Tier),
		func() error { return c.plan.program.Record(&r.writer, &c.ops) })
}

// commands replaces the recording's commands by a pass's, which record writes; what names the pass where it is refused.
func (r *Recording) commands(what string, table []attn.Operand, tier Tier, record func() error) error {
	err := r.reset()
	if err == nil {
		r.nameTensors(table)
		err = record()
	}
	if err != nil {
		return r.dev.fail(refused(err, what+r.pass.plan.problem.String(), tier))
	}
	r.ready = true
	return nil
}

// Backward is Forward for a recording made with ForBackward. The first time with a DCaptured allocates too: what its elements are added up
// in.
func (r *Recording) Backward(b Backward) (err error) {
	defer during("Recording.Backward", &err)
	if err := r.beginPass(passBackward); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.pass
	if err := b.check(c.plan, &c.grads); err != nil {
		return err
	}
	if err := b.Weights.fits("Backward.Weights", c.plan, true); err != nil {
		return err
	}
	if r.ready && b == c.backward {
		return nil
	}
	if c.grads.HasDCaptured {
		if err := r.roomForSums(); err != nil {
			return err
		}
	}
	b.tensors((*[mostHeld]*Tensor)(r.tensors))
	r.weights, c.grads.Weights = b.Weights, b.Weights.all()
	choice, err := c.plan.backward()
	if err != nil {
		r.ready = false
		return r.dev.fail(err)
	}
	c.backward = b
	return r.commands("backward of ", attn.BackwardOperands[:], Tier(choice.kernel.Tier),
		func() error { return choice.program.Record(&r.writer, &c.grads) })
}

// JVP is Forward for a recording made with ForJVP.
func (r *Recording) JVP(j JVP) (err error) {
	defer during("Recording.JVP", &err)
	if err := r.beginPass(passJVP); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.pass
	if err := j.check(c.plan, &c.tangents); err != nil {
		return err
	}
	if r.ready && j == c.jvp {
		return nil
	}
	j.tensors((*[mostHeld]*Tensor)(r.tensors))
	choice, err := c.plan.forwardMode()
	if err != nil {
		r.ready = false
		return r.dev.fail(err)
	}
	c.jvp = j
	return r.commands("JVP of ", attn.JVPOperands[:], Tier(choice.kernel.Tier),
		func() error { return choice.program.Record(&r.writer, &c.tangents) })
}

// beginPass says why the recording cannot be given commands of this pass, or locks it.
func (r *Recording) beginPass(p direction) error {
	if err := r.begin("Plan.NewRecording", r != nil && r.pass != nil); err != nil {
		return err
	}
	if r.pass.direction == p {
		return nil
	}
	r.mu.Unlock()
	options := [...]string{passForward: "neither ForBackward nor ForJVP", passBackward: "ForBackward", passJVP: "ForJVP"}
	names := [...]string{passForward: "forward passes", passBackward: "backward passes", passJVP: "passes in forward mode"}
	return badArgument("Recording", "for "+names[r.pass.direction], "must be made with %s", options[p])
}

// nameTensors says in the recording's listing, where it has one, what its tensors are.
func (r *Recording) nameTensors(table []attn.Operand) {
	if !r.rec.Listed() {
		return
	}
	for i, t := range r.tensors {
		if t == nil {
			continue
		}
		name := "Blocks"
		switch {
		case i < len(table):
			name = table[i].Name
		case i >= mostHeld:
			name = "a table of a function"
		case i >= mostHeld-MaxCaptured:
			name = fmt.Sprintf("Captured[%d]", i-(mostHeld-MaxCaptured))
		case i >= mostHeld-2*MaxCaptured:
			name = fmt.Sprintf("DCaptured[%d]", i-(mostHeld-2*MaxCaptured))
		}
		r.rec.Name(t.bound.Binding, name)
	}
}
