// Package analysis says what attention costs and what bounds it: operations of each step, bytes as the kernel that ran counts
// them, arithmetic intensity, the least possible time on a device, and how far a measured time is from it.
package analysis

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Entry is one implementation and pass of one problem on one device.
type Entry struct {
	Case    result.Case `json:"-"`
	Name    string      `json:"case"`
	Impl    string      `json:"impl"`
	Pass    string      `json:"pass"` // "forward" or "backward"
	Library string      `json:"library,omitempty"`
	Kernel  string      `json:"kernel,omitempty"`
	Steps   []tune.Work `json:"steps"`
	FLOPs   float64     `json:"flops"` // of the products, as the papers count

	Bytes     float64 `json:"bytes,omitempty"`     // that workgroups ask for; 0: not known
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
	Device string       `json:"device"`
	CPU    bool         `json:"cpu,omitempty"`
	Peaks  result.Peaks `json:"peaks"`
}

// peak is the ceiling in operations a second of a kernel: fp32 arithmetic where it computes without matrices, else the faster of it and
// matrices. A peer's kernels use matrices where they can.
func (m Machine) peak(dtype, tier string) float64 {
	if !result.OnMatrices(dtype, tier) {
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

// implementationOf is the order of loops of an implementation, a peer's or ours; false for one that is not known.
func implementationOf(impl string) (flash.Implementation, bool) {
	switch impl {
	case "fa2", "cudnn", "efficient", "flex", result.BlockSparse:
		return flash.Flash, true
	}
	of, err := flash.ParseImplementation(impl)
	return of, err == nil
}

// Forward analyses the forward pass of a row, measured or not. Where the row has no model of its kernel, its steps have no bytes.
func Forward(m Machine, row result.Row) (Entry, error) {
	p, err := row.Problem()
	if err != nil {
		return Entry{}, err
	}
	return forward(m, row, p, row.Case.Call())
}

// forward is Forward of a problem and a call that may be others than the row's case has.
func forward(m Machine, row result.Row, p flash.Problem, call tune.Call) (Entry, error) {
	e := Entry{Case: row.Case, Name: row.Case.String(), Impl: row.Impl, Pass: "forward", Library: row.Library, Kernel: row.Kernel,
		FLOPs: flopsOf(row), Ms: row.Fwd.Ms, TFLOPS: row.Fwd.TFLOPS, Note: row.Error}
	of, ok := implementationOf(row.Impl)
	if !ok {
		return Entry{}, unknown(row.Impl)
	}
	var err error
	if e.Least, err = leastOf(row, tune.LeastForwardBytes, of); err != nil {
		return Entry{}, err
	}
	if err := e.count(row.Fwd, traffic.ForwardOperations{}, p, call); err != nil {
		return Entry{}, err
	}
	if p.Blocks != (flash.Blocks{}) {
		share := orElse(row.Density, call.Nonzero)
		e.FLOPs *= share
		if e.Bytes > 0 {
			e.Least = min(e.Least, e.Bytes) // of few blocks, less than all of K and V
		}
		e.Note = fmt.Sprintf("%.0f %% of blocks", 100*share)
	}
	e.bound(m, row)
	return e, nil
}

// flopsOf counts the operations of a forward pass as the row's own rate does, but of all blocks: p knows neither lengths of batch entries
// nor how many keys masks and lists leave.
func flopsOf(row result.Row) float64 {
	c := row.Case
	c.Density = 0
	return c.ForwardFLOPs()
}

// leastOf is what a pass of a row moves at least, of each batch entry what it uses.
func leastOf(row result.Row, bytes func(flash.Problem, flash.Implementation) (float64, error), of flash.Implementation) (float64, error) {
	return row.Least(func(p flash.Problem, _ flash.Implementation) (float64, error) { return bytes(p, of) })
}

// uncounted is what is said of rows that are not result.Case.Counted.
const uncounted = "steps and bytes of biases and of batch entries of several lengths are not known: models of kernels know neither"

// unknown is the error of an implementation that nothing is known of.
func unknown(impl string) error { return fmt.Errorf("there is no model of %q", impl) }

// count fills in steps and bytes: by the pass's model, or else operations alone, with the bytes that were recorded where there are any;
// nothing where a model would count another problem.
func (e *Entry) count(pass result.Pass, operations traffic.Model, p flash.Problem, call tune.Call) error {
	if !e.Case.Counted() {
		e.Steps = []tune.Work{}
		return nil
	}
	model, err := pass.Model, error(nil)
	if model.IsZero() {
		if model, err = modelOf(operations); err != nil {
			return err
		}
	}
	if e.Steps, err = model.Work(p, call); err != nil {
		return err
	}
	e.Bytes = orElse(pass.Bytes, tune.Total(e.Steps).Bytes())
	return nil
}

// modelOf is a model as a file holds it.
func modelOf(m traffic.Model) (out tune.Model, err error) {
	data, err := traffic.Marshal(m)
	if err == nil {
		err = out.UnmarshalJSON(data)
	}
	return out, err
}

// orElse is the first that is not 0.
func orElse(a, b float64) float64 {
	if a != 0 {
		return a
	}
	return b
}

// Backward analyses the backward pass of a row, measured or not, as Forward does the forward pass.
func Backward(m Machine, row result.Row) (Entry, error) {
	p, err := row.Problem()
	if err != nil {
		return Entry{}, err
	}
	of, ok := implementationOf(row.Impl)
	if !ok {
		return Entry{}, unknown(row.Impl)
	}
	e := Entry{Case: row.Case, Name: row.Case.String(), Impl: row.Impl, Pass: "backward", Library: row.Library, Kernel: row.BwdKernel,
		FLOPs: row.BackwardFLOPs(), Ms: row.Bwd.Ms, TFLOPS: row.Bwd.TFLOPS, Note: row.BwdFailure.Error}
	if err := e.count(row.Bwd, traffic.BackwardOperations{}, p, row.Case.Call()); err != nil {
		return Entry{}, err
	}
	if e.Least, err = leastOf(row, tune.LeastBackwardBytes, of); err != nil {
		return Entry{}, err
	}
	e.bound(m, row)
	return e, nil
}

// bound fills in what follows from operations, bytes and the machine.
func (e *Entry) bound(m Machine, row result.Row) {
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
