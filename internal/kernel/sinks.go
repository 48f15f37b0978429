package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// SinkGradient is the gradient with respect to the sinks, for any tier: shaders/common/backward_sinks.comp.
type SinkGradient struct {
	env     *Env
	problem attn.Problem
	grid    Grid
	kernels [2]atomic.Pointer[pipeline.Kernel] // by accumulation
}

// sinksLabel is the label of its dispatches, and the name of its module.
const sinksLabel = "backward_sinks"

const sinkThreads = 128 // of a workgroup; every device allows it

// NewSinkGradient fits it to a problem that has sinks.
func NewSinkGradient(e *Env, p *attn.Problem) (*SinkGradient, error) {
	s := &SinkGradient{env: e, problem: *p}
	var err error
	// Two reads a row: reckon with 16 operations.
	if s.grid, err = GridFor(e, uint64(p.Heads), 16*p.AllHeads()*float64(p.QueryLen), ScalarPace, NewBackwardTuning(nil)); err != nil {
		return nil, err
	}
	_, err = s.kernel(false)
	return s, err
}

// Dispatches is the number of its dispatches.
func (s *SinkGradient) Dispatches() int { return s.grid.Dispatches() }

func (s *SinkGradient) kernel(accumulate bool) (*pipeline.Kernel, error) {
	return s.env.Variant(&s.kernels[BoolInt(accumulate)], sinksLabel, &s.problem, func() (Constants, pipeline.KernelInfo) {
		return SinkGradientConstants(&s.problem, accumulate), pipeline.KernelInfo{}
	})
}

// SinkGradientConstants are its specialization constants.
func SinkGradientConstants(p *attn.Problem, accumulate bool) Constants {
	return Constants{"WG": sinkThreads, "ACCUMULATE": BoolInt(accumulate)}.And(SinkConstants(p), LengthConstants(p))
}

// Record writes its dispatches.
func (s *SinkGradient) Record(r *Recorder, g *Gradients, delta *Operand) error {
	k, err := s.kernel(g.Accumulate)
	if err != nil {
		return err
	}
	at := r.Push.Backward(&s.problem, g, delta, &g.DSinks, nil)
	r.Access[0] = pipeline.Access{Binding: g.LSE.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: delta.Binding, Mode: pipeline.Read}
	r.Access[2] = g.Output(&g.DSinks)
	r.BindSinks(3, &s.problem, &g.Scores, g.LSE.Binding)
	r.BindLengths(7, &s.problem, &g.Scores, g.LSE.Binding)
	return r.Dispatch(k, r.Accesses(k), at, s.grid, s.grid.Total, sinksLabel)
}
