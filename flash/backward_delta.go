package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// deltaProgram computes the row term of the backward pass, δ_i = Σ_d do_id·o_id − dlse_i, for any tier:
// shaders/common/backward_delta.comp. It is fp32 in the recording's workspace, 4 bytes a query and head.
type deltaProgram struct {
	dev     *Device
	problem Problem
	module  string
	lanes   int // invocations of a row
	rows    uint32
	grid    grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and dlse
}

const deltaThreads = 128 // of a workgroup; every device allows it

func newDeltaProgram(d *Device, p *Problem, t *tuning) (*deltaProgram, error) {
	lanes := 1
	for 16*lanes < p.ValueDim*p.DType.Size() && lanes < 32 { // 16 bytes each
		lanes *= 2
	}
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(p.QueryLen)
	per := uint64(deltaThreads / lanes)
	// Two reads are all there is to it: reckon with 16 operations a number.
	g, err := gridFor(d, (rows+per-1)/per, 16*float64(rows)*float64(p.ValueDim), scalarPace, t)
	if err != nil {
		return nil, err
	}
	return &deltaProgram{dev: d, problem: *p, module: "backward_delta." + p.DType.suffix(), lanes: lanes, rows: uint32(rows), grid: g}, nil
}

// bytes is the size of delta.
func (s *deltaProgram) bytes() uint64 { return 4 * uint64(s.rows) }

func (s *deltaProgram) kernel(aligned, dlse bool) (*pipeline.Kernel, error) {
	i := boolInt(aligned) + 2*boolInt(dlse)
	return s.dev.variant(&s.kernels[i], s.module, func() (constants, pipeline.KernelInfo) {
		return s.constants(aligned, dlse), pipeline.KernelInfo{}
	})
}

func (s *deltaProgram) constants(aligned, dlse bool) constants {
	return constants{{"WG", deltaThreads}, {"LANES", s.lanes}, {"DV", s.problem.ValueDim}, {"ALIGNED", boolInt(aligned)},
		{"HAS_DLSE", boolInt(dlse)}}
}

func (s *deltaProgram) record(r *recorder, g *gradients, delta *operand) error {
	k, err := s.kernel(g.do.aligned && g.o.aligned, g.hasDLSE)
	if err != nil {
		return err
	}
	at := r.push.delta(&s.problem, g, delta)
	r.access[0] = pipeline.Access{Binding: g.do.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: g.o.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: g.o.binding, Mode: pipeline.Unused}
	if g.hasDLSE {
		r.access[2] = pipeline.Access{Binding: g.dlse.binding, Mode: pipeline.Read}
	}
	r.access[3] = pipeline.Access{Binding: delta.binding, Mode: pipeline.Write}
	return r.dispatch(k, r.access[:4], at, s.grid, s.rows, "backward_delta")
}
