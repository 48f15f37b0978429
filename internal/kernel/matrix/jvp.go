package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// JVP is forward mode on cooperative matrices: shaders/matrix/matrix_jvp.comp.
var JVP = &kernel.JVPKernel{
	Offer: kernel.Offer{
		Name:           jvpLabel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked,
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: BackwardLacks,
	},
	Plan: planJVP,
}

const jvpLabel = "matrix_jvp"

// jvpBuffers are the names of shaders/include/matrix_backward.glsl, built with TANGENTS.
var jvpBuffers = &pass.JVPBuffers{Q: "Q4_", K: "K4_", V: "V4_", O: "G4_", LSE: "Lse_", QTangent: "QT4_", KTangent: "KT4_", VTangent: "VT4_",
	OTangent: "X4_", LSETangent: "LseTangent"}

// jvp is the kernel fitted to a problem.
type jvp struct {
	env     *kernel.Env
	problem *attn.Problem
	layout  *kernel.FragmentLayout
	tile    BackwardTile
	rows    kernel.RowBlocks
}

func planJVP(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (kernel.JVPProgram, error) {
	fragment, layout, form, err := e.ChooseForm(problem.DType, t)
	if err != nil {
		return nil, err
	}
	p := *problem
	s := &jvp{env: e, problem: &p, layout: &layout}
	if s.tile, err = ChooseJVPTile(&e.Caps, &p, &layout, fragment, form, t); err != nil {
		return nil, err
	}
	if s.rows, err = s.tile.blocks().Planned(e, &p, s.tile.groups(&p), kernel.JVPWork*kernel.PaddedFLOPs(&p), kernel.MatrixPace, "",
		t); err != nil {
		return nil, err
	}
	moves := s.tile.model(jvpLabel, &p)
	moves.RowReaders = s.tile.rowReaders(&layout)
	named := fmt.Sprintf("%v %v form %d", &s.tile, fragment, form)
	return pass.NewJVP(&pass.Fitted{Env: e, Problem: &p, Name: jvpLabel + " " + named, Named: named,
		Moves: traffic.Tangents{Tile: moves}, WholeBias: layout.PairsOfBias(&p, form), Pass: s.pass, SelfCheck: s.selfCheck})
}

func (s *jvp) pass(v pass.Variant) *pass.Pass {
	p := s.problem
	return jvpBuffers.JVPOf(s.env, p, v, s.rows, pass.Stage{Label: jvpLabel, Module: jvpLabel + "." + p.DType.Suffix(), Proves: true,
		Made: s.tile.Fragment.Subgroups(), Grid: s.rows.Grid, Constants: s.tile.JVPConstants(p, s.layout, v)})
}

// JVPConstants are the specialization constants of matrix_jvp.
func (t *BackwardTile) JVPConstants(p *attn.Problem, l *kernel.FragmentLayout, v pass.Variant) kernel.Constants {
	return t.constants(p, t.Shared(p), l, v.Aligned, false).And(ofEither(p, t), v.Moving.Constants(),
		kernel.Constants{"BIAS_PAIRS": kernel.BoolInt(v.Aligned && l.PairsOfBias(p, t.Form)), "WRITE_LSE": kernel.BoolInt(v.LSE)})
}

// ChooseJVPTile takes the first row that fits; those that keep no slices in registers by number keep all.
func ChooseJVPTile(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int,
	t *kernel.Tuning) (BackwardTile, error) {
	return chooseBackwardTile(c, p, l, f, form, "q_", jvpLabel, t)
}

// selfCheck is a small problem: some blocks of queries and keys, the last ones ragged, the diagonal across them when causal.
func (s *jvp) selfCheck(v pass.Variant) (_ *pass.Pass, err error) {
	p, small, t := kernel.SelfCheckOf(s.problem), *s, &s.tile
	small.problem = &p
	p.QueryLen, p.KeyLen = t.rows()+t.Fragment.M/2+1, t.rows()+t.BC+t.Fragment.M/2+3
	kernel.GrowForBlocks(&p, p.Masked() || t.masks(s.problem))
	kernel.GrowForBias(&p, s.problem)
	if !p.Masked() && !t.masks(s.problem) {
		p.KeyLen = attn.CeilDiv(p.KeyLen, t.BC) * t.BC
	}
	kernel.PackSelfCheck(&p)
	if small.rows, err = s.rows.Small(t.groups(&p), s.rows.Counted); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}
