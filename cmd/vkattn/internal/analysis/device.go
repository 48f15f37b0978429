package analysis

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// FromDevice plans jobs on a device, and measures them where measurer is not nil. Models are those of the plans.
func FromDevice(ctx context.Context, dev *flash.Device, peaks result.Peaks, measurer *bench.Device, jobs []result.Job,
	nonzero float64) (*Result, error) {
	r := &Result{Machine: Machine{Device: dev.Info().Name, CPU: bench.IsCPU(dev.Info()), Peaks: peaks}}
	var met models
	for _, j := range jobs {
		row, note, err := planned(ctx, dev, measurer, j)
		if err != nil {
			return nil, err
		}
		for _, why := range []string{row.Error, row.BwdFailure.Error, note} {
			if why != "" {
				r.note(fmt.Sprintf("%s: %s", j.Case, why))
			}
		}
		if !j.Case.Counted() {
			r.note(uncounted)
		}
		if !row.Fwd.Model.IsZero() {
			e, err := Forward(r.Machine, row)
			if err != nil {
				return nil, err
			}
			r.Entries = append(r.Entries, e)
			if err := met.forward(row); err != nil {
				return nil, err
			}
		}
		if !row.Bwd.Model.IsZero() {
			e, err := Backward(r.Machine, row)
			if err != nil {
				return nil, err
			}
			r.Entries = append(r.Entries, e)
			if err := met.backward(row); err != nil {
				return nil, err
			}
		}
	}
	if len(met.list) == 0 {
		return nil, fmt.Errorf("no case can be planned on %s", r.Device)
	}
	standIns, err := met.standIns(nonzero)
	if err != nil {
		return nil, err
	}
	for _, s := range standIns { // of the last problem
		c := jobs[len(jobs)-1].Case
		c.Impl, c.Density = s.impl, 0
		p, err := c.Problem()
		if err != nil {
			return nil, err
		}
		p.Blocks = s.blocks
		e, err := forward(r.Machine, result.Row{Case: c, Tier: r.tierOf("flash2"), Kernel: s.kernel, Fwd: result.Pass{Model: s.model}}, p,
			tune.Call{LSE: true, Nonzero: nonzero})
		if err != nil {
			return nil, err
		}
		r.Entries = append(r.Entries, e)
	}
	return r, r.Lecture(met.last, met.list)
}

// tierOf is the tier of the entries of an implementation, for models of others.
func (r *Result) tierOf(impl string) string {
	for _, e := range r.Entries {
		if e.Impl == impl && e.Ridge > 0 && e.Ridge == r.Ridge(e.Case.DType, "scalar") {
			return "scalar"
		}
	}
	return ""
}

// planned plans one case, and measures it where measurer is not nil. The row has the models of the passes that there are kernels for; note
// says why there is none for the backward pass.
func planned(ctx context.Context, dev *flash.Device, measurer *bench.Device, j result.Job) (row result.Row, note string, err error) {
	c := j.Case
	row = result.Row{Case: c}
	problem, err := c.Problem()
	if err != nil {
		return row, "", err
	}
	impl, err := result.Implementation(c.Impl)
	if err != nil {
		return row, "", err
	}
	plan, err := dev.Plan(problem, flash.WithImplementation(impl))
	if err != nil {
		row.Error = err.Error()
		return row, "", ctx.Err()
	}
	defer plan.Close()
	forward := plan.ForwardInfo()
	row.Tier, row.Kernel, row.Fwd.Model = string(forward.Tier), forward.Kernel, tune.ForwardModel(plan)
	info, err := plan.BackwardInfo()
	switch {
	case err == nil:
		row.BwdKernel = info.Kernel
		if row.Bwd.Model, err = tune.BackwardModel(plan); err != nil {
			return row, "", err
		}
	case errors.Is(err, flash.ErrUnsupported):
		note = "it has no backward pass"
		j.Passes.Bwd = false
	default:
		return row, "", err
	}
	if measurer == nil {
		return row, note, ctx.Err()
	}
	shape, err := measurer.Shape(ctx, c, j.Passes)
	if err != nil {
		row.Error = err.Error()
		return row, note, ctx.Err()
	}
	defer shape.Close()
	measured := shape.Measure(ctx, j, false)
	if measured.BwdKernel == "" { // not measured
		measured.BwdKernel = row.BwdKernel
	}
	measured.Fwd.Model, measured.Bwd.Model = row.Fwd.Model, row.Bwd.Model
	return measured, note, ctx.Err()
}
