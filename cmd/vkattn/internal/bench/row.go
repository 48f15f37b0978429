package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/plainjson"
)

// Row is the result of one case: figures, or the reason why there are none.
type Row struct {
	Library string // who measured: "vkattn 0.1.0", "torch 2.11.0+cu130"
	Case

	Tier, Kernel   string // what ran: "scalar", "scalar_forward 64x32"
	Device, Driver string
	Classes        string // shares of blocks of each class, where a mask function was asked of them beforehand; "": it was not

	Fwd Pass
	Bwd Pass

	MaxErr  *float64 // largest |o − reference| over the rows checked
	ErrMax  *float64 // what MaxErr may be
	ErrRows int      // rows of o checked

	BwdKernel  string   // what ran backward
	BwdMaxErr  *float64 // the same of the gradients
	BwdErrMax  *float64
	BwdErrRows int    // rows of dq and keys of dk and dv checked
	BwdError   string // why there are figures of forward and none of backward
	BwdReason  Reason

	Error  string // why there are no figures
	Reason Reason // the kind of Error
	// PredictedMs is the time of one run for which the row was skipped.
	PredictedMs float64
	Note        string // what the reader of the figures must know, such as "wall time"

	samples, bwdSamples []float64 // ms of every run
	peaks               Peaks     // of the run that measured the row, where a file says so; none: of the run that shows it
}

// Reason is why a row has no figures.
type Reason string

const (
	ReasonMemory      Reason = "memory"      // does not fit the device
	ReasonLimit       Reason = "limit"       // over the time limit of a row
	ReasonUnsupported Reason = "unsupported" // no kernel of this device can
	ReasonFailed      Reason = "failed"      // anything else went wrong
	ReasonCheck       Reason = "check"       // the output is wrong
)

// Skipped says that the row has no figures but nothing is wrong.
func (r Row) Skipped() bool {
	return r.Error != "" && !r.Reason.fault()
}

// Failed says that the row reports a fault.
func (r Row) Failed() bool {
	return r.Error != "" && r.Reason.fault() || r.BwdError != "" && r.BwdReason.fault()
}

func (r Reason) fault() bool { return r == ReasonFailed || r == ReasonCheck }

// After is the row that counts of two of the same case, r the later one: r with the passes that only the earlier one measured,
// or the earlier one where r has no figures.
func (r Row) After(earlier Row) Row {
	if r.Error != "" {
		if earlier.Error == "" {
			return earlier
		}
		return r
	}
	if r.Fwd.Ms == 0 && earlier.Fwd.Ms > 0 {
		r.Fwd, r.samples, r.peaks = earlier.Fwd, earlier.samples, earlier.peaks
	}
	if r.Bwd.Ms == 0 && r.BwdError == "" && (earlier.Bwd.Ms > 0 || earlier.BwdError != "") {
		r.Bwd, r.bwdSamples = earlier.Bwd, earlier.bwdSamples
		r.BwdKernel, r.BwdMaxErr, r.BwdErrMax, r.BwdErrRows = earlier.BwdKernel, earlier.BwdMaxErr, earlier.BwdErrMax, earlier.BwdErrRows
		r.BwdError, r.BwdReason = earlier.BwdError, earlier.BwdReason
	}
	return r
}

// Ceiling is what bounds a pass of the row, as the run that measured it has measured that: copying where reading keys takes the time, else
// arithmetic, of fp32 on the scalar tier and of matrices elsewhere. 0: it was not measured, or the row is a peer's.
func (r *Row) Ceiling() (name string, value float64) {
	switch {
	case !r.Ours():
		return "", 0
	case r.readsKeys():
		return "copy", r.peaks.CopyGBps
	case OnMatrices(r.DType, r.Tier):
		return "matrix", r.peaks.MatrixTFLOPS
	}
	return "fp32", r.peaks.FP32TFLOPS
}

// OnMatrices says whether matrices do the arithmetic of a kernel of a tier for a storage type. Without a tier, as of peers and of old rows,
// they do but for float32.
func OnMatrices(dtype, tier string) bool {
	if tier == "" {
		return dtype != "float32"
	}
	return tier != string(flash.TierScalar)
}

// Ours says whether this program measured the row.
func (r *Row) Ours() bool { return strings.HasPrefix(r.Library, "vkattn") }

// MarshalJSON writes the row with the keys of result files, which
// tools/torch_baseline.py shares, so that both programs read each other's files.
// Figures keep six significant digits.
func (r Row) MarshalJSON() ([]byte, error) {
	var o object
	for i := range fileColumns {
		c := &fileColumns[i]
		o.add(c.Key, c.stored(&r), c.sure)
	}
	return o.end()
}

// UnmarshalJSON reads a row of ours or of torch_baseline.py. Keys it does not
// know are left alone; a row without impl, dtype or sizes is refused.
func (r *Row) UnmarshalJSON(data []byte) error {
	var values map[string]json.RawMessage
	if err := plainjson.Unmarshal(data, &values); err != nil {
		return err
	}
	return r.take(values)
}

// take is UnmarshalJSON of an object that was taken apart.
func (r *Row) take(values map[string]json.RawMessage) error {
	var row Row
	for _, c := range fileColumns {
		value, ok := values[c.Key]
		if !ok {
			continue
		}
		if err := plainjson.Unmarshal(value, c.field(&row)); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
		if v, ok := c.field(&row).(*float64); ok && c.positive && *v < 0 {
			return fmt.Errorf("%s is %v: it must not be negative", c.Key, *v)
		}
	}
	if row.Impl == "" {
		return fmt.Errorf("the row has no impl")
	}
	for _, a := range Axes {
		if err := a.read(&row.Case); err != nil {
			return err
		}
	}
	for _, a := range Axes {
		a.derive(&row.Case)
	}
	if row.Error != "" && row.Reason == "" { // a peer's row: it says why in words only
		row.Reason = ReasonFailed
	}
	if row.BwdError != "" && row.BwdReason == "" {
		row.BwdReason = ReasonFailed
	}
	if err := row.validate(); err != nil {
		return err
	}
	*r = row
	return nil
}

// round keeps six significant digits.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// finite drops what JSON cannot hold; the row's error then says what was wrong.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}
