package pipeline

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vkattn/vkattn/vk"
)

// Point is a moment of a queue's work: it is reached once all that was submitted to the queue before is done. Other queues wait for it
// without the host. The zero Point is reached. It is a value of a timeline semaphore, which only grows.
//
// Points are made by submitting, and a queue is told to wait for points alone: so it waits for nothing that was not submitted before.
// Whatever becomes of the host, or of others that the host waits for, every queue goes on to its end, and no two queues wait for one
// another.
type Point struct {
	of    *timeline
	value uint64
}

// timeline gives the points of one queue.
type timeline struct {
	mu        sync.Mutex // held until a value's signal was submitted: values are signaled in order
	semaphore *vk.TimelineSemaphore
	value     uint64
}

func newTimeline(dev *vk.Device) (*timeline, error) {
	s, err := dev.NewTimelineSemaphore(0)
	if err != nil {
		return nil, err
	}
	return &timeline{semaphore: s}, nil
}

// submit submits commands to the queue, which begin after a point, and gives the point at which they are done.
func (t *timeline) submit(q *vk.Queue, commands []*vk.CommandBuffer, after Point) (Point, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := vk.Submission{Commands: commands, Signal: []vk.TimelinePoint{{Semaphore: t.semaphore, Value: t.value + 1}}}
	if after.of != nil {
		s.Wait = []vk.TimelinePoint{{Semaphore: after.of.semaphore, Value: after.value}}
	}
	if err := q.Submit(s); err != nil {
		return Point{}, err
	}
	t.value++
	return Point{t, t.value}, nil
}

func (t *timeline) close() error {
	if t == nil {
		return nil
	}
	return t.semaphore.Close()
}

// HasPoints says whether queues can wait for points: the device has timeline semaphores.
func (c *Context) HasPoints() bool {
	return c != nil && c.dev != nil && c.dev.Enabled().TimelineSemaphore
}

// Mark gives the point at which all work is done that was submitted to the device's queue so far.
func (c *Context) Mark() (Point, error) {
	if err := c.enter(); err != nil {
		return Point{}, err
	}
	defer c.leave()
	c.own.mu.Lock()
	var err error
	if c.own.timeline == nil {
		c.own.timeline, err = newTimeline(c.dev)
	}
	c.own.mu.Unlock()
	if err != nil {
		return Point{}, err
	}
	return c.own.timeline.submit(c.dev.Queue(), nil, Point{})
}

// After makes work that is submitted to the device's queue from now on begin after a point.
func (c *Context) After(p Point) error {
	if p.of == nil {
		return nil
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.dev.Queue().Submit(vk.Submission{Wait: []vk.TimelinePoint{{Semaphore: p.of.semaphore, Value: p.value}}})
}

// Reach waits, on the host, until a point is reached. Where the driver cannot wait, it waits for the device. An error other than a device
// that is lost or closed means that the work may not have ended.
func (c *Context) Reach(p Point) error {
	if p.of == nil {
		return nil
	}
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.reach(p)
}

func (c *Context) reach(p Point) error {
	if p.of == nil {
		return nil
	}
	err := p.of.semaphore.Wait(p.value, -1)
	if err == nil || errors.Is(err, vk.ErrDeviceLost) || errors.Is(err, vk.ErrClosed) {
		return err
	}
	if e := c.dev.WaitIdle(); e != nil {
		return fmt.Errorf("pipeline: a point may not have been reached: %w", errors.Join(err, e))
	}
	return nil
}
