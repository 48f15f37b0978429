package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// PlanOptions say what Plans runs.
type PlanOptions struct {
	Plans   int           // how many; 0: 1000
	Seed    uint64        // of everything
	Workers int           // goroutines; 0: 16
	Limit   time.Duration // ends with fewer after so long; 0: none
	Only    int           // this plan alone, counting from 1; Plans must be that of the run that named it; 0: all
	// Resident says that the process's memory must be flat too, and not only what the library and Go have account of. That takes many
	// plans, and a C library that does not keep memory for each thread (MALLOC_ARENA_MAX=1).
	Resident bool

	// Open opens a device like the one that most plans live on. Some plans have one of their own, which is closed with everything on it.
	Open func() (*flash.Device, error)
	// Marked is called with each mark: ten of them, and one of the devices' beginning.
	Marked func(Mark)
}

// PlanSummary is what Plans did.
type PlanSummary struct {
	Device    string   `json:"device"`
	Seed      uint64   `json:"seed"`
	Plans     int      `json:"plans"`
	Passes    int      `json:"passes"`    // submitted
	Compared  int      `json:"compared"`  // outputs compared with float64
	Cancelled int      `json:"cancelled"` // plans whose context was cancelled before they had ended
	InFlight  int      `json:"in_flight"` // plans, recordings and tensors closed while their work was under way
	Devices   int      `json:"devices"`   // opened and closed beside the others' work
	Seconds   float64  `json:"seconds"`
	Marks     []Mark   `json:"marks"`
	Grown     []string `json:"grown"` // what there is more of at the end
}

// marks is how often memory is looked at.
const marks = 10

// Plans lets plans of small random problems live on a device, from several goroutines at once: each is made, recorded, submitted, waited
// for or not, cancelled or not, and closed, in every documented order, some of them with a device of their own. Memory after a tenth of the
// plans is compared with that at the end. The error is of the first plan that misbehaved, and names it.
func Plans(ctx context.Context, o PlanOptions) (*PlanSummary, error) {
	if o.Plans <= 0 {
		o.Plans = 1000
	}
	if o.Workers <= 0 {
		o.Workers = 16
	}
	dev, err := o.Open()
	if err != nil {
		return nil, err
	}
	p := &plans{o: &o, dev: dev}
	p.s.Device, p.s.Seed = dev.Info().Name, o.Seed
	began := time.Now()
	err = p.run(ctx)
	p.s.Seconds = time.Since(began).Seconds()
	p.s.Passes, p.s.Compared, p.s.Cancelled = int(p.passes.Load()), int(p.compared.Load()), int(p.cancelled.Load())
	p.s.InFlight, p.s.Devices = int(p.inFlight.Load()), int(p.devices.Load())
	return &p.s, errors.Join(err, dev.Close())
}

type plans struct {
	o   *PlanOptions
	dev *flash.Device
	s   PlanSummary

	shared [len(kinds)]*flash.Plan // used by several goroutines at once

	opening sync.Mutex // one device of its own at a time: what a driver that compiles on the CPU needs at its peak is not given back

	next                                           atomic.Int64
	passes, compared, cancelled, inFlight, devices atomic.Int64
}

func (p *plans) run(ctx context.Context) error {
	if p.o.Only > 0 {
		if err := p.share(); err != nil {
			return err
		}
		defer p.unshare()
		p.s.Plans = 1
		return p.live(ctx, p.o.Only)
	}
	for n := range kinds { // what is compiled and allocated once
		if err := p.warm(ctx, &kinds[n], p.dev); err != nil {
			return fmt.Errorf("soak: kind %d, %v: %w", n, kinds[n].problem, err)
		}
	}
	// The second device of a process makes the library hold on to the drivers; and it takes a few until a driver that compiles on the CPU
	// has the memory that it will ever need for that.
	for n := range min(8, 1+p.o.Plans/5000) {
		if err := p.another(ctx, &kinds[n%len(kinds)]); err != nil {
			return err
		}
	}
	if err := p.remember(ctx); err != nil {
		return err
	}
	quiet := runtime.NumGoroutine()
	p.mark(0, quiet)
	began := time.Now()
	for n := range marks {
		last := p.o.Plans * (n + 1) / marks
		if err := p.phase(ctx, last); err != nil {
			return err
		}
		p.s.Plans = last
		p.mark(last, quiet)
		if p.o.Limit > 0 && time.Since(began) > p.o.Limit {
			break
		}
	}
	start, first, end := p.s.Marks[0], p.s.Marks[1], p.s.Marks[len(p.s.Marks)-1]
	start.Heap, start.RSS, start.Files = end.Heap, end.RSS, end.Files // these may still grow at first
	if !p.o.Resident {
		first.RSS = end.RSS
	}
	p.s.Grown = append(end.grown(start), end.grown(first)...)
	return nil
}

