package flash_test

import (
	"context"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

func init() {
	h := &flash.TuneHooks
	h.TimeRuns = func(ctx context.Context, d *flash.Device, runs []*flash.Recording, n int) error {
		_, err := tune.TimeRuns(ctx, d, runs, n)
		return err
	}
	h.MeasurePeaks = func(ctx context.Context, d *flash.Device) error {
		_, err := tune.MeasurePeaks(ctx, d)
		return err
	}
	h.Candidates = func(d *flash.Device, p flash.Problem, opts ...flash.PlanOption) error {
		_, err := tune.Candidates(d, p, opts...)
		return err
	}
	// Kernels that fail, by name with the tile, and why.
	h.SelfCheck = func(ctx context.Context, d *flash.Device, impls []flash.Implementation, tiers []flash.Tier) (map[string]string, error) {
		verdicts, err := tune.SelfCheck(ctx, d, impls, tiers)
		failed := map[string]string{}
		for _, v := range verdicts {
			if !v.Pass {
				failed[v.Kernel] = v.Why
			}
		}
		return failed, err
	}
}
