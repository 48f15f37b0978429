package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// Row is the result of one case: figures, or the reason why there are none.
type Row struct {
	Library string // who measured: "vkattn 0.1.0", "torch 2.11.0+cu130"
	Case

	Tier, Kernel   string // what ran: "scalar", "scalar_forward 64x32"
	Device, Driver string

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
}

// Pass holds the figures of one pass, forward or backward. Ms = 0 means not measured.
type Pass struct {
	Ms       float64   // median over all runs of the device time of one run
	P20, P80 float64   // percentiles of the same, in ms
	WallMs   float64   // host time of one run from submission to fence, median
	TFLOPS   float64   // 10¹² operations a second at the median
	PeakMiB  *float64  // device memory beyond inputs and outputs, as asked for
	BlockMiB float64   // the same as the allocator took it: blocks, alignment included
	TotalMiB float64   // inputs, outputs and PeakMiB
	N        int       // runs
	Rounds   []float64 // median of each round in ms, when there were several
	// Bytes is what workgroups load from and store to device memory by the model of the kernel's tiling (flash.Tiling); 0: not
	// known. Caches may serve part of it.
	Bytes float64
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
		r.Fwd, r.samples = earlier.Fwd, earlier.samples
	}
	if r.Bwd.Ms == 0 && r.BwdError == "" && (earlier.Bwd.Ms > 0 || earlier.BwdError != "") {
		r.Bwd, r.bwdSamples = earlier.Bwd, earlier.bwdSamples
		r.BwdKernel, r.BwdMaxErr, r.BwdErrMax, r.BwdErrRows = earlier.BwdKernel, earlier.BwdMaxErr, earlier.BwdErrMax, earlier.BwdErrRows
		r.BwdError, r.BwdReason = earlier.BwdError, earlier.BwdReason
	}
	return r
}

