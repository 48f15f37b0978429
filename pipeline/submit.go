package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/vk"
)

// ownRun is what a recording needs to run by itself.
type ownRun struct {
	pool     *vk.CommandPool
	commands [1]*vk.CommandBuffer
	fence    *vk.Fence
	pending  Pending
	recorded bool // the command buffer holds the recording as it is
	inFlight bool
	finished bool      // the last submission was waited for
	began    time.Time // the last submission, of kernels that had not run before
	flight   *flight   // the submission in flight that other recordings are in too; nil: its own
}

// done is the fence of the submission in flight.
func (o *ownRun) done() *vk.Fence {
	if o.flight != nil {
		return o.flight.fence
	}
	return o.fence
}

func (o *ownRun) make(dev *vk.Device) (err error) {
	if o.pool == nil {
		if o.pool, err = dev.NewCommandPool(); err != nil {
			return err
		}
	}
	if o.commands[0] == nil {
		if o.commands[0], err = o.pool.Allocate(); err != nil {
			return err
		}
	}
	if o.fence == nil {
		o.fence, err = dev.NewFence(false)
	}
	return err
}

func (o *ownRun) close() (err error) {
	if o.fence != nil {
		err = errors.Join(err, o.fence.Close())
	}
	if o.pool != nil {
		err = errors.Join(err, o.pool.Close())
	}
	return err
}

// Submit runs a recording through its own command buffer and returns at once. A recording can be in flight once; it may be
// submitted again, with the same operations, after a Wait. The Pending belongs to the recording and speaks of its latest
// submission.
func (c *Context) Submit(r *Recording) (*Pending, error) {
	if r == nil || r.ctx != c {
		return nil, argErr("Submit", "r", "nil or of another context", "it must be a recording of this context")
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	if r.run.inFlight {
		return nil, ErrInFlight
	}
	if err := r.seal(); err != nil {
		return nil, err
	}
	o := &r.run
	if err := o.make(c.dev); err != nil {
		return nil, err
	}
	cmd := o.commands[0]
	if !o.recorded {
		if err := cmd.Reset(); err != nil {
			return nil, err
		}
		if err := cmd.Begin(false); err != nil {
			return nil, err
		}
		if err := cmd.Execute(&r.stream); err != nil {
			return nil, err
		}
		if err := cmd.End(); err != nil {
			return nil, err
		}
		o.recorded = true
	}
	if err := o.fence.Reset(); err != nil {
		return nil, err
	}
	if len(r.first) > 0 {
		o.began = time.Now()
	}
	if err := c.dev.Queue().Submit(vk.Submission{Commands: o.commands[:], Fence: o.fence}); err != nil {
		return nil, err
	}
	o.inFlight, o.finished = true, false
	o.pending.err = nil
	return &o.pending, nil
}

// Await waits for a fence. Where the driver cannot, for lack of memory say, it waits for the device: a wait that fails says nothing of
// the work, which may still be using memory. An error other than a device that is lost or closed is ErrUnended.
func (c *Context) Await(f *vk.Fence) error {
	err := f.Wait(-1)
	if err == nil || errors.Is(err, vk.ErrDeviceLost) || errors.Is(err, vk.ErrClosed) {
		return err
	}
	if e := c.dev.WaitIdle(); e != nil {
		return fmt.Errorf("%w: %w", ErrUnended, errors.Join(err, e))
	}
	return nil
}

// Pending is a submission of a recording.
type Pending struct {
	rec *Recording
	err error
}

// made is ErrClosed for a Pending that Submit did not make.
func (p *Pending) made() error {
	if p == nil || p.rec == nil {
		return ErrClosed
	}
	return nil
}

// Wait blocks until the submission has finished. A ctx that is cancelled does not make it return earlier, because the memory
// in use must stay until then; it makes Wait return the context's error once the work has finished. Waiting again returns
// the same at once.
func (p *Pending) Wait(ctx context.Context) error {
	if err := p.made(); err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		return err
	}
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("pipeline: %w", context.Cause(ctx))
	}
	return nil
}

// Done says without blocking whether the submission has finished.
func (p *Pending) Done() (bool, error) {
	if err := p.made(); err != nil {
		return false, err
	}
	p.rec.ctx.life.RLock()
	defer p.rec.leave()
	if !p.rec.run.inFlight {
		return true, p.err
	}
	return p.rec.run.done().Signaled()
}

// wait is finish for those who have not entered.
func (p *Pending) wait() error {
	p.rec.ctx.life.RLock()
	defer p.rec.leave()
	return p.finish()
}

// InFlight says whether the device may still be running the submission, for all that was waited: after an error of Wait it may.
func (p *Pending) InFlight() bool {
	if p.made() != nil {
		return false
	}
	p.rec.ctx.life.RLock()
	defer p.rec.leave()
	return p.rec.run.inFlight
}

// finish waits for the fence. Nothing is freed meanwhile: the recording is entered, or being closed.
func (p *Pending) finish() error {
	o := &p.rec.run
	if !o.inFlight {
		return p.err
	}
	err := p.rec.ctx.Await(o.done())
	if err != nil && !errors.Is(err, vk.ErrDeviceLost) && !errors.Is(err, vk.ErrClosed) {
		return err // still in flight for all we know
	}
	if x := o.flight; x != nil {
		o.flight = nil
		x.left(&p.rec.ctx.flights)
	}
	o.inFlight, o.finished = false, err == nil
	if err == nil {
		p.rec.accountFirst()
	}
	p.err = err
	return err
}

// HasTimestamps says whether Timings has figures.
func (p *Pending) HasTimestamps() bool { return p.made() == nil && p.rec.HasTimestamps() }

// Timings returns the GPU time of each operation, once Wait has returned; see Recording.Timings. Without timestamps, or
// before the end, it returns nil.
func (p *Pending) Timings() []Timing {
	if p.made() != nil {
		return nil
	}
	p.rec.ctx.life.RLock()
	finished := p.rec.run.finished
	p.rec.leave()
	if !finished {
		return nil
	}
	t, err := p.rec.Timings()
	if err != nil {
		return nil
	}
	return t
}

// Nanoseconds returns the GPU time from the beginning of the first operation to the end of the last; see
// Recording.Nanoseconds.
func (p *Pending) Nanoseconds() (float64, error) {
	if err := p.made(); err != nil {
		return 0, err
	}
	p.rec.ctx.life.RLock()
	inFlight := p.rec.run.inFlight
	p.rec.leave()
	if inFlight {
		return 0, ErrInFlight
	}
	return p.rec.Nanoseconds()
}
