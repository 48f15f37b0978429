package matrix

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Backward is the backward pass of FlashAttention-2 on cooperative matrices, without atomic additions:
// shaders/common/backward_delta.comp, matrix_backward_kv.comp and matrix_backward_q.comp.
var Backward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           orderedLabel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked,
		Parameters: kernel.FormRanges.And(kernel.GroupBound, backwardMatrixRanges.And(kernel.IndirectRange).Of("kv_"),
			backwardMatrixRanges.And(kernel.IndirectRange).Of("q_"),
			kernel.Parameters{"kv_split": kernel.OnOff, dBiasParameter: kernel.OnOff, kernel.SlabsParameter: kernel.OnOff}),
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: BackwardLacks,
	},
	Plan:       planBackward,
	Candidates: backwardCandidates,
}

// BackwardLacks says what a device lacks for backward kernels on matrices.
func BackwardLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := c.LacksArguments(&kernel.PassArgs().Backward); why != "" {
		return why
	}
	return c.LacksMatrix(p.DType)
}

func planBackward(e *kernel.Env, p *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	if err := staysInRegisters(t); err != nil {
		return nil, err
	}
	s := &BackwardProgram{env: e, Problem: *p, Layout: layout}
	s.Kv.Keys = true
	for _, part := range []*BackwardPart{&s.Kv, &s.Q} {
		prefix := "q_"
		if part.Keys {
			prefix = "kv_"
		}
		if part.Tile, err = ChooseBackwardTile(&e.Caps, p, &layout, fragment, form, prefix, t); err != nil {
			return nil, err
		}
		part.module = part.label() + "." + p.DType.Suffix()
	}
	if err := s.takeBias(t); err != nil {
		return nil, err
	}
	return s, s.prepare(t)
}

// prepare lays out the dispatches of a program that has its tiles, and builds the pipelines of the usual variant.
func (s *BackwardProgram) prepare(t *kernel.Tuning) (err error) {
	e, p := s.env, &s.Problem
	if s.delta, err = kernel.NewDeltaProgram(e, p, t); err != nil {
		return err
	}
	for _, part := range []*BackwardPart{&s.Kv, &s.Q} {
		if part.grid, err = kernel.GridFor(e, part.Tile.groups(p), 2*kernel.PaddedFLOPs(p), kernel.MatrixPace, t); err != nil {
			return err
		}
	}
	if s.rows, err = kernel.NewBackwardTables(e, p, t, s.Kv.Tile.blocks(), s.Kv.grid, s.Q.Tile.blocks(), s.Q.grid); err != nil {
		return err
	}
	// The usual case, with and without the gradient with respect to the bias where it is made here. On a device of the caller's, whose
	// queue recording must leave alone, the other variants are looked at now too.
	var makes []func() error
	s.variants(func(v BackwardVariant, usual bool) {
		if usual || e.Attached {
			makes = append(makes, func() error { return s.build(v) })
		}
	})
	return kernel.Together(makes...)
}

// BackwardProgram is the kernels fitted to a problem.
type BackwardProgram struct {
	env     *kernel.Env
	Problem attn.Problem
	Layout  kernel.FragmentLayout
	delta   *kernel.DeltaProgram
	rows    kernel.RowTables
	Kv, Q   BackwardPart
	checked [BackwardVariants]atomic.Bool
}

// Tables of packed sequences, by place in BackwardProgram.rows.
const tableOfKeys, tableOfQueries = 0, 1

// BackwardPart is the kernel of keys or that of queries.
type BackwardPart struct {
	Keys    bool
	module  string
	Tile    BackwardTile
	grid    kernel.Grid
	kernels [2][BackwardVariants]atomic.Pointer[pipeline.Kernel] // by piece, and by variant
}

func (s *BackwardProgram) Tile() string {
	return fmt.Sprintf("kv %v, q %v %v form %d", &s.Kv.Tile, &s.Q.Tile, s.Q.Tile.Fragment, s.Q.Tile.Form)
}
func (s *BackwardProgram) Scratch() []uint64 {
	return append([]uint64{s.delta.Bytes()}, s.rows.Scratch()...)
}
func (s *BackwardProgram) Dispatches() int {
	return s.rows.Dispatches() + s.delta.Grid.Dispatches() + len(s.Kv.Tile.pieces())*s.Kv.grid.Dispatches() + s.Q.grid.Dispatches()
}

// Labels of the dispatches, and names of the modules without the element type.
const (
	keysLabel    = "matrix_backward_kv"
	queriesLabel = "matrix_backward_q"
	orderedLabel = "matrix_backward" // both
)

// label is that of a part's dispatches, and the name of its module without the element type.
func (part *BackwardPart) label() string {
	if part.Keys {
		return keysLabel
	}
	return queriesLabel
}

func (s *BackwardProgram) Model() traffic.Model {
	m := traffic.BackwardFused{Delta: kernel.DeltaLabel, Keys: s.Kv.Tile.model(keysLabel, &s.Problem),
		Queries: s.Q.Tile.model(queriesLabel, &s.Problem),
		DBias:   s.Q.Tile.DBias}
	m.Queries.RowReaders = s.Q.Tile.rowReaders(&s.Layout)
	return m
}

