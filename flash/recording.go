package flash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// RecordingOption sets up a recording.
type RecordingOption func(*recordingOptions) error

type recordingOptions struct {
	timestamps bool
	pass       direction
}

// direction is what a recording holds.
type direction uint8

const (
	passForward direction = iota
	passBackward
	passes
)

// WithTimestamps times every dispatch on the device, where its queue can; see Recording.HasTimestamps.
func WithTimestamps() RecordingOption {
	return func(o *recordingOptions) error { o.timestamps = true; return nil }
}

// ForBackward makes a recording for backward passes in place of forward ones, with the workspace that those take.
func ForBackward() RecordingOption {
	return func(o *recordingOptions) error { o.pass = passBackward; return nil }
}

// Recording holds the commands of one pass, forward or (ForBackward) backward, with descriptors and workspace of its own. It can be written
// into any number of command buffers, or submitted by itself again and again, one submission at a time. It belongs to one goroutine at a
// time.
type Recording struct {
	plan *Plan
	pass direction
	pool bool // made by the plan, which takes it back when its submission was waited for

	mu       sync.Mutex // pooled recordings outlive the Pending that a caller may still hold
	rec      *pipeline.Recording
	writer   kernel.Recorder
	ops      kernel.Operands  // of a forward pass
	grads    kernel.Gradients // of a backward one
	forward  Forward          // what rec holds
	backward Backward         // the same of a backward pass
	tensors  [mostHeld]*Tensor
	weights  *Weights // of either
	sizes    []uint64 // of the workspace that is not allocated yet: a forward pass that keeps its weights needs none
	ready    bool     // rec holds the commands of forward or backward
	inFlight *pipeline.Pending
	submits  uint64 // submissions so far: what a Pending remembers
	err      error  // of the latest finished one
	closed   bool
	foreign  *vk.CommandBuffer // the caller's command buffer recorded into last
}

func newRecording(p *Plan, opts recordingOptions) (*Recording, error) {
	d := p.dev
	var needs interface {
		Scratch() []uint64
		Dispatches() int
	} = p.program
	if opts.pass == passBackward {
		choice, err := p.backward()
		if err != nil {
			return nil, err
		}
		needs = choice.program
	}
	n := needs.Dispatches()
	rec, err := d.env.Ctx.NewRecording(pipeline.RecordingInfo{
		MaxDispatches: n, MaxBindings: n * len(kernel.Recorder{}.Access), Timestamps: opts.timestamps,
	})
	if err != nil {
		return nil, d.fail(err)
	}
	r := &Recording{plan: p, pass: opts.pass, rec: rec}
	r.writer.Rec, r.writer.Count = rec, d.env.Counting
	r.sizes = needs.Scratch()
	if _, keeps := needs.(kernel.Keeper); !keeps {
		if err := r.workspace(); err != nil {
			return nil, errors.Join(err, rec.Close())
		}
	}
	if kernel.NeedsMore(&p.attn) {
		more, err := d.env.Ctx.Alloc("arguments", kernel.MoreBytes, vk.Upload)
		if err != nil {
			return nil, errors.Join(d.fail(err), rec.Close())
		}
		rec.Own(more)
		r.writer.More = more
	}
	if err := d.adopt(r); err != nil {
		return nil, errors.Join(err, rec.Close())
	}
	return r, nil
}

