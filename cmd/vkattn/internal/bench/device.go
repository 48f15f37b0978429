package bench

import (
	"math"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// Inputs and outputs that fit a cache would be measured there; several sets
// are then used in turn until together they no longer fit.
const (
	largestCache    = 128 << 20 // bytes; more than the last-level cache of any GPU that is known to us
	largestCacheCPU = 32 << 20
	mostSets        = 16
)

// Device is the Bench of a Vulkan device.
type Device struct {
	dev     *flash.Device
	library string
	name    string
	driver  string
	cpu     bool
	busy    time.Time // until then it had work
	peaks   result.Peaks
	opts    []flash.PlanOption
	sets    int // of tensors, at most

	// Limit bounds the time of a row: fewer runs than leastRuns are made where
	// they would take longer. 0: no bound.
	Limit time.Duration
}

// NewDevice measures on dev. opts narrow what every plan may choose, besides
// the implementation.
func NewDevice(dev *flash.Device, version string, peaks result.Peaks, opts ...flash.PlanOption) *Device {
	info := dev.Info()
	return &Device{dev: dev, library: "vkattn " + version, name: info.Name, driver: info.Driver, cpu: IsCPU(info),
		peaks: peaks, opts: opts, sets: mostSets}
}

// Row returns an empty row of the device.
func (d *Device) Row(c result.Case) result.Row {
	return result.Row{Origin: result.Origin{Library: d.library, Device: d.name, Driver: d.driver}, Case: c, Note: c.EmptyMask()}
}

// Ceiling is the larger of the measured arithmetic peaks.
func (d *Device) Ceiling() float64 { return 1e12 * max(d.peaks.MatrixTFLOPS, d.peaks.FP32TFLOPS) }

// Sets is the number of sets of tensors of so many bytes whose rotation outgrows the cache, or the most that are made.
func (d *Device) Sets(bytes float64) int {
	cache := float64(largestCache)
	if d.cpu {
		cache = largestCacheCPU
	}
	return int(min(math.Ceil(cache/bytes), float64(d.sets)))
}

// options are those of every plan for a case.
func (d *Device) options(c result.Case) ([]flash.PlanOption, error) {
	impl, err := result.Implementation(c.Impl)
	if err != nil {
		return nil, err
	}
	opts := slices.Concat([]flash.PlanOption{flash.WithImplementation(impl)}, d.opts)
	if c.Tuning != "" {
		forward, backward := tune.Split(c.Tuning.Values())
		opts = append(opts, flash.WithTuning(forward), flash.WithBackwardTuning(backward))
	}
	return opts, nil
}
