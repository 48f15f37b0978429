package vk

import (
	"fmt"
	"sync/atomic"
)

// CommandPool hands out command buffers of the device's queue family.
type CommandPool struct {
	object  // recording into any of a pool's buffers uses the pool alone
	buffers map[*CommandBuffer]struct{}
}

type commandState uint8

const (
	commandInitial commandState = iota
	commandRecording
	commandExecutable
	commandSpent // submitted once, as it was begun for
)

func (s commandState) String() string {
	return [...]string{"empty", "recording", "recorded", "submitted once, as it was begun for"}[s]
}

// CommandBuffer is a primary command buffer.
type CommandBuffer struct {
	dev     *Device
	pool    *CommandPool // nil for a wrapped one
	handle  atomic.Uintptr
	state   commandState
	oneTime bool
}

// NewCommandPool makes a pool for the device's queue family.
func (d *Device) NewCommandPool() (*CommandPool, error) {
	if d == nil {
		return nil, ErrClosed
	}
	return d.NewCommandPoolFor(&d.queue)
}

// NewCommandPoolFor makes a pool for the family of one of the device's queues.
func (d *Device) NewCommandPoolFor(q *Queue) (*CommandPool, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var h uintptr
	if err := d.check("vkCreateCommandPool", d.table.createCommandPool(q.family, &h)); err != nil {
		return nil, err
	}
	p := &CommandPool{buffers: map[*CommandBuffer]struct{}{}}
	p.init(d, h)
	d.track(p)
	return p, nil
}

func (p *CommandPool) enter() error {
	if p == nil {
		return ErrClosed
	}
	return p.enterAlone()
}

func (p *CommandPool) leave() { p.leaveAlone() }

// Allocate makes an empty command buffer.
func (p *CommandPool) Allocate() (*CommandBuffer, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var h uintptr
	if err := p.dev.check("vkAllocateCommandBuffers", p.dev.table.allocateCommand(p.handle.Load(), &h)); err != nil {
		return nil, err
	}
	c := &CommandBuffer{dev: p.dev, pool: p}
	c.handle.Store(h)
	p.buffers[c] = struct{}{}
	return c, nil
}

// Reset empties all command buffers of the pool. None may be in use by the device.
func (p *CommandPool) Reset() error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	p.dev.emptying.RLock()
	defer p.dev.emptying.RUnlock()
	if err := p.dev.check("vkResetCommandPool", p.dev.table.resetCommandPool(p.handle.Load())); err != nil {
		return err
	}
	for c := range p.buffers {
		c.state = commandInitial
	}
	return nil
}

// Close destroys the pool and its command buffers. None may be in use by the device. A second call does nothing.
func (p *CommandPool) Close() error {
	if p != nil {
		p.dev.release(p)
	}
	return nil
}

func (p *CommandPool) destroy() {
	handle, done := p.take()
	defer done()
	for c := range p.buffers {
		c.handle.Store(0)
	}
	p.dev.table.destroyHandle(callDestroyCommandPool, handle)
	p.buffers = nil
}

