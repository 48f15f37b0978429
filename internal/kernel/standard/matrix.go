package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Matrix is standard attention with its two products on cooperative matrices: shaders/standard/standard_scores_matrix.comp and
// standard_product_matrix.comp, with the softmax of the scalar tier between them.
var Matrix = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "standard_matrix",
		Implementation: kernel.Standard,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithMaxLogit,
		Parameters:     matrixRanges,
		Reserved:       kernel.ReservedOnCPU,
		Unsupported:    kernel.MatrixLacks,
	},
	Plan: planMatrix,
}

// scoresBlock is what a workgroup makes of the scores: a run of tiles, shaders/standard/standard_scores_matrix.comp.
type scoresBlock struct {
	WR     int // subgroups, one below the other
	FR, FC int // fragments of a subgroup down and across
	run    int // tiles across, one after the other
}

func (b *scoresBlock) rows(f *kernel.Fragment) int { return b.WR * b.FR * f.M }
func (b *scoresBlock) Tile(f *kernel.Fragment) int { return b.FC * f.N } // columns
func (b *scoresBlock) cols(f *kernel.Fragment) int { return b.run * b.Tile(f) }

// shared is the length of shared memory in units of 16 bytes: a tile of keys of dim columns, and a strip of each subgroup, through
// which go rows of queries and then of scores, wide times the storage type's size.
func (b *scoresBlock) shared(f *kernel.Fragment, dim, wide int) int {
	keys := b.Tile(f) * (attn.CeilDiv(dim, f.K)*f.K/8 | 1)
	queries := max(1, b.Tile(f)/f.K) * f.K / 8
	return keys + b.WR*f.M*max(attn.CeilDiv(b.FR, 2)*(b.Tile(f)*wide/8|1), queries|1)
}

// matrixBlock is the tile of a workgroup in one of the products: include/standard_matrix.glsl says what each number means.
type matrixBlock struct {
	WR, WC int // subgroups down and across
	FR, FC int // fragments of a subgroup down and across
	stage  int // of the inner dimension, staged at a time
	across int // workgroups side by side, of as many columns each
}

func (b *matrixBlock) subgroups() int              { return b.WR * b.WC }
func (b *matrixBlock) rows(f *kernel.Fragment) int { return b.WR * b.FR * f.M }
func (b *matrixBlock) cols(f *kernel.Fragment) int { return b.WC * b.FC * f.N }
func (b *matrixBlock) strips(f *kernel.Fragment, wide int) int {
	return b.subgroups() * attn.CeilDiv(b.FR, 2) * f.M * (b.FC*f.N*wide/8 | 1)
}

// MatrixTile is a standardShape on cooperative matrices.
type MatrixTile struct {
	fragment    kernel.Fragment
	scoresTile  scoresBlock
	ProductTile matrixBlock
	dim         int // of Q and K
	softmaxTile
	half bool // fp16 accumulators, for the way out
}

func (t *MatrixTile) String() string {
	return fmt.Sprintf("%dx%d %v", t.scoresTile.rows(&t.fragment), t.scoresTile.Tile(&t.fragment), t.fragment)
}

// wide is the size of an element on its way out, over that of the storage type.
func (t *MatrixTile) wide() int { return 2 - kernel.BoolInt(t.half) }

func (t *MatrixTile) scoresShared() int {
	return t.scoresTile.shared(&t.fragment, t.dim, t.wide())
}

// productShared is the length of shared memory in units of 16 bytes: a slice of both operands, later the strips of the result.
func (t *MatrixTile) productShared() int {
	b := &t.ProductTile
	return max(b.rows(&t.fragment)*(b.stage/8|1)+b.stage*(b.cols(&t.fragment)/8|1), b.strips(&t.fragment, t.wide()))
}

