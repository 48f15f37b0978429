package matrix

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// biasLabel is the label of the dispatches of the gradient with respect to the bias on cooperative matrices, and the name of its module:
// shaders/matrix/matrix_backward_bias.comp.
const biasLabel = "matrix_backward_bias"

// biasGradient is that kernel fitted to a problem.
type biasGradient struct {
	problem *attn.Problem
	layout  *kernel.FragmentLayout
	tile    BackwardTile
	grid    kernel.Grid
}

// PlanBias fits it to a problem that has a bias. Its tile is that of matrix_backward_q, whose products it makes, as far as shared memory
// goes; what the caller gave for that kernel holds for this one too. more is scratch that it finds behind δ, and does not use. The error is
// a *Declined where the device cannot.
func PlanBias(e *kernel.Env, problem *attn.Problem, of kernel.Bias, given map[string]int,
	more ...pass.Scratch) (*pass.Gradient, error) {
	if of.At != attn.AtBias {
		return nil, &kernel.Declined{Why: "matrix_backward_bias makes that by Bias alone"}
	}
	if why := BackwardLacks(&e.Caps, problem); why != "" {
		return nil, &kernel.Declined{Why: why}
	}
	if !problem.Blocks.None() { // a tile without a block would have to be written too
		return nil, &kernel.Declined{Why: "matrix_backward_bias has no block mask"}
	}
	t := kernel.NewBackwardTuning(given)
	fragment, layout, form, err := e.ChooseForm(problem.DType, t)
	if err != nil {
		return nil, err
	}
	p := *problem
	s, err := fitBias(e, &p, fragment, &layout, form, t)
	if err != nil {
		return nil, err
	}
	named := fmt.Sprintf("%v %v form %d", &s.tile, fragment, form)
	return pass.NewGradient(&pass.Fitted{Env: e, Problem: &p, Name: biasLabel + " " + named, Named: named,
		WholeBias: layout.PairsOfBias(&p, form), DBias: true,
		Pass: func(v pass.Variant) *pass.Pass {
			out := pass.Behind(&p, more...)
			out.Stages = []pass.Stage{s.stage(v)}
			return out
		},
		SelfCheck: func(v pass.Variant) (*pass.Pass, error) { return s.selfCheck(e, v) }}, kernel.GradientVariant{By: of.Name})
}

func fitBias(e *kernel.Env, p *attn.Problem, f kernel.Fragment, l *kernel.FragmentLayout, form int,
	t *kernel.Tuning) (s *biasGradient, err error) {
	s = &biasGradient{problem: p, layout: l}
	if s.tile, err = ChooseBiasTile(&e.Caps, p, l, f, form, t); err != nil {
		return nil, declined(err)
	}
	// Two products, of all scores: masks leave no tile out.
	flops := 2 * p.InBatch().AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	s.grid, err = kernel.GridFor(e, s.groups(p), flops, kernel.MatrixPace, t)
	return s, err
}

func (s *biasGradient) stage(v pass.Variant) pass.Stage {
	p := s.problem
	return pass.Stage{Label: biasLabel, Module: biasLabel + "." + p.DType.Suffix(), Proves: true, Made: s.tile.Fragment.Subgroups(),
		Grid: s.grid, Idle: "Q", Constants: BiasConstants(p, &s.tile, s.layout, v),
		Args: pass.Args{As: pass.AsBackward, Problem: p, X: "DBias"},
		Bind: append(gradientBuffers.Inputs(), append(gradientBuffers.Gradients(v, "DBias", ""), pass.Scores(p, 0)...)...)}
}

