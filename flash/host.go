package flash

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// HostMemory is memory of the host that devices copy from and to directly, without a copy in between: each device that moves it imports it,
// once, where it can (VK_EXT_external_memory_host, and no more than its largest allocation); others go by way of staging buffers. So two
// devices hand data to one another: one copies to it, and the other from it.
type HostMemory struct {
	bytes []byte // as long as was asked for
	all   []byte // aligned as imports want it

	moving   sync.WaitGroup // what Close waits for: a device of another goroutine may be moving it
	mu       sync.Mutex
	closed   bool
	stuck    error                  // a wait failed: a device may be copying still
	imported map[*Device]*vk.Buffer // nil where the device cannot
	pin      *runtime.Pinner        // once a device keeps the address
}

// importedMemory keeps what devices have imported until it is closed: memory that its owner has forgotten must not be collected under a
// device that still holds its address.
var importedMemory sync.Map // of *HostMemory

// hostAlignment is the largest that Vulkan lets a device ask for.
const hostAlignment = 64 << 10

// NewHostMemory allocates memory of the host, zeroed.
func NewHostMemory(bytes int) (*HostMemory, error) {
	if bytes < 1 {
		return nil, badArgument("bytes", bytes, "must be at least 1")
	}
	n := (bytes + hostAlignment - 1) / hostAlignment * hostAlignment
	raw := make([]byte, n+hostAlignment)
	m := &HostMemory{imported: map[*Device]*vk.Buffer{}}
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (hostAlignment - 1)
	m.all = raw[skip : skip+n : skip+n]
	m.bytes = m.all[:bytes:bytes]
	return m, nil
}

// Bytes is the memory. What a device copies to or from it meanwhile must be left alone.
func (m *HostMemory) Bytes() []byte {
	if m == nil {
		return nil
	}
	return m.bytes
}

// Close ends the imports by devices, so that the memory can be collected. It waits for moves under way first (for a [Move], until its
// Wait); later ones fail. Memory that a copy may still use, because waiting for it failed, is kept for good, and the error says so. Closing
// again, or nil, does nothing.
func (m *HostMemory) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.mu.Unlock()
	if again {
		return nil
	}
	m.moving.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck != nil {
		return fmt.Errorf("flash: memory of the host is kept, a device may be copying: %w", m.stuck)
	}
	var err error
	for _, b := range m.imported {
		err = errors.Join(err, b.Close())
	}
	m.imported = nil
	if m.pin != nil {
		m.pin.Unpin()
		importedMemory.Delete(m)
	}
	return err
}

// hold keeps Close waiting until a call of moving.Done.
func (m *HostMemory) hold() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%w: HostMemory", ErrClosed)
	}
	m.moving.Add(1)
	return nil
}

// keep notes that a copy may not have ended.
func (m *HostMemory) keep(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck == nil {
		m.stuck = why
	}
	m.moving.Done()
}

// on gives memory that is held as a buffer of a device, nil where the device cannot import it.
func (m *HostMemory) on(d *Device) (*vk.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, known := m.imported[d]; known {
		return b, nil
	}
	var b *vk.Buffer
	if d.dev.Enabled().ExternalMemoryHost {
		if m.pin == nil {
			m.pin = new(runtime.Pinner)
			m.pin.Pin(&m.all[0])
			importedMemory.Store(m, nil)
		}
		var err error
		if b, err = d.dev.ImportHost(m.all); errors.Is(err, vk.ErrDeviceLost) || errors.Is(err, vk.ErrClosed) {
			return nil, err
		}
	}
	m.imported[d] = b
	return b, nil
}

// Mover copies between tensors and memory of the host, beside the device's other work where the device has queues for that and was opened
// with [WithCopyQueues]: one copy in each direction at a time. ToHost and ToDevice wait for no work of the device, and none waits for them:
// a tensor that is read must have been written by work that was waited for. StartToHost and StartToDevice do without the host where queues
// can wait for one another (Ordered). It may be used from several goroutines.
type Mover struct {
	dev  *Device
	to   *pipeline.Copier // the device
	from *pipeline.Copier
}

// NewMover makes a mover. It lives until its own Close, or the device's.
func (d *Device) NewMover() (_ *Mover, err error) {
	defer during("NewMover", &err)
	if err := d.usable(); err != nil {
		return nil, err
	}
	m := &Mover{dev: d}
	if m.to, err = d.env.Ctx.NewCopier(0); err != nil {
		return nil, d.fail(err)
	}
	if m.from, err = d.env.Ctx.NewCopier(1); err != nil {
		return nil, errors.Join(d.fail(err), m.to.Close())
	}
	return m, nil
}

