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

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// Options say what Differential runs. The zero value of each is a default.
type Options struct {
	Problems int           // how many; 0: 1000
	Seed     uint64        // of everything
	Families int           // sets of problems that share compiled kernels; 0: as many as suit Problems and the device
	PerPlan  int           // problems that differ in data, places in memory and seeds alone, and share a plan; 0: 4
	Workers  int           // goroutines; 0: a quarter more than there are processors, since each waits for the device now and then
	Limit    time.Duration // ends with fewer problems after so long; 0: none
	Failures int           // the run ends after this number of wrong ones; 0: 10
	Tiers    []flash.Tier  // nil: all, but scalar alone on a CPU, where matrix kernels take minutes to compile
	Only     *ID           // this problem alone; Seed, Families and Tiers must be those of the run that named it

	Progress func(*Summary)  // called every Every with what there is so far; the summary is the callee's
	Every    time.Duration   // 0: 10 s
	Failed   func(f Failure) // called for each wrong problem, one at a time
}

// Failure is a problem with a wrong result.
type Failure struct {
	ID      ID
	Family  string
	Problem flash.Problem
	Layouts conformance.Layouts
	Kinds   []string // of inputs, and what else its family leaves open
	Why     string
}

// String says all that is needed to run the problem again.
func (f Failure) String() string {
	return fmt.Sprintf("problem %v (%v, scale %g, %v, %v; %s): %s", f.ID, f.Problem, f.Problem.Scale, f.Layouts, f.Kinds, f.Family, f.Why)
}

// casesAtOnce is how many problems a goroutine takes of a family before it turns to the next.
const casesAtOnce = 64

func (o *Options) fill(dev *flash.Device) {
	cpu := onCPU(dev)
	set := func(v *int, otherwise int) {
		if *v <= 0 {
			*v = otherwise
		}
	}
	set(&o.Problems, 1000)
	if each := 2500; cpu {
		set(&o.Families, min(max(o.Problems/50, 8), 96))
	} else {
		set(&o.Families, min(max(o.Problems/each, 64), 400))
	}
	set(&o.PerPlan, 4)
	procs := runtime.GOMAXPROCS(0)
	set(&o.Workers, procs+(procs+3)/4)
	set(&o.Failures, 10)
	if o.Tiers == nil && cpu {
		o.Tiers = []flash.Tier{flash.TierScalar}
	}
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
}

func onCPU(dev *flash.Device) bool {
	facts := dev.Info().Facts
	return facts != nil && facts.Type == vk.DeviceCPU
}

// Differential compares random problems on every kernel that the device offers with attention in float64. Wrong results are counted in the
// summary and told to Options.Failed; an error means that the run could not go on, and comes with the summary of what had been done.
func Differential(ctx context.Context, dev *flash.Device, o Options) (*Summary, error) {
	o.fill(dev)
	targets := conformance.Targets(dev, conformance.Options{Tiers: o.Tiers})
	if len(targets) == 0 {
		return nil, fmt.Errorf("soak: the device offers none of the tiers asked for, %v", o.Tiers)
	}
	d := &differential{dev: dev, o: &o, families: families(targets, o.Families, o.Seed, onCPU(dev))}
	d.tally.begin(dev, &o)
	if o.Only != nil {
		return d.only(ctx)
	}
	d.next = make([]int, len(d.families))
	d.dead = make([]bool, len(d.families))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.Limit > 0 {
		defer time.AfterFunc(o.Limit, func() { cancel(errLimit) }).Stop()
	}
	d.stop = cancel
	var workers sync.WaitGroup
	for range o.Workers {
		workers.Go(func() {
			if err := d.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-tick.C:
			if o.Progress != nil {
				o.Progress(d.tally.summary())
			}
		}
	}
	s := d.tally.summary()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errLimit) && !errors.Is(err, errEnough) {
		return s, err
	}
	return s, dev.Lost()
}

// Why a run ends early that is not an error.
var (
	errLimit  = errors.New("soak: the time is up")
	errEnough = errors.New("soak: enough wrong problems")
)

type differential struct {
	dev      *flash.Device
	o        *Options
	families []*family
	tally    tally
	stop     context.CancelCauseFunc
	issued   atomic.Int64

	mu    sync.Mutex
	turn  int    // the family that is next
	next  []int  // the number of each family's next plan
	dead  []bool // families that their target declines
	wrong int
}