// selfCheck is a small problem: some blocks of rows and columns, the last ones ragged, and two of whatever the bias has one element for.
func (s *biasGradient) selfCheck(e *kernel.Env, v pass.Variant) (*pass.Pass, error) {
	p, t, small := kernel.SelfCheckOf(s.problem), &s.tile, *s
	small.problem = &p
	p.QueryLen = t.rows() + t.Fragment.M/2 + 1
	for i, n := range [3]*int{&p.Batch, &p.Heads, &p.QueryLen} {
		if !ownOf(s.problem)[i] {
			*n = max(*n, 2)
		}
	}
	kernel.DrawInEntries(&p)
	p.KeyLen = t.BC + t.Fragment.M/2 + 3
	if v.AlignedDBias {
		p.KeyLen = attn.CeilDiv(p.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&p, s.problem)
	kernel.PackSelfCheck(&p)
	var err error
	if small.grid, err = kernel.NewGrid(s.groups(&p), 0); err != nil {
		return nil, err
	}
	delta, err := kernel.NewDeltaProgram(e, &p, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	out := pass.BackwardOf(e, &p, delta, v, nil, t.blocks())
	out.Stages = append(out.Stages, small.stage(v))
	return out, nil
}

// declined makes the error of tiles that do not fit, which are nobody's wish here, a reason to take another kernel.
func declined(err error) error {
	var no *kernel.Declined
	if errors.As(err, &no) {
		return err
	}
	return &kernel.Declined{Why: err.Error()}
}

// ownOf says whether a problem's bias has an element for each batch entry, head and query.
func ownOf(p *attn.Problem) [3]bool { return [3]bool(p.Bias.Own[:3]) }

var allOwn = [3]bool{true, true, true}

// ChooseBiasTile takes the tile of matrix_backward_q and makes it one of this kernel, with fewer keys or rows where what dS leaves through
// would not fit into shared memory beside it.
func ChooseBiasTile(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int,
	tuning *kernel.Tuning) (BackwardTile, error) {
	t, err := ChooseBackwardTile(c, p, l, f, form, "q_", tuning)
	if err != nil {
		return t, err
	}
	if ownOf(p) != allOwn {
		t.BC, t.Prefetch = t.CK, 0
	}
	for {
		t.ByLane = t.LaneOfDraws(p, l)
		why := kernel.CheckSubgroups(t.W, f.Lanes, biasShared(&t, p).bytes(), c)
		switch {
		case why == "":
			return t, nil
		case t.Prefetch == 2:
			t.Prefetch = 1
		case t.BC > t.CK:
			t.BC = max(1, t.BC/2/t.CK) * t.CK
		case t.W > 1:
			t.W /= 2
		default:
			return t, &kernel.Declined{Why: why}
		}
	}
}

// biasShared is the lengths of shared arrays: those of matrix_backward_q, but for what dS leaves through in form 1.
func biasShared(t *BackwardTile, p *attn.Problem) matrixBackwardShared {
	sh := t.Shared(p)
	if t.Form == kernel.FormRegisters {
		sh.x = t.W * t.Fragment.M * (t.CK + 8)
	}
	sh.h = 1
	return sh
}

// groups is the number of workgroups for a problem.
func (s *biasGradient) groups(p *attn.Problem) uint64 {
	own := ownOf(p)
	if own == allOwn { // a workgroup walks over the keys; every element of the bias is written, whatever queries sequences have
		batch := p.InBatch()
		return s.tile.groups(&batch)
	}
	shape := p.BiasShape()
	n := uint64(shape[0]) * uint64(shape[1]) * uint64(attn.CeilDiv(p.KeyLen, s.tile.BC))
	if own[2] {
		n *= uint64(attn.CeilDiv(p.QueryLen, s.tile.rows()))
	}
	return n
}

// BiasConstants are its specialization constants.
func BiasConstants(p *attn.Problem, t *BackwardTile, l *kernel.FragmentLayout, v pass.Variant) kernel.Constants {
	own := ownOf(p)
	return t.constants(p, biasShared(t, p), l, v.Aligned, v.Accumulate).And(kernel.Constants{
		"ALIGNED_BIAS": kernel.BoolInt(v.AlignedDBias), "MASKS": kernel.BoolInt(p.Masked() || p.Padded()), "SLOPES": 0,
		"BIAS_PAIRS": kernel.BoolInt(v.Aligned && l.PairsOfBias(p, t.Form)),
		"OWN_BATCH":  kernel.BoolInt(own[0]), "OWN_HEADS": kernel.BoolInt(own[1]), "OWN_QUERIES": kernel.BoolInt(own[2])})
}
