package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/vk"
)

// Scalar is standard attention in fp32 arithmetic: scores, softmax and product as three kernels, with the whole
// matrix of scores in device memory in the inputs' type. shaders/standard_*.comp.
var Scalar = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "standard_scalar",
		Implementation: kernel.Standard,
		Tier:           kernel.TierScalar,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithMaxLogit,
		Parameters:     scalarRanges,
		Unsupported:    kernel.ScalarLacks,
	},
	Plan: planScalar,
}

// ScalarTile is the shapes of the two products and of the softmax.
type ScalarTile struct {
	scoresBR, scoresBC, scoresMR, scoresMC, scoresDK int
	productBR, productBC, productMR, productTX       int
	softmaxTile
}

// scoresFields are the numbers of the product of q and k, those of rows of tables; productFields those of the product of the weights and v,
// of which rows name product_bc.
var (
	scoresFields = kernel.Fields[ScalarTile]{
		{Name: "br", Constant: "BR", Of: func(t *ScalarTile) any { return &t.scoresBR }},
		{Name: "bc", Constant: "BC", Of: func(t *ScalarTile) any { return &t.scoresBC }},
		{Name: "mr", Constant: "MR", Of: func(t *ScalarTile) any { return &t.scoresMR }},
		{Name: "mc", Constant: "MC", Of: func(t *ScalarTile) any { return &t.scoresMC }},
		{Name: "dk", Constant: "DK", Of: func(t *ScalarTile) any { return &t.scoresDK }},
	}
	productFields = kernel.Fields[ScalarTile]{
		{Name: "product_br", Constant: "BR", Of: func(t *ScalarTile) any { return &t.productBR }},
		{Name: "product_bc", Constant: "BC", Of: func(t *ScalarTile) any { return &t.productBC }},
		{Name: "product_mr", Constant: "MR", Of: func(t *ScalarTile) any { return &t.productMR }},
		{Name: "product_tx", Of: func(t *ScalarTile) any { return &t.productTX }},
	}
)

const softmaxThreads = 128 // of a workgroup; every device allows it

func (t *ScalarTile) scoresThreads() int {
	return (t.scoresBR / t.scoresMR) * (t.scoresBC / t.scoresMC)
}
func (t *ScalarTile) scoresShared() int   { return (t.scoresBR + t.scoresBC) * (t.scoresDK/4 | 1) }
func (t *ScalarTile) productThreads() int { return t.productBR / t.productMR * t.productTX }

func (t *ScalarTile) productShared(dv int) int {
	return t.productBR*(t.productBC/4|1) + t.productBC*t.productTX*attn.CeilDiv(attn.CeilDiv(dv, 4), t.productTX)
}

// Check gives the rule that a tile breaks, "" when it breaks none.
func (t *ScalarTile) Check(p *attn.Problem, l *vk.Limits) string {
	threads := int(min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]))
	shared := int(l.MaxSharedMemory)
	switch {
	case t.scoresMR < 1 || t.scoresMC < 4 || t.scoresMC%4 != 0 || t.productMR < 1:
		return "mr and product_mr must be at least 1, mc a multiple of 4"
	case t.scoresBR < 1 || t.scoresBR%t.scoresMR != 0:
		return fmt.Sprintf("br = %d must be a multiple of mr = %d", t.scoresBR, t.scoresMR)
	case t.scoresBC < 1 || t.scoresBC%t.scoresMC != 0 || t.scoresBC/t.scoresMC%2 != 0:
		return fmt.Sprintf("bc = %d must be an even multiple of mc = %d", t.scoresBC, t.scoresMC)
	case t.scoresDK < 8 || t.scoresDK%8 != 0:
		return fmt.Sprintf("dk = %d must be a multiple of 8", t.scoresDK)
	case t.scoresThreads() > threads || t.productThreads() > threads:
		return fmt.Sprintf("workgroups of %d and %d invocations pass the device's %d", t.scoresThreads(), t.productThreads(), threads)
	case 16*t.scoresShared() > shared || 16*t.productShared(p.ValueDim) > shared:
		return fmt.Sprintf("%d and %d bytes of shared memory pass the device's %d", 16*t.scoresShared(),
			16*t.productShared(p.ValueDim), shared)
	case t.productBR < 1 || t.productBR%t.productMR != 0:
		return fmt.Sprintf("product_br = %d must be a multiple of product_mr = %d", t.productBR, t.productMR)
	case t.productBC < 8 || t.productBC%8 != 0:
		return fmt.Sprintf("product_bc = %d must be a multiple of 8", t.productBC)
	case t.productTX < 2 || t.productTX%2 != 0:
		return fmt.Sprintf("product_tx = %d must be even", t.productTX)
	}
	return t.softmaxTile.check()
}

