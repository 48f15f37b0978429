package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
)

// DeltaProgram computes the row term of the backward pass, δ_i = Σ_d do_id·o_id − dlse_i, for any tier:
// shaders/common/backward_delta.comp. It is fp32 in the recording's workspace, 4 bytes a query and head.
type DeltaProgram struct {
	Problem *attn.Problem // of packed sequences without them
	Module  string
	lanes   int // invocations of a row
	Rows    uint32
	Grid    Grid
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
	return &DeltaProgram{Problem: &flat, Module: "backward_delta." + p.DType.Suffix(), lanes: lanes, Rows: uint32(rows), Grid: g},
		nil
}

// Bytes is the size of delta.
func (s *DeltaProgram) Bytes() uint64 { return 4 * uint64(s.Rows) }

func (s *DeltaProgram) Constants(aligned, dlse bool) Constants {
	return Constants{"WG": deltaThreads, "LANES": s.lanes, "DV": s.Problem.ValueDim, "ALIGNED": BoolInt(aligned),
		"HAS_DLSE": BoolInt(dlse)}
}

// DeltaLabel is the label of its dispatches.
const DeltaLabel = "backward_delta"