// unit is a number of plans of a family.
type unit struct {
	family *family
	first  int
	plans  int
}

// take gives the next unit, false when all problems are given out.
func (d *differential) take() (unit, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range d.families {
		f := d.families[d.turn]
		d.turn = (d.turn + 1) % len(d.families)
		if d.dead[f.index] {
			continue
		}
		left := d.o.Problems - int(d.issued.Load())
		if left <= 0 {
			return unit{}, false
		}
		cases := min(left, casesAtOnce, max(1, (d.o.Problems+len(d.families)-1)/len(d.families)))
		u := unit{f, d.next[f.index], (cases + d.o.PerPlan - 1) / d.o.PerPlan}
		d.next[f.index] += u.plans
		d.issued.Add(int64(u.plans * d.o.PerPlan))
		return u, true
	}
	return unit{}, false
}

// work runs units until none is left.
func (d *differential) work(ctx context.Context) error {
	slab, err := conformance.NewSlab(d.dev, 1<<20)
	if err != nil {
		return err
	}
	defer slab.Close()
	for {
		u, ok := d.take()
		if !ok {
			return nil
		}
		for n := range u.plans {
			if ctx.Err() != nil {
				return nil
			}
			id := ID{Family: u.family.index, Plan: u.first + n}
			err := d.plan(ctx, slab, u.family, id, 0, d.o.PerPlan)
			// Forced forms and parts make a tile that does not fit an error of their argument.
			if errors.Is(err, flash.ErrUnsupported) || errors.Is(err, flash.ErrArgument) {
				d.declined(u, n, err)
				break
			}
			if err != nil {
				return fmt.Errorf("soak: problem %v of %v: %w", id, u.family, err)
			}
		}
	}
}

// declined gives back what is left of a unit whose target declines it, and ends the family where it always does.
func (d *differential) declined(u unit, done int, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.issued.Add(-int64((u.plans - done) * d.o.PerPlan))
	d.dead[u.family.index] = true
	d.tally.declined(u.family, why)
}

// plan runs cases of one plan of a family, from the given one on.
func (d *differential) plan(ctx context.Context, slab *conformance.Slab, f *family, id ID, from, to int) (err error) {
	p := f.problem(rand.New(rand.NewPCG(d.o.Seed+1, uint64(id.Family)<<32^uint64(id.Plan))))
	if f.rows != (rows{}) {
		return d.apart(ctx, f, id, p, from, to)
	}
	rig, err := conformance.NewRig(d.dev, f.target, p, f.tuning, f.backward, slab)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	names, err := kernelsOf(rig.Plan, f)
	if err != nil {
		return err
	}
	d.tally.planned()
	for n := from; n < to && ctx.Err() == nil; n++ {
		id.Case = n
		c, more := f.draw(d.o.Seed, id, p)
		how := conformance.How{Accumulate: f.accumulate}
		if n == 0 && id.Plan%8 == 0 {
			how.Times = 2
		}
		r := rig.Run(context.WithoutCancel(ctx), c, how) // what was begun is ended, and judged
		if err := d.dev.Lost(); err != nil {
			return err
		}
		d.tally.add(f, names, c, how, &r, more)
		if !r.Pass {
			d.failed(Failure{ID: id, Family: f.String(), Problem: p, Layouts: c.Layouts, Kinds: more, Why: r.Failure})
		}
	}
	return nil
}

func (d *differential) failed(f Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tally.wrong(f)
	d.wrong++
	if d.o.Failed != nil {
		d.o.Failed(f)
	}
	if d.wrong >= d.o.Failures && d.stop != nil {
		d.stop(errEnough)
	}
}

// only runs the one problem that was asked for.
func (d *differential) only(ctx context.Context) (*Summary, error) {
	id := *d.o.Only
	if id.Family >= len(d.families) {
		return nil, fmt.Errorf("soak: problem %v: there are %d families", id, len(d.families))
	}
	slab, err := conformance.NewSlab(d.dev, 1<<20)
	if err != nil {
		return nil, err
	}
	defer slab.Close()
	err = d.plan(ctx, slab, d.families[id.Family], id, id.Case, id.Case+1)
	return d.tally.summary(), err
}
