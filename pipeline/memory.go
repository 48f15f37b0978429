package pipeline

import (
	"errors"
	"maps"
	"sync"

	"github.com/vkattn/vkattn/vk"
)

// Buffer is device memory that a Context counts, under a label, until Close.
type Buffer struct {
	*vk.Buffer
	ctx     *Context
	label   string
	counted uint64
	once    sync.Once
}

// Label says what the memory is for.
func (b *Buffer) Label() string {
	if b == nil {
		return ""
	}
	return b.label
}

// All binds the whole buffer.
func (b *Buffer) All() Binding {
	if b == nil || b.Buffer == nil {
		return Binding{}
	}
	return Binding{Buffer: b.Buffer, Size: b.Size()}
}

// Range binds size bytes from a byte offset on.
func (b *Buffer) Range(offset, size uint64) Binding {
	if b == nil {
		return Binding{}
	}
	return Binding{Buffer: b.Buffer, Offset: offset, Size: size}
}

// Write calls f with the buffer's bytes in host memory, which are there until f has returned: the context's Close waits for it. f must use
// no method of the context, or of a recording. Where the buffer is closed, or in the device's memory alone, f is not called and the error
// is ErrClosed.
func (b *Buffer) Write(f func(bytes []byte)) error {
	if b == nil || b.ctx == nil {
		return ErrClosed
	}
	if err := b.ctx.enter(); err != nil {
		return err
	}
	defer b.ctx.leave()
	bytes := b.Mapped()
	if bytes == nil {
		return ErrClosed
	}
	f(bytes)
	return nil
}

// Close frees the memory and takes it off the account. No recording that uses it may be in flight. Closing again does
// nothing.
func (b *Buffer) Close() {
	if b == nil || b.ctx == nil {
		return
	}
	b.once.Do(func() {
		_ = b.Buffer.Close() // frees in any case
		b.ctx.memory.release(b)
	})
}

// Usage is memory in bytes, as the device allocated it (alignment included).
type Usage struct {
	Current   uint64                // allocated now
	Peak      uint64                // highest Current since ResetPeak
	Asked     uint64                // what Current was asked for
	PeakAsked uint64                // highest Asked since ResetPeak
	ByLabel   map[string]LabelUsage // parts by what the memory is for
}

// LabelUsage is the part of Usage that bears one label.
type LabelUsage struct {
	Current uint64 // bytes allocated now
	Peak    uint64 // highest Current since ResetPeak
	Buffers int    // alive now
}

// account counts what a Context has allocated.
type account struct {
	mu            sync.Mutex
	current, peak uint64
	asked, top    uint64 // the same in bytes asked for
	labels        map[string]LabelUsage
	alive         map[*Buffer]struct{}
	perHeap       []uint64 // current bytes by heap, used where the device does not report its own
}

func (a *account) add(b *Buffer, heap int) {
	a.current += b.counted
	a.peak = max(a.peak, a.current)
	a.asked += b.Size()
	a.top = max(a.top, a.asked)
	l := a.labels[b.label]
	l.Current += b.counted
	l.Peak = max(l.Peak, l.Current)
	l.Buffers++
	a.labels[b.label] = l
	a.alive[b] = struct{}{}
	a.perHeap[heap] += b.counted
}

func (a *account) release(b *Buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.alive[b]; !ok {
		return
	}
	delete(a.alive, b)
	a.current -= b.counted
	a.asked -= b.Size()
	l := a.labels[b.label]
	l.Current -= b.counted
	l.Buffers--
	a.labels[b.label] = l
	a.perHeap[b.ctx.heapFor(b.Kind())] -= b.counted
}

// Usage returns what is allocated now and the high-water marks since ResetPeak.
func (c *Context) Usage() Usage {
	if c == nil {
		return Usage{}
	}
	a := &c.memory
	a.mu.Lock()
	defer a.mu.Unlock()
	return Usage{Current: a.current, Peak: a.peak, Asked: a.asked, PeakAsked: a.top, ByLabel: maps.Clone(a.labels)}
}

// ResetPeak sets all high-water marks to what is allocated now, and forgets labels that nothing bears any more.
func (c *Context) ResetPeak() {
	if c == nil {
		return
	}
	a := &c.memory
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peak, a.top = a.current, a.asked
	for name, l := range a.labels {
		if l.Buffers == 0 {
			delete(a.labels, name)
			continue
		}
		l.Peak = l.Current
		a.labels[name] = l
	}
}

