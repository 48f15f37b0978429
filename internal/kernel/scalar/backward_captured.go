package scalar

import (
	"math/bits"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// CapturedGradient is the gradient by a tensor that the score functions capture, in fp32 arithmetic and sums that do not depend on the order:
// shaders/scalar/scalar_backward_captured.comp, between two dispatches of shaders/common/backward_captured.comp.
type CapturedGradient struct {
	env      *kernel.Env
	problem  attn.Problem
	by       score.Gradient
	rounded  bool // lse is of scores that were rounded to the storage type
	elements int
	table    int // elements whose sums meet in shared memory: all or none
	tile     BackwardTile
	grid     kernel.Grid
	ends     kernel.Grid                        // of backward_captured
	largest  [2]atomic.Pointer[pipeline.Kernel] // by alignment
	sums     [2]atomic.Pointer[pipeline.Kernel] // likewise
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

// PlanCaptured fits it to a problem, behind a backward pass of an implementation. Its tile is that of scalar_backward_q, whose products it makes twice.
func PlanCaptured(e *kernel.Env, p *attn.Problem, by score.Gradient, of kernel.Implementation) (*CapturedGradient, error) {
	s, t := &CapturedGradient{env: e, problem: *p, by: by, rounded: of == kernel.Standard, elements: by.Tensor().Elements()}, kernel.NewBackwardTuning(nil)
	var err error
	if s.tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Beside the tile, and the maximum's word for each invocation, which is elsewhere, there may be room for the sums.
	if room := int(e.Caps.Facts.Limits.MaxSharedMemory) - 16*s.tile.shared(p.HeadDim).length - 4; s.elements <= largestTable && 8*s.elements <= room {
		s.table = s.elements
	}
	groups := uint64(attn.CeilDiv(p.QueryLen, s.tile.BR)) * uint64(p.Batch) * uint64(p.Heads)
	const atomics = 4 // what sums cost beside the products, at worst
	flops := atomics * 2 * p.AllHeads() * float64(p.QueryLen) * float64(p.KeyLen) * float64(p.HeadDim+p.ValueDim)
	if s.grid, err = kernel.GridFor(e, groups, flops, kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	s.ends, err = kernel.NewGrid(uint64(attn.CeilDiv(s.elements, endsThreads)), 0)
	return s, err
}

// Bytes is the size of its workspace.
func (s *CapturedGradient) Bytes() uint64 { return 8 + 8*uint64(s.elements) }

// Dispatches is the number of its dispatches.
func (s *CapturedGradient) Dispatches() int { return 2*s.grid.Dispatches() + 2*s.ends.Dispatches() }

// groupsLog is GROUPS_LOG of both shaders.
func (s *CapturedGradient) groupsLog() int { return bits.Len32(s.grid.Total - 1) }

func (s *CapturedGradient) kernel(sums, aligned bool) (*pipeline.Kernel, error) {
	at := &s.largest[kernel.BoolInt(aligned)]
	if sums {
		at = &s.sums[kernel.BoolInt(aligned)]
	}
	if k := at.Load(); k != nil {
		return k, nil
	}
	table := 0
	if sums {
		table = s.table
	}
	p := &s.problem
	code := p.Code()
	code.Gradient = s.by
	c := CapturedConstants(p, &s.tile, aligned, sums, table, s.groupsLog(), s.rounded)
	k, err := s.env.Build(CapturedLabel+"."+p.DType.Suffix(), c, pipeline.KernelInfo{}, code)
	if err == nil {
		at.Store(k)
	}
	return k, err
}

// CapturedConstants are the specialization constants of scalar_backward_captured.
func CapturedConstants(p *attn.Problem, t *BackwardTile, aligned, sums bool, table, groupsLog int, rounded bool) kernel.Constants {
	sh := t.shared(p.HeadDim)
	return kernel.Constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": 0, "MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC, "PC": t.PC,
		"C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt, "SHARED_V4": sh.length, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0),
		"SUMS": kernel.BoolInt(sums), "TABLE": table, "GROUPS_LOG": groupsLog, "ROUNDED": kernel.BoolInt(rounded)}.
		And(kernel.MaskConstants(p), kernel.ScoreConstants(p), kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p))
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
		return CapturedEndsConstants(read, accumulate, s.elements, s.groupsLog()), pipeline.KernelInfo{}
	})
}

// Record writes its dispatches: to makes the gradient, in totals' workspace.
func (s *CapturedGradient) Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand, totals, to pipeline.Binding) error {
	var none kernel.Operand
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
		k, err := s.kernel(sums, g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned)
		if err != nil {
			return err
		}
		at := r.Push.Backward(&s.problem, g, delta, &none, nil)
		r.BackwardInputs(g, delta)
		r.Access[6] = pipeline.Access{Binding: totals, Mode: pipeline.ReadWrite}
		r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
		if err := r.Dispatch(k, r.BackwardScores(k, &s.problem, g), at, s.grid, s.grid.Total, CapturedLabel); err != nil {
			return err
		}
	}
	return ends(true)
}
