package scalar

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// BiasGradient is the gradient by a bias in fp32 arithmetic: shaders/scalar/scalar_backward_bias.comp.
type BiasGradient struct {
	env     *kernel.Env
	problem attn.Problem
	of      kernel.Bias
	tile    BackwardTile
	grid    kernel.Grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and accumulation
	checked [4]atomic.Bool                     // likewise
}

// BiasLabel is the label of its dispatches, and the name of its module.
const BiasLabel = "scalar_backward_bias"

// PlanBias fits it to a problem that has the bias. Its tile is that of scalar_backward_q, whose products it makes.
func PlanBias(e *kernel.Env, p *attn.Problem, of kernel.Bias) (*BiasGradient, error) {
	s, t := &BiasGradient{env: e, problem: *p, of: of}, kernel.NewBackwardTuning(nil)
	var err error
	if s.tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Two products, of all scores: masks leave no tile out.
	flops := 2 * p.InBatch().AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	if s.grid, err = kernel.GridFor(e, s.groups(p), flops, kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	_, err = s.build(aligned, false)
	if e.Attached && kernel.HasFunctions(p) { // to a device of the caller's, whose queue recording must leave alone
		for i := range s.kernels {
			if err == nil && (aligned || i&1 == 0) {
				_, err = s.build(i&1 != 0, i&2 != 0)
			}
		}
	}
	return s, err
}

// groups is the number of workgroups for a problem.
func (s *BiasGradient) groups(p *attn.Problem) uint64 {
	bias := s.of.Of(p)
	shape := bias.Shape(p)
	n := uint64(shape[0]) * uint64(shape[1]) * uint64(attn.CeilDiv(p.KeyLen, s.tile.BC))
	if bias.Own[2] {
		n *= uint64(attn.CeilDiv(p.QueryLen, s.tile.BR))
	}
	return n
}

// build makes the pipeline of a variant. One with functions of the user's in it proves itself where it was never run on this device and
// driver.
func (s *BiasGradient) build(aligned, accumulate bool) (*pipeline.Kernel, error) {
	k, err := s.kernel(aligned, accumulate)
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	if err != nil || s.checked[i].Load() {
		return k, err
	}
	if kernel.HasFunctions(&s.problem) {
		made := []kernel.Compiled{{Module: s.module(), Constants: BiasConstants(&s.problem, s.of.Of(&s.problem), &s.tile, aligned,
			accumulate), Functions: s.problem.Code()}}
		try := func() (string, error) { return s.try(k, aligned, accumulate) }
		if err := s.env.Prove(fmt.Sprintf("%s %v", BiasLabel, &s.tile), made, try); err != nil {
			return nil, err
		}
	}
	s.checked[i].Store(true)
	return k, nil
}

// try runs a pipeline on a small problem, with two of whatever the bias has one element for, and says what is wrong with the gradient.
func (s *BiasGradient) try(k *pipeline.Kernel, aligned, accumulate bool) (wrong string, err error) {
	mine := &BiasGradient{problem: trialOf(&s.problem, &s.tile), of: s.of, tile: s.tile}
	p := &mine.problem
	p.Batch = max(p.Batch, 2)
	if mine.grid, err = kernel.NewGrid(mine.groups(p), 0); err != nil {
		return "", err
	}
	delta, err := kernel.NewDeltaProgram(s.env, p, kernel.NewTuning(nil))
	if err != nil {
		return "", err
	}
	rows, err := kernel.NewRowTables(s.env, p, s.tile.blocks(false))
	if err != nil {
		return "", err
	}
	variant := kernel.GradientVariant{Aligned: aligned, Accumulate: accumulate, By: s.of.Name}
	return s.env.TryBackward(p, variant, nil, append([]uint64{delta.Bytes()}, rows.Scratch()...),
		func(r *kernel.Recorder, g *kernel.Gradients) error {
			at := kernel.Operand{Binding: r.Scratch[0]}
			if err := rows.Record(r, &g.Scores, r.Scratch[1:]); err != nil {
				return err
			}
			if err := delta.Record(r, g, &at); err != nil {
				return err
			}
			return mine.dispatch(r, k, g, &at)
		})
}

// Dispatches is the number of its dispatches.
func (s *BiasGradient) Dispatches() int { return s.grid.Dispatches() }

func (s *BiasGradient) module() string { return BiasLabel + "." + s.problem.DType.Suffix() }

func (s *BiasGradient) kernel(aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	return s.env.Variant(&s.kernels[i], s.module(), &s.problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return BiasConstants(&s.problem, s.of.Of(&s.problem), &s.tile, aligned, accumulate), pipeline.KernelInfo{}
	})
}

// BiasConstants are its specialization constants.
func BiasConstants(p *attn.Problem, of *attn.PerScore, t *BackwardTile, aligned, accumulate bool) kernel.Constants {
	sh := t.shared(p.HeadDim)
	sh.length = max(sh.length, attn.CeilDiv(t.BR/t.MR*t.BC, 4)) // partial sums, where a bias has one row for all queries
	return t.constants(p, sh, aligned, accumulate).And(kernel.Constants{"GRADIENT_32": kernel.BoolInt(of.DType == attn.F32),
		"OWN_BATCH": kernel.BoolInt(of.Own[0]),
		"OWN_HEADS": kernel.BoolInt(of.Own[1]), "OWN_QUERIES": kernel.BoolInt(of.Own[2])})
}

// Record writes its dispatches.
func (s *BiasGradient) Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand) error {
	k, err := s.build(g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned, g.Accumulate)
	if err != nil {
		return err
	}
	return s.dispatch(r, k, g, delta)
}

func (s *BiasGradient) dispatch(r *kernel.Recorder, k *pipeline.Kernel, g *kernel.Gradients, delta *kernel.Operand) error {
	to := s.of.Gradient(g)
	at := r.Push.Backward(&s.problem, g, delta, to, nil)
	r.BackwardInputs(g, delta)
	r.Access[6] = g.Output(to)
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	return r.Dispatch(k, r.BackwardScores(k, &s.problem, g), at, s.grid, s.grid.Total, BiasLabel)
}