// softmaxTile is how kernels of either tier share the rows of a softmax out.
type softmaxTile struct {
	RowThreads int // invocations of a row
	RowKeep    int // pieces of four that each keeps, 0 where a row is too long
}

func newSoftmaxTile(p *attn.Problem, threads int) softmaxTile {
	t := softmaxTile{RowThreads: threads}
	if keep := attn.CeilDiv(p.KeyLen, 4*max(threads, 1)); threads > 0 && keep <= softmaxMostPieces { // else it is read twice
		t.RowKeep = keep
	}
	return t
}

func (t *softmaxTile) check() string {
	if t.RowThreads < 1 || t.RowThreads&(t.RowThreads-1) != 0 || t.RowThreads > softmaxThreads {
		return fmt.Sprintf("row_threads = %d must be a power of two up to %d", t.RowThreads, softmaxThreads)
	}
	return ""
}

func (t *softmaxTile) row() *softmaxTile { return t }

func (t *softmaxTile) softmaxRows() int { return softmaxThreads / t.RowThreads }

// kept is as many of a self-check's keys as keep pieces in registers hold; 0: a row is read twice, and may be of any length.
func (t *softmaxTile) kept(keys, keep int) int {
	if keep > 0 {
		return min(keys, 4*t.RowThreads*keep)
	}
	return keys
}

const (
	softmaxLeastLanes = 8  // of a row
	softmaxMostPieces = 16 // of four, that an invocation keeps of a row in registers
)

// softmaxLanes is the number of invocations of a row with which a softmax kernel of a name has the pieces each that its row of tiles says.
func softmaxLanes(c *kernel.Capabilities, p *attn.Problem, kernel string) int {
	pieces, lanes := c.First(p, c.Lanes(), kernel).Get("pieces"), softmaxLeastLanes
	for lanes < softmaxThreads && 4*pieces*lanes < p.KeyLen {
		lanes *= 2
	}
	return lanes
}

// ChooseScalarTile takes the first row that fits.
func ChooseScalarTile(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) (ScalarTile, error) {
	// A row of O spreads over as many invocations as leave each with four of its columns. With more than 32 elements of O an
	// invocation, 8 rows of 8, an H200 was ten times slower: 2.2 against 22.8 TFLOP/s.
	tx := 8
	for tx < 32 && 4*tx < p.ValueDim {
		tx *= 2
	}
	wide := attn.CeilDiv(p.ValueDim, 4*tx)
	lanes := softmaxLanes(c, p, "standard_softmax")
	threads, why := int(min(c.Facts.Limits.MaxWorkgroupInvocations, c.Facts.Limits.MaxWorkgroupSize[0])), ""
	for _, r := range c.Suiting(kernel.Asked(p, c.Lanes()), "standard_scalar") {
		tile := ScalarTile{softmaxTile: newSoftmaxTile(p, t.Get("row_threads", lanes))}
		scoresFields.Read(&tile, r)
		productFields.Read(&tile, r)
		tile.productMR, tile.productTX = max(1, tile.scoresMR/wide), tx
		tile.productBR = min(tile.scoresBR, min(threads, 256)*tile.productMR/tx)
		scoresFields.Take(&tile, t, "")
		productFields.Take(&tile, t, "")
		if why = tile.Check(p, &c.Facts.Limits); why == "" {
			t.Took(r)
			return tile, nil
		}
	}
	return ScalarTile{}, t.NoTile(why)
}

func planScalar(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	tile, err := ChooseScalarTile(&e.Caps, p, t)
	if err != nil {
		return nil, err
	}
	return plan("standard_scalar", true, e, p, &tile, t)
}

