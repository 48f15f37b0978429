package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Options say what Run runs. The zero value is the whole suite on everything that the device offers.
type Options struct {
	Families []string         // names of implementations, and BlockSparse; nil: all
	Tiers    []flash.Tier     // nil: all
	Tunings  []map[string]int // each makes targets of its own that it is forced on, with a fragment shape for example (fm, fn, fk)
	Quick    bool             // the core cases only
	Seed     uint64           // of inputs and random problems
	Random   int              // how many random problems; 0: as many as suit the device
	Filter   *regexp.Regexp   // of case names; nil: all
	Vectors  fs.FS            // folder of golden vectors; nil: the few that are built in
	Folder   *Folder          // cases to run in place of the suite's; nil: the suite
	Parallel int              // how many cases run at once; 0: as many as suit the device and this machine
	// Progress is called with each result, in their order and one at a time, done counting from 1 to total.
	Progress func(done, total int, r Result)
}

// Implementations are those of the families; nil: all.
func (o *Options) Implementations() (out []flash.Implementation) {
	for _, name := range o.Families {
		impl := flash.Flash
		if name != BlockSparse {
			impl, _ = flash.ParseImplementation(name)
		}
		if !slices.Contains(out, impl) {
			out = append(out, impl)
		}
	}
	return out
}

// Result is one case on one target.
type Result struct {
	Case           string
	Implementation flash.Implementation
	Tier           flash.Tier
	Target         string // implementation, tier and forced form
	Kernel         string // what the plan chose
	DType          flash.DType
	Problem        flash.Problem
	MaxErr, Bound  float64 // of o, at the element nearest its bound (fp32: the relative Frobenius error)
	LSEErr         float64
	LSEBound       float64
	GradErr        float64 // of the gradient nearest its bound; 0 with GradBound 0: not compared
	GradBound      float64
	NoGradients    string // why the target has no backward pass
	Layouts        Layouts
	NoLSE          bool   // lse was not asked for
	Gradients      bool   // the backward pass ran too
	Tangents       string // the kernel of the pass in forward mode that ran too
	NoTangents     string // why the target has no such pass
	Accumulated    bool   // and gradients were added to others
	ForwardFailed  bool   // the failure is of the forward pass, or of the one in forward mode
	Pass           bool
	Skipped        string   // why it did not run
	Lacks          []string // what the case asks for and the library does not have; without a Target no kernel could run it
	Failure        string   // why it did not pass
	Worst          string   // the output that is nearest its bound, or farthest beyond
	WorstErr       float64
	WorstBound     float64
	// distance to what a case of ONNX has of bfloat16 outputs, which its program has rounded on the way: they are judged by float64
	Theirs float64
	// of a Rig, of fp32 gradients, and of a case with Rounding: what exceeds plain attention's measure, and is within the bounds of
	// rounding (ref.RoundingBounds)
	ByRounding string
	Duration   time.Duration
}

func (r *Result) fail(format string, a ...any) {
	if r.Failure == "" { // the first failure is the one to look at
		r.Failure = fmt.Sprintf(format, a...)
	}
}

// note keeps the verdict that is nearest its bound.
func (r *Result) note(output string, v ref.Verdict) {
	ratio := func(err, bound float64) float64 {
		switch x := err / bound; {
		case err == 0:
			return 0
		case x != x:
			return math.Inf(1)
		default:
			return x
		}
	}
	if r.Worst == "" || ratio(v.Err, v.Bound) > ratio(r.WorstErr, r.WorstBound) {
		r.Worst, r.WorstErr, r.WorstBound = output, v.Err, v.Bound
	}
}

// Run runs the suite, several cases at once. Results are in the order of cases, and of targets within each. A case that fails is a
// Result; an error means that the suite itself could not go on: the device was lost, the context cancelled, the vectors unreadable. The
// results are then those of cases that had ended.
func Run(ctx context.Context, dev *flash.Device, o Options) ([]Result, error) {
	targets := Targets(dev, o)
	if len(targets) == 0 {
		return nil, fmt.Errorf("conformance: the device offers none of the implementations and tiers asked for")
	}
	cases, err := Cases(dev, o)
	if err != nil {
		return nil, err
	}
	all := &collected{progress: o.Progress}
	groups := make([]group, len(cases))
	for i, c := range cases {
		first, on := len(all.slots), c.on(targets)
		all.slots = append(all.slots, make([]slot, len(on))...)
		groups[i] = c.group(on, func(n int, t Target) error {
			at := first + n
			all.begin(at, c, t)
			r := c.Run(ctx, dev, t)
			if err := ctx.Err(); err != nil {
				return err
			}
			all.end(at, r)
			if err := dev.Lost(); err != nil {
				return fmt.Errorf("conformance: %s: %w", all.underWay(at), err)
			}
			return nil
		})
	}
	err = schedule(ctx, o.workers(dev), budget(dev), groups)
	return all.results(), err
}