// rowJSON is a row as files hold it. The first keys are those of
// tools/torch_baseline.py, so that both programs read each other's files.
type rowJSON struct {
	Library string `json:"library"`
	Impl    string `json:"impl"`
	DType   string `json:"dtype"`
	B       int    `json:"B"`
	H       int    `json:"H"`
	Hkv     int    `json:"Hkv"`
	Nq      int    `json:"Nq"`
	N       int    `json:"N"`
	D       int    `json:"D"`
	Dv      int    `json:"Dv,omitempty"`
	Causal  bool   `json:"causal"`

	Dropout float64 `json:"dropout,omitempty"`
	Density float64 `json:"density,omitempty"` // share of nonzero blocks
	Tuning  Tuning  `json:"tuning,omitempty"`

	Tier   string `json:"tier,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	Device string `json:"device,omitempty"`
	Driver string `json:"driver,omitempty"`

	FwdPeak   *float64  `json:"fwd_peak_MiB,omitempty"`
	FwdBlock  float64   `json:"fwd_block_MiB,omitempty"`
	FwdTotal  float64   `json:"fwd_total_MiB,omitempty"`
	FwdMs     float64   `json:"fwd_ms,omitempty"`
	FwdTFLOPS float64   `json:"fwd_tflops,omitempty"`
	FwdP20    float64   `json:"fwd_p20_ms,omitempty"`
	FwdP80    float64   `json:"fwd_p80_ms,omitempty"`
	FwdWall   float64   `json:"fwd_wall_ms,omitempty"`
	FwdRounds []float64 `json:"fwd_rounds_ms,omitempty"`
	N1        int       `json:"n,omitempty"`
	FwdBytes  float64   `json:"fwd_bytes,omitempty"`

	BwdPeak   *float64  `json:"bwd_peak_MiB,omitempty"`
	BwdBlock  float64   `json:"bwd_block_MiB,omitempty"`
	BwdTotal  float64   `json:"bwd_total_MiB,omitempty"`
	BwdMs     float64   `json:"bwd_ms,omitempty"`
	BwdTFLOPS float64   `json:"bwd_tflops,omitempty"`
	BwdP20    float64   `json:"bwd_p20_ms,omitempty"`
	BwdP80    float64   `json:"bwd_p80_ms,omitempty"`
	BwdWall   float64   `json:"bwd_wall_ms,omitempty"`
	BwdRounds []float64 `json:"bwd_rounds_ms,omitempty"`
	N2        int       `json:"bwd_n,omitempty"`
	BwdBytes  float64   `json:"bwd_bytes,omitempty"`

	BwdKernel  string   `json:"bwd_kernel,omitempty"`
	BwdMaxErr  *float64 `json:"bwd_max_err,omitempty"`
	BwdErrMax  *float64 `json:"bwd_err_bound,omitempty"`
	BwdErrRows int      `json:"bwd_err_rows,omitempty"`
	BwdError   string   `json:"bwd_error,omitempty"`
	BwdReason  Reason   `json:"bwd_reason,omitempty"`

	MaxErr  *float64 `json:"max_err,omitempty"`
	ErrMax  *float64 `json:"err_bound,omitempty"`
	ErrRows int      `json:"err_rows,omitempty"`
	Note    string   `json:"note,omitempty"`
	Error   string   `json:"error,omitempty"`
	Reason  Reason   `json:"reason,omitempty"`

	Predicted float64 `json:"predicted_ms,omitempty"`
}

// MarshalJSON writes the row with the keys of result files. Figures keep six
// significant digits.
func (r Row) MarshalJSON() ([]byte, error) {
	f, b := r.Fwd.rounded(), r.Bwd.rounded()
	j := rowJSON{
		Library: r.Library, Impl: r.Impl, DType: r.DType,
		B: r.B, H: r.H, Hkv: r.Hkv, Nq: r.Nq, N: r.N, D: r.D, Dv: r.Dv, Causal: r.Causal, Dropout: r.Dropout, Density: r.Density, Tuning: r.Tuning,
		BwdKernel: r.BwdKernel, BwdMaxErr: finite(r.BwdMaxErr), BwdErrMax: finite(r.BwdErrMax), BwdErrRows: r.BwdErrRows,
		BwdError: r.BwdError, BwdReason: r.BwdReason, FwdBytes: f.Bytes, BwdBytes: b.Bytes,
		Tier: r.Tier, Kernel: r.Kernel, Device: r.Device, Driver: r.Driver,
		FwdPeak: f.PeakMiB, FwdBlock: f.BlockMiB, FwdTotal: f.TotalMiB, FwdMs: f.Ms, FwdTFLOPS: f.TFLOPS, FwdP20: f.P20, FwdP80: f.P80, FwdWall: f.WallMs, FwdRounds: f.Rounds, N1: f.N,
		BwdPeak: b.PeakMiB, BwdBlock: b.BlockMiB, BwdTotal: b.TotalMiB, BwdMs: b.Ms, BwdTFLOPS: b.TFLOPS, BwdP20: b.P20, BwdP80: b.P80, BwdWall: b.WallMs, BwdRounds: b.Rounds, N2: b.N,
		MaxErr: finite(r.MaxErr), ErrMax: finite(r.ErrMax), ErrRows: r.ErrRows, Note: r.Note, Error: r.Error, Reason: r.Reason,
		Predicted: round(r.PredictedMs),
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(j)
	return bytes.TrimSpace(out.Bytes()), err
}

// UnmarshalJSON reads a row of ours or of torch_baseline.py. Keys it does not
// know are left alone; a row without impl, dtype or sizes is refused.
func (r *Row) UnmarshalJSON(data []byte) error {
	var j rowJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.Impl == "" {
		return fmt.Errorf("the row has no impl")
	}
	dtype, err := ParseDType(j.DType)
	if err != nil {
		return err
	}
	if j.Nq == 0 {
		j.Nq = j.N
	}
	if j.Hkv == 0 {
		j.Hkv = j.H
	}
	if j.Dv == 0 {
		j.Dv = j.D
	}
	*r = Row{
		Library: j.Library,
		Case: Case{Impl: j.Impl, DType: dtype, B: j.B, H: j.H, Hkv: j.Hkv, Nq: j.Nq, N: j.N,
			D: j.D, Dv: j.Dv, Causal: j.Causal, Dropout: j.Dropout, Density: j.Density},
		BwdKernel: j.BwdKernel, BwdMaxErr: j.BwdMaxErr, BwdErrMax: j.BwdErrMax, BwdErrRows: j.BwdErrRows,
		BwdError: j.BwdError, BwdReason: j.BwdReason,
		Tier: j.Tier, Kernel: j.Kernel, Device: j.Device, Driver: j.Driver,
		Fwd:    Pass{Ms: j.FwdMs, P20: j.FwdP20, P80: j.FwdP80, WallMs: j.FwdWall, TFLOPS: j.FwdTFLOPS, PeakMiB: j.FwdPeak, BlockMiB: j.FwdBlock, TotalMiB: j.FwdTotal, N: j.N1, Rounds: j.FwdRounds, Bytes: j.FwdBytes},
		Bwd:    Pass{Ms: j.BwdMs, P20: j.BwdP20, P80: j.BwdP80, WallMs: j.BwdWall, TFLOPS: j.BwdTFLOPS, PeakMiB: j.BwdPeak, BlockMiB: j.BwdBlock, TotalMiB: j.BwdTotal, N: j.N2, Rounds: j.BwdRounds, Bytes: j.BwdBytes},
		MaxErr: j.MaxErr, ErrMax: j.ErrMax, ErrRows: j.ErrRows, Note: j.Note, Error: j.Error, Reason: j.Reason,
		PredictedMs: j.Predicted,
	}
	if j.Tuning != "" {
		if r.Tuning, err = ParseTuning(string(j.Tuning)); err != nil {
			return err
		}
	}
	if r.Error != "" && r.Reason == "" { // a peer's row: it says why in words only
		r.Reason = ReasonFailed
	}
	if r.BwdError != "" && r.BwdReason == "" {
		r.BwdReason = ReasonFailed
	}
	if err := r.validate(); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"fwd_ms", j.FwdMs}, {"bwd_ms", j.BwdMs}, {"fwd_tflops", j.FwdTFLOPS}, {"bwd_tflops", j.BwdTFLOPS}} {
		if f.value < 0 {
			return fmt.Errorf("%s is %v: it must not be negative", f.name, f.value)
		}
	}
	return nil
}

func (p Pass) rounded() Pass {
	for _, v := range []*float64{&p.Ms, &p.P20, &p.P80, &p.WallMs, &p.TFLOPS, &p.BlockMiB, &p.TotalMiB, &p.Bytes} {
		*v = round(*v)
	}
	rounds := make([]float64, 0, len(p.Rounds))
	for _, r := range p.Rounds {
		rounds = append(rounds, round(r))
	}
	p.Rounds = rounds
	if p.PeakMiB != nil {
		v := round(*p.PeakMiB)
		p.PeakMiB = &v
	}
	return p
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
