package bench

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
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
	if ctx.Err() != nil {
		return
	}
	options, err := d.options(j.Case)
	if err != nil {
		return
	}
	problem, err := j.Case.Problem()
	if err != nil {
		return
	}
	plan, err := d.dev.Plan(problem, options...)
	if err != nil {
		return
	}
	defer plan.Close()
	if j.Passes.OrDefault().Bwd {
		_, _ = plan.BackwardInfo()
	}
}
