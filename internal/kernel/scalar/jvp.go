package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// JVP is forward mode in fp32 arithmetic: shaders/scalar/scalar_jvp.comp. Its tiles are those of the kernel of queries of the backward
// pass, which holds as much.
var JVP = &kernel.JVPKernel{
	Offer: kernel.Offer{
		Name:           jvpLabel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked,
		Unsupported: backwardLacks,
	},
	Plan: planJVP,
}

const jvpLabel = "scalar_jvp"

// jvp is the kernel fitted to a problem.
type jvp struct {
	env     *kernel.Env
	problem *attn.Problem
	tile    BackwardTile
	rows    kernel.RowBlocks
}

func planJVP(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (kernel.JVPProgram, error) {
	s, err := fitJVP(e, problem, t)
	if err != nil {
		return nil, err
	}
	return pass.NewJVP(&pass.Fitted{Env: e, Problem: s.problem, Name: jvpLabel + " " + s.tile.String(), Named: s.tile.String(),
		Trusted: true,
		Moves: traffic.Tangents{Tile: traffic.BackwardTile{Label: jvpLabel, Rows: s.tile.BR, Columns: s.tile.BC, Restaged: true,
			RowReaders: s.tile.tx()}},
		Pass: s.pass, SelfCheck: s.selfCheck})
}

func fitJVP(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (s *jvp, err error) {
	p := *problem
	s = &jvp{env: e, problem: &p}
	if s.tile, err = ChooseBackwardTile(&e.Caps, &p, "q_", t); err != nil {
		return nil, err
	}
	s.rows, err = s.tile.blocks(false).Planned(e, &p, s.tile.groups(&p, false), kernel.JVPWork*p.ForwardFLOPs(), kernel.ScalarPace, "", t)
	return s, err
}

func (s *jvp) pass(v pass.Variant) *pass.Pass {
	p := s.problem
	return pass.JVPViews.JVPOf(s.env, p, v, s.rows, pass.Stage{Label: jvpLabel, Module: jvpLabel + "." + p.DType.Suffix(), Proves: true,
		Grid: s.rows.Grid, Constants: s.tile.JVPConstants(p, v)})
}

// JVPConstants are the specialization constants of scalar_jvp.
func (t *BackwardTile) JVPConstants(p *attn.Problem, v pass.Variant) kernel.Constants {
	return t.constants(p, t.shared(max(p.HeadDim, p.ValueDim)), v.Aligned, false).And(v.Moving.Constants(),
		kernel.Constants{"WRITE_LSE": kernel.BoolInt(v.LSE)})
}

// selfCheck is a small problem: two blocks of queries and of keys, the last ones ragged.
func (s *jvp) selfCheck(v pass.Variant) (_ *pass.Pass, err error) {
	p, small := selfCheckOf(s.problem, &s.tile), *s
	small.problem = &p
	if small.rows, err = s.rows.Small(s.tile.groups(&p, false), s.rows.Counted); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}
