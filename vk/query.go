package vk

import "fmt"

// QueryPool holds timestamps.
type QueryPool struct {
	object
	count int
}

// NewQueryPool makes room for a number of timestamps. They must be reset in a stream before they are written. A queue
// without timestamps gives ErrUnsupported.
func (d *Device) NewQueryPool(timestamps int) (*QueryPool, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	const most = 1 << 24
	if timestamps < 1 || timestamps > most {
		return nil, argErr("NewQueryPool", "timestamps", timestamps, fmt.Sprintf("it must be between 1 and %d", most))
	}
	if d.queue.validBits == 0 {
		return nil, fmt.Errorf("vk: NewQueryPool: queue family %d of %q has no timestamps: %w", d.queue.family, d.facts.Name,
			ErrUnsupported)
	}
	var h uintptr
	if err := d.check("vkCreateQueryPool", d.table.createQueryPool(uint32(timestamps), &h)); err != nil {
		return nil, err
	}
	p := &QueryPool{count: timestamps}
	p.init(d, h)
	d.track(p)
	return p, nil
}

// Count returns the number of timestamps there is room for.
func (p *QueryPool) Count() int { return p.count }

// Results reads the timestamps from first on, in ticks, with the bits that are not valid cleared. One that is not written
// yet gives an error that matches NotReady.
func (p *QueryPool) Results(first int, dst []uint64) error {
	if p == nil {
		return ErrClosed
	}
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	if first < 0 || first+len(dst) > p.count {
		return argErr("QueryPool.Results", "first, len(dst)", [2]int{first, len(dst)},
			fmt.Sprintf("they must lie within %d queries", p.count))
	}
	if len(dst) == 0 {
		return nil
	}
	r := p.dev.table.queryResults(p.handle.Load(), uint32(first), dst)
	if err := p.dev.check("vkGetQueryPoolResults", r); err != nil {
		return err
	}
	if Result(r) == NotReady {
		return &CallError{Call: "vkGetQueryPoolResults", Result: NotReady}
	}
	for i := range dst {
		dst[i] &= p.mask()
	}
	return nil
}

// Nanoseconds returns the time from one timestamp to another, across one overflow of the counter.
func (p *QueryPool) Nanoseconds(from, to uint64) float64 {
	return float64((to-from)&p.mask()) * p.dev.facts.Limits.TimestampPeriod
}

func (p *QueryPool) mask() uint64 {
	if bits := p.dev.queue.validBits; bits < 64 {
		return 1<<bits - 1
	}
	return ^uint64(0)
}

// Close destroys the pool, which must not be part of unfinished work. A second call does nothing.
func (p *QueryPool) Close() error {
	if p != nil {
		p.dev.release(p)
	}
	return nil
}

func (p *QueryPool) destroy() {
	handle, done := p.take()
	defer done()
	p.dev.table.destroyHandle(callDestroyQueryPool, handle)
}
