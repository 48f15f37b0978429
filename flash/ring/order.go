package ring

import "github.com/vkattn/vkattn/flash/hostmem"

// How copies and kernels of a pass follow one another. Where the device has timeline semaphores its queues do it by themselves: a kernel
// begins after the copy that brings its block, a copy into a place after the kernels that read it, a copy out after the kernel that writes.
// Otherwise the host waits in between. What comes from another rank is the host's to wait for in either case, and then submits: no queue is
// told to wait for what is not submitted yet, so that a rank that dies leaves none waiting.

// written is what jobs write, before a copy that takes it.
type written struct {
	at hostmem.Point // up to which the device has done it, where queues wait
	by []job         // what the host waits for, where not
}

// written is for jobs that were submitted, the latest that there are.
func (w *pass) written(by []job) (x written, err error) {
	if w.err != nil {
		return x, w.err
	}
	if !w.mover.Ordered() {
		return written{by: append([]job(nil), by...)}, nil
	}
	x.at, err = w.mover.Mark()
	return x, err
}

// wait is the host's part of it.
func (x *written) wait() error {
	for _, j := range x.by {
		if err := j.done(); err != nil {
			return err
		}
	}
	return nil
}

// free says that a place which jobs read, the latest that there are, can be written to: as soon as they are done.
func (w *pass) free(r ready, by []job) error {
	x, err := w.written(by)
	if err == nil {
		err = x.wait()
	}
	if err == nil {
		r.is(x.at)
	}
	return err
}

// passed says that a step's work is submitted, the jobs from one on: the places of its blocks are free for the next then. The host goes no
// further ahead of the device than that: when it returns, the device has ended the steps before.
func (w *pass) passed(step, from int, of ...*exchange) error {
	ordered := w.mover.Ordered()
	for _, e := range of {
		if !ordered {
			break
		}
		if err := w.free(e.released[step], nil); err != nil {
			return err
		}
	}
	if err := w.settle(from); err != nil {
		return err
	}
	for _, e := range of {
		if !ordered && step > 0 {
			e.released[step-1].is(hostmem.Point{})
		}
	}
	return nil
}

// moves are copies under way, of which the host has one more submitted than it waits for: the device has the next when one ends.
type moves struct {
	last *hostmem.Move
	done func()
}

// add takes another, waits for the one before, and does what is to be done then. A copy that is nil has ended.
func (m *moves) add(next *hostmem.Move, done func()) error {
	if err := m.end(nil); err != nil {
		return orFirst(next.Wait(), err)
	}
	if m.last, m.done = next, done; next == nil {
		return m.end(nil)
	}
	return nil
}

// end waits for the last. It gives the error that there was, or its own.
func (m *moves) end(err error) error {
	last, done := m.last, m.done
	m.last, m.done = nil, nil
	if e := last.Wait(); err == nil {
		err = e
	}
	if err == nil && done != nil {
		done()
	}
	return err
}

// bringHome reads pieces of tensors into memory of the host, and says of each when it is there.
func (w *pass) bringHome(to *hostmem.Memory, pieces []piece, x written, there []ready) (err error) {
	if err := x.wait(); err != nil {
		return err
	}
	var copies moves
	defer func() { err = copies.end(err) }()
	for i, p := range pieces {
		m, err := w.mover.StartToHost(w.ctx, to, p.at, p.of, p.offset, p.n, x.at)
		if err != nil {
			return err
		}
		if err := copies.add(m, func() { there[i].is(hostmem.Point{}) }); err != nil {
			return err
		}
	}
	return nil
}
