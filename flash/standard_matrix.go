package flash

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// matrixStandard is standard attention with its two products on cooperative matrices: shaders/standard/standard_scores_matrix.comp and
// standard_product_matrix.comp, with the softmax of the scalar tier between them.
var matrixStandard = &kernel{
	offer: offer{
		name:           "standard_matrix",
		implementation: Standard,
		tier:           TierMatrix,
		can:            withDropout,
		parameters:     standardMatrixRanges,
		reserved:       reservedOnCPU,
		unsupported:    matrixLacks,
	},
	plan: planMatrixStandard,
}

// scoresBlock is what a workgroup makes of the scores: a run of tiles, shaders/standard/standard_scores_matrix.comp.
type scoresBlock struct {
	WR     int // subgroups, one below the other
	FR, FC int // fragments of a subgroup down and across
	run    int // tiles across, one after the other
}

func (b *scoresBlock) rows(f *matrixShape) int { return b.WR * b.FR * f.M }
func (b *scoresBlock) tile(f *matrixShape) int { return b.FC * f.N } // columns
func (b *scoresBlock) cols(f *matrixShape) int { return b.run * b.tile(f) }

// shared is the length of shared memory in units of 16 bytes: a tile of keys of dim columns, and a strip of each subgroup, through
// which go rows of queries and then of scores, wide times the storage type's size.
func (b *scoresBlock) shared(f *matrixShape, dim, wide int) int {
	keys := b.tile(f) * (ceilDiv(dim, f.K)*f.K/8 | 1)
	queries := max(1, b.tile(f)/f.K) * f.K / 8
	return keys + b.WR*f.M*max(ceilDiv(b.FR, 2)*(b.tile(f)*wide/8|1), queries|1)
}

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
	return b.subgroups() * ceilDiv(b.FR, 2) * f.M * (b.FC*f.N*wide/8 | 1)
}

// standardMatrixTile is a standardShape on cooperative matrices.
type standardMatrixTile struct {
	fragment    matrixShape
	scoresTile  scoresBlock
	productTile matrixBlock
	dim         int  // of Q and K
	rowThreads  int  // softmax: invocations of a row
	rowKeep     int  // pieces of four that each keeps, 0 where a row is too long
	half        bool // fp16 accumulators, for the way out
}

func (t *standardMatrixTile) String() string {
	return fmt.Sprintf("%dx%d %v", t.scoresTile.rows(&t.fragment), t.scoresTile.tile(&t.fragment), t.fragment)
}

// wide is the size of an element on its way out, over that of the storage type.
func (t *standardMatrixTile) wide() int { return 2 - boolInt(t.half) }

func (t *standardMatrixTile) scoresShared() int {
	return t.scoresTile.shared(&t.fragment, t.dim, t.wide())
}

// productShared is the length of shared memory in units of 16 bytes: a slice of both operands, later the strips of the result.
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
	switch {
	case min(b.WR, b.WC, b.FR, b.FC, b.stage) < 1 || max(b.WR, b.WC, b.FR, b.FC, b.stage) > mostOfBlock:
		return fmt.Sprintf("%[1]swr, %[1]swc, %[1]sfr, %[1]sfc and %[1]sstage must be from 1 to %[2]d", name, mostOfBlock)
	case b.stage%f.K != 0:
		return fmt.Sprintf("%sstage = %d must be a multiple of the fragment's K = %d", name, b.stage, f.K)
	}
	return checkSubgroups(b.subgroups(), f.Lanes, 16*shared, c)
}

func (b *scoresBlock) check(name string, shared int, f *matrixShape, c *capabilities) string {
	if min(b.WR, b.FR, b.FC, b.run) < 1 || max(b.WR, b.FR, b.FC, b.run) > mostOfBlock {
		return fmt.Sprintf("%[1]swr, %[1]sfr, %[1]sfc and %[1]srun must be from 1 to %[2]d", name, mostOfBlock)
	}
	return checkSubgroups(b.WR, f.Lanes, 16*shared, c)
}

const mostOfBlock = 1 << 10 // keeps products of such numbers small

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

