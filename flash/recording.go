package flash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

// direction is what a recording of passes holds.
type direction uint8

const (
	passForward direction = iota
	passBackward
	passJVP
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

// ForJVP makes a recording for passes in forward mode in place of forward ones.
func ForJVP() RecordingOption {
	return func(o *recordingOptions) error { o.pass = passJVP; return nil }
}

func recordingOptionsOf(opts []RecordingOption) (o recordingOptions, err error) {
	for _, opt := range opts {
		if opt != nil {
			if err := opt(&o); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// timestampsOf is WithTimestamps of recordings that have no other option.
func timestampsOf(opts []RecordingOption) (bool, error) {
	o, err := recordingOptionsOf(opts)
	if err == nil && o.pass != passForward {
		err = badArgument([...]string{passBackward: "ForBackward", passJVP: "ForJVP"}[o.pass], "given",
			"is for recordings of Plan.NewRecording")
	}
	return o.timestamps, err
}

// Recording holds the commands of one call, with descriptors and workspace of its own: of [Recording.Forward], [Recording.Backward] or
// [Recording.JVP] where a [Plan] made it, of [Recording.Map], [Recording.Merge] or [Recording.Accumulate] where one for these did. It can
// be written into any number of command buffers, or submitted by itself or with others ([Device.Submit]) again and again, one submission at
// a time. It lives until its own Close, or the device's, and belongs to one goroutine at a time.
type Recording struct {
	dev   *Device
	name  string // of the type that callers hold
	first string // what prepares it

	// What it is of: one of them.
	pass    *passCommands
	mapping *mapCommands
	small   *tensorsCommands
	write   func(*kernel.Recorder) error // of a package beside this one

	takeBack func(*Recording) // given a recording of a plan's own once its submission was waited for; nil: nobody is
	mu       sync.Mutex       // recordings that are taken back outlive the Pending that a caller may still hold
	waited   atomic.Uint64    // the submission that is being waited for, with mu held; 0: none
	rec      *pipeline.Recording
	writer   kernel.Recorder
	tensors  []*Tensor
	weights  *Weights // of passes
	ready    bool     // rec holds commands
	inFlight *pipeline.Pending
	submits  uint64    // submissions so far: what a Pending remembers
	before   []Pending // of recordings before this one, where the latest submission was of several
	err      error     // of the latest finished one
	closed   bool
	foreign  *vk.CommandBuffer // the caller's command buffer recorded into last
}

// open makes the descriptors.
func (r *Recording) open(info pipeline.RecordingInfo) error {
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
func (r *Recording) own(label string, size uint64, kind vk.MemoryKind) (*pipeline.Buffer, error) {
	b, err := r.dev.env.Ctx.Alloc(label, size, kind)
	if err != nil {
		return nil, errors.Join(r.dev.fail(err), r.Close())
	}
	r.rec.Own(b)
	return b, nil
}

// workspace allocates scratch of these sizes, for which there must be room.
func (r *Recording) workspace(sizes []uint64) error {
	for _, size := range sizes {
		b, err := r.own("workspace", size, vk.DeviceLocal)
		if err != nil {
			return err
		}
		r.writer.Scratch = append(r.writer.Scratch, b.All())
	}
	return nil
}

// made says why a recording that no plan made cannot be used; r.mu need not be held.
func (r *Recording) made() error {
	if r == nil || r.dev == nil {
		return badArgument("Recording", "nil or zero", "must come from NewRecording of a plan")
	}
	return nil
}

// begin says why the recording cannot be given commands of a plan's kind, or locks it.
func (r *Recording) begin(plan string, has bool) error {
	if err := r.made(); err != nil {
		return err
	}
	if !has {
		return badArgument(r.name, "for "+r.first, "must come from %s", plan)
	}
	if r.lockUnlessWaited() != 0 {
		return ErrInFlight
	}
	err := r.usable()
	if err == nil && r.inFlight != nil {
		err = ErrInFlight
	}
	if err != nil {
		r.mu.Unlock()
	}
	return err
}

// lockUnlessWaited locks r.mu and gives 0, or at once the submission that another goroutine, which holds r.mu meanwhile, waits for.
func (r *Recording) lockUnlessWaited() (submit uint64) {
	for !r.mu.TryLock() {
		if submit = r.waited.Load(); submit != 0 {
			return submit
		}
		time.Sleep(time.Microsecond) // all others hold it for moments
	}
	return 0
}

// usable says why nothing can be done with the recording; r.mu is held.
func (r *Recording) usable() error {
	if r.closed {
		return fmt.Errorf("%w: %s", ErrClosed, r.name)
	}
	return r.dev.usable()
}

// reset empties the commands and says how the tensors are used outside; r.mu is held.
func (r *Recording) reset() error {
	r.ready = false
	if err := r.rec.Reset(); err != nil {
		return err
	}
	return declare(r.rec, r.tensors)
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
	if r.foreign == nil || r.foreign.Handle() != cmd {
		c, err := vk.WrapCommandBuffer(r.dev.dev, cmd)
		if err != nil {
			return r.dev.fail(err)
		}
		r.foreign = c
	}
	return r.dev.fail(r.rec.Record(r.foreign))
}

// prepared says why the recording cannot be executed; r.mu is held.
func (r *Recording) prepared() error {
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
	return r.weights.usable("Weights")
}

// Submit runs the commands on the device's queue and returns without waiting.
func (r *Recording) Submit() (_ Pending, err error) {
	defer during("Submit", &err)
	if err := r.made(); err != nil {
		return Pending{}, err
	}
	if r.lockUnlessWaited() != 0 {
		return Pending{}, ErrInFlight
	}
	defer r.mu.Unlock()
	r.dev.submitting.RLock()
	defer r.dev.submitting.RUnlock()
	if err := r.submittable(); err != nil {
		return Pending{}, err
	}
	p, err := r.dev.env.Ctx.Submit(r.rec)
	if err != nil {
		return Pending{}, r.dev.fail(err)
	}
	return r.submitted(p), nil
}

// submittable says why the recording cannot be submitted; r.mu is held.
func (r *Recording) submittable() error {
	if err := r.prepared(); err != nil {
		return err
	}
	if r.inFlight != nil {
		return ErrInFlight
	}
	return nil
}

// submitted notes a submission; r.mu is held.
func (r *Recording) submitted(p *pipeline.Pending) Pending {
	r.inFlight = p
	r.submits++
	r.mark(1)
	return Pending{rec: r, submit: r.submits}
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
	r.waited.Store(r.submits)
	defer r.waited.Store(0)
	err := r.dev.fail(r.inFlight.Wait(context.Background()))
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
	if !r.timed() {
		return 0, false
	}
	ns, err := r.rec.Nanoseconds()
	return time.Duration(ns), err == nil
}

// timed says whether there are times to be had; r.mu is held.
func (r *Recording) timed() bool {
	return r.usable() == nil && r.inFlight == nil && r.rec.HasTimestamps()
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
	if !r.timed() {
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

// Close frees descriptors and workspace, after waiting for the recording's own submission. Closing again, or nil, does nothing.
func (r *Recording) Close() (err error) {
	defer during("Recording.Close", &err)
	if r.made() != nil {
		return nil
	}
	r.dev.disown(r)
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
			return errors.Join(err, r.dev.adopt(r)) // it must stay for now
		}
	}
	r.closed, r.ready, r.weights = true, false, nil
	clear(r.tensors)
	return errors.Join(err, r.dev.fail(r.rec.Close()))
}
