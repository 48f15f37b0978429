package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
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
			kernel.Parameters{"kv_split": kernel.OnOff, dBiasParameter: kernel.OnOff, kernel.SlabsParameter: kernel.OnOff,
				kernel.KeepDSParameter: kernel.OnOff}),
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

func planBackward(e *kernel.Env, problem *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(problem.DType, t)
	if err != nil {
		return nil, err
	}
	s, err := fitBackward(e, problem, fragment, &layout, form, t)
	if err != nil {
		return nil, err
	}
	kv, q := &s.kv.tile, &s.q.tile
	moves := traffic.BackwardFused{Delta: kernel.DeltaLabel, Keys: kv.model(keysLabel, s.problem),
		Queries: q.model(queriesLabel, s.problem), DBias: q.DBias}
	moves.Queries.RowReaders = q.rowReaders(&layout)
	named := fmt.Sprintf("kv %v, q %v %v form %d", kv, q, fragment, form)
	return pass.NewBackward(&pass.Fitted{Env: e, Problem: s.problem, Name: orderedLabel + " " + named, Named: named, Moves: moves,
		WholeBias: layout.PairsOfBias(s.problem, form), DBias: q.DBias, Pass: s.pass, SelfCheck: s.selfCheck})
}

// backward is the kernels fitted to a problem.
type backward struct {
	env     *kernel.Env
	problem *attn.Problem
	layout  *kernel.FragmentLayout
	delta   *kernel.DeltaProgram
	kv, q   backwardPart
}

// backwardPart is the kernel of keys or that of queries.
type backwardPart struct {
	label string // of its dispatches
	tile  BackwardTile
	rows  kernel.RowBlocks
}

// Tables of packed sequences, by place.
const tableOfKeys, tableOfQueries = 0, 1

// Labels of the dispatches, and names of the modules without the element type.
const (
	keysLabel    = "matrix_backward_kv"
	queriesLabel = "matrix_backward_q"
	orderedLabel = "matrix_backward" // both
)

// gradientBuffers are the names of shaders/include/matrix_backward.glsl.
var gradientBuffers = &pass.BackwardBuffers{Q: "Q4_", K: "K4_", V: "V4_", DO: "G4_", LSE: "Lse_", Delta: "Delta_", X: "X4_", Y: "Y4_"}

