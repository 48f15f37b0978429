package hostmem

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// Memory is memory of the host that devices copy from and to directly, without a copy in between: each device that moves it imports it,
// once, where it can (VK_EXT_external_memory_host, and no more than its largest allocation); others go by way of staging buffers. So two
// devices hand data to one another: one copies to it, and the other from it.
type Memory struct {
	bytes []byte // as long as was asked for
	all   []byte // aligned as imports want it

	moving   sync.WaitGroup // what Close waits for: a device of another goroutine may be moving it
	mu       sync.Mutex
	closed   bool
	stuck    error                        // a wait failed: a device may be copying still
	imported map[*flash.Device]*vk.Buffer // nil where the device cannot
	pin      *runtime.Pinner              // once a device keeps the address

	// Of memory that processes share:
	unmap      func() error // nil: the memory is Go's
	descriptor *Descriptor  // nil: no other process can open it
}

// importedMemory keeps what devices have imported until it is closed: memory that its owner has forgotten must not be collected under a
// device that still holds its address.
var importedMemory sync.Map // of *Memory

// hostAlignment is the largest that Vulkan lets a device ask for.
const hostAlignment = 64 << 10

// New allocates memory of the host, zeroed. The error is an [*flash.ArgumentError] where bytes is below 1.
func New(bytes int) (*Memory, error) {
	if bytes < 1 {
		return nil, badArgument("bytes", bytes, "must be at least 1")
	}
	n := aligned(bytes)
	raw := make([]byte, n+hostAlignment)
	m := &Memory{imported: map[*flash.Device]*vk.Buffer{}}
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (hostAlignment - 1)
	m.all = raw[skip : skip+n : skip+n]
	m.bytes = m.all[:bytes:bytes]
	return m, nil
}

// aligned is the bytes that imports want for so many.
func aligned(bytes int) int { return (bytes + hostAlignment - 1) / hostAlignment * hostAlignment }

// Bytes is the memory. What a device copies to or from it meanwhile must be left alone. Those of memory that processes share ([NewShared],
// [Open]) are nil after Close, and what was got before must not be touched any more.
func (m *Memory) Bytes() []byte {
	if m == nil {
		return nil
	}
	if m.unmap != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.closed {
			return nil
		}
	}
	return m.bytes
}

// Close ends the imports by devices, so that the memory can be collected; what processes share is unmapped, here alone. It waits for moves
// under way first (for a [Move], until its Wait); later ones fail. Memory that a copy may still use, because waiting for it failed, is kept
// for good, and the error says so. Closing again, or nil, does nothing.
func (m *Memory) Close() error {
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
	if m.unmap != nil && err == nil {
		err = m.unmap()
	}
	return err
}

// hold keeps Close waiting until a call of moving.Done.
func (m *Memory) hold() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%w: Memory", flash.ErrClosed)
	}
	m.moving.Add(1)
	return nil
}

// keep notes that a copy may not have ended.
func (m *Memory) keep(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck == nil {
		m.stuck = why
	}
	m.moving.Done()
}

// on gives memory that is held as a buffer of a device, nil where the device cannot import it.
func (m *Memory) on(d *flash.Device, dev *vk.Device) (*vk.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, known := m.imported[d]; known {
		return b, nil
	}
	var b *vk.Buffer
	if dev.Enabled().ExternalMemoryHost {
		if m.pin == nil && m.unmap == nil {
			m.pin = new(runtime.Pinner)
			m.pin.Pin(&m.all[0])
			importedMemory.Store(m, nil)
		}
		var err error
		if b, err = dev.ImportHost(m.all); errors.Is(err, vk.ErrDeviceLost) || errors.Is(err, vk.ErrClosed) {
			return nil, err
		}
	}
	m.imported[d] = b
	return b, nil
}
