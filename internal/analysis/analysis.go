// Package analysis says what attention costs and what bounds it: operations of each step, bytes by the tiling that is really
// used, arithmetic intensity, the least possible time on a device, and how far a measured time is from it.
package analysis

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// Entry is one implementation and pass of one problem on one device.
type Entry struct {
	Case    bench.Case   `json:"-"`
	Name    string       `json:"case"`
	Impl    string       `json:"impl"`
	Pass    string       `json:"pass"` // "forward" or "backward"
	Library string       `json:"library,omitempty"`
	Kernel  string       `json:"kernel,omitempty"`
	Steps   []flash.Work `json:"steps"`
	FLOPs   float64      `json:"flops"` // of the products, as the papers count

	Bytes     float64 `json:"bytes,omitempty"`     // that workgroups ask for, by the tiling; 0: not known
	Least     float64 `json:"least_bytes"`         // that no cache can save
	Intensity float64 `json:"intensity,omitempty"` // FLOPs / Bytes
	Ideal     float64 `json:"ideal_intensity"`     // FLOPs / Least
	Ridge     float64 `json:"ridge,omitempty"`     // intensity from which arithmetic bounds
	Bound     string  `json:"bound,omitempty"`     // of the least time: "memory" or "arithmetic"

	LeastMs   float64 `json:"least_ms,omitempty"`    // the larger of FLOPs at the peak and Least at the bandwidth
	NoCacheMs float64 `json:"no_cache_ms,omitempty"` // the same with Bytes: had every load to go to memory
	Ms        float64 `json:"measured_ms,omitempty"`
	TFLOPS    float64 `json:"tflops,omitempty"`
	Over      float64 `json:"measured_over_least,omitempty"`
	Note      string  `json:"note,omitempty"`
}

// Machine is the measured ceilings of a device.
type Machine struct {
	Device string      `json:"device"`
	Peaks  bench.Peaks `json:"peaks"`
}

// peak is the ceiling in operations a second of a kernel: fp32 arithmetic for fp32 storage and for the scalar tier, else the
// faster of it and matrices. A peer's kernels use matrices where they can.
func (m Machine) peak(dtype, tier string) float64 {
	if dtype == "float32" || tier == "scalar" {
		return 1e12 * m.Peaks.FP32TFLOPS
	}
	return 1e12 * max(m.Peaks.MatrixTFLOPS, m.Peaks.FP32TFLOPS)
}

// Ridge is the intensity in operations a byte at which a kernel of that type and tier stops being bound by memory; 0 unless both
// ceilings are known.
func (m Machine) Ridge(dtype, tier string) float64 {
	if m.Peaks.CopyGBps <= 0 {
		return 0
	}
	return m.peak(dtype, tier) / (1e9 * m.Peaks.CopyGBps)
}

// AlgorithmOf is the byte model of an implementation; false where there is none.
func AlgorithmOf(impl string) (flash.Algorithm, bool) {
	switch impl {
	case "standard":
		return flash.AlgorithmStandard, true
	case "flash1":
		return flash.AlgorithmFlash1, true
	case "flash2", "fa2", "cudnn":
		return flash.AlgorithmFlash2, true
	case "blocksparse":
		return flash.AlgorithmBlockSparse, true
	}
	return "", false
}

// Forward analyses the forward pass of a row, measured or not. tiling is nil where it is not known: the bytes by tiling are
// then left out.
func Forward(m Machine, row bench.Row, tiling *flash.Tiling) (Entry, error) {
	p, err := row.Problem()
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Case: row.Case, Name: row.Case.String(), Impl: row.Impl, Pass: "forward", Library: row.Library, Kernel: row.Kernel,
		FLOPs: p.ForwardFLOPs(), Ms: row.Fwd.Ms, TFLOPS: row.Fwd.TFLOPS, Note: row.Error}
	algorithm, ok := AlgorithmOf(row.Impl)
	if !ok {
		return Entry{}, fmt.Errorf("there is no model of %q", row.Impl)
	}
	if e.Least, err = p.LeastForwardBytes(algorithm); err != nil {
		return Entry{}, err
	}
	model := flash.Tiling{Algorithm: flash.AlgorithmFlash2, Rows: 1, Keys: 1} // for the operations alone
	if tiling != nil {
		model = *tiling
	}
	if e.Steps, err = model.Forward(p); err != nil {
		return Entry{}, err
	}
	if tiling == nil {
		for i := range e.Steps {
			e.Steps[i].Read, e.Steps[i].Written = 0, 0
		}
	} else {
		e.Bytes = orElse(row.Fwd.Bytes, flash.Total(e.Steps).Bytes())
		if tiling.Algorithm == flash.AlgorithmBlockSparse {
			e.FLOPs *= tiling.Nonzero
			e.Least = min(e.Least, e.Bytes) // of few blocks, less than all of K and V
			e.Note = fmt.Sprintf("%.0f %% of blocks; model", 100*tiling.Nonzero)
		}
	}
	e.bound(m, row)
	return e, nil
}

// orElse is the first that is not 0.
func orElse(a, b float64) float64 {
	if a != 0 {
		return a
	}
	return b
}

// Backward analyses the backward pass of a row, measured or not. tiling is nil where it is not known.
func Backward(m Machine, row bench.Row, tiling *flash.BackwardTiling) (Entry, error) {
	p, err := row.Problem()
	if err != nil {
		return Entry{}, err
	}
	algorithm, ok := AlgorithmOf(row.Impl)
	if !ok {
		return Entry{}, fmt.Errorf("there is no model of %q", row.Impl)
	}
	e := Entry{Case: row.Case, Name: row.Case.String(), Impl: row.Impl, Pass: "backward", Library: row.Library, Kernel: row.BwdKernel,
		FLOPs: p.BackwardFLOPs(), Ms: row.Bwd.Ms, TFLOPS: row.Bwd.TFLOPS, Note: row.BwdError}
	if tiling == nil {
		e.Steps, err = p.BackwardOperations()
	} else if e.Steps, err = tiling.Backward(p); err == nil {
		e.Bytes = orElse(row.Bwd.Bytes, flash.Total(e.Steps).Bytes())
	}
	if err != nil {
		return Entry{}, err
	}
	if e.Least, err = p.LeastBackwardBytes(algorithm); err != nil {
		return Entry{}, err
	}
	e.bound(m, row)
	return e, nil
}

// bound fills in what follows from operations, bytes and the machine.
func (e *Entry) bound(m Machine, row bench.Row) {
	e.Ideal = e.FLOPs / e.Least
	if e.Bytes > 0 {
		e.Intensity = e.FLOPs / e.Bytes
	}
	peak, bandwidth := m.peak(row.DType, row.Tier), 1e9*m.Peaks.CopyGBps
	if peak <= 0 || bandwidth <= 0 {
		return
	}
	e.Ridge = peak / bandwidth
	e.Bound = "memory"
	if e.Ideal >= e.Ridge {
		e.Bound = "arithmetic"
	}
	e.LeastMs = 1e3 * math.Max(e.FLOPs/peak, e.Least/bandwidth)
	if e.Bytes > 0 {
		e.NoCacheMs = 1e3 * math.Max(e.FLOPs/peak, e.Bytes/bandwidth)
	}
	if e.Ms > 0 {
		e.Over = e.Ms / e.LeastMs
	}
}
