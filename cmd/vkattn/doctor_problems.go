package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

// doctorJobs are usual problems: both passes for each type and two head dimensions, and decoding. Sizes fill a GPU, and keep a CPU busy for
// milliseconds.
func doctorJobs(cpu bool) (jobs []result.Job) {
	heads, tokens := 16, 4096
	decoding := result.Case{B: 4, H: 32, Hkv: 8, Nq: 1, N: 8192, D: 128, Dv: 128}
	if cpu {
		heads, tokens = 2, 256
		decoding = result.Case{B: 1, H: 8, Hkv: 2, Nq: 1, N: 2048, D: 128, Dv: 128}
	}
	dtypes := []string{"float16", "bfloat16", "float32"}
	for _, dtype := range dtypes {
		for _, dim := range []int{64, 128} {
			jobs = append(jobs, result.Job{Passes: result.Passes{Fwd: true, Bwd: true}, Case: result.Case{DType: dtype, B: 1, H: heads,
				Hkv: heads, Nq: tokens, N: tokens, D: dim, Dv: dim}})
		}
	}
	for _, dtype := range dtypes {
		decoding.DType = dtype
		jobs = append(jobs, result.Job{Passes: result.Passes{Fwd: true}, Case: decoding})
	}
	for i := range jobs {
		jobs[i].Case.Impl = "flash2"
	}
	return jobs
}

// choiceJSON is which kernel a problem gets, or why none.
type choiceJSON struct {
	Pass   string   `json:"pass"` // forward, backward, decoding
	DType  string   `json:"dtype"`
	Dim    int      `json:"D"`
	Kernel string   `json:"kernel,omitempty"`
	Tier   string   `json:"tier,omitempty"`
	Tuned  bool     `json:"tuned,omitempty"` // its tile was measured by vkattn tune
	Why    []string `json:"why_not_faster,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// passOf names the pass of a case.
func passOf(c result.Case, backward bool) string {
	switch {
	case backward:
		return "backward"
	case c.Nq < c.N:
		return "decoding"
	}
	return "forward"
}

// choices makes the plans of the problems.
func (d *doctor) choices(ctx context.Context, dev *flash.Device) error {
	jobs, names := doctorJobs(d.Device.CPU), 0
	prepared := func() { names++; d.begin(fmt.Sprintf("plans and self-checks, %d of %d", names, len(jobs))) }
	bench.NewDevice(dev, d.VKAttn, d.Device.Peaks).Prepare(ctx, jobs, prepared)
	for _, j := range jobs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.begin("the plan of " + j.Case.String())
		if err := d.choose(dev, j); err != nil {
			return err
		}
	}
	return nil
}

// choose notes what a problem gets. Its error is that of a lost device.
func (d *doctor) choose(dev *flash.Device, j result.Job) error {
	problem, err := j.Case.Problem()
	if err != nil {
		return err
	}
	add := func(backward bool, c choiceJSON, err error) error {
		c.Pass, c.DType, c.Dim = passOf(j.Case, backward), j.Case.DType, j.Case.D
		var no *flash.UnsupportedError
		switch {
		case errors.As(err, &no):
			c.Why, c.Error = no.Reasons, "not on this device"
		case err != nil:
			c.Error = homeless(plain(err.Error()))
			d.wrong(reportIt, "planning %s %s D %d: %v", c.Pass, c.DType, c.Dim, err)
		}
		d.Choices = append(d.Choices, c)
		if errors.Is(err, flash.ErrDeviceLost) {
			return err
		}
		return nil
	}
	plan, err := dev.Plan(problem)
	if err != nil {
		return add(false, choiceJSON{}, err)
	}
	defer plan.Close()
	d.runnable = append(d.runnable, j)
	of := plan.ForwardInfo()
	forward := choiceJSON{Kernel: of.Kernel, Tier: string(of.Tier), Tuned: plan.Tuned(), Why: of.WhyNotFaster}
	if err := add(false, forward, nil); err != nil || !j.Passes.Bwd {
		return err
	}
	info, err := plan.BackwardInfo()
	return add(true, choiceJSON{Kernel: info.Kernel, Tier: string(info.Tier), Why: info.WhyNotFaster}, err)
}

// speeds measures the ceilings and the problems that a kernel runs, and compares what they gave with the reference.
func (d *doctor) speeds(ctx context.Context, dev *flash.Device) error {
	d.begin("peaks of arithmetic and copying")
	if err := d.Device.measurePeaks(ctx, dev); err != nil || len(d.runnable) == 0 {
		return err
	}
	d.bar.done()
	measurer := bench.NewDevice(dev, d.VKAttn, d.Device.Peaks)
	measurer.Limit = max(d.f.limit/time.Duration(len(d.runnable)), time.Millisecond).Round(time.Millisecond)
	bar := newBar(d.bar.w, d.bar.w == nil)
	defer bar.done()
	sweep := bench.Sweep{Bench: measurer, Jobs: d.runnable, Rounds: 1, Limit: measurer.Limit, Progress: bar.step,
		OnRow: func(r result.Row) error {
			d.Rows = append(d.Rows, r)
			for _, f := range []struct {
				failure  result.Failure
				backward bool
			}{{r.Failure, false}, {r.BwdFailure, true}} {
				if f.failure.Failed() {
					d.wrong(reportIt, "%s %s D %d, %s: %s", passOf(r.Case, f.backward), r.DType, r.D, r.Kernel, f.failure.Error)
				}
			}
			return dev.Lost()
		}}
	return sweep.Run(ctx)
}