func (p *plans) mark(done, settled int) {
	m := measure(p.dev, done, settled)
	p.s.Marks = append(p.s.Marks, m)
	if p.o.Marked != nil {
		p.o.Marked(m)
	}
}

// phase lets the plans up to a number live.
func (p *plans) phase(ctx context.Context, last int) error {
	if err := p.share(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range p.o.Workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				n := int(p.next.Add(1))
				if n > last {
					p.next.Add(-1)
					return
				}
				if err := p.live(ctx, n); err != nil {
					cancel(fmt.Errorf("soak: plan %d of seed %d: %w", n, p.o.Seed, err))
				}
			}
		})
	}
	workers.Wait()
	err := context.Cause(ctx)
	return errors.Join(err, p.unshare())
}

// share makes the plans that goroutines use together.
func (p *plans) share() error {
	for i := range kinds {
		k := &kinds[i]
		plan, err := p.dev.Plan(k.problem, k.options()...)
		if err != nil {
			return err
		}
		p.shared[i] = plan
	}
	return nil
}

func (p *plans) unshare() (err error) {
	for _, plan := range p.shared {
		err = errors.Join(err, plan.Close())
	}
	return err
}

// another opens a device, warms it up and closes it.
func (p *plans) another(ctx context.Context, k *kind) error {
	dev, err := p.o.Open()
	if err != nil {
		return err
	}
	return errors.Join(p.warm(ctx, k, dev), dev.Close())
}

// remembered is more problems than a device remembers the choice of kernels for.
const remembered = 200

// remember runs plans, backward too, so that a device remembers as many as it ever will.
func (p *plans) remember(ctx context.Context) error {
	r := rand.New(rand.NewPCG(p.o.Seed, 0))
	for n := range remembered {
		k := &kinds[n%len(kinds)]
		l, err := p.begin(k, p.dev, r, k.draw(r))
		if err != nil {
			return err
		}
		l.ctx = ctx
		if err := errors.Join(l.upload(), l.run(true), l.end()); err != nil {
			return err
		}
	}
	return nil
}

// warm runs all that a kind compiles.
func (p *plans) warm(ctx context.Context, k *kind, dev *flash.Device) error {
	l, err := p.begin(k, dev, rand.New(rand.NewPCG(p.o.Seed, 0)), k.problem)
	if err != nil {
		return err
	}
	l.ctx = ctx
	l.compare = true
	return errors.Join(l.upload(), l.run(true), l.end())
}

// own says whether a plan of the first tenth has a device of its own. Later ones have none: a driver that compiles on the CPU keeps memory
// for that when its device is closed, and would hide what plans keep.
func (p *plans) own(n int, r *rand.Rand) bool {
	first := p.o.Plans / marks
	return r.IntN(min(max(first/16, 25), 250)) == 0 && n <= first
}

// live is the life of one plan. What it does follows from the seed and its number alone.
func (p *plans) live(ctx context.Context, n int) (err error) {
	r := rand.New(rand.NewPCG(p.o.Seed, uint64(n)))
	k := &kinds[r.IntN(len(kinds))]
	dev := p.dev
	own := p.own(n, r)
	if own {
		p.opening.Lock()
		defer p.opening.Unlock()
		if dev, err = p.o.Open(); err != nil {
			return err
		}
		p.devices.Add(1)
		defer func() { err = errors.Join(err, dev.Close()) }() // with all that is still open on it
	}
	var plan *flash.Plan
	problem := k.draw(r)
	if !own && r.IntN(4) == 0 {
		plan, problem = p.shared[k.index()], k.problem
	}
	l, err := p.begin(k, dev, r, problem)
	if err != nil {
		return err
	}
	if plan != nil {
		l.shares(plan)
	}
	stop := l.context(ctx)
	defer stop()
	err = l.upload()
	if err == nil {
		err = l.run(false)
	}
	if errors.Is(err, context.Canceled) && l.ctx.Err() != nil && ctx.Err() == nil {
		p.cancelled.Add(1)
		err = nil
	}
	if own && r.IntN(2) == 0 {
		return err // Close frees it all
	}
	return errors.Join(err, l.end())
}