// WrapCommandBuffer makes a CommandBuffer of somebody else's VkCommandBuffer. Only Execute may be called on it, while its
// owner is recording outside a render pass.
func WrapCommandBuffer(d *Device, handle uintptr) (*CommandBuffer, error) {
	if handle == 0 {
		return nil, argErr("WrapCommandBuffer", "handle", 0, "it must be a VkCommandBuffer")
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	d.leave()
	c := &CommandBuffer{dev: d, state: commandRecording}
	c.handle.Store(handle)
	return c, nil
}

// enter begins a call; want lists the states that it is allowed in.
func (c *CommandBuffer) enter(call string, want ...commandState) error {
	if c == nil {
		return ErrClosed
	}
	if err := c.dev.enter(); err != nil {
		return err
	}
	if c.pool != nil {
		c.pool.use.Lock()
	}
	if c.handle.Load() == 0 {
		c.leave()
		return ErrClosed
	}
	if c.pool == nil {
		if call != "Execute" {
			c.leave()
			return argErr("CommandBuffer."+call, "command buffer", "wrapped", "its owner must do that")
		}
		return nil
	}
	for _, s := range want {
		if c.state == s {
			return nil
		}
	}
	state := c.state
	c.leave()
	return argErr("CommandBuffer."+call, "command buffer", state, fmt.Sprintf("it must be %v", want[0]))
}

func (c *CommandBuffer) leave() {
	if c.pool != nil {
		c.pool.use.Unlock()
	}
	c.dev.leave()
}

// Begin starts recording; whatever was recorded before is gone. oneTime promises that it is submitted once.
func (c *CommandBuffer) Begin(oneTime bool) error {
	if err := c.enter("Begin", commandInitial, commandExecutable, commandSpent); err != nil {
		return err
	}
	defer c.leave()
	c.dev.emptying.RLock()
	defer c.dev.emptying.RUnlock()
	if err := c.dev.check("vkBeginCommandBuffer", c.dev.table.beginCommand(c.handle.Load(), oneTime)); err != nil {
		return err
	}
	c.state, c.oneTime = commandRecording, oneTime
	return nil
}

// Execute records a stream. It allocates nothing. The stream is not changed and may be executed again.
func (c *CommandBuffer) Execute(s *Stream) error {
	if s.err != nil {
		return s.err
	}
	if len(s.words) == 0 {
		return nil
	}
	if s.labels != 0 {
		return argErr("CommandBuffer.Execute", "stream", fmt.Sprintf("%d labels open", s.labels), "every Label needs its EndLabel")
	}
	if err := c.enter("Execute", commandRecording); err != nil {
		return err
	}
	defer c.leave()
	if s.dev != nil && s.dev != c.dev {
		return argErr("CommandBuffer.Execute", "stream", "of another device", "it must be of the command buffer's device")
	}
	at := c.dev.table.execute(c.handle.Load(), s.words)
	if at >= 0 {
		return fmt.Errorf("vk: CommandBuffer.Execute: word %d of the stream is no command", at)
	}
	return nil
}

// End finishes recording; the command buffer may then be submitted.
func (c *CommandBuffer) End() error {
	if err := c.enter("End", commandRecording); err != nil {
		return err
	}
	defer c.leave()
	if err := c.dev.check("vkEndCommandBuffer", c.dev.table.endCommand(c.handle.Load())); err != nil {
		return err
	}
	c.state = commandExecutable
	return nil
}

// Reset empties the command buffer, which must not be in use by the device.
func (c *CommandBuffer) Reset() error {
	if err := c.enter("Reset", commandInitial, commandRecording, commandExecutable, commandSpent); err != nil {
		return err
	}
	defer c.leave()
	c.dev.emptying.RLock()
	defer c.dev.emptying.RUnlock()
	if err := c.dev.check("vkResetCommandBuffer", c.dev.table.resetCommand(c.handle.Load())); err != nil {
		return err
	}
	c.state = commandInitial
	return nil
}

// Handle returns the VkCommandBuffer, 0 after Close.
func (c *CommandBuffer) Handle() uintptr { return c.handle.Load() }

// Device returns the device that the command buffer belongs to.
func (c *CommandBuffer) Device() *Device { return c.dev }

// Close gives the command buffer back to its pool. It must not be in use by the device. A second call does nothing, nor
// does any call on a wrapped one.
func (c *CommandBuffer) Close() error {
	if c == nil || c.pool == nil {
		return nil
	}
	p := c.pool
	p.dev.life.RLock()
	defer p.dev.life.RUnlock()
	p.use.Lock()
	defer p.use.Unlock()
	if c.handle.Load() == 0 || p.handle.Load() == 0 || p.dev.closed {
		return nil
	}
	delete(p.buffers, c)
	p.dev.table.freeCommand(p.handle.Load(), c.handle.Load())
	c.handle.Store(0)
	return nil
}
