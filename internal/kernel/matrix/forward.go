package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Forward is FlashAttention-2 on cooperative matrices: shaders/matrix/matrix_forward.comp.
var Forward = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_forward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked |
			attn.WithPages | attn.WithQuantised,
		Parameters: tileRanges.And(headRanges, kernel.IndirectRange, kernel.Parameters{kernel.DecodeParameter: kernel.OnOff,
			keyTermsParameter: kernel.Between(1, 2)}),
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: kernel.MatrixLacks,
	},
	Plan:       planForward,
	Candidates: ForwardCandidates,
}

func planForward(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	return fitForward("matrix_forward", "matrix_forward", p.DType, e, p, t, ChooseTile)
}

// fitForward plans the kernel of this name, with a block mask or without, of a module with operands of a type, and a tile that choose
// takes.
func fitForward(name, module string, operands attn.DType, e *kernel.Env, p *attn.Problem, t *kernel.Tuning,
	choose func(*kernel.Capabilities, *attn.Problem, kernel.Fragment, int, *kernel.Tuning) (Tile, error)) (kernel.Program, error) {
	fragment, layout, form, err := e.ChooseForm(operands, t)
	if err != nil {
		return nil, err
	}
	tile, err := choose(&e.Caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	prog := &ForwardProgram{layout: layout}
	if err := prog.Fit(e, p, name, tile.workgroups(p), kernel.PaddedFLOPs(p)*float64(tile.products()), kernel.MatrixPace, t); err != nil {
		return nil, err
	}
	module = kernel.CacheModule(module, p)
	if tile.Ahead = tile.readsBiasAhead(p, &layout); tile.Ahead {
		module += "_bias"
	}
	if tile.Parts > 1 {
		module += "_parts"
	}
	prog.Shape = tile
	prog.CheckedKernels = kernel.CheckedKernels{Env: e, For: &prog.Problem, Module: module + "." + operands.Suffix(), Named: tile.String(),
		Describe: prog.Describe, Try: prog.try}
	return prog, prog.Usual(p)
}

// ForwardProgram is matrix_forward fitted to a problem.
type ForwardProgram struct {
	kernel.ForwardPass
	Shape  Tile
	layout kernel.FragmentLayout
}

func (m *ForwardProgram) Model() traffic.Model {
	t, p := &m.Shape, &m.Problem
	w := traffic.QueriesOutside{Label: m.Label, Rows: t.Rows(), Keys: t.BC, Packed: t.Pack, Parts: t.Parts, Combine: m.Combine.Label(),
		NoneUnseen: true, AheadAgain: !t.masks(p) || !t.Ragged(p)}
	switch t.Prefetch {
	case 1:
		w.KeysAhead, w.ValuesAhead = 1, 1
	case 2:
		w.KeysAhead = 1
	case 3:
		w.KeysAhead, w.ValuesAhead = 2, 2
	}
	return w
}

// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (m *ForwardProgram) Describe(v kernel.Variant) (kernel.Constants, pipeline.KernelInfo) {
	c := m.Shape.constants(&m.Problem, &m.layout, v)
	if m.Problem.Cached() {
		c["KEY_TERMS"] = m.Shape.KeyTerms
	}
	return c.And(kernel.PartsOrBlocks(&m.Problem, m.Shape.Parts), kernel.WithinConstants(&m.Problem)),
		pipeline.KernelInfo{SubgroupSize: uint32(m.Shape.Fragment.Lanes), FullSubgroups: true}
}

