package vk

import "fmt"

// DescriptorPool hands out descriptor sets of storage buffers.
type DescriptorPool struct {
	object
	epoch uint32 // counts resets, so that sets from before are recognized
}

// DescriptorSet is the set 0 of a pipeline, valid until its pool is reset or closed. The zero value is no set.
type DescriptorSet struct {
	pool     *DescriptorPool
	handle   uintptr
	epoch    uint32
	bindings int
}

// BufferBinding is the part of a buffer that a storage binding sees.
type BufferBinding struct {
	Buffer       *Buffer
	Offset, Size uint64 // bytes; Offset a multiple of Limits.MinStorageBufferAlignment
}

// NewDescriptorPool makes room for a number of sets with a number of storage buffers among them.
func (d *Device) NewDescriptorPool(sets, storageBuffers int) (*DescriptorPool, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	const most = 1 << 24
	if sets < 1 || sets > most {
		return nil, argErr("NewDescriptorPool", "sets", sets, fmt.Sprintf("it must be between 1 and %d", most))
	}
	if storageBuffers < 1 || storageBuffers > most {
		return nil, argErr("NewDescriptorPool", "storageBuffers", storageBuffers, fmt.Sprintf("it must be between 1 and %d", most))
	}
	var h uintptr
	if err := d.check("vkCreateDescriptorPool", d.table.createDescriptorPool(uint32(sets), uint32(storageBuffers), &h)); err != nil {
		return nil, err
	}
	p := &DescriptorPool{}
	p.init(d, h)
	d.track(p)
	return p, nil
}

func (p *DescriptorPool) enter() error {
	if p == nil {
		return ErrClosed
	}
	return p.enterAlone()
}

func (p *DescriptorPool) leave() { p.leaveAlone() }

// Allocate makes a set for a pipeline. A full pool gives ErrOutOfPoolMemory.
func (p *DescriptorPool) Allocate(c *ComputePipeline) (DescriptorSet, error) {
	if err := p.enter(); err != nil {
		return DescriptorSet{}, err
	}
	defer p.leave()
	if c == nil || c.dev != p.dev || c.sets == 0 || c.handle.Load() == 0 {
		return DescriptorSet{}, argErr("DescriptorPool.Allocate", "pipeline", "nil, closed, without bindings or of another device",
			"it must be an open pipeline of the same device with bindings")
	}
	var h uintptr
	if err := p.dev.check("vkAllocateDescriptorSets", p.dev.table.allocateDescriptorSet(p.handle.Load(), c.sets, &h)); err != nil {
		return DescriptorSet{}, err
	}
	return DescriptorSet{pool: p, handle: h, epoch: p.epoch, bindings: c.bindings}, nil
}

// Reset takes back all sets. Work that uses them must be done.
func (p *DescriptorPool) Reset() error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	p.epoch++
	return p.dev.check("vkResetDescriptorPool", p.dev.table.resetDescriptorPool(p.handle.Load()))
}

// Close destroys the pool and its sets. Work that uses them must be done. A second call does nothing.
func (p *DescriptorPool) Close() error {
	if p != nil {
		p.dev.release(p)
	}
	return nil
}

func (p *DescriptorPool) destroy() {
	handle, done := p.take()
	defer done()
	p.dev.table.destroyHandle(callDestroyDescriptorPool, handle)
	p.epoch++
}

// UpdateDescriptors points the bindings 0 to len(b)-1 of a set, which must be all it has, at parts of buffers. The set must
// not be in use by the device. Offsets are multiples of MinStorageBufferAlignment, sizes at most MaxStorageBufferRange.
func (d *Device) UpdateDescriptors(set DescriptorSet, b []BufferBinding) error {
	const call = "UpdateDescriptors"
	p := set.pool
	if p == nil || p.dev != d {
		return argErr(call, "set", "empty or of another device", "it must come from a pool of this device")
	}
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	if set.epoch != p.epoch {
		return argErr(call, "set", "from before its pool was reset", "it must be allocated anew")
	}
	if len(b) != set.bindings {
		return argErr(call, "len(b)", len(b), fmt.Sprintf("the set has %d bindings", set.bindings))
	}
	lim := &d.facts.Limits
	for i := range b {
		x := &b[i]
		if x.Buffer == nil || x.Buffer.handle.Load() == 0 || x.Buffer.dev != d {
			return argErr(call, fmt.Sprintf("b[%d].Buffer", i), "nil, closed or of another device",
				"it must be an open buffer of this device")
		}
		if x.Offset%lim.MinStorageBufferAlignment != 0 || x.Offset >= x.Buffer.capacity {
			return argErr(call, fmt.Sprintf("b[%d].Offset", i), x.Offset,
				fmt.Sprintf("it must be a multiple of %d within the buffer's %d bytes", lim.MinStorageBufferAlignment, x.Buffer.capacity))
		}
		if most := min(lim.MaxStorageBufferRange, x.Buffer.capacity-x.Offset); x.Size == 0 || x.Size > most {
			return argErr(call, fmt.Sprintf("b[%d].Size", i), x.Size, fmt.Sprintf("it must be between 1 and %d", most))
		}
	}
	d.table.updateDescriptors(set.handle, b)
	return nil
}
