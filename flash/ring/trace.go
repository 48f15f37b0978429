package ring

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// Activity is what a rank's device, its link or its host does for a while.
type Activity uint8

const (
	Kernels Activity = iota // attention of a launch
	Sums                    // merging, adding and copying tensors on the device
	CopyOut                 // from the device to memory of the host
	CopyIn                  // from memory of the host, its own or another rank's, to the device
	Waiting                 // of the host, for something of another rank that has not arrived, or of the device's queue, for its copy
	activities
)

// String gives the name.
func (a Activity) String() string {
	if a >= activities {
		return fmt.Sprintf("Activity(%d)", uint8(a))
	}
	return [...]string{"kernels", "sums", "copy out", "copy in", "waiting"}[a]
}

// Event is one activity from its beginning to its end, by the clock of the host: a copy from its call, and work of the device from
// submission, or either from the end of what it came after, until a wait for its end returned. That is some 10 to 50 µs later than the
// device's own end.
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
	order  []int       // of submissions; of others 0
	asked  []time.Time // when a submission was made that began later, for what its queue was told to wait for; of others zero
	last   int
	after  []hostmem.Point // what the next launch's queue was told to wait for
	watch  sync.WaitGroup  // copies whose end is looked for
}

// Trace makes later passes note what they do; nil ends that. It costs a goroutine for each launch, sum and copy while that is under way,
// and changes no result. No pass may be under way.
func (p *Plan) Trace(t *Trace) {
	p.trace = t
	if p.hosts != nil {
		p.hosts.trace = t
	}
}

// Take gives what was noted, by beginning, and forgets it. Of what shares a lane, kernels and sums, or copies in one direction, nothing
// overlaps: a device's queue, and a [hostmem.Mover] in each direction, do one after the other, so what was asked for meanwhile begins when
// the one before ends.
func (t *Trace) Take() []Event {
	if t == nil {
		return nil
	}
	t.watch.Wait()
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
	var waits []Event
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
			if from := t.asked[i]; !from.IsZero() {
				if k > 0 && from.Before(t.events[lane[k-1]].End) {
					from = t.events[lane[k-1]].End
				}
				until := x.Begin
				if until.After(x.End) {
					until = x.End
				}
				waits = append(waits, Event{What: Waiting, Step: x.Step, Begin: from, End: until})
			}
			if k > 0 && x.Begin.Before(t.events[lane[k-1]].End) {
				x.Begin = t.events[lane[k-1]].End
			}
			if x.End.Before(x.Begin) {
				x.Begin = x.End
			}
		}
	}
	var out []Event
	for _, e := range t.events {
		if e.What == Waiting {
			waits = append(waits, e)
			continue
		}
		out = append(out, e)
	}
	out = append(out, apart(waits)...)
	t.events, t.order, t.asked = nil, nil, nil
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Or(a.Begin.Compare(b.Begin), a.End.Compare(b.End)) })
	return out
}

// apart gives what intervals cover, each moment once: the host may wait for one block while the device's queue waits for the one before.
func apart(events []Event) (out []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return a.Begin.Compare(b.Begin) })
	for _, e := range events {
		if n := len(out); n > 0 && e.Begin.Before(out[n-1].End) {
			e.Begin = out[n-1].End
		}
		if e.End.After(e.Begin) {
			out = append(out, e)
		}
	}
	return out
}

// add notes an event. nil notes nothing.
func (t *Trace) add(e Event, order int) { t.late(e, order, time.Time{}) }

// late notes one that began later than it was asked for.
func (t *Trace) late(e Event, order int, asked time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events, t.order, t.asked = append(t.events, e), append(t.order, order), append(t.asked, asked)
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

// noted gives a job that was just submitted, and notes when the device has done it. It begins no sooner than what its queue was told to
// wait for.
func (w *pass) noted(j job, what Activity) job {
	t := w.trace
	if t == nil {
		return j
	}
	e := Event{What: what, Step: w.number, Begin: time.Now()}
	t.mu.Lock()
	t.last++
	order, after := t.last, t.after
	t.after = nil
	t.mu.Unlock()
	n := notedJob{j, make(chan struct{})}
	go func() {
		defer close(n.ended)
		begin, asked := e.Begin, time.Time{}
		for _, p := range after {
			if w.mover.Reach(p) == nil {
				asked, e.Begin = begin, time.Now()
			}
		}
		if n.done() == nil {
			e.End = time.Now()
			t.late(e, order, asked)
		}
	}()
	return n
}

// notedMover is the plan's mover, with copies noted.
type notedMover struct {
	*hostmem.Mover
	trace *Trace
}

// After is the mover's, and is noted for what is submitted next.
func (m notedMover) After(p hostmem.Point) error {
	if t := m.trace; t != nil {
		t.mu.Lock()
		t.after = append(t.after, p)
		t.mu.Unlock()
	}
	return m.Mover.After(p)
}

func (m notedMover) StartToHost(ctx context.Context, to *hostmem.Memory, at uint64, from *flash.Tensor, offset, n uint64,
	after hostmem.Point) (*hostmem.Move, error) {
	return m.noted(Event{What: CopyOut, Bytes: n}, after,
		func() (*hostmem.Move, error) { return m.Mover.StartToHost(ctx, to, at, from, offset, n, after) })
}

func (m notedMover) StartToDevice(ctx context.Context, to *flash.Tensor, offset uint64, from *hostmem.Memory, at, n uint64,
	after hostmem.Point) (*hostmem.Move, error) {
	return m.noted(Event{What: CopyIn, Bytes: n}, after,
		func() (*hostmem.Move, error) { return m.Mover.StartToDevice(ctx, to, offset, from, at, n, after) })
}

// noted starts a copy, and notes it when it has ended.
func (m notedMover) noted(e Event, after hostmem.Point, start func() (*hostmem.Move, error)) (*hostmem.Move, error) {
	if m.trace == nil {
		return start()
	}
	e.Begin = time.Now()
	move, err := start()
	if err != nil {
		return nil, err
	}
	if move == nil { // the host has waited for it
		e.End = time.Now()
		m.trace.add(e, 0)
		return nil, nil
	}
	m.trace.watch.Add(1)
	go func() {
		defer m.trace.watch.Done()
		if after != (hostmem.Point{}) && m.Reach(after) == nil {
			e.Begin = time.Now()
		}
		if move.Wait() == nil {
			e.End = time.Now()
			m.trace.add(e, 0)
		}
	}()
	return move, nil
}
