package flash

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// matrixBackward is the backward pass of FlashAttention-2 on cooperative matrices, without atomic additions:
// shaders/backward_delta.comp, matrix_backward_kv.comp and matrix_backward_q.comp.
type matrixBackward struct{}

func (matrixBackward) name() string                   { return "matrix_backward" }
func (matrixBackward) implementation() Implementation { return Flash }
func (matrixBackward) tier() Tier                     { return TierMatrix }
func (matrixBackward) drops()                         {}

func (matrixBackward) unsupported(c *capabilities, p *Problem) string {
	if n := c.facts.Limits.MaxPushConstants; n < backwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, backwardPushBytes)
	}
	return c.lacksMatrix(p.DType)
}

func (matrixBackward) reserved(c *capabilities) string { return matrixForward{}.reserved(c) }

func (k matrixBackward) plan(d *Device, p *Problem, _ program, t *tuning) (backwardProgram, error) {
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
	if err := s.verify(aligned, accumulate); err != nil {
		return err
	}
	s.checked[i].Store(true)
	return nil
}

func (s *matrixBackwardProgram) record(r *recorder, g *gradients) error {
	if err := s.build(g.aligned(), g.accumulate); err != nil {
		var no *declined
		if errors.As(err, &no) { // there is no other kernel to turn to any more
			return &UnsupportedError{What: fmt.Sprintf("backward of %v with tensors of this alignment, tier %s", s.problem, TierMatrix), Reasons: []string{no.why}, Denied: isDenied(err)}
		}
		return err
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

// verdictKey names what a driver compiles for a variant.
func (s *matrixBackwardProgram) verdictKey(aligned, accumulate bool) (string, error) {
	var b strings.Builder
	b.WriteString("check")
	for _, part := range []*matrixBackwardPart{&s.kv, &s.q} {
		hash, err := s.dev.moduleHash(part.module)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, " %s %.16s", part.module, hash)
		for _, parts := range part.tile.pieces() {
			for _, c := range s.constants(part, parts, aligned, accumulate) {
				fmt.Fprintf(&b, " %x", c.value)
			}
		}
	}
	return b.String(), nil
}

// verify compares the kernels of a variant with the scalar tier's on a small problem, unless a verdict is known.
func (s *matrixBackwardProgram) verify(aligned, accumulate bool) error {
	key, err := s.verdictKey(aligned, accumulate)
	if err != nil {
		return err
	}
	verdict, err := s.dev.verdict(key, func() (string, error) { return s.dev.backwardTrial(s, aligned, accumulate) })
	if err != nil {
		return fmt.Errorf("self-check of matrix_backward: %w", err)
	}
	if verdict != passed {
		return &denied{&declined{fmt.Sprintf("matrix_backward %s is on the deny-list of this device and driver, because its self-check failed: %s", s.tile(), verdict)}}
	}
	return nil
}
