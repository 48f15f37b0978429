package flash

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// matrixForward is FlashAttention-2 on cooperative matrices: shaders/matrix/matrix_forward.comp.
var matrixForward = &kernel{
	offer: offer{
		name:           "matrix_forward",
		implementation: Flash,
		tier:           TierMatrix,
		can:            withDropout,
		parameters:     matrixRanges.and(headRanges, parameters{decodeParameter: onOff}),
		reserved:       reservedOnCPU,
		unsupported:    matrixLacks,
	},
	plan:       planMatrixForward,
	candidates: matrixForwardCandidates,
}

// reservedOnCPU is the reason not to take a kernel on matrices although it can run, unless its tier is asked for: a driver on a CPU
// compiles its unrolled fragments for seconds, and then multiplies them one number at a time.
func reservedOnCPU(c *capabilities) string {
	if c.facts.Type == vk.DeviceCPU {
		return "matrices on a CPU are slower than the scalar tier; WithTier(TierMatrix) insists"
	}
	return ""
}

// matrixPace is reckoned with head dimensions of 64 and more, see paddedFLOPs. A small discrete GPU with matrices reaches some
// 10 TFLOP/s, an H200 more than 300: there a dispatch is 30 ms long, still long enough for its end not to matter.
var matrixPace = pace{discrete: 20e12, other: 1e12}

// paddedFLOPs is what a dispatch costs, in operations at the rate of head dimensions of 64: below, the softmax weighs as much
// as the products.
func (p *Problem) paddedFLOPs() float64 {
	d := p.HeadDim + p.ValueDim
	return p.ForwardFLOPs() * float64(max(d, 128)) / float64(d)
}

func planMatrixForward(d *Device, p *Problem, t *tuning) (program, error) {
	return fitMatrixForward("matrix_forward", d, p, t, chooseMatrixTile)
}

