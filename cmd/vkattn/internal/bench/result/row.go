package result

import (
	"strings"

	"github.com/vkattn/vkattn/flash"
)

// Row is attention on one device: the figures of a case, or the reason why there are none.
type Row struct {
	Origin
	Case

	Tier, Kernel string // what ran: "scalar", "scalar_forward 64x32"
	Classes      string // shares of blocks of each class, where a mask function was asked of them beforehand; "": it was not

	Fwd Pass
	Bwd Pass

	Check     // of o
	BwdKernel string
	BwdCheck  Check // of rows of dq and keys of dk and dv

	Failure
	JVP        Pass // in forward mode, with tangents of q, k and v
	JVPKernel  string
	JVPCheck   Check   // of rows of o's tangent
	JVPFailure Failure // why there are figures of forward and none of this
	BwdFailure Failure // why there are figures of forward and none of backward
	// PredictedMs is the time of one run for which the row was skipped.
	PredictedMs float64
	Note        string // what the reader of the figures must know, such as "wall time"

	peaks   Peaks    // of the run that measured the row, where a file says so; none: of the run that shows it
	command []string // of that run
}

// Flag is the value of a flag of the command that measured the row, as its file has it; "" where it was not given.
func (r *Row) Flag(name string) string {
	for i, word := range r.command {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			return value
		}
		if word == "--"+name && i+1 < len(r.command) {
			return r.command[i+1]
		}
	}
	return ""
}

// Failed says that the row reports a fault, of either pass.
func (r Row) Failed() bool {
	return r.Failure.Failed() || r.BwdFailure.Failed() || r.JVPFailure.Failed()
}

// Fail notes why the row has no figures.
func (r *Row) Fail(f Failure) {
	r.Failure = f
	r.Fwd, r.Bwd, r.JVP = Pass{}, Pass{}, Pass{}
}

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
		r.Fwd, r.peaks = earlier.Fwd, earlier.peaks
	}
	if r.Bwd.Ms == 0 && r.BwdFailure.Error == "" && (earlier.Bwd.Ms > 0 || earlier.BwdFailure.Error != "") {
		r.Bwd, r.BwdKernel, r.BwdCheck, r.BwdFailure = earlier.Bwd, earlier.BwdKernel, earlier.BwdCheck, earlier.BwdFailure
	}
	if r.JVP.Ms == 0 && r.JVPFailure.Error == "" && (earlier.JVP.Ms > 0 || earlier.JVPFailure.Error != "") {
		r.JVP, r.JVPKernel, r.JVPCheck, r.JVPFailure = earlier.JVP, earlier.JVPKernel, earlier.JVPCheck, earlier.JVPFailure
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

// Done says whether a row has what is asked for, or the reason why it never will. Memory that there was not, or a limit, is none: the next
// run may have more.
func (p Passes) Done(r Row) bool {
	p = p.OrDefault()
	done := func(pass Pass, f Failure) bool { return pass.Ms > 0 || f.lasting() }
	return r.Failure.lasting() || r.Error == "" && (!p.Fwd || r.Fwd.Ms > 0) && (!p.Bwd || done(r.Bwd, r.BwdFailure)) &&
		(!p.JVP || !r.Ours() || done(r.JVP, r.JVPFailure))
}
