package flash

import (
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// matrixForward is FlashAttention-2 on cooperative matrices: shaders/matrix/matrix_forward.comp.
var matrixForward = &kernel{
	offer: offer{
		name:           "matrix_forward",
		implementation: Flash,
		tier:           TierMatrix,
		can:            attn.WithDropout,
		parameters:     matrixRanges.and(headRanges, parameters{decodeParameter: onOff}),
		reserved:       reservedOnCPU,
		unsupported:    matrixLacks,
	},
	plan:       planMatrixForward,
	candidates: matrixForwardCandidates,
}

func planMatrixForward(e *environment, p *Problem, t *tuning) (program, error) {
	return fitMatrixForward("matrix_forward", e, p, t, chooseMatrixTile)
}

// fitMatrixForward plans the kernel of this name, with a block mask or without, and a tile that choose takes.
func fitMatrixForward(name string, e *environment, p *Problem, t *tuning,
	choose func(*capabilities, *Problem, matrixShape, int, *tuning) (matrixTile, error)) (program, error) {
	fragment, layout, form, err := e.chooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := choose(&e.caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	g, err := gridFor(e, tile.groups(p)*uint64(tile.Parts), paddedFLOPs(p), matrixPace, t)
	if err != nil {
		return nil, err
	}
	prog := &matrixProgram{problem: *p, name: name, shape: tile, layout: layout, grid: g}
	module := "matrix_forward"
	if tile.Parts > 1 {
		module += "_parts"
		if prog.combine, err = newCombiner(e, p, tile.Parts, t); err != nil {
			return nil, err
		}
	}
	prog.checkedKernels = checkedKernels{env: e, module: module + "." + p.DType.suffix(), named: tile.String(), describe: prog.describe, try: prog.try}
	return prog, prog.usual(p)
}

// matrixProgram is matrix_forward fitted to a problem.
type matrixProgram struct {
	checkedKernels
	problem Problem
	name    string // of the kernel
	shape   matrixTile
	layout  matrixLayout
	grid    grid
	combine *combiner // of keys in parts; nil: in one
}

func (m *matrixProgram) scratch() []uint64 { return m.combine.scratch() }
func (m *matrixProgram) dispatches() int   { return m.grid.dispatches() + m.combine.dispatches() }

func (m *matrixProgram) model() traffic.Model {
	t, p := &m.shape, &m.problem
	w := traffic.QueriesOutside{Label: m.name, Rows: t.rows(), Keys: t.BC, Packed: t.Pack, Parts: t.Parts, Combine: m.combine.label(),
		NoneUnseen: true, AheadAgain: !t.masks(p) || !t.ragged(p)}
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

// describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (m *matrixProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	c := m.shape.constants(&m.problem, &m.layout, v)
	return c.and(partsOrBlocks(&m.problem, m.combine, m.shape.Parts)), pipeline.KernelInfo{SubgroupSize: uint32(m.shape.fragment.Lanes), FullSubgroups: true}
}

// constants are those that matrix_forward and matrix_flash1 have in common.
func (t *matrixTile) constants(p *Problem, l *matrixLayout, v variant) constants {
	f, sh := &t.fragment, t.shared(p.HeadDim, p.ValueDim)
	c := constants{"WG": t.threads(), "BR": t.rows(), "BC": t.BC, "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes,
		"FORM": t.Form, "RM": t.RM, "CK": t.CK, "PREFETCH": t.Prefetch, "PIPE": t.Pipe, "MAX_FIRST": t.MaxFirst,
		"PACK": boolInt(t.Pack), "HEADS_TOGETHER": t.HeadsTogether, "K_PITCH": sh.kPitch, "V_PITCH": sh.vPitch, "KV_LEN": sh.kv,
		"Q_REG": t.QReg, "Q_PITCH": sh.qPitch, "Q_LEN": sh.q, "X_LEN": sh.x, "H_LEN": sh.h, "PATCH": sh.patch,
		"MASKS": boolInt(t.masks(p)), "DROPOUT": boolInt(t.Drop), "DROP_LEN": sh.drop,
		"BY_LANE": boolInt(t.Drop && l.columnsOfDraws(t.Form) && sharesDraws(t.BC)), "STEPS": boolInt(t.Steps), "RAGGED": boolInt(t.ragged(p))}
	return c.and(forwardConstants(p, v), l.constants())
}

func (m *matrixProgram) record(r *recorder, f *operands) error {
	k, err := m.kernel(f.variant(m.combine))
	if err != nil {
		return err
	}
	return m.run(r, f, k)
}

// run records the dispatches with a given pipeline.
func (m *matrixProgram) run(r *recorder, f *operands, k *pipeline.Kernel) error {
	return r.forward(k, &m.problem, f, m.grid, m.name, m.combine)
}

// try runs a pipeline on a small problem and says what is wrong with the output.
func (m *matrixProgram) try(k *pipeline.Kernel, v variant) (wrong string, err error) {
	small := matrixProgram{problem: m.shape.trial(&m.problem), name: m.name, shape: m.shape}
	if small.grid, err = newGrid(small.shape.groups(&small.problem)*uint64(small.shape.Parts), 0); err != nil {
		return "", err
	}
	if m.combine != nil {
		if small.combine, err = newCombiner(m.env, &small.problem, m.shape.Parts, newTuning(nil)); err != nil {
			return "", err
		}
	}
	return m.env.tryForward(&small.problem, v, small.scratch(), func(r *recorder, f *operands) error { return small.run(r, f, k) })
}

// trial is a small problem for the tile: two blocks of queries, the second ragged, some whole tiles of keys and, where the pipeline takes
// it, a ragged one, the diagonal across them when causal.
func (t *matrixTile) trial(p *Problem) Problem {
	small := trialOf(p)
	small.KeyHeads = 2
	small.QueryLen = t.rows() + t.fragment.M/2 + 1
	if t.Pack {
		group := p.group()
		small.KeyHeads, small.Heads = 1, group
		small.QueryLen = ceilDiv(small.QueryLen, group)
	}
	small.KeyLen = t.rows()/2 + 2*t.BC + 3
	if !t.masks(p) {
		small.KeyLen = 3 * t.BC
	}
	growForBlocks(&small, t.masks(p))
	if !t.ragged(p) {
		small.KeyLen = ceilDiv(small.KeyLen, t.BC) * t.BC
	}
	return small
}

// candidates are the rows that suit the device, whatever problem they are for, and some neighbours.
func matrixForwardCandidates(c *capabilities, _ *Problem) []map[string]int {
	return matrixCandidates(c, "matrix_forward")
}

// matrixCandidates are tunings for the rows of a kernel that suit the device, and for neighbours, with growth noticed either way.
func matrixCandidates(c *capabilities, name string) []map[string]int {
	var out []map[string]int
	add := func(t matrixTile) {
		if c.facts.Type == vk.DeviceCPU && t.W*t.RM > 4 { // takes a CPU minutes to compile
			return
		}
		m := map[string]int{"w": t.W, "rm": t.RM, "bc": t.BC, "ck": t.CK, "prefetch": t.Prefetch, "pipe": t.Pipe, "max_first": t.MaxFirst,
			"steps": boolInt(t.Steps), "whole": boolInt(t.Whole)}
		if t.QReg != 0 {
			m["q_reg"] = t.QReg
		}
		if t.KeepMasks {
			m["keep_masks"] = 1
		}
		if t.HeadsTogether != 0 {
			m["heads_together"] = t.HeadsTogether
		}
		if !slices.ContainsFunc(out, func(o map[string]int) bool { return sameTuning(o, m) }) {
			out = append(out, m)
		}
	}
	f, lanes := c.family(), int(c.facts.Subgroup.Size)
	for _, row := range f.Rows(name) {
		if row.SuitsLanes(lanes) {
			add(tileOf(row))
		}
	}
	for _, row := range f.Candidates(name) {
		if row.SuitsLanes(lanes) {
			t := tileOf(row)
			add(t)
			t.MaxFirst = 1
			add(t)
		}
	}
	return out
}