// aim takes the tiles that were fastest on an H200 (docs/notes.md), in elements of a subgroup's piece. A CPU compiles what is
// unrolled for seconds: all is small there.
func (t *standardMatrixTile) aim(c *capabilities, p *Problem) {
	f := &t.fragment
	stage := func(elements, most int) int { return ceilDiv(min(elements, most), f.K) * f.K }
	product := func(wr, wc, rows, keys int) matrixBlock {
		return matrixBlock{wr, wc, ceilDiv(rows, f.M), ceilDiv(ceilDiv(p.ValueDim, f.N), wc), stage(p.KeyLen, keys)}
	}
	scores := func(wr, rows, columns, run int) scoresBlock {
		b := scoresBlock{wr, ceilDiv(rows, f.M), ceilDiv(columns, f.N), 0}
		b.run = ceilDiv(min(run, p.KeyLen), b.tile(f))
		return b
	}
	if c.facts.Type == vk.DeviceCPU {
		t.scoresTile = scores(2, 1, 16, 32)
		t.productTile = product(2, 1, 1, 16)
		return
	}
	switch {
	case p.HeadDim <= 64:
		t.scoresTile = scores(6, 32, 64, 512)
	case p.HeadDim <= 128:
		t.scoresTile = scores(6, 32, 32, 512)
	case c.facts.VendorID == vendorNVIDIA:
		t.scoresTile = scores(4, 32, 32, 512)
	default: // a subgroup's rows of Q must fit its registers
		t.scoresTile = scores(8, 16, 32, 512)
	}
	switch {
	case p.ValueDim <= 64:
		t.productTile = product(8, 1, 32, 64)
	case p.ValueDim <= 128:
		t.productTile = product(4, 2, 32, 64)
	default:
		t.productTile = product(2, 4, 64, 48)
	}
	// Few queries: no more rows than there are. Few workgroups: shorter runs.
	for s := &t.scoresTile; s.rows(f)/2 >= p.QueryLen && (s.FR > 1 || s.WR > 1); {
		halve(&s.FR, &s.WR)
	}
	for b := &t.productTile; b.rows(f)/2 >= p.QueryLen && (b.FR > 1 || b.WR > 1); {
		halve(&b.FR, &b.WR)
	}
	for s := &t.scoresTile; s.run > 1 && p.Batch*p.Heads*ceilDiv(p.QueryLen, s.rows(f))*ceilDiv(p.KeyLen, s.cols(f)) < fewGroups; {
		s.run = ceilDiv(s.run, 2)
	}
}

// halve halves the first that is more than 1.
func halve(numbers ...*int) {
	for _, n := range numbers {
		if *n > 1 {
			*n = ceilDiv(*n, 2)
			return
		}
	}
}

// smaller halves what costs a block least, false when it cannot get any smaller.
func (b *scoresBlock) smaller() bool {
	switch {
	case b.FC == 1 && b.WR == 1:
		return false
	case b.WR > 4:
		b.WR = 4
	default:
		halve(&b.FC, &b.WR)
	}
	return true
}

// smaller halves what costs a block least, as many columns as before, false when it cannot get any smaller.
func (b *matrixBlock) smaller(f *matrixShape) bool {
	switch {
	case b.stage >= 2*f.K && b.stage > 32:
		b.stage = ceilDiv(b.stage/2, f.K) * f.K
	case b.WR > 1:
		b.WR /= 2
	case b.FR > 1:
		b.FR = ceilDiv(b.FR, 2)
	case b.WC > 1:
		b.WC, b.FC = b.WC/2, 2*b.FC
	case b.stage >= 2*f.K:
		b.stage = ceilDiv(b.stage/2, f.K) * f.K
	default:
		return false
	}
	return true
}

