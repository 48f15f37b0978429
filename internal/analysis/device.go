package analysis

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// FromDevice plans jobs on a device, and measures them where measurer is not nil. Tilings are those of the plans.
func FromDevice(ctx context.Context, dev *flash.Device, peaks bench.Peaks, measurer *bench.Device, jobs []bench.Job, nonzero float64) (*Result, error) {
	r := &Result{Machine: Machine{Device: dev.Info().Name, Peaks: peaks}}
	var met models
	for _, j := range jobs {
		p, err := planned(ctx, dev, measurer, j)
		if err != nil {
			return nil, err
		}
		for _, why := range []string{p.row.Error, p.row.BwdError, p.backwardNote} {
			if why != "" {
				r.note(fmt.Sprintf("%s: %s", j.Case, why))
			}
		}
		if p.tiling != nil {
			e, err := Forward(r.Machine, p.row, p.tiling)
			if err != nil {
				return nil, err
			}
			r.Entries = append(r.Entries, e)
			met.forward(p.row, p.tiling)
		}
		if p.backward != nil || p.row.Bwd.Ms > 0 {
			e, err := Backward(r.Machine, p.row, p.backward)
			if err != nil {
				return nil, err
			}
			r.Entries = append(r.Entries, e)
			met.backward(p.row, p.backward)
		}
	}
	if len(met.list) == 0 {
		return nil, fmt.Errorf("no case can be planned on %s", r.Device)
	}
	for _, t := range met.standIns(nonzero) { // the last problem with flash2's tile
		c := jobs[len(jobs)-1].Case
		c.Impl = string(t.Algorithm)
		row := bench.Row{Case: c, Tier: r.tierOf("flash2"), Kernel: fmt.Sprintf("model %dx%d", t.Rows, t.Keys)}
		e, err := Forward(r.Machine, row, &t)
		if err != nil {
			return nil, err
		}
		r.Entries = append(r.Entries, e)
		met.add(forwardModel(c.Impl, t))
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

// plan is a case on a device: what was measured of it, and the tilings of its passes, nil where there is no plan or no model.
type plan struct {
	row          bench.Row
	tiling       *flash.Tiling
	backward     *flash.BackwardTiling
	backwardNote string // why there is none
}

// planned plans one case, and measures it where measurer is not nil.
func planned(ctx context.Context, dev *flash.Device, measurer *bench.Device, j bench.Job) (p plan, err error) {
	c := j.Case
	p.row = bench.Row{Case: c}
	problem, err := c.Problem()
	if err != nil {
		return p, err
	}
	impl, err := bench.Implementation(c.Impl)
	if err != nil {
		return p, err
	}
	plan, err := dev.Plan(problem, flash.WithImplementation(impl))
	if err != nil {
		p.row.Error = err.Error()
		return p, ctx.Err()
	}
	defer plan.Close()
	p.row.Tier, p.row.Kernel = string(plan.Tier()), plan.Kernel()
	if t, ok := plan.Tiling(); ok {
		p.tiling = &t
	} else {
		p.row.Error = "there is no model of " + plan.Kernel()
	}
	info, err := plan.BackwardInfo()
	switch {
	case err == nil:
		p.row.BwdKernel = info.Kernel
		t, err := plan.BackwardTiling()
		if err != nil && !errors.Is(err, flash.ErrUnsupported) {
			return p, err
		}
		if err == nil {
			p.backward = &t
		}
	case errors.Is(err, flash.ErrUnsupported):
		p.backwardNote = "it has no backward pass"
		j.Passes.Bwd = false
	default:
		return p, err
	}
	if measurer != nil {
		shape, err := measurer.Shape(ctx, c, j.Passes)
		if err != nil {
			p.row.Error = err.Error()
			return p, ctx.Err()
		}
		defer shape.Close()
		p.row = shape.Measure(ctx, j, false)
	}
	return p, ctx.Err()
}
