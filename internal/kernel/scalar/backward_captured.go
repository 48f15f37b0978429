package scalar

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// CapturedGradient is the gradient by a tensor that the score functions capture, in fp32 arithmetic and sums that do not depend on the
// order: shaders/scalar/scalar_backward_captured.comp, between two dispatches of shaders/common/backward_captured.comp.
type CapturedGradient struct {
	env      *kernel.Env
	problem  attn.Problem
	by       score.Gradient
	rounded  bool // lse is of scores that were rounded to the storage type
	elements int
	table    int // elements whose sums meet in shared memory: all or none
	tile     BackwardTile
	grid     kernel.Grid
	log      int                                // GROUPS_LOG of both shaders
	ends     kernel.Grid                        // of backward_captured
	largest  [2]atomic.Pointer[pipeline.Kernel] // by alignment
	sums     [2]atomic.Pointer[pipeline.Kernel] // likewise
	checked  [2]atomic.Bool                     // likewise
	clear    atomic.Pointer[pipeline.Kernel]    // before
	read     [2]atomic.Pointer[pipeline.Kernel] // after, by accumulation
}

// Labels of the dispatches, and names of the modules.
const (
	CapturedLabel     = "scalar_backward_captured"
	capturedEndsLabel = "backward_captured"
)

const (
	endsThreads  = 128 // of a workgroup; every device allows it
	largestTable = 8192
)

