package scalar

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/pipeline"
)

// CapturedGradient is the gradient with respect to a tensor that the score functions capture, in fp32 arithmetic and sums that do not
// depend on the order: shaders/scalar/scalar_backward_captured.comp, between two dispatches of shaders/common/backward_captured.comp.
type CapturedGradient struct {
	*pass.Gradient
	Totals pass.Scratch // of sums, behind δ
	env    *kernel.Env
	captured
}

// captured is what the kernels do for a problem.
type captured struct {
	problem  *attn.Problem
	code     score.Code // the problem's functions, and the gradient
	at       int        // the tensor among those that they capture
	rounded  bool       // lse is of scores that were rounded to the storage type
	elements int
	table    int // elements whose sums meet in shared memory: all or none
	tile     BackwardTile
	rows     kernel.RowBlocks
	log      int         // GROUPS_LOG of both shaders
	ends     kernel.Grid // of backward_captured
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

// totals is the scratch that sums are in.
const totals = "totals"

// PlanCaptured fits it to a problem, behind a backward pass of an implementation. Its tile is that of scalar_backward_q, whose products it
// makes twice. Of packed sequences its workgroups are counted on the device where counted says so. Its pipelines are made where they are
// first wanted.
func PlanCaptured(e *kernel.Env, problem *attn.Problem, by score.Gradient, of kernel.Implementation, counted bool) (*CapturedGradient,
	error) {
	p, t := *problem, kernel.NewBackwardTuning(nil)
	s := &CapturedGradient{env: e, captured: captured{problem: &p, code: p.Code(), rounded: of == kernel.Standard,
		elements: by.Tensor().Elements()}}
	all, err := s.code.Captures()
	if err != nil {
		return nil, err
	}
	s.code.Gradient = by
	s.at = slices.IndexFunc(all, func(t score.Tensor) bool { return t.Name == by.Tensor().Name })
	s.Totals = pass.Scratch{Name: totals, Bytes: 8 + 8*uint64(s.elements)}
	if s.tile, err = ChooseBackwardTile(&e.Caps, &p, "q_", t); err != nil {
		return nil, err
	}
	// Beside the tile, and the maximum's word for each invocation, which is elsewhere, there may be room for the sums.
	if room := int(e.Caps.Facts.Limits.MaxSharedMemory) - 16*s.tile.shared(p.HeadDim).length - 4; s.elements <= largestTable &&
		8*s.elements <= room {
		s.table = s.elements
	}
	const atomics = 4 // what sums cost beside the products, at worst
	flops := atomics * 2 * p.AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	grid, err := kernel.GridFor(e, s.tile.groups(&p, false), flops, kernel.ScalarPace, t)
	if err != nil {
		return nil, err
	}
	s.rows = s.tile.blocks(false).Over(grid, 1, counted)
	s.log = bits.Len32(grid.Total - 1)
	if s.ends, err = kernel.NewGrid(uint64(attn.CeilDiv(s.elements, endsThreads)), 0); err != nil {
		return nil, err
	}
	s.Gradient, err = pass.NewGradientLater(&pass.Fitted{Env: e, Problem: &p, Name: fmt.Sprintf("%s %v", CapturedLabel, &s.tile),
		Named: s.tile.String(), Pass: s.pass, SelfCheck: s.selfCheck}, kernel.GradientVariant{Captured: by.Tensor().Name})
	return s, err
}

func (s *CapturedGradient) pass(v pass.Variant) *pass.Pass {
	out := pass.Behind(s.problem, s.Totals)
	out.Captured = s.at
	out.Stages = s.stages(v)
	return out
}

// selfCheck is a small problem, of no more workgroups than the pipelines are built for.
func (s *CapturedGradient) selfCheck(v pass.Variant) (*pass.Pass, error) {
	small, p := s.captured, selfCheckOf(s.problem, &s.tile)
	p.Heads, p.QueryLen = min(p.Heads, s.problem.Heads), min(p.QueryLen, s.problem.QueryLen)
	p.Batch = min(p.Batch, s.problem.Batch)
	kernel.PackSelfCheck(&p)
	small.problem = &p
	var err error
	if small.rows, err = s.rows.Small(s.tile.groups(&p, false), false); err != nil {
		return nil, err
	}
	delta, err := kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	out := pass.BackwardOf(s.env, &p, delta, v, []pass.Scratch{s.Totals}, small.rows)
	out.Captured = s.at
	out.Stages = append(out.Stages, small.stages(v)...)
	return out, nil
}

// stages clear the sums, look for the largest term, add up, and read the sums.
func (s *captured) stages(v pass.Variant) []pass.Stage {
	clear, read := s.end(v, false), s.end(v, true)
	clear.Bind = []pass.Bind{{Name: "Totals", To: totals, Mode: pipeline.Write}}
	to := pipeline.Write
	if v.Accumulate {
		to = pipeline.ReadWrite
	}
	read.Bind = []pass.Bind{{Name: "Totals", To: totals, Mode: pipeline.Read}, {Name: "DT", To: pass.DCaptured, Mode: to}}
	return []pass.Stage{clear, s.over(v, false), s.over(v, true), read}
}

// over walks over all scores, for the largest term or for the sums.
func (s *captured) over(v pass.Variant, sums bool) pass.Stage {
	p, table := s.problem, 0
	if sums {
		table = s.table
	}
	return pass.Stage{Label: CapturedLabel, Module: CapturedLabel + "." + p.DType.Suffix(), Proves: true, Grid: s.rows.Grid, Idle: "Q",
		Functions: &s.code, Constants: CapturedConstants(p, &s.tile, v.Aligned, sums, table, s.log, s.rounded),
		Counts: pass.CountsOf(p, s.rows, 0), Args: pass.Args{As: pass.AsBackward, Problem: p},
		Bind: append(pass.BackwardViews.Inputs(), append(pass.Scores(p, 0),
			pass.Bind{Name: "Totals", To: totals, Mode: pipeline.ReadWrite})...)}
}

// end clears the sums, or reads them.
func (s *captured) end(v pass.Variant, read bool) pass.Stage {
	return pass.Stage{Label: capturedEndsLabel, Module: capturedEndsLabel, Grid: s.ends, Idle: pass.Delta,
		Constants: CapturedEndsConstants(read, read && v.Accumulate, s.elements, s.log),
		Args:      pass.Args{As: pass.AsBackward, Problem: s.problem}}
}

// ScoreRows is how a table cuts the rows of packed sequences for the kernels of gradients with respect to what goes with scores: in the
// blocks of CapturedGradient, for one of those that the problem has, which all have the same tile and grid, or for none (nil). The others
// take of the table where sequences lie alone.
func ScoreRows(e *kernel.Env, p *attn.Problem, of *CapturedGradient) (kernel.RowBlocks, error) {
	if p.Packed.None() {
		return kernel.RowBlocks{}, nil
	}
	if of != nil {
		return of.rows, nil
	}
	tile, err := ChooseBackwardTile(&e.Caps, p, "q_", kernel.NewBackwardTuning(nil))
	return tile.blocks(false), err
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
