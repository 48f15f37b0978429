package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// matrixBackward is the backward pass of FlashAttention-2 on cooperative matrices, without atomic additions:
// shaders/common/backward_delta.comp, matrix_backward_kv.comp and matrix_backward_q.comp.
var matrixBackward = &backwardKernel{
	offer: offer{
		name:           "matrix_backward",
		implementation: Flash,
		tier:           TierMatrix,
		can:            withDropout,
		parameters:     formRanges.and(groupBound, backwardMatrixRanges.of("kv_"), backwardMatrixRanges.of("q_"), parameters{"kv_split": onOff}),
		reserved:       reservedOnCPU,
		unsupported:    matrixBackwardLacks,
	},
	plan: planMatrixBackward,
}

func matrixBackwardLacks(c *capabilities, p *Problem) string {
	if n := c.facts.Limits.MaxPushConstants; n < backwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, backwardPushBytes)
	}
	return c.lacksMatrix(p.DType)
}

func planMatrixBackward(d *Device, p *Problem, _ program, t *tuning) (backwardProgram, error) {
	fragment, layout, form, err := d.chooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	s := &matrixBackwardProgram{dev: d, problem: *p, layout: layout}
	if s.delta, err = newDeltaProgram(d, p, t); err != nil {
		return nil, err
	}
	s.kv.keys, s.kv.module, s.q.module = true, "matrix_backward_kv."+p.DType.suffix(), "matrix_backward_q."+p.DType.suffix()
	for _, part := range []*matrixBackwardPart{&s.kv, &s.q} {
		prefix := "q_"
		if part.keys {
			prefix = "kv_"
		}
		if part.tile, err = chooseMatrixBackwardTile(&d.caps, p, &layout, fragment, form, prefix, t); err != nil {
			return nil, err
		}
		if part.grid, err = gridFor(d, part.tile.groups(p), 2*p.paddedFLOPs(), matrixPace, t); err != nil {
			return nil, err
		}
	}
	// The usual case is dense tensors, gradients overwritten. On a device of the caller's, whose queue recording must leave
	// alone, the other variants are looked at now too.
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	variants := [][2]bool{{aligned, false}}
	if d.info.Attached {
		variants = [][2]bool{{aligned, false}, {aligned, true}, {false, false}, {false, true}}
	}
	for _, v := range variants {
		if err := s.build(v[0], v[1]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// matrixBackwardProgram is the kernels fitted to a problem.
type matrixBackwardProgram struct {
	dev     *Device
	problem Problem
	layout  matrixLayout
	delta   *deltaProgram
	kv, q   matrixBackwardPart
	checked [4]atomic.Bool // by variant
}

// matrixBackwardPart is the kernel of keys or that of queries.
type matrixBackwardPart struct {
	keys    bool
	module  string
	tile    matrixBackwardTile
	grid    grid
	kernels [2][4]atomic.Pointer[pipeline.Kernel] // by piece, and by alignment and accumulation
}

func (s *matrixBackwardProgram) tile() string {
	return fmt.Sprintf("kv %v, q %v %v form %d", &s.kv.tile, &s.q.tile, s.q.tile.fragment, s.q.tile.Form)
}
func (s *matrixBackwardProgram) scratch() []uint64 { return []uint64{s.delta.bytes()} }
func (s *matrixBackwardProgram) dispatches() int {
	return s.delta.grid.dispatches() + len(s.kv.tile.pieces())*s.kv.grid.dispatches() + s.q.grid.dispatches()
}

// constants are the specialization constants of a kernel; parts says which sums it makes.
func (s *matrixBackwardProgram) constants(part *matrixBackwardPart, parts int, aligned, accumulate bool) constants {
	p, t := &s.problem, &part.tile
	f, sh := &t.fragment, t.shared(p)
	c := constants{{"WG", t.W * f.Lanes}, {"BR", t.rows()}, {"BC", t.BC}, {"D", p.HeadDim}, {"DV", p.ValueDim},
		{"CAUSAL", boolInt(p.Causal != CausalNone)}, {"ALIGNED", boolInt(aligned)}, {"ACCUMULATE", boolInt(accumulate)},
		{"FM", f.M}, {"FN", f.N}, {"FK", f.K}, {"SG", f.Lanes}, {"FORM", t.Form}, {"RM", t.RM}, {"CK", t.CK}, {"PREFETCH", t.Prefetch},
		{"A_REG", t.AReg}, {"B_REG", t.BReg}, {"DROPOUT", boolInt(p.dropThreshold() > 0)}, {"HEADS_TOGETHER", t.HeadsTogether},
		{"A_PITCH", sh.aPitch}, {"B_PITCH", sh.bPitch}, {"TILE_LEN", sh.tile}, {"MASKS", boolInt(t.masks(p))}, {"STATS_LEN", sh.stats},
		{"ROWS_LEN", sh.rows}, {"X_LEN", sh.x}, {"H_LEN", sh.h}, {"PATCH", sh.patch}, {"DROP_LEN", sh.drop}, {"BY_LANE", t.ByLane}}
	if part.keys {
		c = append(c, constant{"PARTS", parts})
	}
	return append(c, s.layout.constants()...)
}

func (s *matrixBackwardProgram) kernel(part *matrixBackwardPart, piece int, aligned, accumulate bool) (*pipeline.Kernel, error) {
	i := boolInt(aligned) + 2*boolInt(accumulate)
	return s.dev.variant(&part.kernels[piece][i], part.module, func() (constants, pipeline.KernelInfo) {
		return s.constants(part, part.tile.pieces()[piece], aligned, accumulate),
			pipeline.KernelInfo{SubgroupSize: uint32(part.tile.fragment.Lanes), FullSubgroups: true}
	})
}

// build makes the pipelines of a variant and lets those that were never run on this device and driver prove themselves.
func (s *matrixBackwardProgram) build(aligned, accumulate bool) error {
	i := boolInt(aligned) + 2*boolInt(accumulate)
	if s.checked[i].Load() {
		return nil
	}
	try := func() (string, error) { return s.try(aligned, accumulate) }
	if err := s.dev.prove("matrix_backward "+s.tile(), s.compiled(aligned, accumulate), try); err != nil {
		return err
	}
	s.checked[i].Store(true)
	return nil
}

func (s *matrixBackwardProgram) record(r *recorder, g *gradients) error {
	if err := s.build(g.aligned(), g.accumulate); err != nil {
		return refused(err, "backward of "+s.problem.String())
	}
	return s.run(r, g)
}

func (s *matrixBackwardProgram) run(r *recorder, g *gradients) error {
	delta := operand{binding: r.scratch[0]}
	if err := s.delta.record(r, g, &delta); err != nil {
		return err
	}
	aligned := g.aligned()
	for piece, parts := range s.kv.tile.pieces() {
		k, err := s.kernel(&s.kv, piece, aligned, g.accumulate)
		if err != nil {
			return err
		}
		at := r.push.backward(&s.problem, g, &delta, &g.dk, &g.dv)
		r.backwardInputs(g, &delta)
		r.access[6], r.access[7] = g.output(&g.dk), g.output(&g.dv)
		if parts == onlyDV {
			r.access[6].Mode = pipeline.Unused
		}
		if parts == onlyDK {
			r.access[7].Mode = pipeline.Unused
		}
		if err := r.dispatch(k, r.access[:8], at, s.kv.grid, s.kv.grid.total, "matrix_backward_kv"); err != nil {
			return err
		}
	}
	k, err := s.kernel(&s.q, 0, aligned, g.accumulate)
	if err != nil {
		return err
	}
	at := r.push.backward(&s.problem, g, &delta, &g.dq, nil)
	r.backwardInputs(g, &delta)
	r.access[6] = g.output(&g.dq)
	return r.dispatch(k, r.access[:7], at, s.q.grid, s.q.grid.total, "matrix_backward_q")
}

// compiled is what the driver compiles for a variant.
func (s *matrixBackwardProgram) compiled(aligned, accumulate bool) []compiled {
	var all []compiled
	for _, part := range []*matrixBackwardPart{&s.kv, &s.q} {
		for _, parts := range part.tile.pieces() {
			all = append(all, compiled{part.module, s.constants(part, parts, aligned, accumulate)})
		}
	}
	return all
}

// trial is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when causal.
func (s *matrixBackwardProgram) trial() Problem {
	small := trialOf(&s.problem)
	kv, q := &s.kv.tile, &s.q.tile
	small.QueryLen = max(q.rows(), kv.BC) + q.fragment.M/2 + 1
	small.KeyLen = max(kv.rows(), q.BC) + q.fragment.M/2 + 3
	if small.Causal == CausalNone && !q.masks(&s.problem) {
		small.KeyLen = ceilDiv(small.KeyLen, q.BC) * q.BC
	}
	return small
}

// try runs the kernels of a variant on a small problem and says what is wrong with the gradients.
func (s *matrixBackwardProgram) try(aligned, accumulate bool) (wrong string, err error) {
	d, p := s.dev, s.trial()
	mine := &matrixBackwardProgram{dev: d, problem: p, layout: s.layout}
	for _, part := range [][2]*matrixBackwardPart{{&mine.kv, &s.kv}, {&mine.q, &s.q}} {
		part[0].keys, part[0].module, part[0].tile = part[1].keys, part[1].module, part[1].tile
		if part[0].grid, err = newGrid(part[1].tile.groups(&p), 0); err != nil {
			return "", err
		}
		// The very pipelines that are in question, not others of the small problem.
		for piece := range part[1].tile.pieces() {
			k, err := s.kernel(part[1], piece, aligned, accumulate)
			if err != nil {
				return "", err
			}
			part[0].kernels[piece][boolInt(aligned)+2*boolInt(accumulate)].Store(k)
		}
	}
	if mine.delta, err = newDeltaProgram(d, &p, newTuning(nil)); err != nil {
		return "", err
	}
	return d.tryBackward(&p, gradientVariant{aligned: aligned, accumulate: accumulate}, nil, mine.scratch(), mine.run)
}
