package flash

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vkattn/vkattn/pipeline"
)

// Pending is one submission, of one recording or of several together.
type Pending struct {
	rec    *Recording // the last of them
	submit uint64
	joint  bool // of several: rec.before has the others
}

// Submittable is what [Device.Submit] takes: a [*Recording], or a recording of flash/rows.
type Submittable interface {
	// Commands is the recording, or the one that it is made of; nil of what no plan made.
	Commands() *Recording
}

// Commands is the recording itself.
func (r *Recording) Commands() *Recording { return r }

// Submit runs recordings one after another in one submission, and returns without waiting: the layer of a model that decodes rotates its
// queries, appends to its cache, attends and merges at the price of one submission. Each sees what those before it wrote. The Pending
// speaks of all of them: its device time is their sum, its timings are theirs, in turn. A recording can be given once. Where the error is
// not nil nothing runs: it is [ErrInFlight] for one that is in flight, an [*ArgumentError] for one that is empty or another device's.
func (d *Device) Submit(recordings ...Submittable) (_ Pending, err error) {
	defer during("Submit", &err)
	if err := d.usable(); err != nil {
		return Pending{}, err
	}
	if len(recordings) == 0 {
		return Pending{}, badArgument("recordings", "none", "must be one at least")
	}
	j := &d.joint
	j.mu.Lock()
	defer j.mu.Unlock()
	defer func() { clear(j.recordings); clear(j.commands) }()
	j.recordings, j.commands = j.recordings[:0], j.commands[:0]
	for i, x := range recordings {
		var r *Recording
		if x != nil {
			r = x.Commands()
		}
		why := ""
		switch {
		case r.made() != nil:
			why = "must come from NewRecording of a plan"
		case r.dev != d:
			why = "must be of this device"
		case slices.Contains(j.recordings, r):
			why = "must be given once"
		}
		if why != "" {
			return Pending{}, badArgument(fmt.Sprintf("recordings[%d]", i), "a recording", "%s", why)
		}
		j.recordings, j.commands = append(j.recordings, r), append(j.commands, r.rec)
	}
	locked := 0
	defer func() {
		for _, r := range j.recordings[:locked] {
			r.mu.Unlock()
		}
	}()
	for _, r := range j.recordings {
		if r.lockUnlessWaited() != 0 {
			return Pending{}, ErrInFlight
		}
		locked++
	}
	d.submitting.RLock()
	defer d.submitting.RUnlock()
	for _, r := range j.recordings {
		if err := r.submittable(); err != nil {
			return Pending{}, err
		}
	}
	if err := d.env.Ctx.SubmitTogether(j.commands); err != nil {
		return Pending{}, d.fail(err)
	}
	last := j.recordings[len(j.recordings)-1]
	last.before = last.before[:0]
	for _, r := range j.recordings {
		p := r.submitted(r.rec.Pending())
		if r == last {
			p.joint = true
			return p, nil
		}
		last.before = append(last.before, p)
	}
	return Pending{}, nil // not possible: the last returns
}

// joint is what Device.Submit works with, so that it allocates nothing.
type joint struct {
	mu         sync.Mutex
	recordings []*Recording
	commands   []*pipeline.Recording
}

// Wait waits for the submission. A cancelled context makes it return the context's error, but not before the device has
// finished with the memory. Waiting again returns at once.
func (p Pending) Wait(ctx context.Context) (err error) {
	defer during("Wait", &err)
	if p.rec == nil {
		return badArgument("Pending", "empty", "must come from Submit")
	}
	for _, b := range p.others() {
		if e := b.wait(); err == nil {
			err = e
		}
	}
	if e := p.wait(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return unlessEnded(ctx)
}

// others are the submissions of recordings that were submitted together with the last; none once that has moved on, since they ended
// with it.
func (p Pending) others() []Pending {
	if !p.joint || !p.latest() {
		return nil
	}
	return p.rec.before
}

// wait waits for the submission of p.rec.
func (p Pending) wait() error {
	r := p.rec
	r.mu.Lock()
	if p.submit != r.submits { // the recording has moved on, so this submission was waited for
		r.mu.Unlock()
		return nil
	}
	finished := r.inFlight != nil
	err := r.wait()
	back := finished && r.inFlight == nil && r.takeBack != nil && !r.closed
	r.mu.Unlock()
	if back {
		r.takeBack(r)
	}
	return err
}

// Done says without waiting whether the submission has finished.
func (p Pending) Done() (_ bool, err error) {
	defer during("Done", &err)
	r := p.rec // the last: those before it finish with it
	if r == nil {
		return true, badArgument("Pending", "empty", "must come from Submit")
	}
	if waited := r.lockUnlessWaited(); waited != 0 {
		return waited != p.submit, nil
	}
	defer r.mu.Unlock()
	if p.submit != r.submits || r.inFlight == nil {
		return true, nil
	}
	done, err := r.inFlight.Done()
	return done, r.dev.fail(err)
}

// GPUTime is Recording.GPUTime of this submission, after Wait; false when a recording of it has been submitted again since.
func (p Pending) GPUTime() (time.Duration, bool) {
	if !p.latest() {
		return 0, false
	}
	sum, ok := p.rec.GPUTime()
	for _, b := range p.others() {
		d, timed := b.GPUTime()
		sum, ok = sum+d, ok && timed
	}
	if !ok {
		return 0, false
	}
	return sum, true
}

// Timings is Recording.Timings of this submission, after Wait; nil when a recording of it has been submitted again since.
func (p Pending) Timings() []Timing {
	if _, ok := p.GPUTime(); !ok {
		return nil
	}
	var all []Timing
	for _, b := range p.others() {
		all = append(all, b.rec.Timings()...)
	}
	return append(all, p.rec.Timings()...)
}

func (p Pending) latest() bool {
	if p.rec == nil {
		return false
	}
	p.rec.mu.Lock()
	defer p.rec.mu.Unlock()
	return p.submit == p.rec.submits
}

// unlessEnded is the error of a context that is cancelled already.
func unlessEnded(ctx context.Context) error {
	if ctx != nil && ctx.Err() != nil {
		return fmt.Errorf("flash: %w", context.Cause(ctx))
	}
	return nil
}

// awaited submits, unless the context is cancelled already, and waits.
func awaited(ctx context.Context, submit func() (Pending, error)) error {
	if err := unlessEnded(ctx); err != nil {
		return err
	}
	pending, err := submit()
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}
