package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// BiasLabel is the label of the dispatches of the gradient with respect to a bias in fp32 arithmetic, and the name of its module:
// shaders/scalar/scalar_backward_bias.comp.
const BiasLabel = "scalar_backward_bias"

// biasGradient is that kernel fitted to a problem.
type biasGradient struct {
	problem *attn.Problem
	of      kernel.Bias
	tile    BackwardTile
	grid    kernel.Grid
}

// PlanBias fits it to a problem that has the bias. Its tile is that of scalar_backward_q, whose products it makes. more is scratch that it
// finds behind δ, and does not use.
func PlanBias(e *kernel.Env, problem *attn.Problem, of kernel.Bias, more ...pass.Scratch) (*pass.Gradient, error) {
	p := *problem
	s, err := fitBias(e, &p, of)
	if err != nil {
		return nil, err
	}
	return pass.NewGradient(&pass.Fitted{Env: e, Problem: &p, Name: fmt.Sprintf("%s %v", BiasLabel, &s.tile), Named: s.tile.String(),
		Trusted: true,
		Pass: func(v pass.Variant) *pass.Pass {
			out := pass.Behind(&p, more...)
			out.Stages = []pass.Stage{s.stage(v)}
			return out
		},
		// two of whatever the bias has one element for
		SelfCheck: func(v pass.Variant) (*pass.Pass, error) {
			small, p := *s, selfCheckOf(&p, &s.tile)
			p.Batch = max(p.Batch, 2)
			kernel.DrawInEntries(&p)
			small.problem = &p
			grid, err := kernel.NewGrid(s.groups(&p), 0)
			if err != nil {
				return nil, err
			}
			small.grid = grid
			delta, err := kernel.NewDeltaProgram(e, &p, kernel.NewTuning(nil))
			if err != nil {
				return nil, err
			}
			out := pass.BackwardOf(e, &p, delta, v, nil, s.tile.blocks(false))
			out.Stages = append(out.Stages, small.stage(v))
			return out, nil
		}}, kernel.GradientVariant{By: of.Name})
}

func fitBias(e *kernel.Env, p *attn.Problem, of kernel.Bias) (s *biasGradient, err error) {
	t := kernel.NewBackwardTuning(nil)
	s = &biasGradient{problem: p, of: of}
	if s.tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Two products, of all scores: masks leave no tile out.
	flops := 2 * p.InBatch().AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	s.grid, err = kernel.GridFor(e, s.groups(p), flops, kernel.ScalarPace, t)
	return s, err
}

func (s *biasGradient) stage(v pass.Variant) pass.Stage {
	p, to := s.problem, "D"+s.of.Name
	return pass.Stage{Label: BiasLabel, Module: BiasLabel + "." + p.DType.Suffix(), Proves: true, Grid: s.grid, Idle: "Q",
		Constants: BiasConstants(p, s.of.PerScore(p), &s.tile, v.Aligned, v.Accumulate),
		Args:      pass.Args{As: pass.AsBackward, Problem: p, X: to},
		Bind:      append(pass.BackwardViews.Inputs(), append(pass.BackwardViews.Gradients(v, to, ""), pass.Scores(p, 0)...)...)}
}

// groups is the number of workgroups for a problem.
func (s *biasGradient) groups(p *attn.Problem) uint64 {
	bias := s.of.PerScore(p)
	shape := bias.Shape(p)
	n := uint64(shape[0]) * uint64(shape[1]) * uint64(attn.CeilDiv(p.KeyLen, s.tile.BC))
	if bias.Own[2] {
		n *= uint64(attn.CeilDiv(p.QueryLen, s.tile.BR))
	}
	return n
}

// BiasConstants are its specialization constants.
func BiasConstants(p *attn.Problem, of *attn.PerScore, t *BackwardTile, aligned, accumulate bool) kernel.Constants {
	sh := t.shared(p.HeadDim)
	sh.length = max(sh.length, attn.CeilDiv(t.BR/t.MR*t.BC, 4)) // partial sums, where a bias has one row for all queries
	return t.constants(p, sh, aligned, accumulate).And(kernel.Constants{"GRADIENT_32": kernel.BoolInt(of.DType == attn.F32),
		"OWN_BATCH": kernel.BoolInt(of.Own[0]),
		"OWN_HEADS": kernel.BoolInt(of.Own[1]), "OWN_QUERIES": kernel.BoolInt(of.Own[2])})
}
