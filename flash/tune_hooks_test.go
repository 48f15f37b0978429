package flash

import "context"

// TuneHooks are functions of flash/tune, for tests of this package: it imports flash, and so they cannot import it. tune_hooks_set_test.go
// of package flash_test sets them.
var TuneHooks struct {
	TimeRuns     func(ctx context.Context, d *Device, runs []*Recording, n int) error
	MeasurePeaks func(ctx context.Context, d *Device) error
	Candidates   func(d *Device, p Problem, opts ...PlanOption) error
	SelfCheck    func(ctx context.Context, d *Device, impls []Implementation, tiers []Tier) (failed map[string]string, err error)
}