// ScalarTile is a standardShape.

func (t *ScalarTile) String() string { return fmt.Sprintf("%dx%d", t.scoresBR, t.scoresBC) }

func (t *ScalarTile) scoresBlock() (rows, cols int)  { return t.scoresBR, t.scoresBC }
func (t *ScalarTile) productBlock() (rows, keys int) { return t.productBR, t.productBC }
func (t *ScalarTile) pace() kernel.Pace              { return kernel.ScalarPace }

// SelfCheck is a small problem for the tile, of rows no longer than the softmax keeps.
func (t *ScalarTile) SelfCheck(p *attn.Problem) attn.Problem {
	small := kernel.SelfCheckOf(p)
	small.QueryLen = max(t.scoresBR, t.productBR) + 3
	small.KeyLen = t.kept(max(t.scoresBC, 2*t.productBC)+3, t.RowKeep)
	return small
}

func (t *ScalarTile) Model() traffic.Standard {
	return traffic.Standard{Scores: traffic.Product{Rows: t.scoresBR, Columns: t.scoresBC},
		Softmax: traffic.Rows{ReadTwice: t.RowKeep == 0},
		Product: traffic.Product{Rows: t.productBR, Columns: t.productBC}}
}

func (t *ScalarTile) Scores(p *attn.Problem, aligned bool) pass.Stage {
	return pass.Stage{Module: "standard_scores." + p.DType.Suffix(),
		Constants: kernel.Constants{"WG": t.scoresThreads(), "D": p.HeadDim, "ALIGNED": kernel.BoolInt(aligned),
			"SHARED_V4": t.scoresShared()}.And(scoresFields.Constants(t), kernel.MaskConstants(p), kernel.LengthConstants(p))}
}

func (t *ScalarTile) Softmax(p *attn.Problem, lse bool) pass.Stage {
	return pass.Stage{Module: "standard_softmax." + p.DType.Suffix(),
		Constants: softmaxConstants(p, lse, t.RowThreads, t.RowKeep, zeroBehind(p, t), 0)}
}

// zeroBehind is the number of columns behind a row's last key that the softmax makes 0: as many as the product reads, or all where entries
// have lengths, which the host does not know when it reads weights.
func zeroBehind(p *attn.Problem, t standardShape) int {
	const all = 1 << 30
	if p.Padded() {
		return all
	}
	return p.Mask().ReadBehind(t.productBlock())
}

// softmaxConstants are those of standard_softmax: rowThreads invocations share a row and keep up to keep pieces of it each, the product
// reads up to zero columns beyond a row's last key, and lanes is the size of a subgroup, 0 where none is used.
func softmaxConstants(p *attn.Problem, lse bool, rowThreads, keep, zero, lanes int) kernel.Constants {
	return withLanes(kernel.Constants{"WG": softmaxThreads, "TPR": rowThreads, "KEEP": keep,
		"WRITE_LSE": kernel.BoolInt(lse), "ZERO": zero, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0),
		"SCORES_ONLY": 0}.And(kernel.MaskConstants(p), kernel.ScoreConstants(p), kernel.SinkConstants(p),
		kernel.MaxLogitConstants(p), kernel.LengthConstants(p)), lanes)
}

func (t *ScalarTile) Product(p *attn.Problem, aligned bool) pass.Stage {
	return t.Sums("standard_product", p, p.ValueDim, aligned, false, true)
}

// Sums is a product of the matrix, or of it turned over, by a tensor of dim columns; weights says that the matrix is P, of which
// some may be dropped.
func (t *ScalarTile) Sums(name string, p *attn.Problem, dim int, aligned, accumulate, weights bool) pass.Stage {
	return pass.Stage{Module: name + "." + p.DType.Suffix(),
		Constants: kernel.Constants{"WG": t.productThreads(), "D": dim, "ALIGNED": kernel.BoolInt(aligned),
			"SHARED_V4": t.productShared(dim), "ACCUMULATE": kernel.BoolInt(accumulate),
			"DROPOUT": kernel.BoolInt(weights && p.DropThreshold() > 0)}.And(productFields.Constants(t), kernel.MaskConstants(p),
			kernel.LengthConstants(p))}
}
