package vk

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// MemoryKind says where a buffer's memory shall be.
type MemoryKind int

// The kinds of memory.
const (
	DeviceLocal MemoryKind = iota // fastest for the device; not mapped
	Upload                        // mapped, for the host to write in order
	Readback                      // mapped, for the host to read: cached where there is such memory
)

// String returns the kind's name.
func (k MemoryKind) String() string {
	switch k {
	case DeviceLocal:
		return "device-local"
	case Upload:
		return "upload"
	case Readback:
		return "readback"
	}
	return fmt.Sprintf("MemoryKind(%d)", int(k))
}

// bufferGranularity is what a buffer's size is rounded up to, so that its last element can be read with the widest load
// and fills, which need multiples of 4, reach its end.
const bufferGranularity = 16

// Buffer is a VkBuffer that storage bindings, indirect dispatches, copies and fills can use, with memory of its own unless it was wrapped.
type Buffer struct {
	object
	memory    uintptr
	size      uint64
	capacity  uint64 // of the VkBuffer
	allocated uint64
	kind      MemoryKind
	coherent  bool
	mapped    []byte
	foreign   bool
}

// NewBuffer makes a buffer of size bytes in memory of the kind. The memory's content is undefined.
func (d *Device) NewBuffer(size uint64, kind MemoryKind) (*Buffer, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if kind < DeviceLocal || kind > Readback {
		return nil, argErr("NewBuffer", "kind", kind, "it must be DeviceLocal, Upload or Readback")
	}
	lim := &d.facts.Limits
	most := min(lim.MaxBufferSize, lim.MaxAllocationSize)
	if size == 0 || size > most {
		return nil, argErr("NewBuffer", "size", size,
			fmt.Sprintf("it must be at least 1 and at most %d, the device's largest allocation", most))
	}
	b := &Buffer{size: size, kind: kind, capacity: min((size+bufferGranularity-1)&^(bufferGranularity-1), most)}
	b.dev = d
	if err := b.create(); err != nil {
		return nil, err
	}
	d.track(b)
	return b, nil
}

func (b *Buffer) create() (err error) {
	d := b.dev
	detail := fmt.Sprintf("%d bytes, %v", b.size, b.kind)
	address := d.enabled.BufferDeviceAddress
	var c nativeBuffer
	if err := d.checkFor("vkCreateBuffer", d.table.createBuffer(b.capacity, address, &c), detail); err != nil {
		return err
	}
	b.handle.Store(c.handle)
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	types := d.memoryTypes(b.kind, c.typeBits)
	if len(types) == 0 {
		return fmt.Errorf("vk: device %q has no %v memory for buffers: %w", d.facts.Name, b.kind, ErrUnsupported)
	}
	var memory uintptr
	for _, t := range types {
		err = d.checkFor("vkAllocateMemory", d.table.allocateMemory(c.size, uint32(t), address, &memory), detail)
		if err == nil {
			b.coherent = d.facts.MemoryTypes[t].Flags&MemoryHostCoherent != 0
			break
		}
		if !errors.Is(err, ErrOutOfDeviceMemory) && !errors.Is(err, ErrOutOfHostMemory) {
			return err
		}
	}
	if err != nil {
		return err
	}
	b.memory, b.allocated = memory, c.size
	if err := d.check("vkBindBufferMemory", d.table.bindMemory(c.handle, memory)); err != nil {
		return err
	}
	if b.kind != DeviceLocal {
		var p uintptr
		if err := d.check("vkMapMemory", d.table.mapMemory(memory, &p)); err != nil {
			return err
		}
		b.mapped = abi.Bytes(p, b.capacity)
	}
	return nil
}

// memoryTypes returns the usable memory types for the kind, best first.
func (d *Device) memoryTypes(kind MemoryKind, allowed uint32) []int {
	const known = MemoryDeviceLocal | MemoryHostVisible | MemoryHostCoherent | MemoryHostCached
	type candidate struct{ index, score int }
	var found []candidate
	for i, t := range d.facts.MemoryTypes {
		has := func(f MemoryFlags) int {
			if t.Flags&f != 0 {
				return 1
			}
			return 0
		}
		if allowed&(1<<i) == 0 || t.Flags&^known != 0 { // protected, lazily allocated, uncached by the device …
			continue
		}
		score := 0
		switch kind {
		case DeviceLocal:
			// Plain device memory before the window that the host can see, which may be small.
			score = 4*has(MemoryDeviceLocal) - has(MemoryHostVisible)
			if t.Flags&MemoryDeviceLocal == 0 {
				continue
			}
		case Upload:
			score = 4*has(MemoryHostCoherent) - 2*has(MemoryDeviceLocal) - has(MemoryHostCached)
		case Readback:
			score = 4*has(MemoryHostCached) + 2*has(MemoryHostCoherent) - has(MemoryDeviceLocal)
		}
		if kind != DeviceLocal && t.Flags&MemoryHostVisible == 0 {
			continue
		}
		found = append(found, candidate{i, score})
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return b.score - a.score })
	out := make([]int, len(found))
	for i, c := range found {
		out[i] = c.index
	}
	return out
}

