package ring

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// Activity is what a rank's device, its link or its host does for a while.
type Activity uint8

const (
	Kernels Activity = iota // attention of a launch
	Sums                    // merging, adding and copying tensors on the device
	CopyOut                 // from the device to memory of the host
	CopyIn                  // from memory of the host, its own or another rank's, to the device
	Waiting                 // of the host, for something of another rank that has not arrived; the device may still have work
	activities
)

// String gives the name.
func (a Activity) String() string {
	if a >= activities {
		return fmt.Sprintf("Activity(%d)", uint8(a))
	}
	return [...]string{"kernels", "sums", "copy out", "copy in", "waiting"}[a]
}

// Event is one activity from its beginning to its end, by the clock of the host: a copy from call to return, and work of the device from submission, or
// from the end of what its queue had before, until a wait for its fence returned. That is some 10 to 50 µs later than the device's own end.
type Event struct {
	What       Activity
	Step       int // of kernels and sums: how many ranks away the block's owner is, or of a [Stream], the block's number from 1 on
	Begin, End time.Time
	Bytes      uint64 // of a copy
}

// Trace collects what one rank does in its passes. It may be read while none is under way.
type Trace struct {
	mu     sync.Mutex
	events []Event
	order  []int // of submissions; of others 0
	last   int
}

// Trace makes later passes note what they do; nil ends that. It costs a goroutine for each launch while it is under way, and changes no result. No pass may be under way.
func (p *Plan) Trace(t *Trace) { p.trace = t }

// Take gives what was noted, by beginning, and forgets it. Of what shares a lane, kernels and sums, or copies in one direction, nothing overlaps: a
// device's queue, and a [flash.Mover] in each direction, do one after the other, so what was asked for meanwhile begins when the one before ends.
func (t *Trace) Take() []Event {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var lanes [activities][]int
	for i, e := range t.events {
		lane := e.What
		if lane == Sums {
			lane = Kernels
		}
		lanes[lane] = append(lanes[lane], i)
	}
	for _, lane := range lanes {
		slices.SortStableFunc(lane, func(a, b int) int {
			return cmp.Or(cmp.Compare(t.order[a], t.order[b]), t.events[a].End.Compare(t.events[b].End))
		})
		for k := len(lane) - 2; k >= 0; k-- { // waits may return in another order than the device has ended
			if x, next := &t.events[lane[k]], t.events[lane[k+1]]; x.End.After(next.End) {
				x.End = next.End
			}
		}
		for k, i := range lane {
			x := &t.events[i]
			if k > 0 && x.Begin.Before(t.events[lane[k-1]].End) {
				x.Begin = t.events[lane[k-1]].End
			}
			if x.End.Before(x.Begin) {
				x.Begin = x.End
			}
		}
	}
	out := t.events
	t.events, t.order = nil, nil
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Or(a.Begin.Compare(b.Begin), a.End.Compare(b.End)) })
	return out
}

// add notes an event. nil notes nothing.
func (t *Trace) add(e Event, order int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events, t.order = append(t.events, e), append(t.order, order)
}

// notedJob is a job whose end is looked for.
type notedJob struct {
	job
	ended chan struct{}
}

func (j notedJob) settle() error {
	<-j.ended
	return j.job.settle()
}

// noted gives a job that was just submitted, and notes when the device has done it.
func (w *pass) noted(j job, what Activity) job {
	t := w.trace
	if t == nil {
		return j
	}
	e := Event{What: what, Step: w.number, Begin: time.Now()}
	t.mu.Lock()
	t.last++
	order := t.last
	t.mu.Unlock()
	n := notedJob{j, make(chan struct{})}
	go func() {
		defer close(n.ended)
		if n.done() == nil {
			e.End = time.Now()
			t.add(e, order)
		}
	}()
	return n
}

// notedMover is the plan's mover, with copies noted.
type notedMover struct {
	*flash.Mover
	trace *Trace
}

func (m notedMover) ToHost(ctx context.Context, to *flash.HostMemory, at uint64, from *flash.Tensor, offset, n uint64) error {
	begin := time.Now()
	err := m.Mover.ToHost(ctx, to, at, from, offset, n)
	m.trace.add(Event{What: CopyOut, Begin: begin, End: time.Now(), Bytes: n}, 0)
	return err
}

func (m notedMover) ToDevice(ctx context.Context, to *flash.Tensor, offset uint64, from *flash.HostMemory, at, n uint64) error {
	begin := time.Now()
	err := m.Mover.ToDevice(ctx, to, offset, from, at, n)
	m.trace.add(Event{What: CopyIn, Begin: begin, End: time.Now(), Bytes: n}, 0)
	return err
}