// made says why a mover that no device made cannot be used.
func (m *Mover) made() error {
	if m == nil || m.dev == nil {
		return badArgument("Mover", "nil or zero", "must come from Device.NewMover")
	}
	return m.dev.usable()
}

// Apart says whether copies have queues of their own, so that they go on beside kernels.
func (m *Mover) Apart() bool { return m.made() == nil && m.to.Apart() }

// Imports says whether the device copies from and to a memory of the host without a copy in between.
func (m *Mover) Imports(h *HostMemory) bool {
	if m.made() != nil || h == nil || h.all == nil || h.hold() != nil {
		return false
	}
	defer h.moving.Done()
	b, err := h.on(m.dev)
	return b != nil && err == nil
}

// ToHost copies n bytes of a tensor's, from an offset in it on, to an offset in memory of the host, and waits.
func (m *Mover) ToHost(ctx context.Context, to *HostMemory, at uint64, from *Tensor, offset, n uint64) (err error) {
	defer during("Mover.ToHost", &err)
	return m.move(ctx, to, at, from, offset, n, func(b *vk.Buffer, t pipeline.Binding) error {
		if b == nil {
			return m.dev.env.Ctx.Download(ctx, t, to.bytes[at:at+n])
		}
		return m.from.Copy(b, at, t.Buffer, t.Offset, n)
	})
}

// ToDevice copies n bytes of memory of the host's to a tensor, from an offset in it on, and waits.
func (m *Mover) ToDevice(ctx context.Context, to *Tensor, offset uint64, from *HostMemory, at, n uint64) (err error) {
	defer during("Mover.ToDevice", &err)
	return m.move(ctx, from, at, to, offset, n, func(b *vk.Buffer, t pipeline.Binding) error {
		if b == nil {
			return m.dev.env.Ctx.Upload(ctx, t, from.bytes[at:at+n])
		}
		return m.to.Copy(t.Buffer, t.Offset, b, at, n)
	})
}

// move checks the two places and copies.
func (m *Mover) move(ctx context.Context, h *HostMemory, at uint64, t *Tensor, offset, n uint64,
	copyIt func(*vk.Buffer, pipeline.Binding) error) error {
	b, place, err := m.hold(ctx, h, at, t, offset, n)
	if err != nil {
		return err
	}
	defer release(h, t)
	if err := copyIt(b, place); err != nil {
		return m.dev.fail(err)
	}
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	return nil
}

// hold checks the two places and keeps their memory from being freed until release. The buffer is nil where the device cannot import the
// host's.
func (m *Mover) hold(ctx context.Context, h *HostMemory, at uint64, t *Tensor, offset,
	n uint64) (b *vk.Buffer, place pipeline.Binding, err error) {
	if err := m.made(); err != nil {
		return nil, place, err
	}
	if ctx != nil && ctx.Err() != nil {
		return nil, place, fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	if h == nil || h.all == nil {
		return nil, place, badArgument("HostMemory", "nil or zero", "must come from NewHostMemory")
	}
	d := m.dev
	d.submitting.RLock()
	err = t.usable("Tensor")
	if err == nil {
		t.mem.busy.Add(1)
	}
	d.submitting.RUnlock()
	if err != nil {
		return nil, place, err
	}
	if err := h.hold(); err != nil {
		t.mem.busy.Add(-1)
		return nil, place, err
	}
	switch {
	case t.dev != d:
		err = badArgument("Tensor", t, "must be of the mover's device")
	case n == 0 || offset > t.Bytes() || n > t.Bytes()-offset:
		err = badArgument("n", n, "must be at least 1, and within the %d bytes of the tensor from %d on", t.Bytes(), offset)
	case at > uint64(len(h.bytes)) || n > uint64(len(h.bytes))-at:
		err = badArgument("at", at, "must leave room for %d bytes among %d", n, len(h.bytes))
	default:
		if b, err = h.on(d); err != nil {
			err = d.fail(err)
		}
	}
	if err != nil {
		release(h, t)
	}
	return b, pipeline.Binding{Buffer: t.mem.buf, Offset: t.layout.Offset + offset, Size: n}, err
}

// release lets what hold kept be freed.
func release(h *HostMemory, t *Tensor) {
	h.moving.Done()
	t.mem.busy.Add(-1)
}

// Close frees the mover's queues of commands; nothing may be moving. Closing again, or nil, does nothing.
func (m *Mover) Close() (err error) {
	defer during("Mover.Close", &err)
	if m == nil || m.dev == nil {
		return nil
	}
	return errors.Join(m.to.Close(), m.from.Close())
}
