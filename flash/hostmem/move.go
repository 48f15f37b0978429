package hostmem

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Point is a moment of a device's work, which its queues wait for by themselves, without the host. It is only ever made of work that was
// submitted: a queue waits for nothing that may never come. The zero Point is reached.
type Point = pipeline.Point

// Ordered says whether Mark, After, StartToHost and StartToDevice order copies and kernels on the device: it has timeline semaphores, and
// is no attached one, whose queue is the caller's. Where not, Mark is an error, and StartToHost and StartToDevice copy and wait.
func (m *Mover) Ordered() bool {
	return m.made() == nil && !m.env.Attached && m.env.Ctx.HasPoints()
}

// Mark gives the point at which all work is done that was submitted to the device so far, kernels and copies between tensors.
func (m *Mover) Mark() (_ Point, err error) {
	defer within.During("Mover.Mark", &err)
	if err := m.made(); err != nil {
		return Point{}, err
	}
	if !m.Ordered() {
		return Point{}, &flash.UnsupportedError{What: "Mover.Mark",
			Reasons: []string{"the device has no timeline semaphores, or is attached"}}
	}
	p, err := m.env.Ctx.Mark()
	return p, within.Fail(m.dev, err)
}

// After makes work that is submitted to the device from now on begin after a point.
func (m *Mover) After(p Point) (err error) {
	defer within.During("Mover.After", &err)
	if err := m.made(); err != nil {
		return err
	}
	return within.Fail(m.dev, m.env.Ctx.After(p))
}

// Reach waits, on the host, until a point is reached.
func (m *Mover) Reach(p Point) (err error) {
	defer within.During("Mover.Reach", &err)
	if err := m.made(); err != nil {
		return err
	}
	return within.Fail(m.dev, m.env.Ctx.Reach(p))
}

// Move is a copy under way. It must be waited for: until then its memory is held.
type Move struct {
	mover *Mover
	host  *Memory
	of    *flash.Tensor
	end   Point

	mu    sync.Mutex
	ended bool
	err   error
}

// End is the point at which the copy is done.
func (m *Move) End() Point {
	if m == nil {
		return Point{}
	}
	return m.end
}

// Wait waits on the host until the copy is done. Waiting again, or for nil, returns the same at once. After an error other than
// [flash.ErrDeviceLost] and [flash.ErrClosed] the copy may still be going on: its memory is kept.
func (m *Move) Wait() (err error) {
	if m == nil || m.mover == nil {
		return nil
	}
	defer within.During("Move.Wait", &err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.err = within.Fail(m.mover.dev, m.mover.env.Ctx.Reach(m.end))
		m.ended = true
		if m.err == nil || errors.Is(m.err, flash.ErrDeviceLost) || errors.Is(m.err, flash.ErrClosed) {
			m.host.moving.Done()
			within.Ended(m.of)
		} else {
			m.host.keep(m.err) // and the tensor counts as busy
		}
	}
	return m.err
}

// StartToHost is ToHost that begins after a point and does not wait for its end. Copies of one direction are done in the order of their
// calls.
func (m *Mover) StartToHost(ctx context.Context, to *Memory, at uint64, from *flash.Tensor, offset, n uint64,
	after Point) (_ *Move, err error) {
	defer within.During("Mover.StartToHost", &err)
	return m.start(ctx, to, at, from, offset, n, after, func(b *vk.Buffer, t pipeline.Binding) (Point, error) {
		return m.from.Start(b, at, t.Buffer, t.Offset, n, after)
	}, m.ToHost)
}

// StartToDevice is ToDevice that begins after a point and does not wait for its end. Work of the device that uses the tensor begins after
// the move's end by After, or is submitted after its Wait.
func (m *Mover) StartToDevice(ctx context.Context, to *flash.Tensor, offset uint64, from *Memory, at, n uint64,
	after Point) (_ *Move, err error) {
	defer within.During("Mover.StartToDevice", &err)
	return m.start(ctx, from, at, to, offset, n, after, func(b *vk.Buffer, t pipeline.Binding) (Point, error) {
		return m.to.Start(t.Buffer, t.Offset, b, at, n, after)
	}, func(ctx context.Context, h *Memory, at uint64, t *flash.Tensor, offset, n uint64) error {
		return m.ToDevice(ctx, t, offset, h, at, n)
	})
}

// start submits a copy, or where that cannot be waits and copies.
func (m *Mover) start(ctx context.Context, h *Memory, at uint64, t *flash.Tensor, offset, n uint64, after Point,
	submit func(*vk.Buffer, pipeline.Binding) (Point, error),
	now func(context.Context, *Memory, uint64, *flash.Tensor, uint64, uint64) error) (*Move, error) {
	b, place, err := m.hold(ctx, h, at, t, offset, n)
	if err != nil {
		return nil, err
	}
	if b == nil || !m.Ordered() { // by way of staging buffers, or with a fence
		release(h, t)
		if err := m.env.Ctx.Reach(after); err != nil {
			return nil, within.Fail(m.dev, err)
		}
		return nil, now(ctx, h, at, t, offset, n)
	}
	end, err := submit(b, place)
	if err != nil {
		release(h, t)
		return nil, within.Fail(m.dev, fmt.Errorf("flash: a copy beside kernels: %w", err))
	}
	within.Begun(t)
	return &Move{mover: m, host: h, of: t, end: end}, nil
}
