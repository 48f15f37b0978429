package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// DeltaProgram computes the row term of the backward pass, δ_i = Σ_d do_id·o_id − dlse_i, for any tier:
// shaders/common/backward_delta.comp. It is fp32 in the recording's workspace, 4 bytes a query and head.
type DeltaProgram struct {
	env     *Env
	Problem *attn.Problem // of packed sequences without them
	Module  string
	lanes   int // invocations of a row
	Rows    uint32
	Grid    Grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and dlse
}

const deltaThreads = 128 // of a workgroup; every device allows it

func NewDeltaProgram(e *Env, p *attn.Problem, t *Tuning) (*DeltaProgram, error) {
	lanes := 1
	for 16*lanes < p.ValueDim*p.DType.Size() && lanes < 32 { // 16 bytes each
		lanes *= 2
	}
	flat := p.Flat() // of packed sequences all rows, used or not: nobody reads what comes of those that are not
	rows := uint64(flat.Batch) * uint64(p.Heads) * uint64(flat.QueryLen)
	per := uint64(deltaThreads / lanes)
	// Two reads are all there is to it: reckon with 16 operations a number.
	g, err := GridFor(e, (rows+per-1)/per, 16*float64(rows)*float64(p.ValueDim), ScalarPace, t)
	if err != nil {
		return nil, err
	}
	return &DeltaProgram{env: e, Problem: &flat, Module: "backward_delta." + p.DType.Suffix(), lanes: lanes, Rows: uint32(rows), Grid: g},
		nil
}

// Bytes is the size of delta.
func (s *DeltaProgram) Bytes() uint64 { return 4 * uint64(s.Rows) }

func (s *DeltaProgram) Kernel(aligned, dlse bool) (*pipeline.Kernel, error) {
	i := BoolInt(aligned) + 2*BoolInt(dlse)
	return s.env.Variant(&s.kernels[i], s.Module, s.Problem, func() (Constants, pipeline.KernelInfo) {
		return s.Constants(aligned, dlse), pipeline.KernelInfo{}
	})
}

func (s *DeltaProgram) Constants(aligned, dlse bool) Constants {
	return Constants{"WG": deltaThreads, "LANES": s.lanes, "DV": s.Problem.ValueDim, "ALIGNED": BoolInt(aligned),
		"HAS_DLSE": BoolInt(dlse)}
}

func (s *DeltaProgram) Record(r *Recorder, g *Gradients, delta *Operand) error {
	k, err := s.Kernel(g.DO.Aligned && g.O.Aligned, g.HasDLSE)
	if err != nil {
		return err
	}
	at := r.Push.Delta(s.Problem, g, delta)
	r.Access[0] = pipeline.Access{Binding: g.DO.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: g.O.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: g.O.Binding, Mode: pipeline.Unused}
	if g.HasDLSE {
		r.Access[2] = pipeline.Access{Binding: g.DLSE.Binding, Mode: pipeline.Read}
	}
	r.Access[3] = pipeline.Access{Binding: delta.Binding, Mode: pipeline.Write}
	return r.Dispatch(k, r.Access[:4], at, s.Grid, s.Rows, DeltaLabel)
}

// DeltaLabel is the label of its dispatches.
const DeltaLabel = "backward_delta"