// WrapBuffer makes a Buffer of somebody else's VkBuffer of at least size bytes, which must have been created with the usages
// storage, indirect, transfer source and transfer destination as far as they are used. Close forgets it.
func (d *Device) WrapBuffer(handle uintptr, size uint64) (*Buffer, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if handle == 0 {
		return nil, argErr("WrapBuffer", "handle", 0, "it must be a VkBuffer")
	}
	if size == 0 {
		return nil, argErr("WrapBuffer", "size", 0, "it must be at least 1")
	}
	b := &Buffer{size: size, capacity: size, foreign: true}
	b.init(d, handle)
	d.track(b)
	return b, nil
}

// Handle returns the VkBuffer, 0 after Close.
func (b *Buffer) Handle() uintptr {
	if b == nil {
		return 0
	}
	return b.handle.Load()
}

// Device returns the device that the buffer belongs to.
func (b *Buffer) Device() *Device {
	if b == nil {
		return nil
	}
	return b.dev
}

// Size returns the size that was asked for.
func (b *Buffer) Size() uint64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Capacity returns the size of the VkBuffer: Size rounded up to a multiple of 16, or Size where the buffer was wrapped.
// Bindings, copies and fills may reach up to it.
func (b *Buffer) Capacity() uint64 {
	if b == nil {
		return 0
	}
	return b.capacity
}

// AllocatedBytes returns what the buffer takes of the heap, 0 when wrapped.
func (b *Buffer) AllocatedBytes() uint64 {
	if b == nil {
		return 0
	}
	return b.allocated
}

// Kind returns the kind of memory; wrapped buffers count as DeviceLocal.
func (b *Buffer) Kind() MemoryKind {
	if b == nil {
		return 0
	}
	return b.kind
}

// Mapped returns the buffer's bytes in host memory, Capacity of them, nil for device-local buffers and after Close. It must
// not be touched after Close.
func (b *Buffer) Mapped() []byte {
	if b == nil || b.handle.Load() == 0 {
		return nil
	}
	return b.mapped
}

// DeviceAddress returns the address that shaders can use; it needs the feature BufferDeviceAddress.
func (b *Buffer) DeviceAddress() (uint64, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.leave()
	if !b.dev.enabled.BufferDeviceAddress {
		return 0, fmt.Errorf("vk: DeviceAddress: the feature BufferDeviceAddress is not enabled: %w", ErrUnsupported)
	}
	return b.dev.table.bufferAddress(b.handle.Load()), nil
}

// Flush makes what the host wrote to a range visible to the device. Coherent memory needs none and costs nothing.
func (b *Buffer) Flush(offset, size uint64) error {
	return b.sync("Flush", offset, size, func(offset, size uint64) error {
		return b.dev.check("vkFlushMappedMemoryRanges", b.dev.table.flushMemory(b.memory, offset, size))
	})
}

// Invalidate makes what the device wrote to a range visible to the host. Coherent memory needs none and costs nothing.
func (b *Buffer) Invalidate(offset, size uint64) error {
	return b.sync("Invalidate", offset, size, func(offset, size uint64) error {
		return b.dev.check("vkInvalidateMappedMemoryRanges", b.dev.table.invalidateMemory(b.memory, offset, size))
	})
}

func (b *Buffer) sync(call string, offset, size uint64, do func(offset, size uint64) error) error {
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	if b.mapped == nil {
		return argErr(call, "buffer", b.kind, "it must be mapped: of kind Upload or Readback")
	}
	if offset > b.capacity || (size != WholeSize && size > b.capacity-offset) {
		return argErr(call, "range", fmt.Sprintf("offset %d, size %d", offset, size),
			fmt.Sprintf("it must lie within the buffer's %d bytes", b.capacity))
	}
	if b.coherent || offset == b.capacity || size == 0 {
		return nil
	}
	first, n := wholeAtoms(offset, size, b.capacity, b.allocated, b.dev.facts.Limits.NonCoherentAtomSize)
	return do(first, n)
}

// wholeAtoms widens a range of a buffer to whole atoms of its memory, and to WholeSize where the last one would pass the
// end of the memory.
func wholeAtoms(offset, size, capacity, allocated, atom uint64) (first, n uint64) {
	end := capacity
	if size != WholeSize {
		end = offset + size
	}
	first = offset - offset%atom
	end = (end + atom - 1) / atom * atom
	if end >= allocated {
		return first, WholeSize
	}
	return first, end - first
}

// enter is the device's, and fails on a closed buffer.
func (b *Buffer) enter() error {
	if b == nil {
		return ErrClosed
	}
	return b.object.enter()
}

// Close destroys the buffer and frees its memory. Work that uses it must be done. A second call does nothing.
func (b *Buffer) Close() error {
	if b != nil {
		b.dev.release(b)
	}
	return nil
}

func (b *Buffer) destroy() {
	handle, done := b.take()
	defer done()
	if b.foreign {
		return
	}
	b.dev.emptying.Lock()
	b.dev.table.destroyBuffer(handle)
	b.dev.emptying.Unlock()
	b.dev.table.freeMemory(b.memory)
}
