// Package first measures what a program waits for before it computes: opening a device, the first plan, the first passes, and plans after
// that.
package first

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/pipeline"
)

// Step is something that a program waits for.
type Step struct {
	result.Origin
	Name      string  `json:"step"`
	Cached    bool    `json:"cached"` // an earlier process did the same and left files, vkattn's and the driver's
	Problem   string  `json:"problem,omitempty"`
	Kernel    string  `json:"kernel,omitempty"`
	Seconds   float64 `json:"s"`           // that a program waits
	N         int     `json:"n,omitempty"` // times, of which Seconds is the median
	Pipelines int     `json:"pipelines"`   // that were made
	FromDisk  int     `json:"from_disk"`   // of which with what the cache on disk had of them
	Compiling float64 `json:"compile_s"`   // in the driver, of all of them, some made beside one another
	result.Failure
}

// Names of the steps, and what two of them together are called.
const (
	Open          = "open"
	FirstPlan     = "first plan"
	FirstForward  = "first forward"
	OpenToForward = "open to first forward" // the three before
	FirstBackward = "first backward"
	Again         = "plan again"
	NewLength     = "plan of a new length"
	Decoding      = "plan of a further decoding step"
	ElevenPlans   = "eleven plans" // all of them, one after the other
)

// Steps is how many steps a process reports: those above, and the plans of which the last one is the sum.
const Steps = 9 + 11

// shape is a problem of one of the sizes that the steps have on a GPU, or on a CPU.
func shape(cpu bool) flash.Problem {
	if cpu {
		return flash.Problem{Batch: 1, Heads: 2, QueryLen: 128, HeadDim: 64, DType: flash.F16}
	}
	return flash.Problem{Batch: 4, Heads: 16, QueryLen: 2048, HeadDim: 64, DType: flash.F16}
}

// eleven are the plans of a program that uses several types and head dimensions.
func eleven(cpu bool) []flash.Problem {
	var out []flash.Problem
	add := func(t flash.DType, causal flash.Causal, dims ...int) {
		for _, d := range dims {
			p := shape(cpu)
			p.DType, p.HeadDim, p.Causal = t, d, causal
			out = append(out, p)
		}
	}
	add(flash.F16, flash.CausalBottomRight, 32, 64, 96, 128, 256)
	add(flash.BF16, flash.CausalBottomRight, 64, 128)
	add(flash.F32, flash.CausalBottomRight, 64, 128)
	for _, d := range []int{64, 128} {
		p := shape(cpu)
		p.HeadDim, p.KeyLen, p.QueryLen = d, p.QueryLen, 1
		out = append(out, p)
	}
	return out
}

// run is the steps of a process.
type run struct {
	ctx    context.Context
	began  time.Time
	dev    *flash.Device
	made   pipeline.Compilations // before the step
	row    Step                  // what rows have in common
	so     []Step                // reported
	report func(Step) error
}

// Run does the steps in this process with a device that open opens, and reports each.
func Run(ctx context.Context, version string, cached bool, open func() (*flash.Device, error), opts []flash.PlanOption,
	report func(Step) error) error {
	r := &run{ctx: ctx, began: time.Now(), row: Step{Origin: result.Origin{Library: "vkattn " + version}, Cached: cached}, report: report}
	var err error
	if r.dev, err = open(); err != nil {
		return err
	}
	info := r.dev.Info()
	r.row.Device, r.row.Driver = info.Name, info.Driver
	err = r.steps(bench.IsCPU(info), opts)
	return errors.Join(err, r.dev.Close())
}

// done reports a step that began then.
func (r *run) done(name string, plan *flash.Plan, kernel string, began time.Time) error {
	s := r.row
	s.Name, s.Seconds, s.Kernel = name, time.Since(began).Seconds(), kernel
	if plan != nil {
		s.Problem = plan.Problem().String()
	}
	r.count(&s)
	r.so = append(r.so, s)
	return r.report(s)
}

// count puts what was compiled since the last step into one.
func (r *run) count(s *Step) {
	now := tune.Compilations(r.dev)
	s.Pipelines, s.FromDisk = now.Kernels-r.made.Kernels, now.FromDisk-r.made.FromDisk
	s.Compiling = (now.Time - r.made.Time).Seconds()
	r.made = now
}

