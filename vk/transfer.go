package vk

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// mostTransfers is how many queues that only copy a device is opened with: one for each direction.
const mostTransfers = 2

// transferFamily picks the family of queues that copy and nothing else, which the device's copy engines serve beside its computing ones,
// and how many of them; none where there is no such family.
func transferFamily(f *Facts, compute uint32) (family uint32, queues int) {
	for i, q := range f.Queues {
		if uint32(i) == compute || q.Flags&QueueTransfer == 0 || q.Flags&(QueueCompute|QueueGraphics) != 0 || q.Count == 0 {
			continue
		}
		if n := min(int(q.Count), mostTransfers); n > queues { // the first of those with most: families with other purposes come later
			family, queues = uint32(i), n
		}
	}
	return family, queues
}

// initTransfers takes the queues that only copy.
func (d *Device) initTransfers(family uint32, n int) error {
	if n == 0 {
		return nil
	}
	d.table.families = []uint32{d.queue.family, family}
	for i := range n {
		q := &Queue{dev: d, family: family, validBits: d.facts.Queues[family].TimestampValidBits}
		q.handle = d.table.queue(family, uint32(i))
		d.table.hookHandle(q.handle)
		d.transfers = append(d.transfers, q)
	}
	return nil
}

// TransferQueues are the queues that copy beside the device's own: up to two, none unless DeviceOptions.Copies asked for them.
func (d *Device) TransferQueues() []*Queue {
	if d == nil {
		return nil
	}
	return d.transfers
}

// ImportHost makes a buffer of memory of the host, for copies. The memory must begin at a multiple of MinImportedHostAlignment and be a
// multiple of it long, must not move, and must outlive the buffer. Several devices may import the same. It needs the feature
// ExternalMemoryHost.
func (d *Device) ImportHost(memory []byte) (*Buffer, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	align := max(d.facts.Limits.MinImportedHostAlignment, 1)
	if !d.enabled.ExternalMemoryHost {
		return nil, fmt.Errorf("vk: ImportHost: the feature ExternalMemoryHost is not enabled: %w", ErrUnsupported)
	}
	if len(memory) == 0 || uint64(len(memory))%align != 0 || uint64(abi.AddressOf(memory))%align != 0 {
		return nil, argErr("ImportHost", "memory", fmt.Sprintf("%d bytes", len(memory)),
			fmt.Sprintf("beginning and length must be multiples of %d, and it must not be empty", align))
	}
	b := &Buffer{size: uint64(len(memory)), capacity: uint64(len(memory)), kind: Readback}
	b.dev = d
	if err := b.importHost(memory); err != nil {
		return nil, err
	}
	d.track(b)
	return b, nil
}

func (b *Buffer) importHost(memory []byte) (err error) {
	d := b.dev
	detail := fmt.Sprintf("%d bytes of the host", b.size)
	var c nativeBuffer
	if err := d.checkFor("vkCreateBuffer", d.table.createHostBuffer(b.size, &c), detail); err != nil {
		return err
	}
	b.handle.Store(c.handle)
	defer func() {
		if err != nil {
			b.destroy()
		}
	}()
	if c.size > b.size {
		return fmt.Errorf("vk: device %q wants %d bytes for a buffer of %d bytes of the host: %w", d.facts.Name, c.size, b.size,
			ErrUnsupported)
	}
	var bits uint32
	if err := d.checkFor("vkGetMemoryHostPointerPropertiesEXT", d.table.hostTypes(memory, &bits),
		detail); err != nil {
		return err
	}
	err = fmt.Errorf("vk: device %q has no type for memory of the host: %w", d.facts.Name, ErrUnsupported)
	for _, t := range d.memoryTypes(Readback, c.typeBits&bits) {
		if d.facts.MemoryTypes[t].Flags&MemoryHostCoherent == 0 {
			continue // it is not mapped, so that nothing could be flushed
		}
		var m uintptr
		if err = d.checkFor("vkAllocateMemory", d.table.importHost(memory, uint32(t), &m), detail); err == nil {
			b.memory, b.coherent = m, true
			break
		}
		if errors.Is(err, ErrDeviceLost) {
			return err
		}
	}
	if err != nil {
		return err
	}
	return d.check("vkBindBufferMemory", d.table.bindMemory(c.handle, b.memory))
}
