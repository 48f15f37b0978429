//go:build mpi && cgo

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

const (
	piece = 4 << 20 // bytes of a message that go together
	ahead = 4       // pieces of a message that are under way
	grace = 250 * time.Millisecond
)

// gatherMost is the bytes of one MPI_Iallgatherv, which counts in int: longer gatherings are several. Tests make it small.
var gatherMost = 1 << 30

// comm is the process's Comm. A message is 8 bytes, its length, and its pieces, one behind the other by one route.
type comm struct {
	*thread
	lib   *library
	leave time.Duration

	failed   chan struct{} // closed when a rank has failed
	left     []departure
	someLeft chan struct{} // closed when the first other rank has left
	closed   chan struct{} // closed when this one has

	mu     sync.Mutex
	cause  error
	gone   int // ranks that left
	routes map[route]chan struct{}

	sent, received []atomic.Int64 // messages to and from each rank
	gatherings     atomic.Int64
	gathering      atomic.Bool
	closing        sync.Once
	closeErr       error
}

// departure is what a rank has said when it closed its Comm: how much it did before.
type departure struct {
	closed           chan struct{}
	sent, gatherings int64 // messages to this rank
}

type route struct {
	other int
	tag   ring.Tag
	in    bool
}

var opened atomic.Bool

func open(ctx context.Context, o Options) (Comm, error) {
	if opened.Swap(true) {
		return nil, ErrOpen
	}
	c := &comm{thread: &thread{calls: make(chan func(), 64)}, leave: o.Leave, failed: make(chan struct{}), someLeft: make(chan struct{}),
		closed: make(chan struct{}), routes: map[route]chan struct{}{}}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: MPI's thread ends with it
		lib, err := begin()
		if err == nil {
			c.lib, c.thread.lib = lib, lib
			c.left, c.sent, c.received = make([]departure, lib.size), make([]atomic.Int64, lib.size), make([]atomic.Int64, lib.size)
			for i := range c.left {
				c.left[i].closed = make(chan struct{})
			}
			c.listen()
		}
		ready <- err
		if err == nil {
			c.run()
		}
	}()
	select {
	case err := <-ready:
		if err != nil {
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("mpi: waiting for MPI to begin, which it does when every rank is there: %w", context.Cause(ctx))
	}
}

func (c *comm) Rank() int              { return c.lib.rank }
func (c *comm) Size() int              { return c.lib.size }
func (c *comm) Host() (rank, size int) { return c.lib.hostRank, c.lib.hostSize }

// failure is what calls return once a rank has failed; nil before.
func (c *comm) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// usable says why a call cannot begin.
func (c *comm) usable(call string) error {
	select {
	case <-c.closed:
		return fmt.Errorf("%w: mpi.Comm.%s", flash.ErrClosed, call)
	default:
		return c.failure()
	}
}

// fail makes every call of this rank fail, the first time, and where others are to hear of it, theirs.
func (c *comm) fail(rank int, cause error, tell bool) error {
	var known *ring.RankError
	if !errors.As(cause, &known) {
		known = &ring.RankError{Rank: rank, Err: cause}
	}
	c.mu.Lock()
	first := c.cause == nil
	if first {
		c.cause = known
		close(c.failed)
	}
	cause = c.cause
	c.mu.Unlock()
	if first && tell {
		c.say(func(int) notice { return notice{kind: saysFailed, rank: known.Rank, text: known.Err.Error()} })
	}
	return cause
}

// broken fails with an error of MPI.
func (c *comm) broken(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Rank >= 0 {
		return c.fail(e.Rank, err, true)
	}
	return c.fail(c.lib.rank, err, true)
}

// post has the thread do something.
func (c *comm) post(f func()) {
	select {
	case c.calls <- f:
	case <-c.closed:
	}
}

// wait waits for a request with another rank, or with all (−1), and frees it. Once ranks have left, vain says which of them it waits for in
// vain.
func (c *comm) wait(ctx context.Context, r *request, what string, other int, vain func() (rank int, is bool)) error {
	return c.fetch(ctx, r, what, other, vain, nil)
}

