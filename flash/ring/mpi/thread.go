//go:build mpi && cgo

package mpi

import (
	"runtime"
	"sync/atomic"
	"time"
)

// thread is the goroutine that owns MPI. It starts requests and tests them until they are done; nobody else calls MPI.
type thread struct {
	lib    *library
	calls  chan func()
	active []*request
	spare  []*request
	ended  bool
}

// request is a nonblocking operation. Its memory is freed by who waits for it, or where that has given up, once MPI is done with it.
type request struct {
	op     op
	rank   int // the other one, −1 for all
	done   chan struct{}
	err    error          // once done
	then   func(*request) // if set, runs on the thread when the request is done, which owns the memory then
	parted atomic.Bool    // one of the two is done with the memory
}

func newRequest(size, rank int) *request {
	return &request{op: newOp(size), rank: rank, done: make(chan struct{})}
}

// release is called by both who use the memory: the second frees it.
func (r *request) release() {
	if r.parted.Swap(true) {
		r.op.free()
	}
}

// Between tests without result: a thread that finds nothing for long sleeps longer.
const (
	spins      = 100
	shortSleep = 30 * time.Microsecond
	longSleep  = time.Millisecond
	patience   = 20000 // short sleeps
)

// run is the thread's loop, from MPI's first call to its last.
func (t *thread) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for idle := 0; !t.ended; {
		if t.called() || t.test() {
			idle = 0
			continue
		}
		idle++
		sleep := shortSleep
		switch {
		case len(t.active) > 1 && idle < spins:
			runtime.Gosched()
			continue
		case len(t.active) <= 1 || idle > patience: // what others say of themselves is always waited for
			sleep = longSleep
		}
		timer.Reset(sleep)
		select {
		case f := <-t.calls:
			f()
			idle = 0
		case <-timer.C:
		}
	}
}

// called does what others ask for, and says whether there was anything.
func (t *thread) called() bool {
	some := false
	for !t.ended {
		select {
		case f := <-t.calls:
			f()
			some = true
			continue
		default:
		}
		break
	}
	return some
}

// test asks for every request whether it is done, and says whether one was.
func (t *thread) test() bool {
	some := false
	all := t.active
	t.active, t.spare = t.spare[:0], all // what one starts when it is done is for the next time
	for _, r := range all {
		done, err := t.lib.test(r.op, r.rank)
		if !done && err == nil {
			t.active = append(t.active, r)
			continue
		}
		some = true
		t.finish(r, err)
	}
	return some
}

func (t *thread) finish(r *request, err error) {
	r.err = err
	close(r.done)
	if r.then != nil {
		r.then(r)
		return
	}
	r.release()
}

// start begins a request, on the thread.
func (t *thread) start(r *request, call func(op) error) {
	if err := call(r.op); err != nil {
		t.finish(r, err)
		return
	}
	t.active = append(t.active, r)
}