// fitMatrixForward plans the kernel of this name, with a block mask or without, and a tile that choose takes.
func fitMatrixForward(name string, d *Device, p *Problem, t *tuning,
	choose func(*capabilities, *Problem, matrixShape, int, *tuning) (matrixTile, error)) (program, error) {
	fragment, layout, form, err := d.chooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := choose(&d.caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	g, err := gridFor(d, tile.groups(p)*uint64(tile.Parts), p.paddedFLOPs(), matrixPace, t)
	if err != nil {
		return nil, err
	}
	prog := &matrixProgram{problem: *p, name: name, shape: tile, layout: layout, grid: g}
	module := "matrix_forward"
	if tile.Parts > 1 {
		module += "_parts"
		if prog.combine, err = newCombiner(d, p, tile.Parts, t); err != nil {
			return nil, err
		}
	}
	prog.checkedKernels = checkedKernels{dev: d, module: module + "." + p.DType.suffix(), named: tile.String(), describe: prog.describe, try: prog.try}
	return prog, prog.usual(p)
}

// chooseForm takes the preferred fragment and the best form that its layout allows, or what is asked for.
func (d *Device) chooseForm(dtype DType, t *tuning) (matrixShape, matrixLayout, int, error) {
	s, err := d.caps.chooseFragment(dtype, t)
	if err != nil {
		return s, matrixLayout{}, 0, err
	}
	layout, err := d.layout(dtype, s)
	if err != nil {
		return s, layout, 0, err
	}
	form := t.get("form", layout.Form)
	switch {
	case form < formRegisters || form > formShared:
		return s, layout, form, t.bad("form", "must be 1, 2 or 3")
	case form < layout.Form:
		return s, layout, form, &declined{fmt.Sprintf("form %d needs another layout of %v fragments than this device's: %s", form, s, layout.Why)}
	}
	return s, layout, form, nil
}

func agrees(t *tuning, name string, v int) bool {
	w, given := t.given[name]
	return !given || w == v
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

// describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (m *matrixProgram) describe(v variant) (constants, pipeline.KernelInfo) {
	c := m.shape.constants(&m.problem, &m.layout, v)
	return append(c, m.problem.partsOrBlocks(m.combine, m.shape.Parts)...), pipeline.KernelInfo{SubgroupSize: uint32(m.shape.fragment.Lanes), FullSubgroups: true}
}

// constants are those that matrix_forward and matrix_flash1 have in common.
func (t *matrixTile) constants(p *Problem, l *matrixLayout, v variant) constants {
	f, sh := &t.fragment, t.shared(p.HeadDim, p.ValueDim)
	c := constants{{"WG", t.threads()}, {"BR", t.rows()}, {"BC", t.BC}, {"FM", f.M}, {"FN", f.N}, {"FK", f.K}, {"SG", f.Lanes},
		{"FORM", t.Form}, {"RM", t.RM}, {"CK", t.CK}, {"PREFETCH", t.Prefetch}, {"PIPE", t.Pipe}, {"MAX_FIRST", t.MaxFirst},
		{"PACK", boolInt(t.Pack)}, {"HEADS_TOGETHER", t.HeadsTogether}, {"K_PITCH", sh.kPitch}, {"V_PITCH", sh.vPitch}, {"KV_LEN", sh.kv},
		{"Q_REG", t.QReg}, {"Q_PITCH", sh.qPitch}, {"Q_LEN", sh.q}, {"X_LEN", sh.x}, {"H_LEN", sh.h}, {"PATCH", sh.patch},
		{"MASKS", boolInt(t.masks(p))}, {"DROPOUT", boolInt(t.Drop)}, {"DROP_LEN", sh.drop},
		{"BY_LANE", boolInt(t.Drop && l.columnsOfDraws(t.Form) && sharesDraws(t.BC))}, {"STEPS", boolInt(t.Steps)}, {"RAGGED", boolInt(t.ragged(p))}}
	return append(append(c, p.forwardConstants(v)...), l.constants()...)
}

func (m *matrixProgram) record(r *recorder, f *operands) error {
	k, err := m.kernel(f.variant(m.combine))
	if err != nil {
		return refused(err, m.problem.String())
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
		if small.combine, err = newCombiner(m.dev, &small.problem, m.shape.Parts, newTuning(nil)); err != nil {
			return "", err
		}
	}
	return m.dev.tryForward(&small.problem, v, small.scratch(), func(r *recorder, f *operands) error { return small.run(r, f, k) })
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
	small.growForBlocks(t.masks(p))
	if !t.ragged(p) {
		small.KeyLen = ceilDiv(small.KeyLen, t.BC) * t.BC
	}
	return small
}

// candidates are the rows of the table that suit the device, whatever problem they stand there for, and some neighbours.
func matrixForwardCandidates(c *capabilities, _ *Problem) []map[string]int {
	return matrixCandidates(c, matrixTiles, []matrixTile{
		{W: 4, RM: 2, BC: 64, CK: 32, Prefetch: 1}, {W: 8, RM: 2, BC: 64, CK: 32, Prefetch: 1}, {W: 8, RM: 2, BC: 64, CK: 16},
		{W: 4, RM: 2, BC: 32, CK: 16, Prefetch: 1, Pipe: 1}, {W: 4, RM: 1, BC: 64, CK: 32, Prefetch: 1, Pipe: 1},
		{W: 8, RM: 1, BC: 64, CK: 32, Prefetch: 1, Pipe: 1}, {W: 8, RM: 1, BC: 32, CK: 16, Prefetch: 1, Pipe: 1}, {W: 8, RM: 1, BC: 64, CK: 16, Prefetch: 2, Pipe: 1},
		{W: 12, RM: 1, BC: 48, CK: 16, Prefetch: 1, Pipe: 1}, {W: 12, RM: 1, BC: 64, CK: 16, Prefetch: 2, Pipe: 1}, {W: 8, RM: 1, BC: 32, CK: 32, Prefetch: 3},
		{W: 4, RM: 1, BC: 32, CK: 32, Prefetch: 3, Pipe: 1}, {W: 4, RM: 1, BC: 16, CK: 16, Prefetch: 1}, {W: 4, RM: 1, BC: 32, CK: 16},
	})
}

// matrixCandidates are tunings for the rows of a table that suit the device, and for neighbours, with growth noticed either way.
func matrixCandidates(c *capabilities, table []matrixRow, neighbours []matrixTile) []map[string]int {
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
	for _, row := range table {
		if (row.lanes == 0 || row.lanes == int(c.facts.Subgroup.Size)) && (!row.cpu || c.facts.Type == vk.DeviceCPU) {
			add(row.tile)
		}
	}
	for _, t := range neighbours {
		add(t)
		t.MaxFirst = 1
		add(t)
	}
	return out
}
