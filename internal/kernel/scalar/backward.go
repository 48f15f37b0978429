package scalar

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Backward is the backward pass of FlashAttention-2 in fp32 arithmetic, without atomic additions: shaders/common/backward_delta.comp,
// then scalar_backward_kv.comp, whose workgroups own keys, and scalar_backward_q.comp, whose workgroups own queries.
var Backward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "scalar_backward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked,
		Parameters: kernel.GroupBound.And(backwardRanges.And(kernel.IndirectRange).Of("kv_"),
			backwardRanges.And(kernel.IndirectRange).Of("q_")),
		Unsupported: backwardLacks,
	},
	Plan: planBackward,
}

func backwardLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := c.LacksArguments(&kernel.PassArgs().Backward); why != "" {
		return why
	}
	return c.LacksScalar(p.DType)
}

func planBackward(e *kernel.Env, p *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	s := &BackwardProgram{env: e, Problem: *p}
	s.Kv.module, s.Q.module = keysLabel+"."+p.DType.Suffix(), queriesLabel+"."+p.DType.Suffix()
	var err error
	if s.delta, err = kernel.NewDeltaProgram(e, p, t); err != nil {
		return nil, err
	}
	if s.Kv.Tile, err = ChooseBackwardTile(&e.Caps, p, "kv_", t); err != nil {
		return nil, err
	}
	if s.Q.Tile, err = ChooseBackwardTile(&e.Caps, p, "q_", t); err != nil {
		return nil, err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	if s.Kv.grid, err = kernel.GridFor(e, s.Kv.Tile.keyBlocks(p), 2*p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	if s.Q.grid, err = kernel.GridFor(e, s.Q.Tile.queryBlocks(p), 1.5*p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	if s.rows, err = kernel.NewBackwardTables(e, p, t, s.Kv.Tile.blocks(true), s.Kv.grid, s.Q.Tile.blocks(false), s.Q.grid); err != nil {
		return nil, err
	}
	// The usual case is dense tensors, gradients overwritten.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	err = kernel.Together(func() error { _, err := s.delta.Kernel(aligned, false); return err },
		func() error { return s.build(aligned, false) })
	if e.Attached && kernel.HasFunctions(p) { // to a device of the caller's, whose queue recording must leave alone
		for i := range 4 {
			if err == nil && (aligned || i&1 == 0) {
				err = s.build(i&1 != 0, i&2 != 0)
			}
		}
	}
	return s, err
}

// build makes the pipelines of a variant. Those with functions of the user's in them prove themselves where they were never run on this
// device and driver.
func (s *BackwardProgram) build(aligned, accumulate bool) error {
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	if s.checked[i].Load() {
		return nil
	}
	var made []kernel.Compiled
	var makes []func() error
	for _, part := range []*BackwardPart{&s.Kv, &s.Q} {
		makes = append(makes, func() error { _, err := s.Kernel(part, aligned, accumulate); return err })
		made = append(made, kernel.Compiled{Module: part.module, Constants: s.Constants(part, aligned, accumulate),
			Functions: s.Problem.Code()})
	}
	if err := kernel.Together(makes...); err != nil {
		return err
	}
	if kernel.HasFunctions(&s.Problem) {
		if err := s.env.Prove("scalar_backward "+s.Tile(), made, func() (string, error) { return s.try(aligned, accumulate) }); err != nil {
			return err
		}
	}
	s.checked[i].Store(true)
	return nil
}

// trialOf is a small problem for a tile: two blocks of rows and of columns whichever of keys and queries they are, the last ones ragged.
func trialOf(p *attn.Problem, tiles ...*BackwardTile) attn.Problem {
	small := kernel.TrialOf(p)
	small.QueryLen, small.KeyLen = 0, 0
	for _, t := range tiles {
		small.QueryLen = max(small.QueryLen, t.BR+3, t.BC+3)
		small.KeyLen = max(small.KeyLen, t.BR+5, t.BC+5)
	}
	kernel.GrowForBlocks(&small, true)
	kernel.PackTrial(&small)
	return small
}

// try runs the kernels of a variant on a small problem and says what is wrong with the gradients.
func (s *BackwardProgram) try(aligned, accumulate bool) (wrong string, err error) {
	p := trialOf(&s.Problem, &s.Kv.Tile, &s.Q.Tile)
	mine := &BackwardProgram{env: s.env, Problem: p}
	mine.Kv.Tile, mine.Q.Tile = s.Kv.Tile, s.Q.Tile
	if mine.Kv.grid, err = kernel.NewGrid(mine.Kv.Tile.keyBlocks(&p), 0); err != nil {
		return "", err
	}
	if mine.Q.grid, err = kernel.NewGrid(mine.Q.Tile.queryBlocks(&p), 0); err != nil {
		return "", err
	}
	if mine.rows, err = kernel.NewRowTables(s.env, &p, mine.Kv.Tile.blocks(true).Over(mine.Kv.grid, 1, s.rows.Counted(tableOfKeys)),
		mine.Q.Tile.blocks(false).Over(mine.Q.grid, 1, s.rows.Counted(tableOfQueries))); err != nil {
		return "", err
	}
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	mine.Kv.kernels[i].Store(s.Kv.kernels[i].Load()) // the very pipelines that are in question, not others of the small problem
	mine.Q.kernels[i].Store(s.Q.kernels[i].Load())
	if mine.delta, err = kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil)); err != nil {
		return "", err
	}
	return s.env.TryBackward(&p, kernel.GradientVariant{Aligned: aligned, Accumulate: accumulate}, nil, mine.Scratch(), mine.run)
}

