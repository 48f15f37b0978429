package flash

import (
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// matrixStandard is standard attention with its two products on cooperative matrices: shaders/standard_scores_matrix.comp and
// standard_product_matrix.comp, with the softmax of the scalar tier between them.
type matrixStandard struct{}

func (matrixStandard) name() string                   { return "standard_matrix" }
func (matrixStandard) implementation() Implementation { return Standard }
func (matrixStandard) tier() Tier                     { return TierMatrix }
func (matrixStandard) drops()                         {}

func (matrixStandard) unsupported(c *capabilities, p *Problem) string { return c.lacksMatrix(p.DType) }

func (matrixStandard) reserved(c *capabilities) string { return matrixForward{}.reserved(c) }

// matrixBlock is the tile of a workgroup in one of the products: include/standard_matrix.glsl says what each number means.
type matrixBlock struct {
	WR, WC int // subgroups down and across
	FR, FC int // fragments of a subgroup down and across
	stage  int // of the inner dimension, staged at a time
}

func (b *matrixBlock) subgroups() int          { return b.WR * b.WC }
func (b *matrixBlock) rows(f *matrixShape) int { return b.WR * b.FR * f.M }
func (b *matrixBlock) cols(f *matrixShape) int { return b.WC * b.FC * f.N }
func (b *matrixBlock) strips(f *matrixShape, wide int) int {
	return b.subgroups() * f.M * (b.FC*f.N*wide/8 | 1)
}

// standardMatrixTile is a standardShape on cooperative matrices.
type standardMatrixTile struct {
	fragment    matrixShape
	scoresTile  matrixBlock
	productTile matrixBlock
	rowThreads  int  // softmax: invocations of a row
	rowKeep     int  // pieces of four that each keeps, 0 where a row is too long
	half        bool // fp16 accumulators, for the way out
	direct      bool // whole tiles from fragments straight to memory
}

func (t *standardMatrixTile) String() string {
	return fmt.Sprintf("%dx%d %v", t.scoresTile.rows(&t.fragment), t.scoresTile.cols(&t.fragment), t.fragment)
}

// wide is the size of an element on its way out, over that of the storage type.
func (t *standardMatrixTile) wide() int { return 2 - boolInt(t.half) }

// The lengths of shared memory, in units of 16 bytes: a slice of both operands, later the strips of the result.
func (t *standardMatrixTile) scoresShared() int {
	b := &t.scoresTile
	return max((b.rows(&t.fragment)+b.cols(&t.fragment))*(b.stage/8|1), b.strips(&t.fragment, t.wide()))
}

func (t *standardMatrixTile) productShared() int {
	b := &t.productTile
	return max(b.rows(&t.fragment)*(b.stage/8|1)+b.stage*(b.cols(&t.fragment)/8|1), b.strips(&t.fragment, t.wide()))
}

// check gives the rule that a tile breaks, "" when it breaks none.
func (t *standardMatrixTile) check(p *Problem, c *capabilities) string {
	if why := t.scoresTile.check("", t.scoresShared(), &t.fragment, c); why != "" {
		return why
	}
	if why := t.productTile.check("product_", t.productShared(), &t.fragment, c); why != "" {
		return why
	}
	switch {
	case t.productTile.cols(&t.fragment) < p.ValueDim:
		return fmt.Sprintf("product_wc·product_fc·n = %d must be at least the value dimension %d", t.productTile.cols(&t.fragment), p.ValueDim)
	case t.rowThreads < 1 || t.rowThreads&(t.rowThreads-1) != 0 || t.rowThreads > softmaxThreads:
		return fmt.Sprintf("row_threads = %d must be a power of two up to %d", t.rowThreads, softmaxThreads)
	}
	return ""
}

func (b *matrixBlock) check(name string, shared int, f *matrixShape, c *capabilities) string {
	l, s := &c.facts.Limits, &c.facts.Subgroup
	threads := b.subgroups() * f.Lanes
	const most = 1 << 10 // keeps products of them small
	if b.FR > 4 {
		return fmt.Sprintf("%sfr = %d must be at most 4", name, b.FR)
	}
	for _, n := range []int{b.WR, b.WC, b.FR, b.FC, b.stage} {
		if n < 1 || n > most {
			return fmt.Sprintf("%swr, wc, fr, fc and stage must be from 1 to %d", name, most)
		}
	}
	switch {
	case b.stage%f.K != 0:
		return fmt.Sprintf("%sstage = %d must be a multiple of the fragment's K = %d", name, b.stage, f.K)
	case threads > int(min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0])):
		return fmt.Sprintf("a workgroup of %d invocations passes the device's %d", threads, min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]))
	case s.MaxWorkgroupSubgroups > 0 && b.subgroups() > int(s.MaxWorkgroupSubgroups):
		return fmt.Sprintf("a workgroup of %d subgroups passes the device's %d", b.subgroups(), s.MaxWorkgroupSubgroups)
	case 16*shared > int(l.MaxSharedMemory):
		return fmt.Sprintf("%d bytes of shared memory pass the device's %d", 16*shared, l.MaxSharedMemory)
	}
	return ""
}

