package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Accumulate copies, adds or joins x to y.
type Accumulate struct{ program }

// NewAccumulate makes the pipeline of dense tensors.
func NewAccumulate(e *kernel.Env, of *kernel.Accumulate) (*Accumulate, error) {
	s := &Accumulate{}
	return s, s.begin(fitAccumulate(e, of))
}

func fitAccumulate(e *kernel.Env, of *kernel.Accumulate) (*Fitted, error) {
	a := *of
	rows, columns := uint64(a.Shape[0])*uint64(a.Shape[1])*uint64(a.Shape[2]), a.Shape[3]
	if elements := rows * uint64(columns); elements > kernel.MaxGroups {
		return nil, attn.BadArgument("AccumulateProblem.Shape", a.Shape, "has more than %d elements", uint64(kernel.MaxGroups))
	}
	pieces, err := kernel.PiecesOf(e, rows, columns, a.DType, 1)
	mode := pipeline.ReadWrite
	if a.Rule == kernel.AccumulateCopy {
		mode = pipeline.Write
	}
	bind := []Bind{{Name: "xView1", To: "X", Mode: pipeline.Read}, {Name: "yView1", To: "Y", Mode: mode}}
	if a.Rule == kernel.AccumulateJoin {
		bind = append(bind, Bind{Name: "LseX", To: "XLSE", Mode: pipeline.Read}, Bind{Name: "LseY", To: "YLSE", Mode: pipeline.Read},
			Bind{Name: "LseOut", To: "LSE", Mode: pipeline.Write})
	}
	return &Fitted{Env: e, Problem: rowsOf(columns, a.DType), Name: kernel.AccumulateLabel, Pass: func(v Variant) *Pass {
		by := &pieces[kernel.BoolInt(v.Aligned)]
		return &Pass{Problem: &attn.Problem{}, Operands: kernel.AccumulateTensors[:], Stages: []Stage{{Label: kernel.AccumulateLabel,
			Module: kernel.AccumulateLabel + "." + a.DType.Suffix(), Constants: kernel.AccumulateConstants(&a, v.Aligned), Grid: by.Grid,
			Total: by.Items, Args: Args{As: AsAdding, Accumulate: &a}, Bind: bind, Idle: "X"}}}
	}}, err
}

// Record writes the dispatches for tensors in the order of kernel.AccumulateTensors. In steady state that allocates nothing.
func (s *Accumulate) Record(r *kernel.Recorder, all []*kernel.Operand) error {
	aligned := s.usual.Aligned && all[0].Aligned && all[1].Aligned
	return s.recordAs(r, Variant{Aligned: aligned, Output: aligned}, &tensors{operands: all})
}
