package pipeline

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/vk"
)

// flight is a submission of several recordings in one command buffer. Each of them waits for its fence by itself.
type flight struct {
	pool    *vk.CommandPool
	command [1]*vk.CommandBuffer
	fence   *vk.Fence
	members atomic.Int32 // recordings that have not yet found it finished
}

// flights are those of a context.
type flights struct {
	mu   sync.Mutex
	all  []*flight
	free []*flight
}

// take gives one that nothing waits for.
func (f *flights) take(dev *vk.Device) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		x := f.free[n-1]
		f.free = f.free[:n-1]
		return x, nil
	}
	pool, err := dev.NewCommandPool()
	if err != nil {
		return nil, err
	}
	x := &flight{pool: pool}
	if x.command[0], err = pool.Allocate(); err == nil {
		x.fence, err = dev.NewFence(false)
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	f.all = append(f.all, x)
	return x, nil
}

func (f *flights) put(x *flight) {
	f.mu.Lock()
	f.free = append(f.free, x)
	f.mu.Unlock()
}

func (f *flights) close() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.all {
		err = errors.Join(err, x.fence.Close(), x.pool.Close())
	}
	f.all, f.free = nil, nil
	return err
}

// left says that one of its recordings has found the submission finished.
func (x *flight) left(f *flights) {
	if x.members.Add(-1) == 0 {
		f.put(x)
	}
}

// SubmitTogether runs recordings one after another in one submission, and returns at once. Each is in flight as after [Context.Submit],
// with a Pending and timings of its own; none may be given twice. Where the error is not nil nothing runs.
func (c *Context) SubmitTogether(recordings []*Recording) error {
	const call = "SubmitTogether"
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if len(recordings) == 0 {
		return argErr(call, "recordings", "none", "it must hold one at least")
	}
	for i, r := range recordings {
		switch {
		case r == nil || r.ctx != c:
			return argErr(call, "recordings", i, "it must be a recording of this context")
		case r.closed:
			return ErrClosed
		case r.run.inFlight:
			return ErrInFlight
		}
		for _, other := range recordings[:i] {
			if other == r {
				return argErr(call, "recordings", i, "it must not be given twice")
			}
		}
		if err := r.seal(); err != nil {
			return err
		}
	}
	x, err := c.flights.take(c.dev)
	if err != nil {
		return err
	}
	if err := c.fly(x, recordings); err != nil {
		c.flights.put(x)
		return err
	}
	return nil
}

func (c *Context) fly(x *flight, recordings []*Recording) error {
	cmd := x.command[0]
	if err := cmd.Reset(); err != nil {
		return err
	}
	if err := cmd.Begin(false); err != nil {
		return err
	}
	for _, r := range recordings {
		if err := cmd.Execute(&r.stream); err != nil {
			return err
		}
	}
	if err := cmd.End(); err != nil {
		return err
	}
	if err := x.fence.Reset(); err != nil {
		return err
	}
	x.members.Store(int32(len(recordings)))
	for _, r := range recordings {
		if len(r.first) > 0 {
			r.run.began = time.Now()
		}
	}
	if err := c.dev.Queue().Submit(vk.Submission{Commands: x.command[:], Fence: x.fence}); err != nil {
		return err
	}
	for _, r := range recordings {
		o := &r.run
		o.inFlight, o.finished, o.flight = true, false, x
		o.pending.err = nil
	}
	return nil
}

// Pending is the recording's latest submission.
func (r *Recording) Pending() *Pending {
	if r == nil || r.ctx == nil {
		return nil
	}
	return &r.run.pending
}