// halfAccumulators says whether the device has accumulators of fp16 in the fragment's shape. There are none of bf16.
func (c *capabilities) halfAccumulators(t DType, f *matrixShape) bool {
	for _, m := range c.facts.Matrices {
		if t == F16 && int(m.M) == f.M && int(m.N) == f.N && int(m.K) == f.K && m.A == vk.ComponentF16 && m.Scope == vk.ScopeSubgroup &&
			m.C == vk.ComponentF16 && m.Result == vk.ComponentF16 {
			return true
		}
	}
	return false
}

// The tiles aimed at, in elements of a subgroup's piece, and how far they may grow smaller on a device of tighter limits.
// Measured on an H200, see shaders/NOTES.md. A CPU compiles what is unrolled for seconds: all is small there.
func (t *standardMatrixTile) aim(c *capabilities, p *Problem) {
	f := &t.fragment
	fragments := func(elements, size int) int { return ceilDiv(elements, size) }
	stage := func(elements, most int) int { return ceilDiv(min(elements, most), f.K) * f.K }
	across := 1 // subgroups beside each other in the product: each has up to 64 columns
	if p.ValueDim > 32 && c.facts.Type != vk.DeviceCPU {
		across = 2
	}
	for across < 4 && 64*across < p.ValueDim {
		across *= 2
	}
	columns := ceilDiv(ceilDiv(p.ValueDim, f.N), across)
	if c.facts.Type == vk.DeviceCPU {
		t.scoresTile = matrixBlock{2, 1, 1, fragments(16, f.N), stage(p.HeadDim, 16)}
		t.productTile = matrixBlock{2, across, 1, columns, stage(p.KeyLen, 16)}
		return
	}
	t.scoresTile = matrixBlock{4, 2, fragments(32, f.M), fragments(64, f.N), stage(p.HeadDim, 64)}
	t.productTile = matrixBlock{8 / max(2, across), across, fragments(32, f.M), columns, stage(p.KeyLen, 64)}
	if p.ValueDim <= 64 {
		t.productTile.FR = fragments(16, f.M)
	}
	for _, b := range []*matrixBlock{&t.scoresTile, &t.productTile} { // few queries: no more rows than there are
		for b.rows(f)/2 >= p.QueryLen && (b.FR > 1 || b.WR > 1) {
			if b.FR > 1 {
				b.FR = ceilDiv(b.FR, 2)
			} else {
				b.WR /= 2
			}
		}
	}
}

// smaller halves what costs a block least, false when it cannot get any smaller. columns says whether it may have fewer.
func (b *matrixBlock) smaller(f *matrixShape, columns bool) bool {
	switch {
	case b.stage >= 2*f.K && b.stage > 32:
		b.stage = ceilDiv(b.stage/2, f.K) * f.K
	case b.WR > 1:
		b.WR /= 2
	case b.FR > 1:
		b.FR = ceilDiv(b.FR, 2)
	case columns && b.WC > 1:
		b.WC /= 2
	case b.WC > 1:
		b.WC, b.FC = b.WC/2, 2*b.FC
	case columns && b.FC > 1:
		b.FC = ceilDiv(b.FC, 2)
	case b.stage >= 2*f.K:
		b.stage = ceilDiv(b.stage/2, f.K) * f.K
	default:
		return false
	}
	return true
}