// on is the targets of a case. What the library lacks is said once, and not of each target; rows are moved by one kernel, which is none of
// them.
func (c *Case) on(targets []Target) []Target {
	if len(c.lacks) > 0 || c.moves() {
		return make([]Target, 1)
	}
	return targets
}

// workers is how many cases run at once.
func (o *Options) workers(dev *flash.Device) int {
	switch {
	case o.Parallel > 0:
		return o.Parallel
	case onCPU(dev.Info()):
		return cpuWorkers
	}
	return runtime.GOMAXPROCS(0)
}

// cpuWorkers is the number of workers where the processor is the device too: while it compiles and runs one case's kernels, in threads
// of its own, another's answers are computed.
const cpuWorkers = 2

// group is the case on all targets.
func (c *Case) group(targets []Target, run func(n int, t Target) error) group {
	shared, runs := c.footprint(targets)
	return group{
		shared: shared, runs: runs,
		prepare: func() {
			for _, t := range targets {
				if t.skip(c) == "" {
					_ = c.prepare() // its error is each run's failure
					return
				}
			}
		},
		run:     func(n int) error { return run(n, targets[n]) },
		release: c.release,
	}
}

// collected gathers results by their place in the order of cases.
type collected struct {
	progress func(done, total int, r Result)

	mu    sync.Mutex
	slots []slot
	told  int // results that progress was called with: those before the first that is missing
}

type slot struct {
	result Result
	name   string // of what runs
	ended  bool
}

func (a *collected) begin(at int, c *Case, t Target) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots[at].name = fmt.Sprintf("%s on %v", c.Name, t)
}

func (a *collected) end(at int, r Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots[at].result, a.slots[at].ended = r, true
	for a.told < len(a.slots) && a.slots[a.told].ended {
		a.told++
		if a.progress != nil {
			a.progress(a.told, len(a.slots), a.slots[a.told-1].result)
		}
	}
}

// underWay names what ran when something happened: place at, which has just ended, and whatever runs beside it.
func (a *collected) underWay(at int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := []string{a.slots[at].name}
	for _, s := range a.slots {
		if s.name != "" && !s.ended {
			names = append(names, s.name)
		}
	}
	if len(names) > 1 {
		return fmt.Sprintf("one of these, which ran at once: %s", strings.Join(names, ", "))
	}
	return names[0]
}

// results gives those there are.
func (a *collected) results() []Result {
	var out []Result
	for _, s := range a.slots {
		if s.ended {
			out = append(out, s.result)
		}
	}
	return out
}

// runs is how often each case is run: caches that are wrong the second time show on the third at the
// latest.
const runs = 3

// Run runs the case on a target.
func (c *Case) Run(ctx context.Context, dev *flash.Device, t Target) (r Result) {
	if c.moves() {
		return c.move(ctx, dev)
	}
	start := time.Now()
	r = Result{
		Case: c.Name, Implementation: t.Implementation, Tier: t.Tier, Target: t.String(),
		DType: c.Problem.DType, Problem: c.Problem, Skipped: t.skip(c), Layouts: c.Layouts, NoLSE: c.NoLSE,
	}
	defer func() {
		r.ForwardFailed = r.ForwardFailed || r.Failure != "" && !r.Gradients
		r.Duration = time.Since(start)
		if r.Skipped == "" {
			r.Lacks = c.partly
		}
		r.Pass = r.Failure == "" && r.Skipped == "" && len(r.Lacks) == 0
	}()
	if len(c.lacks) > 0 {
		r.Implementation, r.Tier, r.Target, r.Lacks = 0, "", "", c.lacks
	}
	if r.Skipped != "" {
		return r
	}
	if err := c.prepare(); err != nil {
		r.fail("the case itself: %v", err)
		return r
	}
	if err := c.execute(ctx, dev, t, &r); err != nil {
		if (t.declines() || c.every) && unsupported(err) { // cases of others run on what takes them
			r.Skipped = err.Error()
			if u := (*flash.UnsupportedError)(nil); errors.As(err, &u) {
				r.Skipped = strings.Join(u.Reasons, "; ") // without the problem, so that skips of one reason are counted together
			}
			return r
		}
		r.fail("%v", err)
	}
	return r
}

