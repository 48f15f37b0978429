package ring

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/flash"
)

// pass is one forward or backward pass of a rank under way.
//
// Any buffer, view of a tensor or submission may fail. What asks for these does not say so: the first error stays in err, and after it they
// are nil, and nothing is submitted. What waits for anything returns that error in place of waiting.
type pass struct {
	*Plan
	mover  notedMover      // the plan's
	number int             // of the step that is submitted
	ctx    context.Context // ends when any part of the pass fails
	others *errgroup.Group // what goes on beside the device's work
	jobs   []job           // submitted, in order, and not waited for
	of     *flash.Forward  // what it is given
	sched  *schedule       // the plan's, or of packed sequences that of the pass
	steps  []step

	largest *largest
	err     error
}

// job is work that was submitted.
type job interface {
	done() error   // waits; any goroutine may ask
	settle() error // waits, and gives back what was lent, once
}

// launched is a launch that was submitted.
type launched struct{ flash.Pending }

func (l launched) done() error   { return l.Wait(context.Background()) }
func (l launched) settle() error { return l.done() }

// run runs the body of a pass. Whatever happens, nothing is left running, and other ranks hear of a failure.
func (p *Plan) run(ctx context.Context, body func(*pass) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if !p.busy.TryLock() {
		return fmt.Errorf("%w: a ring.Plan runs one pass at a time", flash.ErrInFlight)
	}
	defer p.busy.Unlock()
	if p.broken != nil {
		return p.broken
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.waited = 0
	w := &pass{Plan: p, sched: p.sched, steps: p.steps}
	p.passes++
	w.others, w.ctx = errgroup.WithContext(inner)
	w.mover = notedMover{p.mover, p.trace}
	err := body(w)
	if err == nil {
		err = w.err
	}
	if err != nil {
		cancel(err)
	}
	if e := w.others.Wait(); err == nil || e != nil && errors.Is(err, e) {
		err = e // the first of them is the cause of others
	}
	if e := w.settle(len(w.jobs)); err == nil {
		err = e
	}
	if e := p.forget(); err == nil {
		err = e
	}
	if err != nil {
		p.broken = fmt.Errorf("ring: an earlier pass failed: %w", err)
		p.ring.comm.Abort(err)
	}
	return err
}

// settle waits for the first n jobs.
func (w *pass) settle(n int) (err error) {
	for _, j := range w.jobs[:n] {
		if e := j.settle(); err == nil {
			err = e
		}
	}
	w.jobs = w.jobs[n:]
	return err
}

// attend submits the forward pass of a launch.
func (w *pass) attend(l *launch, f flash.Forward) {
	w.submit(l, func(p *flash.Plan) (flash.Pending, error) { return p.SubmitForward(f) })
}

// gradients submits the backward pass of a launch.
func (w *pass) gradients(l *launch, b flash.Backward) {
	w.submit(l, func(p *flash.Plan) (flash.Pending, error) { return p.SubmitBackward(b) })
}

func (w *pass) submit(l *launch, submit func(*flash.Plan) (flash.Pending, error)) {
	if w.err != nil {
		return
	}
	plan, err := w.launch(l.problem)
	if err != nil {
		w.err = err
		return
	}
	j, err := submit(plan)
	if err != nil {
		w.err = err
		return
	}
	w.jobs = append(w.jobs, w.noted(launched{j}, Kernels))
}

// summer accumulates, with recordings that are used again.
type summer struct {
	plan *flash.AccumulatePlan
	used int // in which pass
	free []*flash.Recording
	all  []*flash.Recording
}

func (s *summer) lastUsed() int { return s.used }

func (s *summer) close() (err error) {
	for _, r := range s.all {
		err = errors.Join(err, r.Close())
	}
	return errors.Join(err, s.plan.Close())
}

// sum is an accumulation that was submitted.
type sum struct {
	of      *summer
	rec     *flash.Recording
	pending flash.Pending
}

func (s sum) done() error { return s.pending.Wait(context.Background()) }
func (s sum) settle() error {
	err := s.done()
	s.of.free = append(s.of.free, s.rec)
	return err
}

// accumulate submits an accumulation of tensors of one shape.
func (w *pass) accumulate(rule flash.AccumulateRule, a flash.Accumulate) {
	if w.err == nil {
		w.err = w.trySum(rule, a)
	}
}

func (w *pass) trySum(rule flash.AccumulateRule, a flash.Accumulate) error {
	of := flash.AccumulateProblem{Rule: rule, Shape: a.X.Shape(), X: a.X.DType(), Y: a.Y.DType()}
	s := w.sums[of]
	if s != nil {
		s.used = w.passes
	} else {
		plan, err := w.ring.dev.PlanAccumulate(of)
		if err != nil {
			return err
		}
		s = &summer{plan: plan, used: w.passes}
		w.sums[of] = s
	}
	if len(s.free) == 0 {
		r, err := s.plan.NewRecording()
		if err != nil {
			return err
		}
		s.all, s.free = append(s.all, r), append(s.free, r)
	}
	r := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	var pending flash.Pending
	err := r.Accumulate(a)
	if err == nil {
		pending, err = r.Submit()
	}
	if err != nil {
		s.free = append(s.free, r)
		return err
	}
	w.jobs = append(w.jobs, w.noted(sum{s, r, pending}, Sums))
	return nil
}

// mostKept is how many plans of launches, sums, and block masks of launches are kept though the latest pass did not use them: of packed
// sequences, or of a padded batch, each pass may have others.
const mostKept = 64

// kept is what a plan makes when a pass first needs it, and keeps for later ones.
type kept interface {
	lastUsed() int // in which pass
	close() error
}

// forget closes what the latest pass did not use, where there is much.
func (p *Plan) forget() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(closeUnused(p.launches, p.passes), closeUnused(p.sums, p.passes), closeUnused(p.seen.blocks.masks, p.passes))
}

func closeUnused[K comparable, V kept](all map[K]V, pass int) (err error) {
	if len(all) <= mostKept {
		return nil
	}
	for name, x := range all {
		if x.lastUsed() != pass {
			err = errors.Join(err, x.close())
			delete(all, name)
		}
	}
	return err
}

// tensor is a buffer of the plan's, of a name, as a tensor in row-major order. It is kept for the next pass, and never made anew: most is
// the largest number of rows that it will have.
func (w *pass) tensor(name string, dtype flash.DType, shape [4]int, most int) *flash.Tensor {
	return w.view(w.buffer(name, dtype, shape[0]*shape[1]*most*shape[3], nil), 0, dtype, shape, [4]int{})
}

// buffer is memory of the plan's, of a name. What put puts there is there from when it is made; nil: nothing.
func (w *pass) buffer(name string, dtype flash.DType, elements int, put func(*flash.Tensor) error) *flash.Tensor {
	if w.err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.buffers[name]; b != nil {
		return b
	}
	b, err := w.ring.dev.NewTensor(dtype, 1, 1, 1, elements)
	if err == nil {
		w.buffers[name] = b
		if put != nil {
			err = put(b)
		}
	}
	w.err = err
	return b
}

// view is [flash.Tensor.View].
func (w *pass) view(t *flash.Tensor, offset uint64, dtype flash.DType, shape, strides [4]int) *flash.Tensor {
	if w.err != nil {
		return nil
	}
	v, err := t.View(offset, dtype, shape, strides)
	w.err = err
	return v
}
