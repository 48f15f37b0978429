package scalar

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// BiasGradient is the gradient by the bias in fp32 arithmetic: shaders/scalar/scalar_backward_bias.comp.
type BiasGradient struct {
	env     *kernel.Env
	problem attn.Problem
	tile    BackwardTile
	grid    kernel.Grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and accumulation
}

// BiasLabel is the label of its dispatches, and the name of its module.
const BiasLabel = "scalar_backward_bias"

// PlanBias fits it to a problem that has a bias. Its tile is that of scalar_backward_q, whose products it makes.
func PlanBias(e *kernel.Env, p *attn.Problem) (*BiasGradient, error) {
	s, t := &BiasGradient{env: e, problem: *p}, kernel.NewBackwardTuning(nil)
	var err error
	if s.tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	shape := p.BiasShape()
	groups := uint64(shape[0]) * uint64(shape[1]) * uint64(attn.CeilDiv(p.KeyLen, s.tile.BC))
	if p.Bias.Own[2] {
		groups *= uint64(attn.CeilDiv(p.QueryLen, s.tile.BR))
	}
	// Two products, of all scores: masks leave no tile out.
	flops := 2 * p.AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	if s.grid, err = kernel.GridFor(e, groups, flops, kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	_, err = s.kernel(p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0, false)
	return s, err
}

// Dispatches is the number of its dispatches.
func (s *BiasGradient) Dispatches() int { return s.grid.Dispatches() }

func (s *BiasGradient) kernel(aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	return s.env.Variant(&s.kernels[i], BiasLabel+"."+s.problem.DType.Suffix(), &s.problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return BiasConstants(&s.problem, &s.tile, aligned, accumulate), pipeline.KernelInfo{}
	})
}

// BiasConstants are its specialization constants.
func BiasConstants(p *attn.Problem, t *BackwardTile, aligned, accumulate bool) kernel.Constants {
	sh := t.shared(p.HeadDim)
	rows := attn.CeilDiv(t.BR/t.MR*t.BC, 4) // of partial sums, where a bias has one row for all queries
	return kernel.Constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate),
		"MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC, "PC": t.PC, "C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt,
		"SHARED_V4": max(sh.length, rows), "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0),
		"OWN_BATCH": kernel.BoolInt(p.Bias.Own[0]), "OWN_HEADS": kernel.BoolInt(p.Bias.Own[1]), "OWN_QUERIES": kernel.BoolInt(p.Bias.Own[2])}.
		And(kernel.MaskConstants(p), kernel.ScoreConstants(p), kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p))
}

// Record writes its dispatches.
func (s *BiasGradient) Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand) error {
	k, err := s.kernel(g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned, g.Accumulate)
	if err != nil {
		return err
	}
	at := r.Push.Backward(&s.problem, g, delta, &g.DBias, nil)
	r.BackwardInputs(g, delta)
	r.Access[6] = g.Output(&g.DBias)
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	return r.Dispatch(k, r.BackwardScores(k, &s.problem, g), at, s.grid, s.grid.Total, BiasLabel)
}