// Check gives the rule that a tile breaks, "" when it breaks none.
func (t *MatrixTile) Check(p *attn.Problem, c *kernel.Capabilities) string {
	if why := t.scoresTile.check("", t.scoresShared(), &t.fragment, c); why != "" {
		return why
	}
	if why := t.ProductTile.check("product_", t.productShared(), &t.fragment, c); why != "" {
		return why
	}
	switch {
	case t.ProductTile.across*t.ProductTile.cols(&t.fragment) < p.ValueDim:
		return fmt.Sprintf("product_wc·product_fc·n = %d must be at least the value dimension %d", t.ProductTile.cols(&t.fragment),
			p.ValueDim)
	}
	return t.softmaxTile.check()
}

func (b *matrixBlock) check(name string, shared int, f *kernel.Fragment, c *kernel.Capabilities) string {
	switch {
	case min(b.WR, b.WC, b.FR, b.FC, b.stage) < 1 || max(b.WR, b.WC, b.FR, b.FC, b.stage) > mostOfBlock:
		return fmt.Sprintf("%[1]swr, %[1]swc, %[1]sfr, %[1]sfc and %[1]sstage must be from 1 to %[2]d", name, mostOfBlock)
	case b.stage%f.K != 0:
		return fmt.Sprintf("%sstage = %d must be a multiple of the fragment's K = %d", name, b.stage, f.K)
	}
	return kernel.CheckSubgroups(b.subgroups(), f.Lanes, 16*shared, c)
}

func (b *scoresBlock) check(name string, shared int, f *kernel.Fragment, c *kernel.Capabilities) string {
	if min(b.WR, b.FR, b.FC, b.run) < 1 || max(b.WR, b.FR, b.FC, b.run) > mostOfBlock {
		return fmt.Sprintf("%[1]swr, %[1]sfr, %[1]sfc and %[1]srun must be from 1 to %[2]d", name, mostOfBlock)
	}
	return kernel.CheckSubgroups(b.WR, f.Lanes, 16*shared, c)
}

const mostOfBlock = 1 << 10 // keeps products of such numbers small

// halfAccumulators says whether the device has accumulators of fp16 in the fragment's shape. There are none of bf16.
func halfAccumulators(c *kernel.Capabilities, t attn.DType, f *kernel.Fragment) bool {
	for _, m := range c.Facts.Matrices {
		if t == attn.F16 && int(m.M) == f.M && int(m.N) == f.N && int(m.K) == f.K && m.A == vk.ComponentF16 &&
			m.Scope == vk.ScopeSubgroup &&
			m.C == vk.ComponentF16 && m.Result == vk.ComponentF16 {
			return true
		}
	}
	return false
}

// aim takes the rows of tiles for both products, which are in elements of a subgroup's piece.
func (t *MatrixTile) aim(c *kernel.Capabilities, p *attn.Problem, o *kernel.Tuning) {
	f, k := &t.fragment, c.Prediction()
	of := func(dim int) *attn.Problem { // rows look at the dimension of a product alone
		q := *p
		q.HeadDim, q.ValueDim = dim, dim
		return &q
	}
	r := c.First(of(p.HeadDim), *f, "standard_scores_matrix")
	o.Took(r)
	t.scoresTile = scoresBlock{WR: r.Get("wr"), FR: attn.CeilDiv(r.Get("rows"), f.M), FC: attn.CeilDiv(r.Get("columns"), f.N)}
	t.scoresTile.run = attn.CeilDiv(min(r.Get("run"), p.KeyLen), t.scoresTile.Tile(f))
	across := attn.CeilDiv(p.ValueDim, kernel.PlainDims)
	width := attn.CeilDiv(p.ValueDim, across)
	r = c.First(of(width), *f, "standard_product_matrix")
	o.Took(r)
	t.ProductTile = matrixBlock{WR: r.Get("wr"), WC: r.Get("wc"), FR: attn.CeilDiv(r.Get("rows"), f.M),
		FC:    attn.CeilDiv(attn.CeilDiv(width, f.N), r.Get("wc")),
		stage: attn.CeilDiv(min(p.KeyLen, r.Get("keys")), f.K) * f.K, across: across}
	if !k.Fill {
		return
	}
	// Few queries: no more rows than there are. Few workgroups: shorter runs.
	for s := &t.scoresTile; s.rows(f)/2 >= p.QueryLen && (s.FR > 1 || s.WR > 1); {
		halve(&s.FR, &s.WR)
	}
	for b := &t.ProductTile; b.rows(f)/2 >= p.QueryLen && (b.FR > 1 || b.WR > 1); {
		halve(&b.FR, &b.WR)
	}
	for s := &t.scoresTile; s.run > 1 && p.Batch*p.Heads*attn.CeilDiv(p.QueryLen, s.rows(f))*attn.CeilDiv(p.KeyLen, s.cols(f)) < k.Few; {
		s.run = attn.CeilDiv(s.run, 2)
	}
}