// keyBlocks and queryBlocks are the workgroups of a kernel whose rows are keys or queries.
func (t *BackwardTile) keyBlocks(p *attn.Problem) uint64 {
	return t.blocks(true).Most(p) * uint64(p.KeyHeads)
}
func (t *BackwardTile) queryBlocks(p *attn.Problem) uint64 {
	return t.blocks(false).Most(p) * uint64(p.Heads)
}

// blocks is how rows, of keys or of queries, are cut.
func (t *BackwardTile) blocks(keys bool) kernel.RowBlocks {
	return kernel.RowBlocks{Keys: keys, Rows: t.BR, Columns: t.BC}
}

// Tables of packed sequences, by place in BackwardProgram.rows.
const tableOfKeys, tableOfQueries = 0, 1

// BackwardProgram is the three kernels fitted to a problem.
type BackwardProgram struct {
	env     *kernel.Env
	Problem attn.Problem
	delta   *kernel.DeltaProgram
	rows    kernel.RowTables
	Kv, Q   BackwardPart
	checked [4]atomic.Bool // by alignment and accumulation
}

// BackwardPart is one of the two kernels.
type BackwardPart struct {
	module  string
	Tile    BackwardTile
	grid    kernel.Grid
	kernels [4]atomic.Pointer[pipeline.Kernel] // by alignment and accumulation
}

func (s *BackwardProgram) Tile() string {
	return fmt.Sprintf("kv %v, q %v", &s.Kv.Tile, &s.Q.Tile)
}
func (s *BackwardProgram) Scratch() []uint64 {
	return append([]uint64{s.delta.Bytes()}, s.rows.Scratch()...)
}
func (s *BackwardProgram) Dispatches() int {
	return s.rows.Dispatches() + s.delta.Grid.Dispatches() + s.Kv.grid.Dispatches() + s.Q.grid.Dispatches()
}

// Labels of the dispatches, and names of the modules.
const (
	keysLabel    = "scalar_backward_kv"
	queriesLabel = "scalar_backward_q"
)

func (s *BackwardProgram) Model() traffic.Model {
	kv, q := &s.Kv.Tile, &s.Q.Tile
	return traffic.BackwardFused{Delta: kernel.DeltaLabel,
		Keys:    traffic.BackwardTile{Label: keysLabel, Rows: kv.BR, Columns: kv.BC, Restaged: true, RowReaders: kv.BR / kv.MR},
		Queries: traffic.BackwardTile{Label: queriesLabel, Rows: q.BR, Columns: q.BC, Restaged: true, RowReaders: q.tx()}}
}

func (s *BackwardProgram) Kernel(part *BackwardPart, aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := kernel.BoolInt(aligned) + 2*kernel.BoolInt(accumulate)
	return s.env.Variant(&part.kernels[i], part.module, &s.Problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return s.Constants(part, aligned, accumulate), pipeline.KernelInfo{}
	})
}

func (s *BackwardProgram) Constants(part *BackwardPart, aligned, accumulate bool) kernel.Constants {
	p, t := &s.Problem, &part.Tile
	wide := p.HeadDim
	if part == &s.Kv {
		wide = max(p.HeadDim, p.ValueDim)
	}
	sh := t.shared(wide)
	return t.constants(p, sh, aligned, accumulate)
}

// constants are the specialization constants that all scalar kernels of backward passes have; sh is the layout of shared memory.
func (t *BackwardTile) constants(p *attn.Problem, sh backwardShared, aligned, accumulate bool) kernel.Constants {
	return kernel.Constants{"WG": t.threads(), "BR": t.BR, "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate),
		"MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC, "PC": t.PC, "C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt,
		"SHARED_V4": sh.length, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(kernel.MaskConstants(p), kernel.ScoreConstants(p),
		kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p), kernel.WithinConstants(p))
}

func (s *BackwardProgram) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	if err := s.build(g.Aligned(), g.Accumulate); err != nil {
		return err
	}
	return s.run(r, g)
}

// run records the dispatches with pipelines that are there or, without functions, are made now.
func (s *BackwardProgram) run(r *kernel.Recorder, g *kernel.Gradients) error {
	delta, tables := kernel.Operand{Binding: r.Scratch[0]}, r.Scratch[1:]
	if err := s.rows.Record(r, &g.Scores, tables); err != nil {
		return err
	}
	if err := s.delta.Record(r, g, &delta); err != nil {
		return err
	}
	s.rows.Take(r, tables, tableOfKeys)
	aligned := g.Aligned()
	k, err := s.Kernel(&s.Kv, aligned, g.Accumulate)
	if err != nil {
		return err
	}
	at := r.Push.Backward(&s.Problem, g, &delta, &g.DK, &g.DV)
	r.BackwardInputs(g, &delta)
	r.Access[6] = g.Output(&g.DK)
	r.Access[7] = g.Output(&g.DV)
	if err := r.DispatchBlocks(k, &s.Problem, r.BackwardScores(k, &s.Problem, g), at, s.Kv.grid, keysLabel); err != nil {
		return err
	}
	if k, err = s.Kernel(&s.Q, aligned, g.Accumulate); err != nil {
		return err
	}
	s.rows.Take(r, tables, tableOfQueries)
	at = r.Push.Backward(&s.Problem, g, &delta, &g.DQ, nil)
	r.BackwardInputs(g, &delta)
	r.Access[6] = g.Output(&g.DQ)
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	return r.DispatchBlocks(k, &s.Problem, r.BackwardScores(k, &s.Problem, g), at, s.Q.grid, queriesLabel)
}