func fitBackward(e *kernel.Env, problem *attn.Problem, f kernel.Fragment, l *kernel.FragmentLayout, form int,
	t *kernel.Tuning) (s *backward, err error) {
	if err := staysInRegisters(t); err != nil {
		return nil, err
	}
	p := *problem
	s = &backward{env: e, problem: &p, layout: l, kv: backwardPart{label: keysLabel}, q: backwardPart{label: queriesLabel}}
	for _, part := range []*backwardPart{&s.kv, &s.q} {
		if part.tile, err = ChooseBackwardTile(&e.Caps, &p, l, f, form, prefixOf(part.label), t); err != nil {
			return nil, err
		}
	}
	if err := s.q.tile.takeBias(e, &p, t); err != nil {
		return nil, err
	}
	if s.delta, err = kernel.NewDeltaProgram(e, &p, t); err != nil {
		return nil, err
	}
	for _, part := range []*backwardPart{&s.kv, &s.q} {
		if part.rows, err = part.tile.blocks().Planned(e, &p, part.tile.groups(&p), 2*kernel.PaddedFLOPs(&p), kernel.MatrixPace,
			prefixOf(part.label), t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// pass is the row term, then the kernel of keys, which may be two dispatches, then that of queries.
func (s *backward) pass(v pass.Variant) *pass.Pass {
	out := pass.BackwardOf(s.env, s.problem, s.delta, v, nil, s.kv.rows, s.q.rows)
	for _, sums := range s.kv.tile.pieces() {
		keys := s.stage(&s.kv, v, sums, tableOfKeys)
		gradients := gradientBuffers.Gradients(v, "DK", "DV")
		switch sums {
		case onlyDV:
			gradients[0].Mode = pipeline.Unused
		case onlyDK:
			gradients[1].Mode = pipeline.Unused
		}
		keys.Args.X, keys.Args.Y, keys.Bind = "DK", "DV", append(keys.Bind, gradients...)
		out.Stages = append(out.Stages, keys)
	}
	queries := s.stage(&s.q, v, dkAndDV, tableOfQueries)
	queries.Args.X = "DQ"
	if v.DBias {
		queries.Args.Y = "DBias"
	}
	queries.Bind = append(queries.Bind, gradientBuffers.Gradients(v, queries.Args.X, queries.Args.Y)...)
	out.Stages = append(out.Stages, queries)
	return out
}

// stage is one of the kernels, but for the gradients that it writes.
func (s *backward) stage(part *backwardPart, v pass.Variant, sums, table int) pass.Stage {
	p := s.problem
	return pass.Stage{Label: part.label, Module: part.label + "." + p.DType.Suffix(), Proves: true, Made: part.tile.Fragment.Subgroups(),
		Grid: part.rows.Grid, Idle: "Q", Constants: part.tile.Constants(p, s.layout, v, sums), Counts: pass.CountsOf(p, part.rows, table),
		Args: pass.Args{As: pass.AsBackward, Problem: p}, Bind: append(gradientBuffers.Inputs(), pass.Scores(p, table)...)}
}

// model is how a kernel with this tile walks over columns.
func (t *BackwardTile) model(label string, p *attn.Problem) traffic.BackwardTile {
	return traffic.BackwardTile{Label: label, Rows: t.rows(), Columns: t.BC, Masked: t.masks(p), Ahead: t.Prefetch != 0 && t.Slice == 0,
		Apart: len(t.pieces()) > 1, Streamed: t.Slice > 0}
}

// rowReaders is how many invocations load lse and δ of a query that is a row: in registers a lane keeps the rows of which it holds
// elements. 0: one.
func (t *BackwardTile) rowReaders(l *kernel.FragmentLayout) int {
	if t.Form != kernel.FormRegisters {
		return 0
	}
	return t.Fragment.Lanes * max(1, len(l.RowOfSlot)) / t.Fragment.M
}

// Constants are the specialization constants of the kernel of keys, which makes these sums, or of that of queries.
func (t BackwardTile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v pass.Variant, sums int) kernel.Constants {
	if t.Keys {
		return t.constants(p, t.Shared(p), l, v.Aligned, v.Accumulate).And(ofEither(p, &t),
			kernel.Constants{"PARTS": sums, "KEEP_DS": kernel.BoolInt(t.KeepsDS)})
	}
	t.DBias = v.DBias
	return t.constants(p, t.Shared(p), l, v.Aligned, v.Accumulate).And(ofEither(p, &t), t.ofBias(p, l, v))
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
	c := kernel.Constants{"WG": t.W * f.Lanes, "BR": t.rows(), "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate),
		"FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "FORM": t.Form, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0),
		"A_PITCH": sh.aPitch, "B_PITCH": sh.bPitch, "TILE_LEN": sh.Tile, "STATS_LEN": sh.Stats,
		"ROWS_LEN": sh.rows, "X_LEN": sh.x, "H_LEN": sh.h, "PATCH": sh.patch, "DROP_LEN": sh.Drop, "BY_LANE": t.ByLane}
	return c.And(backwardFields.Constants(t), backwardHeads.Constants(t), kernel.MaskConstants(p), kernel.ScoreConstants(p),
		kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p),
		kernel.WithinConstants(p), l.Constants())
}

// selfCheck is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when
// causal.
func (s *backward) selfCheck(v pass.Variant) (_ *pass.Pass, err error) {
	p, small := kernel.SelfCheckOf(s.problem), *s
	small.problem = &p
	kv, q := &s.kv.tile, &s.q.tile
	p.QueryLen = max(q.rows(), kv.BC) + q.Fragment.M/2 + 1
	p.KeyLen = max(kv.rows(), q.BC) + q.Fragment.M/2 + 3
	kernel.GrowForBlocks(&p, p.Masked() || q.masks(s.problem))
	if v.AlignedDBias {
		p.KeyLen = attn.CeilDiv(p.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&p, s.problem)
	if !p.Masked() && !q.masks(s.problem) {
		p.KeyLen = attn.CeilDiv(p.KeyLen, q.BC) * q.BC
	}
	kernel.PackSelfCheck(&p)
	for _, part := range []*backwardPart{&small.kv, &small.q} {
		if part.rows, err = part.rows.Small(part.tile.groups(&p), part.rows.Counted); err != nil {
			return nil, err
		}
	}
	if small.delta, err = kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil)); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}
