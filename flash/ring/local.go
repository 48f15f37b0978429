package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Local makes the communicators of ranks in one process: goroutines, with a device each or with one that they share. A message is one copy
// from memory to memory. Where ranks are given devices that import host memory, what they exchange is not copied by the host at all (see
// [Sharer]).
func Local(ranks int) ([]Comm, error) {
	if ranks < 1 || ranks > 1<<16 {
		return nil, badArgument("ranks", ranks, "must be from 1 to %d", 1<<16)
	}
	g := &group{size: ranks, failed: make(chan struct{}), boxes: map[route]chan *parcel{}, left: make([]chan struct{}, ranks)}
	for i := range g.left {
		g.left[i] = make(chan struct{})
	}
	g.round.ready = make(chan struct{})
	comms := make([]Comm, ranks)
	for i := range comms {
		comms[i] = &local{group: g, rank: i}
	}
	return comms, nil
}

// A Sharer is a Comm whose ranks are in one process, so that they can show one another what is no bytes.
type Sharer interface {
	Comm
	// Share is AllGather of values.
	Share(ctx context.Context, mine any) ([]any, error)
}

// group is what the ranks of a process share.
type group struct {
	size   int
	failed chan struct{}   // closed when a rank has failed
	left   []chan struct{} // of each rank: closed when it closed its Comm

	mu    sync.Mutex
	cause error
	boxes map[route]chan *parcel
	round round
}

// route is where messages meet.
type route struct {
	from, to int
	tag      Tag
}

// parcel is a message on its way: the receiver copies it, and says so.
type parcel struct {
	data  []byte
	taken chan error
}

// round is a gathering under way.
type round struct {
	values []any
	here   []bool
	count  int
	ready  chan struct{} // closed when all are there
}

type local struct {
	*group
	rank int
}

func (c *local) Rank() int { return c.rank }
func (c *local) Size() int { return c.size }

// box gives the place where messages of a route meet.
func (g *group) box(r route) chan *parcel {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.boxes[r]
	if b == nil {
		b = make(chan *parcel)
		g.boxes[r] = b
	}
	return b
}

// failure is what calls return once a rank has failed; nil before.
func (g *group) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// fail makes every call fail, the first time.
func (g *group) fail(rank int, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return
	}
	var known *RankError
	if !errors.As(cause, &known) {
		known = &RankError{Rank: rank, Err: cause}
	}
	g.cause = known
	close(g.failed)
}

// gone is what a call returns that needs a rank which has left: every rank is to hear of it.
func (g *group) gone(rank int) error {
	g.fail(rank, errLeft)
	return g.failure()
}

var errLeft = errors.New("it closed its Comm")

// ended is the error of a context that ended while a rank waited for another.
func ended(ctx context.Context, what string, rank int) error {
	return fmt.Errorf("ring: %s rank %d: %w", what, rank, context.Cause(ctx))
}

func (c *local) Send(ctx context.Context, to int, tag Tag, data []byte) error {
	if err := checkMessage(c, "Send", to, tag); err != nil {
		return err
	}
	if err := c.failure(); err != nil {
		return err
	}
	p := &parcel{data: data, taken: make(chan error, 1)}
	select {
	case c.box(route{c.rank, to, tag}) <- p:
	case <-c.failed:
		return c.failure()
	case <-c.left[to]:
		return c.gone(to)
	case <-ctx.Done():
		return ended(ctx, "sending to", to)
	}
	return <-p.taken // a copy, which nothing holds up
}

func (c *local) Receive(ctx context.Context, from int, tag Tag, data []byte) error {
	if err := checkMessage(c, "Receive", from, tag); err != nil {
		return err
	}
	if err := c.failure(); err != nil {
		return err
	}
	var p *parcel
	select {
	case p = <-c.box(route{from, c.rank, tag}):
	case <-c.failed:
		return c.failure()
	case <-c.left[from]:
		return c.gone(from)
	case <-ctx.Done():
		return ended(ctx, "waiting for", from)
	}
	var err error
	if len(p.data) != len(data) {
		err = fmt.Errorf("ring: rank %d sends %d bytes where rank %d expects %d: %w", from, len(p.data), c.rank, len(data), ErrShards)
	} else {
		copyWide(data, p.data)
	}
	p.taken <- err
	return err
}

func (c *local) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	all, err := c.Share(ctx, bytes.Clone(mine))
	if err != nil {
		return nil, err
	}
	return valuesOf[[]byte](&Ring{comm: c}, all)
}

func (c *local) Barrier(ctx context.Context) error {
	_, err := c.Share(ctx, nil)
	return err
}

// Share gathers values of this process.
func (c *local) Share(ctx context.Context, mine any) ([]any, error) {
	if err := c.failure(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	for i, left := range c.left { // under the lock: a rank that closes its Comm later finds this one waiting
		select {
		case <-left:
			c.mu.Unlock()
			return nil, c.gone(i)
		default:
		}
	}
	r := &c.round
	if r.values == nil {
		r.values, r.here = make([]any, c.size), make([]bool, c.size)
	}
	values, ready := r.values, r.ready
	if r.here[c.rank] {
		c.mu.Unlock()
		return nil, badArgument("rank", c.rank, "is in a gathering already: one goroutine of a rank at a time")
	}
	r.values[c.rank], r.here[c.rank] = mine, true
	if r.count++; r.count == c.size {
		close(ready)
		c.round = round{ready: make(chan struct{})}
	}
	c.mu.Unlock()
	select {
	case <-ready:
	case <-c.failed:
		return nil, c.failure()
	case <-ctx.Done():
		return nil, fmt.Errorf("ring: waiting for all ranks: %w", context.Cause(ctx))
	}
	return values, nil
}

func (c *local) Abort(cause error) {
	if cause == nil {
		cause = errors.New("it gave up")
	}
	c.fail(c.rank, cause)
}

func (c *local) Close() error {
	c.mu.Lock()
	select {
	case <-c.left[c.rank]:
		c.mu.Unlock()
		return nil
	default:
	}
	close(c.left[c.rank])
	waiting := c.round.count > 0
	c.mu.Unlock()
	if waiting { // for this rank among others
		c.fail(c.rank, errLeft)
	}
	return nil
}

// copyWide is copy on as many processors as it takes to keep memory busy: one alone moves less than a bus does.
func copyWide(dst, src []byte) {
	const least = 4 << 20 // for a goroutine
	parts := min(len(src)/least+1, 8, runtime.GOMAXPROCS(0))
	if parts == 1 {
		copy(dst, src)
		return
	}
	var wait sync.WaitGroup
	for i := range parts {
		from, to := len(src)*i/parts, len(src)*(i+1)/parts
		wait.Go(func() { copy(dst[from:to], src[from:to]) })
	}
	wait.Wait()
}