// workspace allocates it, once.
func (r *Recording) workspace() error {
	if r.sizes == nil {
		return nil
	}
	d := r.plan.dev
	if err := d.roomFor("workspace", r.sizes); err != nil {
		return err
	}
	for i, size := range r.sizes {
		b, err := d.env.Ctx.Alloc("workspace", size, vk.DeviceLocal)
		if err != nil {
			r.sizes = r.sizes[i:]
			return d.fail(err)
		}
		r.rec.Own(b)
		r.writer.Scratch = append(r.writer.Scratch, b.All())
	}
	r.sizes = nil
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

// made says why a recording that did not come from a plan cannot be used; r.mu need not be held.
func (r *Recording) made() error {
	if r == nil || r.plan == nil {
		return badArgument("Recording", "nil or zero", "must come from Plan.NewRecording")
	}
	return nil
}

// usable says why nothing can be done with the recording; r.mu is held.
func (r *Recording) usable() error {
	if r.closed {
		return fmt.Errorf("%w: Recording", ErrClosed)
	}
	return r.plan.dev.usable()
}

// Forward prepares the recording for these tensors, in place of what it held before. After the first time it allocates
// nothing, and when nothing changed it does nothing.
func (r *Recording) Forward(f Forward) (err error) {
	defer during("Recording.Forward", &err)
	if err := r.made(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.free(passForward); err != nil {
		return err
	}
	if err := f.check(r.plan, &r.ops); err != nil {
		return err
	}
	if err := f.Weights.fits("Forward.Weights", r.plan, false); err != nil {
		return err
	}
	if r.ready && f == r.forward {
		return nil
	}
	if f.Weights == nil {
		if err := r.workspace(); err != nil {
			return err
		}
	}
	r.ready = false
	f.tensors(&r.ops, &r.tensors)
	r.weights, r.ops.Weights = f.Weights, f.Weights.all()
	err = r.begin()
	if err == nil {
		err = r.plan.program.Record(&r.writer, &r.ops)
	}
	if err != nil {
		return r.plan.dev.fail(refused(err, r.plan.problem.String(), r.plan.Tier()))
	}
	r.forward, r.ready = f, true
	return nil
}

// Backward is Forward for a recording made with ForBackward.
func (r *Recording) Backward(b Backward) (err error) {
	defer during("Recording.Backward", &err)
	if err := r.made(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.free(passBackward); err != nil {
		return err
	}
	if err := b.check(r.plan, &r.grads); err != nil {
		return err
	}
	if err := b.Weights.fits("Backward.Weights", r.plan, true); err != nil {
		return err
	}
	if r.ready && b == r.backward {
		return nil
	}
	r.ready = false
	b.tensors(&r.grads, &r.tensors)
	r.weights, r.grads.Weights = b.Weights, b.Weights.all()
	choice, err := r.plan.backward()
	if err != nil {
		return r.plan.dev.fail(err)
	}
	if err = r.begin(); err == nil {
		err = choice.program.Record(&r.writer, &r.grads)
	}
	if err != nil {
		return r.plan.dev.fail(refused(err, "backward of "+r.plan.problem.String(), Tier(choice.kernel.Tier)))
	}
	r.backward, r.ready = b, true
	return nil
}

// free says why the recording cannot be given commands of this pass; r.mu is held.
func (r *Recording) free(p direction) error {
	if err := r.usable(); err != nil {
		return err
	}
	switch {
	case r.inFlight != nil:
		return ErrInFlight
	case r.pass == p:
		return nil
	case p == passBackward:
		return badArgument("Recording", "for forward passes", "must be made with ForBackward")
	}
	return badArgument("Recording", "for backward passes", "must be made without ForBackward")
}

// begin empties the recording and declares how its tensors are used outside.
func (r *Recording) begin() error {
	if err := r.rec.Reset(); err != nil {
		return err
	}
	r.nameTensors()
	return declare(r.rec, r.tensors[:])
}

// nameTensors says in the recording's listing, where it has one, what its tensors are.
func (r *Recording) nameTensors() {
	if !r.rec.Listed() {
		return
	}
	table := attn.ForwardOperands[:]
	if r.pass == passBackward {
		table = attn.BackwardOperands[:]
	}
	for i, t := range r.tensors {
		if t == nil {
			continue
		}
		name := "Blocks"
		switch {
		case i < len(table):
			name = table[i].Name
		case i >= mostHeld-MaxCaptured:
			name = fmt.Sprintf("Captured[%d]", i-(mostHeld-MaxCaptured))
		case i >= mostHeld-2*MaxCaptured:
			name = fmt.Sprintf("DCaptured[%d]", i-(mostHeld-2*MaxCaptured))
		}
		r.rec.Name(t.bound.Binding, name)
	}
}

// Record writes the commands into a command buffer of the caller's: a VkCommandBuffer of the same device, in the recording
// state, outside a render pass, for a queue family with compute. It submits and allocates nothing. Until the device has
// finished with the command buffer, the recording and its tensors must stay as they are.
func (r *Recording) Record(cmd uintptr) (err error) {
	defer during("Record", &err)
	if err := r.made(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.prepared(); err != nil {
		return err
	}
	if cmd == 0 {
		return badArgument("cmd", 0, "must be a VkCommandBuffer")
	}
	d := r.plan.dev
	if r.foreign == nil || r.foreign.Handle() != cmd {
		c, err := vk.WrapCommandBuffer(d.dev, cmd)
		if err != nil {
			return d.fail(err)
		}
		r.foreign = c
	}
	return d.fail(r.rec.Record(r.foreign))
}

// prepared says why the recording cannot be executed.
func (r *Recording) prepared() error {
	if err := r.usable(); err != nil {
		return err
	}
	if !r.ready {
		return badArgument("Recording", "empty", "needs Forward (or Backward) first")
	}
	for _, t := range r.tensors { // one may have been closed since Forward
		if t != nil {
			if err := t.usable("Tensor"); err != nil {
				return err
			}
		}
	}
	return r.weights.usable("Weights")
}

// Submit runs the commands on the device's queue and returns without waiting.
func (r *Recording) Submit() (_ Pending, err error) {
	defer during("Submit", &err)
	if err := r.made(); err != nil {
		return Pending{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.dev.submitting.RLock()
	defer r.plan.dev.submitting.RUnlock()
	if err := r.prepared(); err != nil {
		return Pending{}, err
	}
	if r.inFlight != nil {
		return Pending{}, ErrInFlight
	}
	p, err := r.plan.dev.env.Ctx.Submit(r.rec)
	if err != nil {
		return Pending{}, r.plan.dev.fail(err)
	}
	r.inFlight = p
	r.submits++
	r.mark(1)
	return Pending{rec: r, submit: r.submits}, nil
}

// mark counts the recording in or out of the users of its tensors.
func (r *Recording) mark(n int32) {
	for _, t := range r.tensors {
		if t != nil {
			t.mem.busy.Add(n)
		}
	}
	r.weights.mark(n)
}

// wait waits for the submission in flight; r.mu is held.
func (r *Recording) wait() error {
	if r.inFlight == nil {
		return r.err
	}
	err := r.plan.dev.fail(r.inFlight.Wait(context.Background()))
	if err != nil && r.inFlight.InFlight() {
		return err // and to be waited for again: the device may be using the tensors
	}
	r.err, r.inFlight = err, nil
	r.mark(-1)
	return r.err
}

// HasTimestamps says whether the recording is timed: it was asked for, and the device's queue has timestamps.
func (r *Recording) HasTimestamps() bool { return r.made() == nil && r.rec.HasTimestamps() }

// Dispatches is the number of dispatches that the recording holds.
func (r *Recording) Dispatches() int {
	if r.made() != nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rec.Len()
}

// GPUTime is the device time of the latest execution from the end of everything before it to its own end: after Wait, or,
// for a command buffer of the caller's, after the caller waited. It is false without timestamps.
func (r *Recording) GPUTime() (time.Duration, bool) {
	if r.made() != nil {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usable() != nil || r.inFlight != nil || !r.rec.HasTimestamps() {
		return 0, false
	}
	ns, err := r.rec.Nanoseconds()
	return time.Duration(ns), err == nil
}

// Timing is the device time of one dispatch.
type Timing struct {
	Label    string        // the kernel, or the step of it
	Duration time.Duration // by the device's own clock
}

// Timings gives the device time of each dispatch of the latest execution, as GPUTime; nil without timestamps.
func (r *Recording) Timings() []Timing {
	if r.made() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usable() != nil || r.inFlight != nil || !r.rec.HasTimestamps() {
		return nil
	}
	ts, err := r.rec.Timings()
	if err != nil {
		return nil
	}
	out := make([]Timing, len(ts))
	for i, t := range ts {
		out[i] = Timing{Label: t.Label, Duration: time.Duration(t.GPUns)}
	}
	return out
}

// Close frees descriptors and workspace, after waiting for the recording's own submission. Closing again does nothing.
func (r *Recording) Close() (err error) {
	defer during("Recording.Close", &err)
	if r == nil || r.plan == nil {
		return nil
	}
	r.plan.dev.disown(r)
	return r.release()
}

func (r *Recording) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	var err error
	if r.inFlight != nil {
		if err = r.wait(); r.inFlight != nil {
			return errors.Join(err, r.plan.dev.adopt(r)) // it must stay for now
		}
	}
	r.closed, r.ready, r.forward, r.backward, r.tensors, r.weights = true, false, Forward{}, Backward{}, [mostHeld]*Tensor{}, nil
	return errors.Join(err, r.plan.dev.fail(r.rec.Close()))
}

// Pending is one submission.
type Pending struct {
	rec    *Recording
	submit uint64
}

// Wait waits for the submission. A cancelled context makes it return the context's error, but not before the device has
// finished with the memory. Waiting again returns at once.
func (p Pending) Wait(ctx context.Context) (err error) {
	defer during("Wait", &err)
	r := p.rec
	if r == nil {
		return badArgument("Pending", "empty", "must come from Submit")
	}
	r.mu.Lock()
	if p.submit != r.submits { // the recording has moved on, so this submission was waited for
		r.mu.Unlock()
		return nil
	}
	finished := r.inFlight != nil
	err = r.wait()
	pooled := finished && r.inFlight == nil && r.pool && !r.closed
	r.mu.Unlock()
	if pooled {
		r.plan.put(r)
	}
	if err == nil && ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	return err
}

// Done says without waiting whether the submission has finished.
func (p Pending) Done() (_ bool, err error) {
	defer during("Done", &err)
	r := p.rec
	if r == nil {
		return true, badArgument("Pending", "empty", "must come from Submit")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.submit != r.submits || r.inFlight == nil {
		return true, nil
	}
	done, err := r.inFlight.Done()
	return done, r.plan.dev.fail(err)
}

// GPUTime is Recording.GPUTime of this submission, after Wait; false when the recording has been submitted again since.
func (p Pending) GPUTime() (time.Duration, bool) {
	if !p.latest() {
		return 0, false
	}
	return p.rec.GPUTime()
}

// Timings is Recording.Timings of this submission, after Wait; nil when the recording has been submitted again since.
func (p Pending) Timings() []Timing {
	if !p.latest() {
		return nil
	}
	return p.rec.Timings()
}

func (p Pending) latest() bool {
	if p.rec == nil {
		return false
	}
	p.rec.mu.Lock()
	defer p.rec.mu.Unlock()
	return p.submit == p.rec.submits
}
