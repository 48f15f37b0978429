package bench

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

// Prepare makes the plans of jobs on all cores of the host and lets them go. Their pipelines stay: a driver compiles one of the large
// kernels for seconds, on one core, and a suite has dozens. A job that cannot be planned says so when it is measured. On a CPU's driver,
// which compiles when a kernel first runs and is the device besides, nothing is prepared.
func (d *Device) Prepare(ctx context.Context, jobs []result.Job, done func()) {
	if d.cpu {
		return
	}
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	ready := make(chan struct{}, len(jobs))
	go func() { // Go waits where all cores are busy
		for _, j := range jobs {
			g.Go(func() error {
				d.prepare(ctx, j)
				ready <- struct{}{}
				return nil
			})
		}
	}()
	for range jobs {
		<-ready
		done()
	}
}

func (d *Device) prepare(ctx context.Context, j result.Job) {
	_ = d.Plan(ctx, j, func(bool, string, flash.Tier) error { return nil })
}

// Plan makes the plan of a job and lets it go, and tells each pass when its kernels are there, the forward pass of a job without one too:
// which it is, its kernel with its tile, and the tier. An error of did ends it.
func (d *Device) Plan(ctx context.Context, j result.Job, did func(backward bool, kernel string, tier flash.Tier) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	options, err := d.options(j.Case)
	if err != nil {
		return err
	}
	problem, err := j.Case.Problem()
	if err != nil {
		return err
	}
	plan, err := d.dev.Plan(problem, options...)
	if err != nil {
		return err
	}
	defer plan.Close()
	forward := plan.ForwardInfo()
	if err := did(false, forward.Kernel, forward.Tier); err != nil || !j.Passes.OrDefault().Bwd {
		return err
	}
	info, err := plan.BackwardInfo()
	if err != nil {
		return err
	}
	return did(true, info.Kernel, info.Tier)
}