// fetch is wait, and copies what has come.
func (c *comm) fetch(ctx context.Context, r *request, what string, other int, vain func() (rank int, is bool), out []byte) error {
	defer r.release()
	left := c.someLeft
	if other >= 0 {
		left = c.left[other].closed
	}
	var tick <-chan time.Time
	for {
		select {
		case <-r.done:
			if r.err != nil {
				return c.broken(r.err)
			}
			copy(out, r.op.bytes())
			return nil
		case <-c.failed:
			return c.failure()
		case <-left:
			t := time.NewTicker(grace)
			defer t.Stop()
			left, tick = nil, t.C
		case <-tick:
			select {
			case <-r.done:
				continue
			default:
			}
			if rank, is := vain(); is {
				return c.fail(rank, errLeft, true)
			}
		case <-ctx.Done():
			if other < 0 {
				return fmt.Errorf("mpi: %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("mpi: %s rank %d: %w", what, other, context.Cause(ctx))
		}
	}
}

var errLeft = errors.New("it closed its Comm")

// take makes a route the caller's until the function that it gives is called, so that pieces of messages do not mix.
func (c *comm) take(ctx context.Context, r route, what string) (func(), error) {
	c.mu.Lock()
	lock := c.routes[r]
	if lock == nil {
		lock = make(chan struct{}, 1)
		c.routes[r] = lock
	}
	c.mu.Unlock()
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-c.failed:
		return nil, c.failure()
	case <-ctx.Done():
		return nil, fmt.Errorf("mpi: %s rank %d: %w", what, r.other, context.Cause(ctx))
	}
}

// check says what is wrong with the arguments of Send or Receive.
func (c *comm) check(call string, other int, tag ring.Tag) error {
	switch {
	case other < 0 || other >= c.lib.size || other == c.lib.rank:
		return badArgument(call+": rank", other, "must be another of the %d ranks than %d", c.lib.size, c.lib.rank)
	case tag < 0 || tag > ring.MaxTag:
		return badArgument(call+": tag", tag, "must be from 0 to %d", ring.MaxTag)
	}
	return c.usable(call)
}

func badArgument(name string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

func (c *comm) Send(ctx context.Context, to int, tag ring.Tag, data []byte) error {
	if err := c.check("Send", to, tag); err != nil {
		return err
	}
	const what = "sending to"
	free, err := c.take(ctx, route{to, tag, false}, what)
	if err != nil {
		return err
	}
	defer free()
	c.sent[to].Add(1)
	vain := func() (int, bool) { return to, true }
	post := func(r *request) {
		c.post(func() { c.start(r, func(o op) error { return c.lib.send(o, to, int(tag)) }) })
	}
	head := newRequest(8, to)
	binary.LittleEndian.PutUint64(head.op.bytes(), uint64(len(data)))
	post(head)
	under := []*request{head}
	for len(data) > 0 || len(under) > 0 {
		if len(data) > 0 && len(under) <= ahead {
			r := newRequest(min(len(data), piece), to)
			data = data[copy(r.op.bytes(), data):]
			post(r)
			under = append(under, r)
			continue
		}
		err := c.wait(ctx, under[0], what, to, vain)
		under = under[1:]
		if err != nil {
			return giveUp(under, err)
		}
	}
	return nil
}

// giveUp leaves requests to the thread.
func giveUp(rs []*request, err error) error {
	for _, r := range rs {
		r.release()
	}
	return err
}

func (c *comm) Receive(ctx context.Context, from int, tag ring.Tag, data []byte) error {
	if err := c.check("Receive", from, tag); err != nil {
		return err
	}
	const what = "waiting for"
	free, err := c.take(ctx, route{from, tag, true}, what)
	if err != nil {
		return err
	}
	defer free()
	vain := func() (int, bool) { return from, c.received[from].Load() >= c.left[from].sent }
	post := func(size int) *request {
		r := newRequest(size, from)
		c.post(func() { c.start(r, func(o op) error { return c.lib.receive(o, from, int(tag)) }) })
		return r
	}
	var length [8]byte
	if err := c.fetch(ctx, post(8), what, from, vain, length[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(length[:]); n != uint64(len(data)) {
		err := fmt.Errorf("mpi: rank %d sends %d bytes where rank %d expects %d: %w", from, n, c.lib.rank, len(data), ring.ErrShards)
		c.Abort(err) // what is on its way would be taken for the next message
		return err
	}
	var under []*request
	for posted := 0; len(data) > 0; {
		if posted < len(data) && len(under) < ahead {
			n := min(len(data)-posted, piece)
			under = append(under, post(n))
			posted += n
			continue
		}
		n := min(len(data), piece)
		err := c.fetch(ctx, under[0], what, from, vain, data[:n])
		under = under[1:]
		if err != nil {
			return giveUp(under, err)
		}
		data, posted = data[n:], posted-n
	}
	c.received[from].Add(1)
	return nil
}

// all waits for a request of all ranks, the one with the number n.
func (c *comm) all(ctx context.Context, n int64, r *request, out []byte, call func(op) error) error {
	c.post(func() { c.start(r, call) })
	return c.fetch(ctx, r, "waiting for all ranks", -1, func() (int, bool) {
		for i := range c.left {
			select {
			case <-c.left[i].closed:
				if c.left[i].gatherings < n {
					return i, true
				}
			default:
			}
		}
		return 0, false
	}, out)
}

// enter begins a gathering, and gives its number.
func (c *comm) enter(call string) (int64, error) {
	if err := c.usable(call); err != nil {
		return 0, err
	}
	if c.gathering.Swap(true) {
		return 0, badArgument("rank", c.lib.rank, "is in a gathering already: one goroutine of a rank at a time")
	}
	return c.gatherings.Add(1), nil
}

func (c *comm) Barrier(ctx context.Context) error {
	n, err := c.enter("Barrier")
	if err != nil {
		return err
	}
	defer c.gathering.Store(false)
	return c.all(ctx, n, newRequest(0, -1), nil, c.lib.barrier)
}

func (c *comm) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	n, err := c.enter("AllGather")
	if err != nil {
		return nil, err
	}
	defer c.gathering.Store(false)
	size, rank := c.lib.size, c.lib.rank
	// gather is one MPI_Iallgatherv; the result is freed with the request.
	gather := func(counts []int, own []byte) ([]byte, error) {
		total, at := 0, 0
		for i, x := range counts {
			if i == rank {
				at = total
			}
			total += x
		}
		r := newRequest(total, -1)
		r.op.lay(counts)
		copy(r.op.bytes()[at:], own)
		out := make([]byte, total)
		return out, c.all(ctx, n, r, out, c.lib.gather)
	}
	counts := make([]int, size)
	for i := range counts {
		counts[i] = 8
	}
	raw, err := gather(counts, binary.LittleEndian.AppendUint64(nil, uint64(len(mine))))
	if err != nil {
		return nil, err
	}
	out, longest := make([][]byte, size), 0
	for i := range out {
		out[i] = make([]byte, binary.LittleEndian.Uint64(raw[8*i:]))
		longest = max(longest, len(out[i]))
	}
	most := max(1, gatherMost/size)
	for done := 0; done < longest; done += most {
		for i, x := range out {
			counts[i] = min(max(len(x)-done, 0), most)
		}
		var own []byte
		if counts[rank] > 0 {
			own = mine[done : done+counts[rank]]
		}
		raw, err := gather(counts, own)
		if err != nil {
			return nil, err
		}
		for i, x := range out {
			if counts[i] > 0 {
				copy(x[done:], raw[:counts[i]])
			}
			raw = raw[counts[i]:]
		}
	}
	return out, nil
}

func (c *comm) Abort(cause error) {
	if cause == nil {
		cause = errors.New("it gave up")
	}
	c.fail(c.lib.rank, cause, true)
}
