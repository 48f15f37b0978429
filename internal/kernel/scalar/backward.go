package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Backward is the backward pass of FlashAttention-2 in fp32 arithmetic, without atomic additions: shaders/common/backward_delta.comp,
// then scalar_backward_kv.comp, whose workgroups own keys, and scalar_backward_q.comp, whose workgroups own queries.
var Backward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "scalar_backward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
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

func planBackward(e *kernel.Env, problem *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	s, err := fitBackward(e, problem, t)
	if err != nil {
		return nil, err
	}
	named := fmt.Sprintf("kv %v, q %v", &s.kv.tile, &s.q.tile)
	return pass.NewBackward(&pass.Fitted{Env: e, Problem: s.problem, Name: "scalar_backward " + named, Named: named, Trusted: true,
		Moves: traffic.BackwardFused{Delta: kernel.DeltaLabel,
			Keys: s.kv.moves(s.kv.tile.BR / s.kv.tile.MR), Queries: s.q.moves(s.q.tile.tx())},
		Pass: s.pass, SelfCheck: s.selfCheck})
}

// backward is the kernels fitted to a problem.
type backward struct {
	env     *kernel.Env
	problem *attn.Problem
	delta   *kernel.DeltaProgram
	kv, q   backwardPart
}

// backwardPart is one of the two kernels.
type backwardPart struct {
	label string // of its dispatches, and the name of its module
	x, y  string // the gradients that it writes
	tile  BackwardTile
	rows  kernel.RowBlocks
}

// Labels of the dispatches, and names of the modules.
const (
	keysLabel    = "scalar_backward_kv"
	queriesLabel = "scalar_backward_q"
)

func fitBackward(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (*backward, error) {
	p := *problem
	s := &backward{env: e, problem: &p, kv: backwardPart{label: keysLabel, x: "DK", y: "DV"}, q: backwardPart{label: queriesLabel, x: "DQ"}}
	var err error
	if s.delta, err = kernel.NewDeltaProgram(e, &p, t); err != nil {
		return nil, err
	}
	if s.kv.tile, err = ChooseBackwardTile(&e.Caps, &p, "kv_", t); err != nil {
		return nil, err
	}
	if s.q.tile, err = ChooseBackwardTile(&e.Caps, &p, "q_", t); err != nil {
		return nil, err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	if s.kv.rows, err = s.kv.tile.blocks(true).Planned(e, &p, s.kv.tile.groups(&p, true), 2*p.ForwardFLOPs(), kernel.ScalarPace, "kv_",
		t); err != nil {
		return nil, err
	}
	s.q.rows, err = s.q.tile.blocks(false).Planned(e, &p, s.q.tile.groups(&p, false), 1.5*p.ForwardFLOPs(), kernel.ScalarPace, "q_", t)
	return s, err
}

// pass is the row term, then the kernel of keys, then that of queries.
func (s *backward) pass(v pass.Variant) *pass.Pass {
	out := pass.BackwardOf(s.env, s.problem, s.delta, v, nil, s.kv.rows, s.q.rows)
	out.Stages = append(out.Stages, s.kv.stage(s.problem, v, tableOfKeys), s.q.stage(s.problem, v, tableOfQueries))
	return out
}

// Tables of packed sequences, by place.
const tableOfKeys, tableOfQueries = 0, 1

func (b *backwardPart) stage(p *attn.Problem, v pass.Variant, table int) pass.Stage {
	return pass.Stage{Label: b.label, Module: b.label + "." + p.DType.Suffix(), Proves: true, Grid: b.rows.Grid, Idle: "Q",
		Constants: b.tile.Constants(p, b.keys(), v.Aligned, v.Accumulate), Counts: pass.CountsOf(p, b.rows, table),
		Args: pass.Args{As: pass.AsBackward, Problem: p, X: b.x, Y: b.y},
		Bind: append(pass.BackwardViews.Inputs(), append(pass.BackwardViews.Gradients(v, b.x, b.y), pass.Scores(p, table)...)...)}
}

// selfCheck is a small problem: two blocks of rows and of columns whichever of keys and queries they are, the last ones ragged.
func (s *backward) selfCheck(v pass.Variant) (_ *pass.Pass, err error) {
	p, small := selfCheckOf(s.problem, &s.kv.tile, &s.q.tile), *s
	small.problem = &p
	for _, b := range []*backwardPart{&small.kv, &small.q} {
		if b.rows, err = b.rows.Small(b.tile.groups(&p, b.keys()), b.rows.Counted); err != nil {
			return nil, err
		}
	}
	if small.delta, err = kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil)); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}

// selfCheckOf is a small problem for a tile: two blocks of rows and of columns whichever of keys and queries they are, the last ones
// ragged.
func selfCheckOf(p *attn.Problem, tiles ...*BackwardTile) attn.Problem {
	small := kernel.SelfCheckOf(p)
	small.QueryLen, small.KeyLen = 0, 0
	for _, t := range tiles {
		small.QueryLen = max(small.QueryLen, t.BR+3, t.BC+3)
		small.KeyLen = max(small.KeyLen, t.BR+5, t.BC+5)
	}
	kernel.GrowForBlocks(&small, true)
	kernel.PackSelfCheck(&small)
	return small
}

// keys says whether rows are keys; else they are queries.
func (b *backwardPart) keys() bool { return b.label == keysLabel }

func (b *backwardPart) moves(rowReaders int) traffic.BackwardTile {
	return traffic.BackwardTile{Label: b.label, Rows: b.tile.BR, Columns: b.tile.BC, Restaged: true, RowReaders: rowReaders}
}

// groups is the number of workgroups of a kernel whose rows are keys, or queries.
func (t *BackwardTile) groups(p *attn.Problem, keys bool) uint64 {
	if keys {
		return t.blocks(keys).Most(p) * uint64(p.KeyHeads)
	}
	return t.blocks(keys).Most(p) * uint64(p.Heads)
}

// blocks is how rows, of keys or of queries, are cut.
func (t *BackwardTile) blocks(keys bool) kernel.RowBlocks {
	return kernel.RowBlocks{Keys: keys, Rows: t.BR, Columns: t.BC}
}

// Constants are the specialization constants of the kernel of keys, or of that of queries.
func (t *BackwardTile) Constants(p *attn.Problem, keys, aligned, accumulate bool) kernel.Constants {
	wide := p.HeadDim
	if keys {
		wide = max(p.HeadDim, p.ValueDim)
	}
	return t.constants(p, t.shared(wide), aligned, accumulate)
}

// constants are the specialization constants that all scalar kernels of backward passes have; sh is the layout of shared memory.
func (t *BackwardTile) constants(p *attn.Problem, sh backwardShared, aligned, accumulate bool) kernel.Constants {
	return kernel.Constants{"WG": t.threads(), "D": p.HeadDim, "DV": p.ValueDim, "ALIGNED": kernel.BoolInt(aligned),
		"ACCUMULATE": kernel.BoolInt(accumulate), "C_AT": sh.cAt, "V_AT": 0, "P_AT": sh.pAt, "SHARED_V4": sh.length,
		"DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(backwardFields.Constants(t), kernel.MaskConstants(p),
		kernel.ScoreConstants(p), kernel.BlockConstants(p.Blocks), kernel.LengthConstants(p), kernel.WithinConstants(p))
}
