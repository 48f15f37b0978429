package vk

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// TimelinePoint is a value of a timeline semaphore, to wait for or to signal.
type TimelinePoint struct {
	Semaphore *TimelineSemaphore
	Value     uint64 // reached when the semaphore's is at least this
}

// Submission is work for the queue: it starts when all Wait points are reached, and when it is done reaches the Signal
// points and signals the fence.
type Submission struct {
	Commands []*CommandBuffer // ended, in this order
	Wait     []TimelinePoint
	Signal   []TimelinePoint
	Fence    *Fence // unsignaled; may be nil

	WaitBinary, SignalBinary []*Semaphore // waited for and signaled besides
}

// Queue is the device's queue. It is safe for concurrent use.
type Queue struct {
	dev       *Device
	handle    uintptr
	family    uint32
	validBits uint32

	mu      sync.Mutex
	scratch []uint64
	used    bool // something was submitted
}

// Handle returns the VkQueue.
func (q *Queue) Handle() uintptr { return q.handle }

// Family returns the queue family.
func (q *Queue) Family() uint32 { return q.family }

// TimestampValidBits returns how many bits a timestamp has, 0 without timestamps.
func (q *Queue) TimestampValidBits() uint32 { return q.validBits }

// lock takes the caller's lock too, which may be one that a thread owns: the goroutine stays on its thread until unlock.
func (q *Queue) lock() {
	q.mu.Lock()
	if l := q.shared(); l != nil {
		runtime.LockOSThread()
		l.Lock()
	}
}

func (q *Queue) unlock() {
	if l := q.shared(); l != nil {
		l.Unlock()
		runtime.UnlockOSThread()
	}
	q.mu.Unlock()
}

// shared is the caller's lock of an attached queue, nil of others.
func (q *Queue) shared() sync.Locker {
	if q == &q.dev.queue {
		return q.dev.sharedLock
	}
	return nil
}

// Submit submits work. It allocates nothing once warm.
func (q *Queue) Submit(s Submission) error {
	const call = "Queue.Submit"
	d := q.dev
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	waits, signals := len(s.Wait)+len(s.WaitBinary), len(s.Signal)+len(s.SignalBinary)
	if waits > maxSemaphores || signals > maxSemaphores {
		return argErr(call, "len(Wait), len(Signal)", [2]int{waits, signals}, fmt.Sprintf("each must be at most %d", maxSemaphores))
	}
	var fence uintptr
	if s.Fence != nil {
		if s.Fence.dev != d || s.Fence.handle.Load() == 0 {
			return argErr(call, "Fence", "closed or of another device", "it must be an open fence of this device")
		}
		fence = s.Fence.handle.Load()
	}
	q.lock()
	defer q.unlock()
	q.scratch = q.scratch[:0]
	for i, c := range s.Commands {
		if c == nil || c.dev != d || c.handle.Load() == 0 {
			return argErr(call, fmt.Sprintf("Commands[%d]", i), "nil, closed or of another device",
				"it must be an open command buffer of this device")
		}
		if c.pool != nil && c.state != commandExecutable {
			return argErr(call, fmt.Sprintf("Commands[%d]", i), c.state, fmt.Sprintf("it must be %v", commandExecutable))
		}
		q.scratch = append(q.scratch, uint64(c.handle.Load()))
	}
	if err := q.appendPoints("Wait", s.Wait, s.WaitBinary); err != nil {
		return err
	}
	if err := q.appendPoints("Signal", s.Signal, s.SignalBinary); err != nil {
		return err
	}
	q.used = true
	signalsAt := len(s.Commands) + 2*waits
	r := d.table.submit(q.handle, &submission{commands: q.scratch[:len(s.Commands)], waits: q.scratch[len(s.Commands):signalsAt],
		signals: q.scratch[signalsAt:], timeline: len(s.Wait)+len(s.Signal) > 0, fence: fence})
	if err := d.check("vkQueueSubmit", r); err != nil {
		return err
	}
	for _, c := range s.Commands {
		if c.oneTime {
			c.state = commandSpent
		}
	}
	return nil
}

// appendPoints appends the semaphores and then their values to the scratch.
func (q *Queue) appendPoints(name string, points []TimelinePoint, binary []*Semaphore) error {
	for i, p := range points {
		if p.Semaphore == nil || p.Semaphore.dev != q.dev || p.Semaphore.handle.Load() == 0 {
			return argErr("Queue.Submit", fmt.Sprintf("%s[%d]", name, i), "nil, closed or of another device",
				"it must be an open semaphore of this device")
		}
		q.scratch = append(q.scratch, uint64(p.Semaphore.handle.Load()))
	}
	for i, b := range binary {
		if b == nil || b.dev != q.dev || b.handle.Load() == 0 {
			return argErr("Queue.Submit", fmt.Sprintf("%sBinary[%d]", name, i), "nil, closed or of another device",
				"it must be an open semaphore of this device")
		}
		q.scratch = append(q.scratch, uint64(b.handle.Load()))
	}
	for _, p := range points {
		q.scratch = append(q.scratch, p.Value)
	}
	for range binary {
		q.scratch = append(q.scratch, 0)
	}
	return nil
}

// WaitIdle waits until all work of the queue is done.
func (q *Queue) WaitIdle() error {
	if err := q.dev.enter(); err != nil {
		return err
	}
	defer q.dev.leave()
	return q.waitIdle()
}