func (r *run) steps(cpu bool, opts []flash.PlanOption) error {
	if err := r.done(Open, nil, "", r.began); err != nil {
		return err
	}
	p := shape(cpu)
	began := time.Now()
	plan, err := r.dev.Plan(p, opts...)
	if err != nil {
		return err
	}
	defer plan.Close()
	if err := r.done(FirstPlan, plan, plan.ForwardInfo().Kernel, began); err != nil {
		return err
	}
	f, b, err := r.tensors(plan.Problem())
	if err != nil {
		return err
	}
	began = time.Now()
	if err := plan.Forward(r.ctx, f); err != nil {
		return err
	}
	if err := r.done(FirstForward, plan, plan.ForwardInfo().Kernel, began); err != nil {
		return err
	}
	s := r.row
	s.Name = OpenToForward
	for _, part := range r.so {
		s.Problem, s.Kernel = part.Problem, part.Kernel
		s.Seconds, s.Compiling = s.Seconds+part.Seconds, s.Compiling+part.Compiling
		s.Pipelines, s.FromDisk = s.Pipelines+part.Pipelines, s.FromDisk+part.FromDisk
	}
	if err := r.report(s); err != nil {
		return err
	}
	began = time.Now()
	info, err := plan.BackwardInfo()
	if err == nil {
		err = plan.Backward(r.ctx, b)
	}
	if err != nil {
		return err
	}
	if err := r.done(FirstBackward, plan, info.Kernel, began); err != nil {
		return err
	}
	longer := func(i int) flash.Problem { p := p; p.QueryLen += 256 * i; return p }
	if err := errors.Join(r.again(Again, opts, func(int) flash.Problem { return p }), r.again(NewLength, opts, longer)); err != nil {
		return err
	}
	if err := r.eleven(cpu, opts); err != nil {
		return err
	}
	decoding := p
	decoding.QueryLen = 1
	return r.again(Decoding, opts, func(i int) flash.Problem { p := decoding; p.KeyLen = shape(cpu).QueryLen + i; return p })
}

// tensors are those of both passes, whatever they hold.
func (r *run) tensors(p flash.Problem) (f flash.Forward, b flash.Backward, err error) {
	made := func(s [4]int) (x *flash.Tensor) {
		if err == nil {
			x, err = r.dev.NewTensor(p.DType, s[0], s[1], s[2], s[3])
		}
		return x
	}
	f = flash.Forward{Q: made(p.QShape()), K: made(p.KShape()), V: made(p.VShape()), O: made(p.OShape())}
	if err == nil {
		f.LSE, err = r.dev.NewLSE(p.Batch, p.Heads, p.QueryLen)
	}
	b = flash.Backward{Forward: f, DO: made(p.OShape()), DQ: made(p.QShape()), DK: made(p.KShape()), DV: made(p.VShape())}
	return f, b, err
}

// often is how many plans are made of which one takes the median.
const often = 101

// again measures plans whose kernels exist.
func (r *run) again(name string, opts []flash.PlanOption, problem func(i int) flash.Problem) error {
	var times []float64
	var last *flash.Plan
	plan := func(i int) error {
		began := time.Now()
		plan, err := r.dev.Plan(problem(i), opts...)
		if err == nil {
			times = append(times, time.Since(began).Seconds())
			last = plan
			err = plan.Close()
		}
		return err
	}
	if err := plan(0); err != nil { // makes kernels that are not there yet
		return err
	}
	r.made, times = tune.Compilations(r.dev), nil
	for i := range often {
		if err := plan(i + 1); err != nil {
			return err
		}
	}
	slices.Sort(times)
	s := r.row
	s.Name, s.Problem, s.Kernel, s.N, s.Seconds = name, last.Problem().String(), last.ForwardInfo().Kernel, often, times[often/2]
	r.count(&s)
	return r.report(s)
}

// eleven plans one problem after the other, and tells what they took together.
func (r *run) eleven(cpu bool, opts []flash.PlanOption) error {
	all := r.row
	all.Name = ElevenPlans
	for _, p := range eleven(cpu) {
		began := time.Now()
		plan, err := r.dev.Plan(p, opts...)
		s := r.row
		s.Name, s.Seconds, s.Problem = "plan", time.Since(began).Seconds(), p.String()
		r.count(&s)
		switch {
		case errors.Is(err, flash.ErrUnsupported):
			s.Failure = bench.FailureOf(err)
		case err != nil:
			return err
		default:
			s.Kernel = plan.ForwardInfo().Kernel
			err = plan.Close()
		}
		all.Seconds, all.Compiling = all.Seconds+s.Seconds, all.Compiling+s.Compiling
		all.Pipelines, all.FromDisk, all.N = all.Pipelines+s.Pipelines, all.FromDisk+s.FromDisk, all.N+1
		if err := errors.Join(err, r.report(s)); err != nil && !s.Skipped() {
			return err
		}
	}
	return r.report(all)
}