// chooseStandardMatrixTile takes the tile aimed at, made smaller until it fits; overrides from t replace single numbers.
func chooseStandardMatrixTile(c *capabilities, p *Problem, f matrixShape, t *tuning) (standardMatrixTile, error) {
	tile := standardMatrixTile{fragment: f}
	tile.half = t.get("half", boolInt(c.halfAccumulators(p.DType, &f))) != 0
	if tile.half && !c.halfAccumulators(p.DType, &f) {
		return tile, t.bad("half", "needs %v accumulators of %v in %v, which the device lacks", f, F16, p.DType)
	}
	tile.direct = t.get("direct", 0) != 0 && tile.half
	tile.aim(c, p)
	for tile.scoresTile.check("", tile.scoresShared(), &f, c) != "" && tile.scoresTile.smaller(&f, true) {
	}
	for tile.productTile.check("", tile.productShared(), &f, c) != "" && tile.productTile.smaller(&f, false) {
	}
	t.blockOverride("", &tile.scoresTile)
	t.blockOverride("product_", &tile.productTile)

	const keep = 16 // pieces of four in registers, at most
	wanted := 4     // the fewer, the more of a row is read at once
	if c.facts.Type == vk.DeviceCPU {
		wanted = keep // barriers between more lanes cost more there
	}
	lanes := 8
	for lanes < softmaxThreads && 4*wanted*lanes < p.KeyLen {
		lanes *= 2
	}
	if tile.rowThreads = t.get("row_threads", lanes); tile.rowThreads > 0 {
		if tile.rowKeep = ceilDiv(p.KeyLen, 4*tile.rowThreads); tile.rowKeep > keep {
			tile.rowKeep = 0 // too long for registers: the row is read twice
		}
	}
	why := tile.check(p, c)
	switch {
	case why == "":
		return tile, nil
	case len(t.given) > 0:
		return tile, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return tile, &declined{why}
}

// chooseFragment takes the preferred fragment, or what is asked for.
func (c *capabilities) chooseFragment(dtype DType, t *tuning) (matrixShape, error) {
	all := c.fragments(dtype)
	if len(all) == 0 { // unsupported has said so
		return matrixShape{}, &declined{"the device has no such matrices"}
	}
	s := all[0]
	for _, f := range all { // the first that agrees with what is asked for
		if agrees(t, "fm", f.M) && agrees(t, "fn", f.N) && agrees(t, "fk", f.K) {
			s = f
			break
		}
	}
	s.M, s.N, s.K = t.get("fm", s.M), t.get("fn", s.N), t.get("fk", s.K)
	if !slices.Contains(all, s) {
		return s, &declined{fmt.Sprintf("the device has no %v fragments of %v; it has %v", s, dtype, all)}
	}
	return s, nil
}

func (matrixStandard) plan(d *Device, p *Problem, t *tuning) (program, error) {
	fragment, err := d.caps.chooseFragment(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := chooseStandardMatrixTile(&d.caps, p, fragment, t)
	if err != nil {
		return nil, err
	}
	s, err := newStandardProgram(d, p, &tile, t)
	if err != nil {
		return nil, err
	}
	s.check = tile.verify
	// The usual case is dense tensors with lse. On a device of the caller's, whose queue recording must leave alone, the
	// other variants are looked at now too.
	dense := s.dense()
	_, err = s.build(dense)
	if d.info.Attached {
		for _, v := range []standardVariant{{}, {qk: true}, {vo: true}, {qk: true, vo: true}} {
			for _, lse := range []bool{false, true} {
				if err == nil && (dense.qk || !v.qk) && (dense.vo || !v.vo) {
					_, err = s.build(standardVariant{v.qk, v.vo, lse})
				}
			}
		}
	}
	return s, err
}

func (t *standardMatrixTile) scoresBlock() (rows, cols int) {
	return t.scoresTile.rows(&t.fragment), t.scoresTile.cols(&t.fragment)
}
func (t *standardMatrixTile) softmaxRows() int { return softmaxThreads / t.rowThreads }
func (t *standardMatrixTile) productBlock() (rows, keys int) {
	return t.productTile.rows(&t.fragment), t.productTile.stage
}
func (t *standardMatrixTile) pace() pace { return pace{discrete: 10e12, other: 300e9} }

// kernel is one of the products: its block, its dimension and its shared memory; accumulate says that the result is added to what is
// there, weights that the matrix is P, of which some may be dropped.
func (t *standardMatrixTile) kernel(name string, b *matrixBlock, dim, shared int, p *Problem, aligned, accumulate, weights bool) standardKernel {
	f := &t.fragment
	module := name + "." + p.DType.suffix()
	if p.DType == F16 && !t.half {
		module += "_wide"
	}
	return standardKernel{module, spec(b.subgroups()*f.Lanes, f.M, f.N, f.K, b.WR, b.WC, b.FR, b.FC, dim, b.stage,
		boolInt(p.Causal != CausalNone), boolInt(aligned), boolInt(t.direct), shared,
		boolInt(accumulate), boolInt(weights && p.dropThreshold() > 0)), t.subgroups()}
}

func (t *standardMatrixTile) subgroups() pipeline.KernelInfo {
	return pipeline.KernelInfo{SubgroupSize: uint32(t.fragment.Lanes), FullSubgroups: true}
}

func (t *standardMatrixTile) scores(p *Problem, aligned bool) standardKernel {
	return t.kernel("standard_scores_matrix", &t.scoresTile, p.HeadDim, t.scoresShared(), p, aligned, false, false)
}

func (t *standardMatrixTile) product(p *Problem, aligned bool) standardKernel {
	return t.kernel("standard_product_matrix", &t.productTile, p.ValueDim, t.productShared(), p, aligned, false, true)
}

func (t *standardMatrixTile) softmax(p *Problem, lse bool) standardKernel {
	rows, keys := t.productBlock()
	return standardKernel{"standard_softmax_subgroup." + p.DType.suffix(), spec(softmaxThreads, t.rowThreads, t.rowKeep,
		boolInt(p.Causal != CausalNone), boolInt(lse), rows+keys, t.fragment.Lanes, boolInt(p.dropThreshold() > 0)), t.subgroups()}
}

// verify lets pipelines that were never run on this device and driver prove themselves on a small problem, as
// matrixProgram.verify does.
func (t *standardMatrixTile) verify(s *standardProgram, v standardVariant, k *standardKernels) error {
	key := "check standard"
	for _, w := range []standardKernel{t.scores(&s.problem, v.qk), t.softmax(&s.problem, v.lse), t.product(&s.problem, v.vo)} {
		hash, err := s.dev.moduleHash(w.module)
		if err != nil {
			return err
		}
		key += fmt.Sprintf(" %s %.16s", w.module, hash)
		for _, c := range w.spec {
			key += fmt.Sprintf(" %x", c.Value)
		}
	}
	verdict := s.dev.recall(key)
	if verdict == "" {
		p := t.trial(&s.problem)
		small, err := newStandardProgram(s.dev, &p, t, newTuning(nil))
		if err != nil {
			return err
		}
		wrong, err := s.dev.selfCheck(&p, v.trial(), small.sizes, func(r *recorder, f *operands) error { return small.run(r, f, k) })
		if err != nil {
			return fmt.Errorf("self-check of standard attention: %w", err)
		}
		verdict = passed
		if wrong != "" {
			verdict = wrong
		}
		s.dev.remember(key, verdict)
	}
	if verdict == passed {
		return nil
	}
	no := &declined{fmt.Sprintf("standard_matrix %v is on this device's deny-list, as its self-check failed: %s", t, verdict)}
	if s.runs > 0 && v != s.dense() { // a variant that the plan did not need: there is no other kernel to turn to any more
		return &UnsupportedError{What: fmt.Sprintf("%v with tensors of this alignment, tier %s", s.problem, TierMatrix), Reasons: []string{no.why}}
	}
	return no
}

// trial is the variant of a self-check's tensors. Kernels for aligned tensors need all of them aligned; those for others take any.
func (v standardVariant) trial() variant { return variant{aligned: v.qk || v.vo, lse: v.lse} }

// trial is a small problem for the tile, with ragged edges, and the diagonal across its tiles when causal. A row must not be
// longer than the softmax keeps.
func (t *standardMatrixTile) trial(p *Problem) Problem {
	small := *p
	small.Scale = 1 / math.Sqrt(float64(p.HeadDim))
	if p.Causal != CausalNone {
		small.Causal = CausalBottomRight
	}
	small.Batch, small.KeyHeads, small.Heads = 1, 2, 2
	small.Dropout = 0 // what is compiled with dropout keeps every weight then, as the reference does
	rows, cols := t.scoresBlock()
	productRows, keys := t.productBlock()
	small.QueryLen = max(rows, productRows) + t.fragment.M/2 + 1
	small.KeyLen = max(cols, 2*keys) + 3
	if t.rowKeep > 0 {
		small.KeyLen = min(small.KeyLen, 4*t.rowThreads*t.rowKeep)
	}
	return small
}