// PlanCaptured fits it to a problem, behind a backward pass of an implementation. Its tile is that of scalar_backward_q, whose products it
// makes twice.
func PlanCaptured(e *kernel.Env, p *attn.Problem, by score.Gradient, of kernel.Implementation) (*CapturedGradient, error) {
	s, t := &CapturedGradient{env: e, problem: *p, by: by, rounded: of == kernel.Standard, elements: by.Tensor().Elements()},
		kernel.NewBackwardTuning(nil)
	var err error
	if s.tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Beside the tile, and the maximum's word for each invocation, which is elsewhere, there may be room for the sums.
	if room := int(e.Caps.Facts.Limits.MaxSharedMemory) - 16*s.tile.shared(p.HeadDim).length - 4; s.elements <= largestTable &&
		8*s.elements <= room {
		s.table = s.elements
	}
	const atomics = 4 // what sums cost beside the products, at worst
	flops := atomics * 2 * p.AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	if s.grid, err = kernel.GridFor(e, s.tile.groups(p, false), flops, kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	s.log = bits.Len32(s.grid.Total - 1)
	if s.ends, err = kernel.NewGrid(uint64(attn.CeilDiv(s.elements, endsThreads)), 0); err != nil {
		return nil, err
	}
	if e.Attached { // to a device of the caller's, whose queue recording must leave alone
		for _, aligned := range []bool{false, p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0} {
			if err = s.build(aligned); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// NewScoreTables makes the table of packed sequences for the kernels of gradients by what goes with scores: with the blocks of
// CapturedGradient, for one of those that the problem has, which all have the same tile and grid, or for none (nil). The others take of the
// table where sequences lie alone. As in the kernel of queries, whose tile that is, workgroups are counted on the device where counted says
// so.
func NewScoreTables(e *kernel.Env, p *attn.Problem, of *CapturedGradient, counted bool) (kernel.RowTables, error) {
	if p.Packed.None() {
		return nil, nil
	}
	if of != nil {
		return kernel.NewRowTables(e, p, of.tile.blocks(false).Over(of.grid, 1, counted))
	}
	tile, err := ChooseBackwardTile(&e.Caps, p, "q_", kernel.NewBackwardTuning(nil))
	if err != nil {
		return nil, err
	}
	return kernel.NewRowTables(e, p, tile.blocks(false))
}

// Tile is how it cuts queries and keys.
func (s *CapturedGradient) Tile() BackwardTile { return s.tile }

// Bytes is the size of its workspace.
func (s *CapturedGradient) Bytes() uint64 { return 8 + 8*uint64(s.elements) }

// Dispatches is the number of its dispatches.
func (s *CapturedGradient) Dispatches() int { return 2*s.grid.Dispatches() + 2*s.ends.Dispatches() }

func (s *CapturedGradient) kernel(sums, aligned bool) (*pipeline.Kernel, error) {
	at := &s.largest[kernel.BoolInt(aligned)]
	if sums {
		at = &s.sums[kernel.BoolInt(aligned)]
	}
	if k := at.Load(); k != nil {
		return k, nil
	}
	c, code := s.describe(sums, aligned)
	k, err := s.env.Build(s.module(), c, pipeline.KernelInfo{}, code)
	if err == nil {
		at.Store(k)
	}
	return k, err
}

func (s *CapturedGradient) module() string { return CapturedLabel + "." + s.problem.DType.Suffix() }

// describe gives the specialization constants of a pipeline, and the functions in it.
func (s *CapturedGradient) describe(sums, aligned bool) (kernel.Constants, score.Code) {
	table := 0
	if sums {
		table = s.table
	}
	code := s.problem.Code()
	code.Gradient = s.by
	return CapturedConstants(&s.problem, &s.tile, aligned, sums, table, s.log, s.rounded), code
}

// build makes the two pipelines of a variant, which prove themselves where they were never run on this device and driver.
func (s *CapturedGradient) build(aligned bool) error {
	i := kernel.BoolInt(aligned)
	if s.checked[i].Load() {
		return nil
	}
	var made []kernel.Compiled
	for _, sums := range [2]bool{false, true} {
		if _, err := s.kernel(sums, aligned); err != nil {
			return err
		}
		c, code := s.describe(sums, aligned)
		made = append(made, kernel.Compiled{Module: s.module(), Constants: c, Functions: code})
	}
	if err := s.env.Prove(fmt.Sprintf("%s %v", CapturedLabel, &s.tile), made,
		func() (string, error) { return s.try(aligned) }); err != nil {
		return err
	}
	s.checked[i].Store(true)
	return nil
}

// try runs the pipelines of a variant on a small problem, of no more workgroups than they are built for, and says what is wrong with the
// gradient.
func (s *CapturedGradient) try(aligned bool) (wrong string, err error) {
	mine := &CapturedGradient{env: s.env, problem: trialOf(&s.problem, &s.tile), by: s.by, elements: s.elements, table: s.table,
		tile: s.tile, ends: s.ends}
	p := &mine.problem
	p.Heads, p.QueryLen = min(p.Heads, s.problem.Heads), min(p.QueryLen, s.problem.QueryLen)
	p.Batch = min(p.Batch, s.problem.Batch)
	kernel.PackTrial(p)
	groups := s.tile.groups(p, false)
	if mine.grid, err = kernel.NewGrid(groups, 0); err != nil {
		return "", err
	}
	mine.log = s.log
	i := kernel.BoolInt(aligned)
	mine.largest[i].Store(s.largest[i].Load()) // the very pipelines that are in question, not others of the small problem
	mine.sums[i].Store(s.sums[i].Load())
	mine.checked[i].Store(true)
	delta, err := kernel.NewDeltaProgram(s.env, p, kernel.NewTuning(nil))
	if err != nil {
		return "", err
	}
	rows, err := NewScoreTables(s.env, p, mine, false)
	if err != nil {
		return "", err
	}
	variant := kernel.GradientVariant{Aligned: aligned, Captured: s.by.Tensor().Name}
	scratch := append([]uint64{delta.Bytes(), mine.Bytes()}, rows.Scratch()...)
	return s.env.TryBackward(p, variant, nil, scratch, func(r *kernel.Recorder, g *kernel.Gradients) error {
		at := kernel.Operand{Binding: r.Scratch[0]}
		if err := rows.Record(r, &g.Scores, r.Scratch[2:]); err != nil {
			return err
		}
		if err := delta.Record(r, g, &at); err != nil {
			return err
		}
		for _, to := range g.DCaptured {
			if to.Buffer != nil {
				return mine.Record(r, g, &at, r.Scratch[1], to)
			}
		}
		return nil
	})
}

// CapturedConstants are the specialization constants of scalar_backward_captured.
func CapturedConstants(p *attn.Problem, t *BackwardTile, aligned, sums bool, table, groupsLog int, rounded bool) kernel.Constants {
	return t.constants(p, t.shared(p.HeadDim), aligned, false).And(kernel.Constants{
		"SUMS": kernel.BoolInt(sums), "TABLE": table, "GROUPS_LOG": groupsLog, "ROUNDED": kernel.BoolInt(rounded)})
}

// CapturedEndsConstants are those of backward_captured.
func CapturedEndsConstants(read, accumulate bool, elements, groupsLog int) kernel.Constants {
	return kernel.Constants{"WG": endsThreads, "READ": kernel.BoolInt(read), "ACCUMULATE": kernel.BoolInt(accumulate), "ELEMENTS": elements,
		"GROUPS_LOG": groupsLog}
}

func (s *CapturedGradient) end(read, accumulate bool) (*pipeline.Kernel, error) {
	at := &s.clear
	if read {
		at = &s.read[kernel.BoolInt(accumulate)]
	}
	return s.env.Variant(at, capturedEndsLabel, &s.problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return CapturedEndsConstants(read, accumulate, s.elements, s.log), pipeline.KernelInfo{}
	})
}

// Record writes its dispatches: to makes the gradient, in totals' workspace.
func (s *CapturedGradient) Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand, totals, to pipeline.Binding) error {
	var none kernel.Operand
	aligned := g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned
	if err := s.build(aligned); err != nil {
		return err
	}
	ends := func(read bool) error {
		k, err := s.end(read, g.Accumulate)
		if err != nil {
			return err
		}
		at := r.Push.Backward(&s.problem, g, delta, &none, nil)
		r.Access[0] = pipeline.Access{Binding: totals, Mode: pipeline.Write}
		r.Access[1] = pipeline.Access{Binding: delta.Binding, Mode: pipeline.Unused}
		if read {
			r.Access[0].Mode = pipeline.Read
			r.Access[1] = g.Output(&kernel.Operand{Binding: to})
		}
		return r.Dispatch(k, r.Accesses(k), at, s.ends, s.ends.Total, capturedEndsLabel)
	}
	if err := ends(false); err != nil {
		return err
	}
	for _, sums := range [2]bool{false, true} {
		k, err := s.kernel(sums, aligned)
		if err != nil {
			return err
		}
		at := r.Push.Backward(&s.problem, g, delta, &none, nil)
		r.BackwardInputs(g, delta)
		r.Access[6] = pipeline.Access{Binding: totals, Mode: pipeline.ReadWrite}
		r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
		if err := r.DispatchBlocks(k, &s.problem, r.BackwardScores(k, &s.problem, g), at, s.grid, CapturedLabel); err != nil {
			return err
		}
	}
	return ends(true)
}
