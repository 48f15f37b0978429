package pipeline

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/vk"
)

// Copier copies between buffers beside the device's other work: on a queue that only copies where there is one, else on the device's own.
// One copy at a time, or with points (Start) several, one behind the other. What it copies from must have been written by work that was
// waited for, by the host or up to a point, or by an earlier submission of the same queue.
type Copier struct {
	ctx   *Context
	queue *vk.Queue

	mu     sync.Mutex
	pool   *vk.CommandPool
	cmd    [1]*vk.CommandBuffer
	fence  *vk.Fence
	stream vk.Stream
	stuck  bool // a wait failed: the device may be copying

	points *timeline
	slots  [copiesAtOnce]copySlot
	next   int // slot
}

// copiesAtOnce is how many copies a copier has submitted and not ended, at most: one goes on while the host hears of the one before.
const copiesAtOnce = 4

// copySlot is a command buffer, and when it can be used again.
type copySlot struct {
	cmd [1]*vk.CommandBuffer
	end Point
}

// NewCopier makes a copier on the n-th of the queues that only copy, or on one that does as well.
func (c *Context) NewCopier(n int) (*Copier, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if err := c.runs(); err != nil {
		return nil, err
	}
	p := &Copier{ctx: c, queue: c.dev.Queue()}
	if q := c.dev.TransferQueues(); len(q) > 0 {
		p.queue = q[n%len(q)]
	}
	err := p.make()
	if err != nil {
		err = errors.Join(err, p.Close())
	}
	return p, err
}

func (p *Copier) make() (err error) {
	if p.pool, err = p.ctx.dev.NewCommandPoolFor(p.queue); err != nil {
		return err
	}
	if p.cmd[0], err = p.pool.Allocate(); err != nil {
		return err
	}
	p.fence, err = p.ctx.dev.NewFence(false)
	return err
}

// Apart says whether copies have a queue of their own.
func (p *Copier) Apart() bool { return p != nil && p.ctx != nil && p.queue != p.ctx.dev.Queue() }

// Copy copies size bytes and waits until they are there: for the host, and for all work that is submitted later. After
// ErrUnended the device may still be copying.
func (p *Copier) Copy(dst *vk.Buffer, dstOffset uint64, src *vk.Buffer, srcOffset, size uint64) error {
	if p == nil {
		return ErrClosed
	}
	if err := p.ctx.enter(); err != nil {
		return err
	}
	defer p.ctx.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck || p.fence == nil {
		return fmt.Errorf("pipeline: Copier: an earlier copy may not have ended: %w", ErrInFlight)
	}
	if err := p.record(p.cmd[0], dst, dstOffset, src, srcOffset, size); err != nil {
		return err
	}
	if err := p.fence.Reset(); err != nil {
		return err
	}
	if err := p.queue.Submit(vk.Submission{Commands: p.cmd[:], Fence: p.fence}); err != nil {
		return err
	}
	return p.ended(p.ctx.Await(p.fence))
}

// ended takes note of a wait that failed.
func (p *Copier) ended(err error) error {
	p.stuck = p.stuck || err != nil && !errors.Is(err, vk.ErrDeviceLost) && !errors.Is(err, vk.ErrClosed)
	return err
}

// Start submits a copy that begins after a point, and gives the point at which it is done: for the host too. Copies are done in the order
// of their calls. It is for contexts with HasPoints; the host waits only where there are copiesAtOnce under way.
func (p *Copier) Start(dst *vk.Buffer, dstOffset uint64, src *vk.Buffer, srcOffset, size uint64, after Point) (Point, error) {
	if p == nil {
		return Point{}, ErrClosed
	}
	if err := p.ctx.enter(); err != nil {
		return Point{}, err
	}
	defer p.ctx.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck || p.fence == nil {
		return Point{}, fmt.Errorf("pipeline: Copier: an earlier copy may not have ended: %w", ErrInFlight)
	}
	if p.points == nil {
		var err error
		if p.points, err = newTimeline(p.ctx.dev); err != nil {
			return Point{}, err
		}
	}
	slot := &p.slots[p.next]
	if err := p.ended(p.ctx.reach(slot.end)); err != nil {
		return Point{}, err
	}
	if slot.cmd[0] == nil {
		var err error
		if slot.cmd[0], err = p.pool.Allocate(); err != nil {
			return Point{}, err
		}
	}
	if err := p.record(slot.cmd[0], dst, dstOffset, src, srcOffset, size); err != nil {
		return Point{}, err
	}
	end, err := p.points.submit(p.queue, slot.cmd[:], after)
	if err != nil {
		return Point{}, err
	}
	slot.end = end
	p.next = (p.next + 1) % len(p.slots)
	return end, nil
}

// record makes a command buffer of one copy. p.mu is held.
func (p *Copier) record(cmd *vk.CommandBuffer, dst *vk.Buffer, dstOffset uint64, src *vk.Buffer, srcOffset, size uint64) error {
	s := &p.stream
	s.Reset()
	// Of its own queue, what was submitted before; of others, what was waited for.
	s.Barrier(vk.StageAll, vk.AccessMemoryWrite, vk.StageTransfer, vk.AccessTransferRead|vk.AccessTransferWrite)
	s.Copy(dst, dstOffset, src, srcOffset, size)
	s.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost|vk.StageAll, vk.AccessHostRead|vk.AccessMemoryRead)
	if err := s.Err(); err != nil {
		return err
	}
	if err := cmd.Reset(); err != nil {
		return err
	}
	if err := cmd.Begin(true); err != nil {
		return err
	}
	if err := cmd.Execute(s); err != nil {
		return err
	}
	return cmd.End()
}

// Close frees the copier. Closing again, or nil, does nothing.
func (p *Copier) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.slots {
		_ = p.ended(p.ctx.reach(p.slots[i].end))
		p.slots[i].end = Point{}
	}
	if p.stuck {
		return ErrInFlight // the device's Close frees it
	}
	if p.points != nil { // which other queues may have been told to wait for
		if err := p.ctx.dev.WaitIdle(); err != nil && !errors.Is(err, vk.ErrDeviceLost) && !errors.Is(err, vk.ErrClosed) {
			return err
		}
	}
	err := errors.Join(p.fence.Close(), p.pool.Close(), p.points.close())
	p.fence, p.pool, p.points = nil, nil, nil
	return err
}
