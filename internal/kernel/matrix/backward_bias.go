package matrix

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// BiasGradient is the gradient with respect to the bias on cooperative matrices: shaders/matrix/matrix_backward_bias.comp.
type BiasGradient struct {
	env     *kernel.Env
	problem attn.Problem
	layout  kernel.FragmentLayout
	tile    BackwardTile
	own     [3]bool // see ownOf
	grid    kernel.Grid
	kernels [8]atomic.Pointer[pipeline.Kernel] // by variant
	checked [8]atomic.Bool
}

// biasVariant says what the pipelines of a set of tensors are built for.
type biasVariant struct{ aligned, accumulate, alignedBias bool }

func (v biasVariant) index() int {
	return kernel.BoolInt(v.aligned) + 2*kernel.BoolInt(v.accumulate) + 4*kernel.BoolInt(v.alignedBias)
}

// biasLabel is the label of its dispatches, and the name of its module.
const biasLabel = "matrix_backward_bias"

// PlanBias fits it to a problem that has a bias. Its tile is that of matrix_backward_q, whose products it makes, as far as shared memory
// goes; what the caller gave for that kernel holds for this one too. The error is a *Declined where the device cannot.
func PlanBias(e *kernel.Env, p *attn.Problem, of kernel.Bias, given map[string]int) (*BiasGradient, error) {
	if of.Of(p) != &p.Bias {
		return nil, &kernel.Declined{Why: "matrix_backward_bias makes that by Bias alone"}
	}
	if why := BackwardLacks(&e.Caps, p); why != "" {
		return nil, &kernel.Declined{Why: why}
	}
	if !p.Blocks.None() { // a tile without a block would have to be written too
		return nil, &kernel.Declined{Why: "matrix_backward_bias has no block mask"}
	}
	t := kernel.NewBackwardTuning(given)
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	s := &BiasGradient{env: e, problem: *p, layout: layout, own: ownOf(p)}
	if s.tile, err = ChooseBiasTile(&e.Caps, p, &layout, fragment, form, t); err != nil {
		return nil, declined(err)
	}
	flops := 2 * p.InBatch().AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	if s.grid, err = kernel.GridFor(e, s.groups(p), flops, kernel.MatrixPace, t); err != nil {
		return nil, err
	}
	// The usual case, or on a device of the caller's, whose queue recording must leave alone, every one.
	size := p.DType.Size()
	usual := biasVariant{aligned: p.HeadDim*size%16 == 0 && p.ValueDim*size%16 == 0, alignedBias: p.KeyLen*p.Bias.DType.Size()%16 == 0}
	for i := range s.kernels {
		v := biasVariant{i&1 != 0, i&2 != 0, i&4 != 0}
		if e.Attached || v == usual {
			if err := s.build(v); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
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

// walks says whether a workgroup walks over the keys, since every score has an element of its own.
func (s *BiasGradient) walks() bool { return s.own == allOwn }

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
func (s *BiasGradient) groups(p *attn.Problem) uint64 {
	if s.walks() { // every element of the bias is written, whatever queries sequences have
		batch := p.InBatch()
		return s.tile.groups(&batch)
	}
	shape := p.BiasShape()
	n := uint64(shape[0]) * uint64(shape[1]) * uint64(attn.CeilDiv(p.KeyLen, s.tile.BC))
	if s.own[2] {
		n *= uint64(attn.CeilDiv(p.QueryLen, s.tile.rows()))
	}
	return n
}

// Dispatches is the number of its dispatches.
func (s *BiasGradient) Dispatches() int { return s.grid.Dispatches() }

func (s *BiasGradient) module() string { return biasLabel + "." + s.problem.DType.Suffix() }

func (s *BiasGradient) constants(v biasVariant) kernel.Constants {
	return BiasConstants(&s.problem, &s.tile, &s.layout, v.aligned, v.accumulate, v.alignedBias)
}

// BiasConstants are its specialization constants.
func BiasConstants(p *attn.Problem, t *BackwardTile, l *kernel.FragmentLayout, aligned, accumulate, alignedBias bool) kernel.Constants {
	own := ownOf(p)
	return t.constants(p, biasShared(t, p), l, aligned, accumulate).And(kernel.Constants{
		"ALIGNED_BIAS": kernel.BoolInt(alignedBias), "MASKS": kernel.BoolInt(p.Masked() || p.Padded()), "SLOPES": 0,
		"BIAS_PAIRS": kernel.BoolInt(aligned && l.PairsOfBias(p, t.Form)),
		"OWN_BATCH":  kernel.BoolInt(own[0]), "OWN_HEADS": kernel.BoolInt(own[1]), "OWN_QUERIES": kernel.BoolInt(own[2])})
}

func (s *BiasGradient) kernel(v biasVariant) (*pipeline.Kernel, error) {
	return s.env.Variant(&s.kernels[v.index()], s.module(), &s.problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return s.constants(v), s.tile.Fragment.Subgroups()
	})
}

// build makes the pipeline of a variant and lets one that was never run on this device and driver prove itself.
func (s *BiasGradient) build(v biasVariant) error {
	if s.checked[v.index()].Load() {
		return nil
	}
	t := &s.tile
	name := fmt.Sprintf("%s %v %v form %d", biasLabel, t, t.Fragment, t.Form)
	made := []kernel.Compiled{{Module: s.module(), Constants: s.constants(v), Functions: s.problem.Code()}}
	if err := s.env.Prove(name, made, func() (string, error) { return s.try(v) }); err != nil {
		return err
	}
	s.checked[v.index()].Store(true)
	return nil
}

// try runs the kernel of a variant on a small problem and says what is wrong with the gradient: some blocks of rows and columns, the last
// ones ragged, and two of whatever the bias has one element for.
func (s *BiasGradient) try(v biasVariant) (wrong string, err error) {
	p, t := kernel.TrialOf(&s.problem), &s.tile
	p.QueryLen = t.rows() + t.Fragment.M/2 + 1
	for i, n := range [3]*int{&p.Batch, &p.Heads, &p.QueryLen} {
		if !s.own[i] {
			*n = max(*n, 2)
		}
	}
	p.KeyLen = t.BC + t.Fragment.M/2 + 3
	if v.alignedBias {
		p.KeyLen = attn.CeilDiv(p.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&p, &s.problem)
	kernel.PackTrial(&p)
	mine := &BiasGradient{env: s.env, problem: p, layout: s.layout, tile: s.tile, own: s.own}
	if mine.grid, err = kernel.NewGrid(mine.groups(&p), 0); err != nil {
		return "", err
	}
	k, err := s.kernel(v) // the very pipeline that is in question, not another of the small problem
	if err != nil {
		return "", err
	}
	delta, err := kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil))
	if err != nil {
		return "", err
	}
	rows, err := kernel.NewRowTables(s.env, &p, t.blocks())
	if err != nil {
		return "", err
	}
	variant := kernel.GradientVariant{Aligned: v.aligned, Accumulate: v.accumulate, By: "Bias", AlignedBy: v.alignedBias}
	return s.env.TryBackward(&p, variant, nil, append([]uint64{delta.Bytes()}, rows.Scratch()...),
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

// Record writes its dispatches.
func (s *BiasGradient) Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand) error {
	aligned := g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned && s.layout.BiasLies(&s.problem, s.tile.Form, &g.Scores)
	v := biasVariant{aligned, g.Accumulate, g.DBias.Aligned}
	if err := s.build(v); err != nil {
		return err
	}
	k, err := s.kernel(v)
	if err != nil {
		return err
	}
	return s.dispatch(r, k, g, delta)
}

func (s *BiasGradient) dispatch(r *kernel.Recorder, k *pipeline.Kernel, g *kernel.Gradients, delta *kernel.Operand) error {
	at := r.Push.Backward(&s.problem, g, delta, &g.DBias, nil)
	r.BackwardInputs(g, delta)
	r.Access[6] = g.Output(&g.DBias)
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	return r.Dispatch(k, r.BackwardScores(k, &s.problem, g), at, s.grid, s.grid.Total, biasLabel)
}