// constants are those that matrix_forward and matrix_flash1 have in common.
func (t *Tile) constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	f, sh := &t.Fragment, t.Shared(p.HeadDim, p.ValueDim)
	c := kernel.Constants{"WG": t.Threads(), "BR": t.Rows(), "BC": t.BC, "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes,
		"FORM": t.Form, "RM": t.RM, "CK": t.CK, "PREFETCH": t.Prefetch, "PIPE": t.Pipe, "MAX_FIRST": t.MaxFirst,
		"PACK": kernel.BoolInt(t.Pack), "HEADS_TOGETHER": t.HeadsTogether, "K_PITCH": sh.KPitch, "V_PITCH": sh.VPitch, "KV_LEN": sh.Kv,
		"Q_REG": t.QReg, "Q_PITCH": sh.QPitch, "Q_LEN": sh.Q, "X_LEN": sh.X, "H_LEN": sh.H, "PATCH": sh.Patch,
		"MASKS": kernel.BoolInt(t.masks(p)), "DROPOUT": kernel.BoolInt(t.Drop), "DROP_LEN": sh.Drop,
		"BY_LANE": kernel.BoolInt(t.Drop && l.ColumnsOfDraws(t.Form) && kernel.SharesDraws(t.BC)), "STEPS": kernel.BoolInt(t.Steps),
		"RAGGED":     kernel.BoolInt(t.Ragged(p)),
		"BIAS_PAIRS": kernel.BoolInt(v.Aligned && !t.Ahead && l.PairsOfBias(p, t.Form))}
	if t.Ahead {
		c["BIAS_EIGHTS"] = kernel.BoolInt(v.Aligned)
	}
	return c.And(kernel.ForwardConstants(p, v), l.Constants(), t.splitConstants(&sh))
}

func (m *ForwardProgram) Record(r *kernel.Recorder, f *kernel.Operands) error {
	v := f.Variant(m.Combine)
	v.Aligned = v.Aligned && m.layout.BiasLies(&m.Problem, m.Shape.Form, &f.Scores)
	return m.RecordAs(v, r, f)
}

// try runs a pipeline on a small problem and says what is wrong with the output.
func (m *ForwardProgram) try(k *pipeline.Kernel, v kernel.Variant) (wrong string, err error) {
	p := m.Shape.trial(&m.Problem)
	if m.Shape.Terms > 0 {
		p.Scale *= splitTrialScores
		return m.TryOnWithin(splitTrialBound, &p, m.Shape.workgroups(&p), k, v)
	}
	return m.TryOn(&p, m.Shape.workgroups(&p), k, v)
}

// trial is a small problem for the tile: two blocks of queries, the second ragged, some whole tiles of keys and, where the pipeline takes
// it, a ragged one, the diagonal across them when causal.
func (t *Tile) trial(p *attn.Problem) attn.Problem {
	small := kernel.TrialOf(p)
	small.KeyHeads = 2
	small.QueryLen = t.Rows() + t.Fragment.M/2 + 1
	if t.Pack {
		group := p.Group()
		small.KeyHeads, small.Heads = 1, group
		small.QueryLen = attn.CeilDiv(small.QueryLen, group)
	}
	small.KeyLen = t.Rows()/2 + 2*t.BC + 3
	if !t.masks(p) {
		small.KeyLen = 3 * t.BC
	}
	kernel.GrowForBlocks(&small, t.masks(p))
	kernel.GrowForBias(&small, p)
	if !t.Ragged(p) {
		small.KeyLen = attn.CeilDiv(small.KeyLen, t.BC) * t.BC
	}
	kernel.PackTrial(&small)
	return small
}

// ForwardCandidates are the rows that suit the device, whatever problem they are for, and some neighbours.
func ForwardCandidates(c *kernel.Capabilities, _ *attn.Problem) []map[string]int {
	return candidatesOf(c, "matrix_forward")
}

// candidatesOf are tunings for the rows of a kernel that suit the device, and for neighbours, with growth noticed either way.
func candidatesOf(c *kernel.Capabilities, name string) []map[string]int {
	var out tunings
	add := func(t Tile) {
		m := map[string]int{"w": t.W, "rm": t.RM, "bc": t.BC, "ck": t.CK, "prefetch": t.Prefetch, "pipe": t.Pipe, "max_first": t.MaxFirst,
			"steps": kernel.BoolInt(t.Steps), "whole": kernel.BoolInt(t.Whole)}
		if t.QReg != 0 {
			m["q_reg"] = t.QReg
		}
		if t.KeepMasks {
			m["keep_masks"] = 1
		}
		if t.HeadsTogether != 0 {
			m["heads_together"] = t.HeadsTogether
		}
		out.add(c, t.W, t.RM, m)
	}
	f, lanes := c.Family(), int(c.Facts.Subgroup.Size)
	for _, row := range f.Rows(name) {
		if row.SuitsLanes(lanes) {
			add(TileOf(row))
		}
	}
	for _, row := range f.Candidates(name) {
		if row.SuitsLanes(lanes) {
			t := TileOf(row)
			add(t)
			t.MaxFirst = 1
			add(t)
		}
	}
	return out
}
