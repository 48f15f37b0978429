package flash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// smallPlan is what plans of one small kernel have in common, R being their recordings.
type smallPlan[R interface {
	comparable
	Submit() error
	Wait(context.Context) error
	Close() error
}] struct {
	dev  *Device
	name string // of the type that callers hold: MergePlan

	mu     sync.Mutex
	kept   R // of calls that record, submit and wait at once
	closed bool
}

// usable says why nothing can be done with the plan; p.mu is not held.
func (p *smallPlan[R]) usable() error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: %s", ErrClosed, p.name)
	}
	return p.dev.usable()
}

// run prepares the recording that the plan keeps, which the first call makes, submits it and waits.
func (p *smallPlan[R]) run(ctx context.Context, recording func() (R, error), prepare func(R) error) error {
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	if err := p.usable(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if none := *new(R); p.kept == none {
		var err error
		if p.kept, err = recording(); err != nil {
			return err
		}
	}
	if err := prepare(p.kept); err != nil {
		return err
	}
	if err := p.kept.Submit(); err != nil {
		return err
	}
	return p.kept.Wait(ctx)
}

func (p *smallPlan[R]) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.kept.Close()
}

// smallRecording is what recordings of one small kernel have in common: descriptors of their own, the tensors that they hold, and the
// latest submission.
type smallRecording struct {
	dev   *Device
	name  string // of the type that callers hold: MergeRecording
	first string // what prepares it

	mu       sync.Mutex
	rec      *pipeline.Recording
	writer   kernel.Recorder
	tensors  []*Tensor
	ready    bool
	inFlight *pipeline.Pending
	closed   bool
	foreign  *vk.CommandBuffer
}

// open makes the descriptors.
func (r *smallRecording) open(info pipeline.RecordingInfo) error {
	rec, err := r.dev.env.Ctx.NewRecording(info)
	if err != nil {
		return r.dev.fail(err)
	}
	r.rec, r.writer.Rec = rec, rec
	if err := r.dev.adopt(r); err != nil {
		return errors.Join(err, rec.Close())
	}
	return nil
}

// own allocates memory that lives as long as the recording, which is closed where there is none.
func (r *smallRecording) own(label string, size uint64, kind vk.MemoryKind) (*pipeline.Buffer, error) {
	b, err := r.dev.env.Ctx.Alloc(label, size, kind)
	if err != nil {
		return nil, errors.Join(r.dev.fail(err), r.close())
	}
	r.rec.Own(b)
	return b, nil
}

// gpuTime is the device time of the latest execution; false without timestamps, and until it was waited for.
func (r *smallRecording) gpuTime() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usable() != nil || r.inFlight != nil || !r.rec.HasTimestamps() {
		return 0, false
	}
	ns, err := r.rec.Nanoseconds()
	return time.Duration(ns), err == nil
}

// begin says why the recording cannot be given commands, or locks it.
func (r *smallRecording) begin() error {
	r.mu.Lock()
	err := r.usable()
	if err == nil && r.inFlight != nil {
		err = ErrInFlight
	}
	if err != nil {
		r.mu.Unlock()
		return err
	}
	r.ready = false
	return nil
}

// usable says why nothing can be done with the recording; r.mu is held.
func (r *smallRecording) usable() error {
	if r.closed {
		return fmt.Errorf("%w: %s", ErrClosed, r.name)
	}
	return r.dev.usable()
}

// reset empties the commands and says how the tensors are used outside; r.mu is held.
func (r *smallRecording) reset() error {
	if err := r.rec.Reset(); err != nil {
		return err
	}
	return declare(r.rec, r.tensors)
}

// prepared says why the recording cannot be executed; r.mu is held.
func (r *smallRecording) prepared() error {
	if err := r.usable(); err != nil {
		return err
	}
	if !r.ready {
		return badArgument(r.name, "empty", "needs %s first", r.first)
	}
	for _, t := range r.tensors { // one may have been closed since
		if t != nil {
			if err := t.usable("Tensor"); err != nil {
				return err
			}
		}
	}
	return nil
}

// record writes the commands into a command buffer of the caller's, as [Recording.Record] does.
func (r *smallRecording) record(cmd uintptr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.prepared(); err != nil {
		return err
	}
	if cmd == 0 {
		return badArgument("cmd", 0, "must be a VkCommandBuffer")
	}
	if r.foreign == nil || r.foreign.Handle() != cmd {
		c, err := vk.WrapCommandBuffer(r.dev.dev, cmd)
		if err != nil {
			return r.dev.fail(err)
		}
		r.foreign = c
	}
	return r.dev.fail(r.rec.Record(r.foreign))
}

// submit runs the commands on the device's queue and returns without waiting.
func (r *smallRecording) submit() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dev.submitting.RLock()
	defer r.dev.submitting.RUnlock()
	if err := r.prepared(); err != nil {
		return err
	}
	if r.inFlight != nil {
		return ErrInFlight
	}
	if r.inFlight, err = r.dev.env.Ctx.Submit(r.rec); err != nil {
		r.inFlight = nil
		return r.dev.fail(err)
	}
	r.mark(1)
	return nil
}

// mark counts the recording in or out of the users of its tensors.
func (r *smallRecording) mark(n int32) {
	for _, t := range r.tensors {
		if t != nil {
			t.mem.busy.Add(n)
		}
	}
}

// waitFor waits for the latest submission. A cancelled context makes it return the context's error, but not before the device has finished
// with the memory.
func (r *smallRecording) waitFor(ctx context.Context) error {
	r.mu.Lock()
	err := r.wait()
	r.mu.Unlock()
	if err == nil && ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	return err
}

// wait is waitFor without a context; r.mu is held.
func (r *smallRecording) wait() error {
	if r.inFlight == nil {
		return nil
	}
	err := r.dev.fail(r.inFlight.Wait(context.Background()))
	if err != nil && r.inFlight.InFlight() {
		return err // and to be waited for again: the device may be using the tensors
	}
	r.inFlight = nil
	r.mark(-1)
	return err
}

// idle says without waiting whether the device has finished with the latest submission.
func (r *smallRecording) idle() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inFlight == nil {
		return true, nil
	}
	if done, err := r.inFlight.Done(); err != nil || !done {
		return false, r.dev.fail(err)
	}
	return true, r.wait()
}

// close frees the descriptors, after waiting for the recording's own submission.
func (r *smallRecording) close() error {
	r.dev.disown(r)
	return r.release()
}

func (r *smallRecording) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	err := r.wait()
	if r.inFlight != nil {
		return errors.Join(err, r.dev.adopt(r)) // it must stay for now
	}
	r.closed, r.ready = true, false
	clear(r.tensors)
	return errors.Join(err, r.dev.fail(r.rec.Close()))
}
