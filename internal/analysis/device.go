package analysis

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// FromDevice plans jobs on a device, and measures them where measurer is not nil. Tilings are those of the plans.
func FromDevice(ctx context.Context, dev *flash.Device, peaks bench.Peaks, measurer *bench.Device, jobs []bench.Job, nonzero float64) (*Result, error) {
	r := &Result{Machine: Machine{Device: dev.Info().Name, Peaks: peaks}}
	tilings := map[string]flash.Tiling{}
	var impls []string
	var last flash.Problem
	for _, j := range jobs {
		c := j.Case
		row, tiling, err := onDevice(ctx, dev, measurer, j)
		if err != nil {
			return nil, err
		}
		if row.Error != "" {
			r.note(fmt.Sprintf("%s: %s", c, row.Error))
		}
		if tiling == nil {
			continue
		}
		e, err := Forward(r.Machine, row, tiling)
		if err != nil {
			return nil, err
		}
		r.Entries = append(r.Entries, e)
		if e, err = Backward(r.Machine, row); err != nil {
			return nil, err
		}
		if last, err = row.Problem(); err != nil {
			return nil, err
		}
		r.Entries = append(r.Entries, e)
		if _, ok := tilings[c.Impl]; !ok {
			impls = append(impls, c.Impl)
		}
		tilings[c.Impl] = *tiling
	}
	if len(tilings) == 0 {
		return nil, fmt.Errorf("no case can be planned on %s", r.Device)
	}
	planned := len(impls)
	models(tilings, &impls, nonzero)
	for _, impl := range impls[planned:] { // the last problem with flash2's tile
		c := jobs[len(jobs)-1].Case
		c.Impl = impl
		t := tilings[impl]
		row := bench.Row{Case: c, Tier: r.tierOf("flash2"), Kernel: fmt.Sprintf("model %dx%d", t.Rows, t.Keys)}
		e, err := Forward(r.Machine, row, &t)
		if err != nil {
			return nil, err
		}
		if e.Note == "" {
			e.Note = "model"
		}
		r.Entries = append(r.Entries, e)
	}
	return r, r.Lecture(last, tilings, impls)
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

// onDevice plans one job. Its tiling is nil where there is no plan, or no model of its kernel.
func onDevice(ctx context.Context, dev *flash.Device, measurer *bench.Device, j bench.Job) (bench.Row, *flash.Tiling, error) {
	c := j.Case
	row := bench.Row{Case: c}
	p, err := c.Problem()
	if err != nil {
		return row, nil, err
	}
	impl, err := flash.ParseImplementation(c.Impl)
	if err != nil {
		return row, nil, err
	}
	plan, err := dev.Plan(p, flash.WithImplementation(impl))
	if err != nil {
		row.Error = err.Error()
		return row, nil, ctx.Err()
	}
	defer plan.Close()
	row.Tier, row.Kernel = string(plan.Tier()), plan.Kernel()
	tiling, ok := plan.Tiling()
	if !ok {
		row.Error = "there is no model of " + plan.Kernel()
		return row, nil, nil
	}
	if measurer != nil {
		shape, err := measurer.Shape(ctx, c, j.Passes)
		if err != nil {
			row.Error = err.Error()
			return row, &tiling, ctx.Err()
		}
		defer shape.Close()
		row = shape.Measure(ctx, j, false)
	}
	return row, &tiling, ctx.Err()
}
