package compiled

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/pipeline"
)

// Compile makes the kernels of jobs on a device that was opened with flash.CompileOnly: of each job those that a plan takes, and where that
// are kernels on matrices, those of the scalar tier too. A problem that no kernel takes is a pass that is refused. progress, which may be
// nil, is told what comes next, and of how many. again opens the device once more: one that has no memory, which a driver makes up that is
// told what to compile for, can record nothing, and what a plan makes is seen where nothing else was made.
func Compile(ctx context.Context, dev *flash.Device, again func() (*flash.Device, error), jobs []result.Job,
	progress func(i, of int, what string)) (out []Pass, err error) {
	compile := compile
	if len(dev.Info().Facts.MemoryTypes) == 0 {
		compile = func(ctx context.Context, _ *flash.Device, j result.Job, tier flash.Tier) ([]Pass, bool, error) {
			dev, err := again()
			if err != nil {
				return nil, false, err
			}
			defer dev.Close()
			return planned(ctx, dev, j, tier)
		}
	}
	for i, j := range jobs {
		if err := ctx.Err(); err != nil {
			return out, context.Cause(ctx)
		}
		if progress != nil {
			progress(i, len(jobs), j.Case.String())
		}
		tier := flash.Tier("")
		if j.Case.Tuning != "" { // a form, which matrices alone have
			if len(dev.Info().Facts.Matrices) == 0 {
				continue
			}
			tier = flash.TierMatrix
		}
		all, matrices, err := compile(ctx, dev, j, tier)
		if err != nil {
			return out, err
		}
		out = append(out, all...)
		if matrices && tier == "" {
			if all, _, err = compile(ctx, dev, j, flash.TierScalar); err != nil {
				return out, err
			}
			out = append(out, all...)
		}
	}
	return out, nil
}

// Dearest is what the driver says of the kernel of a case's one pass that has the most instructions; false where no kernel takes the case.
func Dearest(ctx context.Context, dev *flash.Device, j result.Job, tier flash.Tier) (s Stage, ok bool, err error) {
	passes, _, err := compile(ctx, dev, j, tier)
	if err != nil || len(passes) == 0 {
		return s, false, err
	}
	for _, stage := range passes[len(passes)-1].Stages {
		if !ok || stage.Instructions > s.Instructions {
			s, ok = stage, true
		}
	}
	return s, ok, nil
}

// of names a job's problem, and gives what plans it on a tier where it names one.
func of(dev *flash.Device, j result.Job, tier flash.Tier) (string, *bench.Device) {
	named := j.Case.String()
	var opts []flash.PlanOption
	if tier != "" {
		named += ", " + string(tier)
		opts = append(opts, flash.WithTier(tier))
	}
	return named, bench.NewDevice(dev, "", result.Peaks{}, opts...)
}

// compile makes those of one job, on a tier where it names one.
func compile(ctx context.Context, dev *flash.Device, j result.Job, tier flash.Tier) (out []Pass, matrices bool, err error) {
	named, b := of(dev, j, tier)
	listed, failure := b.List(ctx, j)
	for _, l := range listed {
		p := Pass{Problem: named + ", " + direction(l.Backward), Kernel: l.Kernel}
		matrices = matrices || l.Tier == flash.TierMatrix
		if p.Stages, err = Stages(dev, l.Listing); err != nil {
			return nil, false, err
		}
		out = append(out, p)
	}
	return refuse(out, named, j, failure, matrices)
}

// planned is compile on a device that nothing was made on: what its kernels are is what the passes' plans made. It has no memory to record
// with, so a pass's kernels are in the order of their names.
func planned(ctx context.Context, dev *flash.Device, j result.Job, tier flash.Tier) (out []Pass, matrices bool, err error) {
	named, b := of(dev, j, tier)
	seen := 0
	failure := b.Plan(ctx, j, func(backward bool, kernel string, tier flash.Tier) error {
		made := tune.Kernels(dev)
		if !backward && !j.Passes.OrDefault().Fwd {
			seen = len(made)
			return nil
		}
		matrices = matrices || tier == flash.TierMatrix
		p := Pass{Problem: named + ", " + direction(backward), Kernel: kernel}
		for _, k := range made[seen:] {
			s, err := stageOf(k)
			if err != nil {
				return err
			}
			p.Stages = append(p.Stages, s)
		}
		seen = len(made)
		slices.SortFunc(p.Stages, func(a, b Stage) int {
			return cmp.Or(cmp.Compare(a.Module, b.Module), -cmp.Compare(a.Instructions, b.Instructions))
		})
		out = append(out, p)
		return nil
	})
	return refuse(out, named, j, failure, matrices)
}

// refuse adds the pass of a job that failed, if one did: the first that is not there.
func refuse(out []Pass, named string, j result.Job, failure error, matrices bool) ([]Pass, bool, error) {
	switch {
	case failure == nil:
	case fatal(failure):
		return nil, false, failure
	default:
		out = append(out, Pass{Problem: named + ", " + direction(len(out) > 0 || !j.Passes.OrDefault().Fwd), Refused: failure.Error()})
	}
	return out, matrices, nil
}

// fatal says whether an error is the device's or the caller's, and not of one problem.
func fatal(err error) bool {
	return errors.Is(err, flash.ErrDeviceLost) || errors.Is(err, flash.ErrClosed) || errors.Is(err, context.Canceled)
}

func direction(backward bool) string {
	if backward {
		return "backward"
	}
	return "forward"
}

// Stages are the kernels that a listing dispatches, each once: a long pass is several dispatches of one.
func Stages(dev *flash.Device, l *pipeline.Listing) (out []Stage, err error) {
	var seen []pipeline.ListedKernel
	for _, o := range l.Operations {
		if o.Kernel.Name == "" || slices.Contains(seen, o.Kernel) {
			continue
		}
		seen = append(seen, o.Kernel)
		s, err := stage(dev, o.Kernel)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// stage is what the driver says of a kernel that was listed.
func stage(dev *flash.Device, l pipeline.ListedKernel) (Stage, error) {
	for _, k := range tune.Kernels(dev) {
		if k.Listed() == l {
			return stageOf(k)
		}
	}
	return Stage{}, fmt.Errorf("%s was recorded, and the device knows no such kernel", l.Name)
}

func stageOf(k *pipeline.Kernel) (Stage, error) {
	s := Stage{Module: k.Listed().Name, Seconds: math.Round(100*k.Took().Seconds()) / 100, Stats: StatsOf(nil)}
	if said, err := k.Stats(); err == nil {
		s.Stats = StatsOf(said)
	} else if !errors.Is(err, pipeline.ErrNoStats) {
		return s, err
	}
	return s, nil
}