// halve halves the first that is more than 1.
func halve(numbers ...*int) {
	for _, n := range numbers {
		if *n > 1 {
			*n = attn.CeilDiv(*n, 2)
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
func (b *matrixBlock) smaller(f *kernel.Fragment) bool {
	switch {
	case b.stage >= 2*f.K && b.stage > 32:
		b.stage = attn.CeilDiv(b.stage/2, f.K) * f.K
	case b.WR > 1:
		b.WR /= 2
	case b.FR > 1:
		b.FR = attn.CeilDiv(b.FR, 2)
	case b.WC > 1:
		b.WC, b.FC = b.WC/2, 2*b.FC
	case b.stage >= 2*f.K:
		b.stage = attn.CeilDiv(b.stage/2, f.K) * f.K
	default:
		return false
	}
	return true
}

// ChooseMatrixTile takes the tile aimed at, made smaller until it fits; overrides from t replace single numbers.
func ChooseMatrixTile(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, t *kernel.Tuning) (MatrixTile, error) {
	tile := MatrixTile{fragment: f, dim: p.HeadDim}
	tile.half = t.Get("half", kernel.BoolInt(halfAccumulators(c, p.DType, &f))) != 0
	if tile.half && !halfAccumulators(c, p.DType, &f) {
		return tile, t.Bad("half", "needs %v accumulators of %v in %v, which the device lacks", f, attn.F16, p.DType)
	}
	tile.aim(c, p, t)
	for tile.scoresTile.check("", tile.scoresShared(), &f, c) != "" && tile.scoresTile.smaller() {
	}
	for tile.ProductTile.check("", tile.productShared(), &f, c) != "" && tile.ProductTile.smaller(&f) {
	}
	tile.scoresTile.override(t, "")
	tile.ProductTile.override(t, "product_")

	tile.softmaxTile = newSoftmaxTile(p, t.Get("row_threads", softmaxLanes(c, p, "standard_softmax_subgroup")))
	if why := tile.Check(p, c); why != "" {
		return tile, t.NoTile(why)
	}
	return tile, nil
}

func planMatrix(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	fragment, err := e.Caps.ChooseFragment(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := ChooseMatrixTile(&e.Caps, p, fragment, t)
	if err != nil {
		return nil, err
	}
	return plan("standard_matrix", false, e, p, &tile, t)
}

func (t *MatrixTile) Model() traffic.Standard {
	f, b := &t.fragment, &t.scoresTile
	rows, keys := t.productBlock()
	across := t.ProductTile.across
	if across == 1 {
		across = 0 // as what was stored before there were several
	}
	return traffic.Standard{Scores: traffic.Product{Rows: b.rows(f), Columns: b.Tile(f), Run: b.run, Unit: 8},
		Softmax: traffic.Rows{ReadTwice: t.RowKeep == 0},
		Product: traffic.Product{Rows: rows, Columns: keys, Across: across}}
}

func (t *MatrixTile) scoresBlock() (rows, cols int) {
	return t.scoresTile.rows(&t.fragment), t.scoresTile.cols(&t.fragment)
}
func (t *MatrixTile) productBlock() (rows, keys int) {
	return t.ProductTile.rows(&t.fragment), t.ProductTile.stage
}
func (t *MatrixTile) pace() kernel.Pace { return kernel.Pace{Discrete: 10e12, Other: 300e9} }

// Kernel is one of the products: its block, its dimension and its shared memory; accumulate says that the result is added to what is
// there, weights that the matrix is P, of which some may be dropped.
func (t *MatrixTile) Kernel(name string, b *matrixBlock, dim, shared int, p *attn.Problem, aligned, accumulate,
	weights bool) pass.Stage {
	return pass.Stage{Module: t.module(name, p), Made: t.subgroups(), Constants: t.spec(p, b, dim,
		kernel.Constants{"BK": b.stage, "ACROSS": b.across}, shared, aligned, accumulate, weights && p.DropThreshold() > 0).And(
		kernel.LengthConstants(p))}
}

func (t *MatrixTile) module(name string, p *attn.Problem) string {
	name += "." + p.DType.Suffix()
	if p.DType == attn.F16 && !t.half {
		name += "_wide"
	}
	return name
}

// spec are the specialization constants of include/standard_matrix.glsl; step is the kernel's own constant for how far it goes at a time.
func (t *MatrixTile) spec(p *attn.Problem, b *matrixBlock, dim int, step kernel.Constants, shared int, aligned, accumulate,
	dropout bool) kernel.Constants {
	f := &t.fragment
	return kernel.Constants{"WG": b.subgroups() * f.Lanes, "M": f.M, "N": f.N, "K": f.K, "WR": b.WR, "WC": b.WC, "FR": b.FR, "FC": b.FC,
		"D": dim, "ALIGNED": kernel.BoolInt(aligned), "SHARED": shared,
		"ACCUMULATE": kernel.BoolInt(accumulate), "DROPOUT": kernel.BoolInt(dropout)}.And(kernel.MaskConstants(p), step)
}

func (t *MatrixTile) subgroups() pipeline.KernelInfo {
	return t.fragment.Subgroups()
}

func (t *MatrixTile) Scores(p *attn.Problem, aligned bool) pass.Stage {
	s := &t.scoresTile
	b := &matrixBlock{WR: s.WR, WC: 1, FR: s.FR, FC: s.FC}
	return pass.Stage{Module: t.module("standard_scores_matrix", p), Made: t.subgroups(),
		Constants: t.spec(p, b, t.dim, kernel.Constants{"RUN": s.run}, t.scoresShared(), aligned, false, false).And(
			kernel.LengthConstants(p))}
}

func (t *MatrixTile) Product(p *attn.Problem, aligned bool) pass.Stage {
	return t.Kernel("standard_product_matrix", &t.ProductTile, p.ValueDim, t.productShared(), p, aligned, false, true)
}

func (t *MatrixTile) Softmax(p *attn.Problem, lse bool) pass.Stage {
	return pass.Stage{Module: "standard_softmax_subgroup." + p.DType.Suffix(), Made: t.subgroups(),
		Constants: softmaxConstants(p, lse, t.RowThreads, t.RowKeep, zeroBehind(p, t), t.fragment.Lanes)}
}

// SelfCheck is a small problem for the tile, with ragged edges, and the diagonal across its tiles when causal. A row must not be
// longer than the softmax keeps.
func (t *MatrixTile) SelfCheck(p *attn.Problem) attn.Problem {
	small := kernel.SelfCheckOf(p)
	small.KeyHeads = 2
	rows, cols := t.scoresBlock()
	productRows, keys := t.productBlock()
	small.QueryLen = max(rows, productRows) + t.fragment.M/2 + 1
	small.KeyLen = t.kept(max(cols, 2*keys)+3, t.RowKeep)
	return small
}