func (q *Queue) waitIdle() error {
	q.lock()
	defer q.unlock()
	return q.dev.check("vkQueueWaitIdle", q.dev.table.waitQueueIdle(q.handle))
}

// waitSlice bounds one wait inside the driver, so that Close is not kept waiting by somebody who waits for ever.
const waitSlice = 100 * time.Millisecond

// waitSliced calls wait with slices of the timeout until it returns something else than Timeout; a negative timeout never ends.
func waitSliced(timeout time.Duration, wait func(ns uint64) (Result, error)) error {
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	for {
		slice := waitSlice
		if timeout >= 0 {
			slice = max(0, min(slice, time.Until(deadline)))
		}
		r, err := wait(uint64(slice))
		if err != nil {
			return err
		}
		if r != Timeout {
			return nil
		}
		if timeout >= 0 && !time.Now().Before(deadline) {
			return Timeout
		}
	}
}

// Fence is a VkFence.
type Fence struct{ object }

// NewFence makes a fence.
func (d *Device) NewFence(signaled bool) (*Fence, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var h uintptr
	if err := d.check("vkCreateFence", d.table.createFence(signaled, &h)); err != nil {
		return nil, err
	}
	f := &Fence{}
	f.init(d, h)
	d.track(f)
	return f, nil
}

func (f *Fence) enter() error {
	if f == nil {
		return ErrClosed
	}
	return f.object.enter()
}

// Wait waits until the fence is signaled. When the timeout passes first it returns [Timeout]; a negative timeout never ends.
func (f *Fence) Wait(timeout time.Duration) error {
	return waitSliced(timeout, func(ns uint64) (Result, error) {
		if err := f.enter(); err != nil {
			return 0, err
		}
		defer f.leave()
		r := f.dev.table.waitFence(f.handle.Load(), ns)
		return Result(r), f.dev.check("vkWaitForFences", r)
	})
}

// Signaled says whether the fence is signaled.
func (f *Fence) Signaled() (bool, error) {
	if err := f.enter(); err != nil {
		return false, err
	}
	defer f.leave()
	r := f.dev.table.fenceStatus(f.handle.Load())
	return Result(r) == Success, f.dev.check("vkGetFenceStatus", r)
}

// Reset makes the fence unsignaled. It must not be part of unfinished work.
func (f *Fence) Reset() error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	return f.dev.check("vkResetFences", f.dev.table.resetFence(f.handle.Load()))
}

// Close destroys the fence, which must not be part of unfinished work. A second call does nothing.
func (f *Fence) Close() error {
	if f != nil {
		f.dev.release(f)
	}
	return nil
}

func (f *Fence) destroy() {
	handle, done := f.take()
	defer done()
	f.dev.table.destroyHandle(callDestroyFence, handle)
}

// TimelineSemaphore is a semaphore with a value that only grows. It is safe for concurrent use until closed.
type TimelineSemaphore struct{ object }

// NewTimelineSemaphore makes a timeline semaphore; it needs the feature TimelineSemaphore.
func (d *Device) NewTimelineSemaphore(initial uint64) (*TimelineSemaphore, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if !d.enabled.TimelineSemaphore {
		return nil, fmt.Errorf("vk: NewTimelineSemaphore: the feature TimelineSemaphore is not enabled: %w", ErrUnsupported)
	}
	var h uintptr
	if err := d.check("vkCreateSemaphore", d.table.createTimeline(initial, &h)); err != nil {
		return nil, err
	}
	t := &TimelineSemaphore{}
	t.init(d, h)
	d.track(t)
	return t, nil
}

func (t *TimelineSemaphore) enter() error {
	if t == nil {
		return ErrClosed
	}
	return t.object.enter()
}

// Value returns the value reached.
func (t *TimelineSemaphore) Value() (uint64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.leave()
	var v uint64
	r := t.dev.table.timelineValue(t.handle.Load(), &v)
	return v, t.dev.check("vkGetSemaphoreCounterValue", r)
}

// Wait waits until the value is reached. When the timeout passes first it returns [Timeout]; a negative timeout never ends.
func (t *TimelineSemaphore) Wait(value uint64, timeout time.Duration) error {
	return waitSliced(timeout, func(ns uint64) (Result, error) {
		if err := t.enter(); err != nil {
			return 0, err
		}
		defer t.leave()
		r := t.dev.table.waitTimeline(t.handle.Load(), value, ns)
		return Result(r), t.dev.check("vkWaitSemaphores", r)
	})
}

// Signal sets the value from the host; it must be greater than the value reached and than all that submitted work signals.
func (t *TimelineSemaphore) Signal(value uint64) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	return t.dev.check("vkSignalSemaphore", t.dev.table.signalTimeline(t.handle.Load(), value))
}

// Handle returns the VkSemaphore, 0 after Close.
func (t *TimelineSemaphore) Handle() uintptr { return t.handle.Load() }

// Close destroys the semaphore, which must not be part of unfinished work. A second call does nothing.
func (t *TimelineSemaphore) Close() error {
	if t != nil {
		t.dev.release(t)
	}
	return nil
}

func (t *TimelineSemaphore) destroy() {
	handle, done := t.take()
	defer done()
	t.dev.table.destroyHandle(callDestroySemaphore, handle)
}