// chooseStandardMatrixTile takes the tile aimed at, made smaller until it fits; overrides from t replace single numbers.
func chooseStandardMatrixTile(c *capabilities, p *Problem, f matrixShape, t *tuning) (standardMatrixTile, error) {
	tile := standardMatrixTile{fragment: f, dim: p.HeadDim}
	tile.half = t.get("half", boolInt(c.halfAccumulators(p.DType, &f))) != 0
	if tile.half && !c.halfAccumulators(p.DType, &f) {
		return tile, t.bad("half", "needs %v accumulators of %v in %v, which the device lacks", f, F16, p.DType)
	}
	tile.aim(c, p)
	for tile.scoresTile.check("", tile.scoresShared(), &f, c) != "" && tile.scoresTile.smaller() {
	}
	for tile.productTile.check("", tile.productShared(), &f, c) != "" && tile.productTile.smaller(&f) {
	}
	t.scoresOverride("", &tile.scoresTile)
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

func planMatrixStandard(d *Device, p *Problem, t *tuning) (program, error) {
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
	return standardKernel{t.module(name, p), t.spec(p, b, dim, constant{"BK", b.stage}, shared, aligned, accumulate, weights && p.dropThreshold() > 0), t.subgroups()}
}

func (t *standardMatrixTile) module(name string, p *Problem) string {
	name += "." + p.DType.suffix()
	if p.DType == F16 && !t.half {
		name += "_wide"
	}
	return name
}

// spec are the specialization constants of include/standard_matrix.glsl; step is the kernel's own constant for how far it goes at a time.
func (t *standardMatrixTile) spec(p *Problem, b *matrixBlock, dim int, step constant, shared int, aligned, accumulate, dropout bool) constants {
	f := &t.fragment
	return constants{{"WG", b.subgroups() * f.Lanes}, {"M", f.M}, {"N", f.N}, {"K", f.K}, {"WR", b.WR}, {"WC", b.WC}, {"FR", b.FR}, {"FC", b.FC},
		{"D", dim}, step, {"CAUSAL", boolInt(p.Causal != CausalNone)}, {"ALIGNED", boolInt(aligned)}, {"SHARED", shared},
		{"ACCUMULATE", boolInt(accumulate)}, {"DROPOUT", boolInt(dropout)}}
}

func (t *standardMatrixTile) subgroups() pipeline.KernelInfo {
	return pipeline.KernelInfo{SubgroupSize: uint32(t.fragment.Lanes), FullSubgroups: true}
}

func (t *standardMatrixTile) scores(p *Problem, aligned bool) standardKernel {
	s := &t.scoresTile
	b := &matrixBlock{WR: s.WR, WC: 1, FR: s.FR, FC: s.FC}
	return standardKernel{t.module("standard_scores_matrix", p), t.spec(p, b, t.dim, constant{"RUN", s.run}, t.scoresShared(), aligned, false, false), t.subgroups()}
}

func (t *standardMatrixTile) product(p *Problem, aligned bool) standardKernel {
	return t.kernel("standard_product_matrix", &t.productTile, p.ValueDim, t.productShared(), p, aligned, false, true)
}

func (t *standardMatrixTile) softmax(p *Problem, lse bool) standardKernel {
	rows, keys := t.productBlock()
	return standardKernel{"standard_softmax_subgroup." + p.DType.suffix(), softmaxConstants(p, lse, t.rowThreads, t.rowKeep, rows+keys, t.fragment.Lanes),
		t.subgroups()}
}

// verify lets pipelines that were never run on this device and driver prove themselves on a small problem.
func (t *standardMatrixTile) verify(s *standardProgram, v standardVariant, k *standardKernels) error {
	tried := []compiled{t.scores(&s.problem, v.qk).compiled(), t.softmax(&s.problem, v.lse).compiled(), t.product(&s.problem, v.vo).compiled()}
	return s.dev.prove(fmt.Sprintf("standard_matrix %v", t), tried, func() (wrong string, err error) {
		p := t.trial(&s.problem)
		small, err := newStandardProgram(s.dev, &p, t, newTuning(nil))
		if err != nil {
			return "", err
		}
		return s.dev.tryForward(&p, v.trial(), small.sizes, func(r *recorder, f *operands) error { return small.run(r, f, k) })
	})
}

// trial is the variant of a self-check's tensors. Kernels for aligned tensors need all of them aligned; those for others take any.
func (v standardVariant) trial() variant { return variant{aligned: v.qk || v.vo, lse: v.lse} }

// trial is a small problem for the tile, with ragged edges, and the diagonal across its tiles when causal. A row must not be
// longer than the softmax keeps.
func (t *standardMatrixTile) trial(p *Problem) Problem {
	small := trialOf(p)
	small.KeyHeads = 2
	rows, cols := t.scoresBlock()
	productRows, keys := t.productBlock()
	small.QueryLen = max(rows, productRows) + t.fragment.M/2 + 1
	small.KeyLen = max(cols, 2*keys) + 3
	if t.rowKeep > 0 {
		small.KeyLen = min(small.KeyLen, 4*t.rowThreads*t.rowKeep)
	}
	return small
}