// model is how a kernel with this tile walks over columns.
func (t *BackwardTile) model(label string, p *attn.Problem) traffic.BackwardTile {
	return traffic.BackwardTile{Label: label, Rows: t.rows(), Columns: t.BC, Masked: t.masks(p), Ahead: t.Prefetch != 0,
		Apart: len(t.pieces()) > 1}
}

// rowReaders is how many invocations load lse and δ of a query that is a row: in registers a lane keeps the rows of which it holds
// elements. 0: one.
func (t *BackwardTile) rowReaders(l *kernel.FragmentLayout) int {
	if t.Form != kernel.FormRegisters {
		return 0
	}
	return t.Fragment.Lanes * max(1, len(l.RowOfSlot)) / t.Fragment.M
}

// Constants are the specialization constants of a kernel; parts says which sums it makes.
func (s *BackwardProgram) Constants(part *BackwardPart, parts int, v BackwardVariant) kernel.Constants {
	p, t := &s.Problem, part.Tile
	if part.Keys {
		return t.constants(p, t.Shared(p), &s.Layout, v.Aligned, v.Accumulate).And(ofEither(p, &t), kernel.Constants{"PARTS": parts})
	}
	t.DBias = v.DBias
	return t.constants(p, t.Shared(p), &s.Layout, v.Aligned, v.Accumulate).And(ofEither(p, &t),
		kernel.Constants{"BIAS_PAIRS": kernel.BoolInt(v.Aligned && s.Layout.PairsOfBias(p, t.Form))}, v.ofBias())
}

// ofEither are those of the kernel of keys and of that of queries.
func ofEither(p *attn.Problem, t *BackwardTile) kernel.Constants {
	return kernel.Constants{"MASKS": kernel.BoolInt(t.masks(p)), "SLOPES": kernel.BoolInt(p.Features()&attn.WithSlopes != 0)}
}

// constants are the specialization constants that all kernels of backward passes on matrices have; sh is the lengths of the kernel's shared
// arrays.
func (t *BackwardTile) constants(p *attn.Problem, sh matrixBackwardShared, l *kernel.FragmentLayout, aligned,
	accumulate bool) kernel.Constants {
	f := &t.Fragment
	c := kernel.Constants{"WG": t.W * f.Lanes, "BR": t.rows(), "BC": t.BC, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate),
		"FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "FORM": t.Form, "RM": t.RM, "CK": t.CK, "PREFETCH": t.Prefetch,
		"A_REG": t.AReg, "B_REG": t.BReg, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0), "HEADS_TOGETHER": t.HeadsTogether,
		"A_PITCH": sh.aPitch, "B_PITCH": sh.bPitch, "TILE_LEN": sh.Tile, "STATS_LEN": sh.Stats,
		"ROWS_LEN": sh.rows, "X_LEN": sh.x, "H_LEN": sh.h, "PATCH": sh.patch, "DROP_LEN": sh.Drop, "BY_LANE": t.ByLane}
	return c.And(kernel.MaskConstants(p), kernel.ScoreConstants(p), kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p),
		kernel.WithinConstants(p), l.Constants())
}

func (s *BackwardProgram) Kernel(part *BackwardPart, piece int, v BackwardVariant) (*pipeline.Kernel, error) {
	v = v.of(part)
	return s.env.Variant(&part.kernels[piece][v.Index()], part.module, &s.Problem, func() (kernel.Constants, pipeline.KernelInfo) {
		return s.Constants(part, part.Tile.pieces()[piece], v), part.Tile.Fragment.Subgroups()
	})
}

// build makes the pipelines of a variant and lets those that were never run on this device and driver prove themselves.
func (s *BackwardProgram) build(v BackwardVariant) error {
	if s.checked[v.Index()].Load() {
		return nil
	}
	try := func() (string, error) {
		if err := s.compile(v); err != nil {
			return "", err
		}
		return s.try(v)
	}
	if err := s.env.Prove(orderedLabel+" "+s.Tile(), s.compiled(v), try); err != nil {
		return err
	}
	if err := s.compile(v); err != nil { // where a verdict was remembered
		return err
	}
	s.checked[v.Index()].Store(true)
	return nil
}

// compile makes the pipelines of a variant, and that of δ which goes with it, beside one another.
func (s *BackwardProgram) compile(v BackwardVariant) error {
	makes := []func() error{func() error { _, err := s.delta.Kernel(v.Aligned, false); return err }}
	for _, part := range []*BackwardPart{&s.Kv, &s.Q} {
		for piece := range part.Tile.pieces() {
			makes = append(makes, func() error { _, err := s.Kernel(part, piece, v); return err })
		}
	}
	return kernel.Together(makes...)
}

func (s *BackwardProgram) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	v := s.variant(g)
	if err := s.build(v); err != nil {
		return err
	}
	return s.run(r, g, v)
}