// Alloc allocates a buffer of size bytes, counted under a label. An allocation that cannot succeed, because it passes a limit
// of the device or what is free in its memory, is refused before the device is asked, with a *MemoryError.
func (c *Context) Alloc(label string, size uint64, kind vk.MemoryKind) (*Buffer, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if label == "" {
		return nil, argErr("Alloc", "label", `""`, "it must say what the memory is for")
	}
	if size == 0 {
		return nil, argErr("Alloc "+label, "size", size, "it must be at least 1 byte")
	}
	// One allocation at a time: what is free is asked for and then taken.
	a := &c.memory
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := c.refuse(label, size, kind); err != nil {
		return nil, err
	}
	vb, err := c.dev.NewBuffer(size, kind)
	if err != nil {
		if errors.Is(err, vk.ErrOutOfDeviceMemory) || errors.Is(err, vk.ErrOutOfHostMemory) {
			free, _ := c.free(kind)
			return nil, &MemoryError{Label: label, Needed: size, Available: free, Rule: "free by the device's account, and it failed",
				Err: err}
		}
		return nil, err
	}
	b := &Buffer{Buffer: vb, ctx: c, label: label, counted: vb.AllocatedBytes()}
	a.add(b, c.heapFor(kind))
	return b, nil
}

// refuse returns why an allocation cannot succeed, or nil.
func (c *Context) refuse(label string, size uint64, kind vk.MemoryKind) error {
	l := &c.facts.Limits
	if m := l.MaxBufferSize; m != 0 && size > m {
		return &MemoryError{Label: label, Needed: size, Available: m, Rule: "the device's largest buffer"}
	}
	if m := l.MaxAllocationSize; m != 0 && size > m {
		return &MemoryError{Label: label, Needed: size, Available: m, Rule: "the device's largest allocation"}
	}
	if n := l.MaxAllocationCount; n != 0 && len(c.memory.alive) >= int(n) {
		return &MemoryError{Label: label, Needed: size, Rule: "left because all of the device's allocations are in use"}
	}
	if free, known := c.free(kind); known && size > free {
		return &MemoryError{Label: label, Needed: size, Available: free, Rule: "free in the device's memory"}
	}
	return nil
}

// free returns how many bytes this process may still allocate of a kind: the most that any heap with such memory has left.
func (c *Context) free(kind vk.MemoryKind) (free uint64, known bool) {
	return c.leftIn(c.heaps(), c.dev.Enabled().MemoryBudget, kind)
}

// leftIn is free of these heaps. Whether they say what is used is up to the device; else what the context allocated counts.
func (c *Context) leftIn(heaps []vk.Heap, budgeted bool, kind vk.MemoryKind) (free uint64, known bool) {
	for _, t := range c.facts.MemoryTypes {
		if !holds(t, kind) || int(t.Heap) >= len(heaps) {
			continue
		}
		h := heaps[t.Heap]
		limit, used := h.Budget, h.Usage
		if !budgeted {
			limit, used = h.Size, c.memory.perHeap[t.Heap]
		}
		free, known = max(free, limit-min(limit, used)), true
	}
	return free, known
}

// holds says whether memory of a type can serve a kind.
func holds(t vk.MemoryType, kind vk.MemoryKind) bool {
	const known = vk.MemoryDeviceLocal | vk.MemoryHostVisible | vk.MemoryHostCoherent | vk.MemoryHostCached
	want := vk.MemoryHostVisible
	if kind == vk.DeviceLocal {
		want = vk.MemoryDeviceLocal
	}
	return t.Flags&want != 0 && t.Flags&^known == 0
}

// heapFor returns the heap that a kind is charged to where the device does not keep account itself: the device's for
// device-local memory, else the first one that holds it outside the device, if there is any.
func (c *Context) heapFor(kind vk.MemoryKind) int {
	if kind == vk.DeviceLocal {
		return c.dev.DeviceHeap()
	}
	heap := c.dev.DeviceHeap()
	for _, t := range c.facts.MemoryTypes {
		if holds(t, kind) && t.Flags&vk.MemoryDeviceLocal == 0 {
			return int(t.Heap)
		}
	}
	return heap
}

// closeBuffers frees every buffer that is still alive; the context is closing.
func (c *Context) closeBuffers() {
	c.memory.mu.Lock()
	alive := make([]*Buffer, 0, len(c.memory.alive))
	for b := range c.memory.alive {
		alive = append(alive, b)
	}
	c.memory.mu.Unlock()
	for _, b := range alive {
		b.Close()
	}
}

// heaps returns the device's heaps with their budget of the moment, or as they were when it cannot say.
func (c *Context) heaps() []vk.Heap {
	if h, err := c.dev.HeapBudget(); err == nil && len(h) > 0 {
		return h
	}
	return c.facts.Heaps
}