// unsupported says whether a device does not offer what a case needs. A kernel that it would take, had it not failed its self-check, is no
// such thing: that is wrong, and the case fails.
func unsupported(err error) bool {
	var u *flash.UnsupportedError
	return errors.Is(err, flash.ErrUnsupported) && !(errors.As(err, &u) && u.Denied)
}

func (c *Case) execute(ctx context.Context, dev *flash.Device, t Target, r *Result) (err error) {
	plan, err := dev.Plan(c.Problem, t.options(c.Tuning, c.Backward)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	info := plan.ForwardInfo()
	r.Kernel = info.Kernel
	if plan.Implementation() != t.Implementation || info.Tier != t.Tier {
		return fmt.Errorf("asked for %v, the plan is %v/%s", t, plan.Implementation(), info.Tier)
	}
	p := c.Problem
	var arenas [len(attn.ForwardOperands)]*arena
	defer func() {
		for _, a := range arenas {
			a.close()
		}
	}()
	for i := range attn.ForwardOperands {
		if attn.ForwardOperands[i].When != nil { // scoreTensors has those
			continue
		}
		if arenas[i], err = newArena(dev, c.place(&attn.ForwardOperands[i], c.Layouts.O != Dense)); err != nil {
			return err
		}
	}
	q, k, v, o, lse := arenas[0], arenas[1], arenas[2], arenas[3], arenas[4]
	for i, values := range [][]float32{c.inputs.Q.Data, c.keys(), c.values()} {
		if err := arenas[i].input(ctx, values); err != nil {
			return err
		}
	}
	scores, err := c.scoreTensors(ctx, dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scores.close()) }()
	largest, err := c.maxLogitArena(dev)
	if err != nil {
		return err
	}
	defer largest.close()
	lseTensor := lse.tensor
	if c.NoLSE {
		lseTensor = nil
	}
	differentiate := c.grads != nil && !t.skipsGradients(c)
	var weights *flash.Weights // of the last run, and its backward pass
	if differentiate {
		if weights, err = plan.NewWeights(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, weights.Close()) }()
	}
	f := flash.Forward{Q: q.tensor, K: k.tensor, V: v.tensor, O: o.tensor, LSE: lseTensor, MaxLogit: tensorOf(largest), Seed: c.Seed,
		Offset: c.Offset}
	scores.give(&f)
	free, err := bind(ctx, dev, p, &c.inputs, &f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	mask, err := scores.classes(ctx, dev, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mask.Close()) }()
	f.MaskBlocks = mask
	if c.prepared != nil {
		return c.prepareForward(ctx, dev, t, plan, f, weights, scores, r)
	}
	var firstO, firstLSE, firstMax []byte
	times := runs
	if c.once {
		times = 1
	}
	for run := range times {
		if err := errors.Join(o.poison(ctx, run), lse.poison(ctx, run), poison(ctx, run, largest)); err != nil {
			return err
		}
		if run == times-1 {
			f.Weights = weights
		}
		pending, err := plan.SubmitForward(f)
		if err != nil {
			return err
		}
		if err := pending.Wait(ctx); err != nil {
			return err
		}
		outO, err := o.output(ctx, "o", run)
		if err != nil {
			return err
		}
		var outLSE []byte
		if !c.NoLSE {
			if outLSE, err = lse.output(ctx, "lse", run); err != nil {
				return err
			}
		}
		var outMax []byte
		if largest != nil {
			if outMax, err = largest.output(ctx, "max logit", run); err != nil {
				return err
			}
		}
		if run == 0 {
			firstO, firstLSE, firstMax = outO, outLSE, outMax
			var l []float32
			if !c.NoLSE {
				l = refType(flash.F32).Decode(outLSE)
			}
			c.check(t, refType(p.DType).Decode(outO), l, r)
			c.checkMaxLogits(t, outMax, r)
			continue
		}
		if !bytes.Equal(firstO, outO) || !bytes.Equal(firstLSE, outLSE) || !bytes.Equal(firstMax, outMax) {
			return fmt.Errorf("run %d differs from the first in bits", run+1)
		}
	}
	if c.after != nil {
		if err := c.after(ctx, dev, plan, &f); err != nil {
			return err
		}
	}
	if c.operator != nil {
		return c.operate(ctx, dev, t, r)
	}
	if !differentiate {
		return nil
	}
	if c.moved != nil && t.Implementation == flash.Flash && !t.light {
		if err := c.jvp(ctx, dev, plan, &f, r); err != nil {
			return err
		}
	}
	return c.backward(ctx, dev, t, plan, &f, scores, r)
}