func (s *BackwardProgram) run(r *kernel.Recorder, g *kernel.Gradients, v BackwardVariant) error {
	delta, tables := kernel.Operand{Binding: r.Scratch[0]}, r.Scratch[1:]
	if err := s.rows.Record(r, &g.Scores, tables); err != nil {
		return err
	}
	if err := s.delta.Record(r, g, &delta); err != nil {
		return err
	}
	s.rows.Take(r, tables, tableOfKeys)
	for piece, parts := range s.Kv.Tile.pieces() {
		k, err := s.Kernel(&s.Kv, piece, v)
		if err != nil {
			return err
		}
		at := r.Push.Backward(&s.Problem, g, &delta, &g.DK, &g.DV)
		r.BackwardInputs(g, &delta)
		r.Access[6], r.Access[7] = g.Output(&g.DK), g.Output(&g.DV)
		if parts == onlyDV {
			r.Access[6].Mode = pipeline.Unused
		}
		if parts == onlyDK {
			r.Access[7].Mode = pipeline.Unused
		}
		access := r.BackwardScores(k, &s.Problem, g)
		if err := r.DispatchBlocks(k, &s.Problem, access, at, s.Kv.grid, s.Kv.label()); err != nil {
			return err
		}
	}
	k, err := s.Kernel(&s.Q, 0, v)
	if err != nil {
		return err
	}
	s.rows.Take(r, tables, tableOfQueries)
	var dBias *kernel.Operand
	r.Access[7] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused}
	if v.DBias {
		dBias, r.Access[7] = &g.DBias, g.Output(&g.DBias)
	}
	at := r.Push.Backward(&s.Problem, g, &delta, &g.DQ, dBias)
	r.BackwardInputs(g, &delta)
	r.Access[6] = g.Output(&g.DQ)
	access := r.BackwardScores(k, &s.Problem, g)
	return r.DispatchBlocks(k, &s.Problem, access, at, s.Q.grid, s.Q.label())
}

// compiled is what the driver compiles for a variant.
func (s *BackwardProgram) compiled(v BackwardVariant) []kernel.Compiled {
	var all []kernel.Compiled
	for _, part := range []*BackwardPart{&s.Kv, &s.Q} {
		for _, parts := range part.Tile.pieces() {
			all = append(all, kernel.Compiled{Module: part.module, Constants: s.Constants(part, parts, v), Functions: s.Problem.Code()})
		}
	}
	return all
}

// trial is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when causal.
func (s *BackwardProgram) trial(v BackwardVariant) attn.Problem {
	small := kernel.TrialOf(&s.Problem)
	kv, q := &s.Kv.Tile, &s.Q.Tile
	small.QueryLen = max(q.rows(), kv.BC) + q.Fragment.M/2 + 1
	small.KeyLen = max(kv.rows(), q.BC) + q.Fragment.M/2 + 3
	kernel.GrowForBlocks(&small, small.Masked() || q.masks(&s.Problem))
	if v.AlignedBias {
		small.KeyLen = attn.CeilDiv(small.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&small, &s.Problem)
	if !small.Masked() && !q.masks(&s.Problem) {
		small.KeyLen = attn.CeilDiv(small.KeyLen, q.BC) * q.BC
	}
	kernel.PackTrial(&small)
	return small
}

// try runs the kernels of a variant on a small problem and says what is wrong with the gradients.
func (s *BackwardProgram) try(v BackwardVariant) (wrong string, err error) {
	p := s.trial(v)
	mine := &BackwardProgram{env: s.env, Problem: p, Layout: s.Layout}
	for _, part := range [][2]*BackwardPart{{&mine.Kv, &s.Kv}, {&mine.Q, &s.Q}} {
		part[0].Keys, part[0].module, part[0].Tile = part[1].Keys, part[1].module, part[1].Tile
		if part[0].grid, err = kernel.NewGrid(part[1].Tile.groups(&p), 0); err != nil {
			return "", err
		}
		// The very pipelines that are in question, not others of the small problem.
		for piece := range part[1].Tile.pieces() {
			k, err := s.Kernel(part[1], piece, v)
			if err != nil {
				return "", err
			}
			part[0].kernels[piece][v.of(part[0]).Index()].Store(k)
		}
	}
	if mine.rows, err = kernel.NewRowTables(s.env, &p, mine.Kv.Tile.blocks().Over(mine.Kv.grid, 1, s.rows.Counted(tableOfKeys)),
		mine.Q.Tile.blocks().Over(mine.Q.grid, 1, s.rows.Counted(tableOfQueries))); err != nil {
		return "", err
	}
	if mine.delta, err = kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil)); err != nil {
		return "", err
	}
	tried := kernel.GradientVariant{Aligned: v.Aligned, Accumulate: v.Accumulate}
	if v.DBias {
		tried.With, tried.AlignedBy = "Bias", v.AlignedBias
	}
	return s.env.TryBackward(&p, tried, nil, mine.Scratch(),
		func(r *kernel.Recorder, g *kernel.Gradients) error { return mine.run(r, g, v) })
}
