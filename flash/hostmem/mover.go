package hostmem

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Mover copies between tensors and memory of the host, beside the device's other work where the device has queues for that and was opened
// with [flash.WithCopyQueues]: one copy in each direction at a time. ToHost and ToDevice wait for no work of the device, and none waits for
// them: a tensor that is read must have been written by work that was waited for. StartToHost and StartToDevice do without the host where
// queues can wait for one another (Ordered). It may be used from several goroutines.
type Mover struct {
	dev  *flash.Device
	env  *kernel.Env
	to   *pipeline.Copier // the device
	from *pipeline.Copier
}

// NewMover makes a mover. It lives until its own Close, or the device's.
func NewMover(d *flash.Device) (_ *Mover, err error) {
	defer within.During("NewMover", &err)
	env, err := within.Env(d)
	if err != nil {
		return nil, err
	}
	m := &Mover{dev: d, env: env}
	if m.to, err = env.Ctx.NewCopier(0); err != nil {
		return nil, within.Fail(d, err)
	}
	if m.from, err = env.Ctx.NewCopier(1); err != nil {
		return nil, errors.Join(within.Fail(d, err), m.to.Close())
	}
	return m, nil
}

// made says why a mover that no device made cannot be used.
func (m *Mover) made() error {
	if m == nil || m.dev == nil {
		return badArgument("Mover", "nil or zero", "must come from hostmem.NewMover")
	}
	_, err := within.Env(m.dev)
	return err
}

// Apart says whether copies have queues of their own, so that they go on beside kernels.
func (m *Mover) Apart() bool { return m.made() == nil && m.to.Apart() }

// Imports says whether the device copies from and to a memory of the host without a copy in between.
func (m *Mover) Imports(h *Memory) bool {
	if m.made() != nil || h == nil || h.all == nil || h.hold() != nil {
		return false
	}
	defer h.moving.Done()
	b, err := h.on(m.dev, m.env.Dev)
	return b != nil && err == nil
}

// ToHost copies n bytes of a tensor's, from an offset in it on, to an offset in memory of the host, and waits.
func (m *Mover) ToHost(ctx context.Context, to *Memory, at uint64, from *flash.Tensor, offset, n uint64) (err error) {
	defer within.During("Mover.ToHost", &err)
	return m.move(ctx, to, at, from, offset, n, func(b *vk.Buffer, t pipeline.Binding) error {
		if b == nil {
			return m.env.Ctx.Download(ctx, t, to.bytes[at:at+n])
		}
		return m.from.Copy(b, at, t.Buffer, t.Offset, n)
	})
}

// ToDevice copies n bytes of memory of the host's to a tensor, from an offset in it on, and waits.
func (m *Mover) ToDevice(ctx context.Context, to *flash.Tensor, offset uint64, from *Memory, at, n uint64) (err error) {
	defer within.During("Mover.ToDevice", &err)
	return m.move(ctx, from, at, to, offset, n, func(b *vk.Buffer, t pipeline.Binding) error {
		if b == nil {
			return m.env.Ctx.Upload(ctx, t, from.bytes[at:at+n])
		}
		return m.to.Copy(t.Buffer, t.Offset, b, at, n)
	})
}

// move checks the two places and copies.
func (m *Mover) move(ctx context.Context, h *Memory, at uint64, t *flash.Tensor, offset, n uint64,
	copyIt func(*vk.Buffer, pipeline.Binding) error) error {
	b, place, err := m.hold(ctx, h, at, t, offset, n)
	if err != nil {
		return err
	}
	err = within.Fail(m.dev, copyIt(b, place))
	if errors.Is(err, pipeline.ErrUnended) {
		if b != nil {
			h.keep(err)
		} else { // staging buffers are the device's
			h.moving.Done()
		}
		within.Begun(t)
	} else {
		release(h, t)
	}
	if err != nil {
		return err
	}
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	return nil
}

// hold checks the two places and keeps their memory from being freed until release. The buffer is nil where the device cannot import the
// host's.
func (m *Mover) hold(ctx context.Context, h *Memory, at uint64, t *flash.Tensor, offset,
	n uint64) (b *vk.Buffer, place pipeline.Binding, err error) {
	if err := m.made(); err != nil {
		return nil, place, err
	}
	if ctx != nil && ctx.Err() != nil {
		return nil, place, fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	if h == nil || h.all == nil {
		return nil, place, badArgument("Memory", "nil or zero", "must come from hostmem.New")
	}
	d := m.dev
	of, place, err := within.Hold(t)
	if err != nil {
		return nil, place, err
	}
	if err := h.hold(); err != nil {
		within.Release(t)
		return nil, place, err
	}
	switch {
	case of != d:
		err = badArgument("Tensor", t, "must be of the mover's device")
	case n == 0 || offset > t.Bytes() || n > t.Bytes()-offset:
		err = badArgument("n", n, "must be at least 1, and within the %d bytes of the tensor from %d on", t.Bytes(), offset)
	case at > uint64(len(h.bytes)) || n > uint64(len(h.bytes))-at:
		err = badArgument("at", at, "must leave room for %d bytes among %d", n, len(h.bytes))
	default:
		if b, err = h.on(d, m.env.Dev); err != nil {
			err = within.Fail(d, err)
		}
	}
	if err != nil {
		release(h, t)
	}
	place.Offset, place.Size = place.Offset+offset, n
	return b, place, err
}

// release lets what hold kept be freed.
func release(h *Memory, t *flash.Tensor) {
	h.moving.Done()
	within.Release(t)
}

// Close frees the mover's queues of commands; nothing may be moving. Closing again, or nil, does nothing.
func (m *Mover) Close() (err error) {
	defer within.During("Mover.Close", &err)
	if m == nil || m.dev == nil {
		return nil
	}
	return errors.Join(m.to.Close(), m.from.Close())
}
