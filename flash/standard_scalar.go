package flash

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// scalarStandard is standard attention in fp32 arithmetic: scores, softmax and product as three kernels, with the whole
// matrix of scores in device memory in the inputs' type. shaders/standard_*.comp.
var scalarStandard = &kernel{
	offer: offer{
		name:           "standard_scalar",
		implementation: Standard,
		tier:           TierScalar,
		can:            attn.WithDropout,
		parameters:     standardScalarRanges,
		unsupported:    scalarLacks,
	},
	plan: planScalarStandard,
}

// standardTile is the shapes of the two products and of the softmax.
type standardTile struct {
	scoresBR, scoresBC, scoresMR, scoresMC, scoresDK int
	rowThreads, rowKeep                              int // softmax: invocations of a row, pieces of four that each keeps
	productBR, productBC, productMR, productTX       int
}

const softmaxThreads = 128 // of a workgroup; every device allows it

func (t *standardTile) scoresThreads() int {
	return (t.scoresBR / t.scoresMR) * (t.scoresBC / t.scoresMC)
}
func (t *standardTile) scoresShared() int   { return (t.scoresBR + t.scoresBC) * (t.scoresDK/4 | 1) }
func (t *standardTile) productThreads() int { return t.productBR / t.productMR * t.productTX }

func (t *standardTile) productShared(dv int) int {
	return t.productBR*(t.productBC/4|1) + t.productBC*t.productTX*ceilDiv(ceilDiv(dv, 4), t.productTX)
}

// check gives the rule that a tile breaks, "" when it breaks none.
func (t *standardTile) check(p *Problem, l *vk.Limits) string {
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
		return fmt.Sprintf("%d and %d bytes of shared memory pass the device's %d", 16*t.scoresShared(), 16*t.productShared(p.ValueDim), shared)
	case t.productBR < 1 || t.productBR%t.productMR != 0:
		return fmt.Sprintf("product_br = %d must be a multiple of product_mr = %d", t.productBR, t.productMR)
	case t.productBC < 8 || t.productBC%8 != 0:
		return fmt.Sprintf("product_bc = %d must be a multiple of 8", t.productBC)
	case t.productTX < 2 || t.productTX%2 != 0:
		return fmt.Sprintf("product_tx = %d must be even", t.productTX)
	case t.rowThreads < 1 || t.rowThreads&(t.rowThreads-1) != 0 || t.rowThreads > softmaxThreads:
		return fmt.Sprintf("row_threads = %d must be a power of two up to %d", t.rowThreads, softmaxThreads)
	}
	return ""
}

const (
	softmaxLeastLanes = 8  // of a row
	softmaxMostPieces = 16 // of four, that an invocation keeps of a row in registers
)

// softmaxLanes is the number of invocations of a row with which a softmax kernel of a name has the pieces each that its row of tiles says.
func softmaxLanes(c *capabilities, p *Problem, kernel string) int {
	pieces, lanes := c.first(p, c.lanes(), kernel).Get("pieces"), softmaxLeastLanes
	for lanes < softmaxThreads && 4*pieces*lanes < p.KeyLen {
		lanes *= 2
	}
	return lanes
}

// softmaxKeep is the number of pieces of four that each of so many invocations keeps of a row; 0 where it is too long for registers and is
// read twice.
func softmaxKeep(p *Problem, lanes int) int {
	if keep := ceilDiv(p.KeyLen, 4*lanes); keep <= softmaxMostPieces {
		return keep
	}
	return 0
}

// chooseStandardTile takes the first row that fits.
func chooseStandardTile(c *capabilities, p *Problem, t *tuning) (standardTile, error) {
	// A row of O spreads over as many invocations as leave each with four of its columns. With more than 32 elements of O an
	// invocation, 8 rows of 8, an H200 was ten times slower: 2.2 against 22.8 TFLOP/s.
	tx := 8
	for tx < 32 && 4*tx < p.ValueDim {
		tx *= 2
	}
	wide := ceilDiv(p.ValueDim, 4*tx)
	lanes := softmaxLanes(c, p, "standard_softmax")
	threads, why := int(min(c.facts.Limits.MaxWorkgroupInvocations, c.facts.Limits.MaxWorkgroupSize[0])), ""
	for _, r := range c.suiting(asked(p, c.lanes()), "standard_scalar") {
		br, pm := r.Get("br"), max(1, r.Get("mr")/wide)
		tile := standardTile{
			scoresBR: t.get("br", br), scoresBC: t.get("bc", r.Get("bc")), scoresMR: t.get("mr", r.Get("mr")), scoresMC: t.get("mc", r.Get("mc")),
			scoresDK: t.get("dk", r.Get("dk")), productBR: t.get("product_br", min(br, min(threads, 256)*pm/tx)),
			productBC: t.get("product_bc", r.Get("product_bc")), productMR: t.get("product_mr", pm), productTX: t.get("product_tx", tx),
			rowThreads: t.get("row_threads", lanes),
		}
		if tile.rowThreads > 0 {
			tile.rowKeep = softmaxKeep(p, tile.rowThreads)
		}
		if why = tile.check(p, &c.facts.Limits); why == "" {
			t.took(r)
			return tile, nil
		}
	}
	if len(t.given) > 0 {
		return standardTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return standardTile{}, &declined{why: why}
}

func planScalarStandard(e *environment, p *Problem, t *tuning) (program, error) {
	tile, err := chooseStandardTile(&e.caps, p, t)
	if err != nil {
		return nil, err
	}
	s, err := newStandardProgram(e, p, &tile, t)
	if err != nil {
		return nil, err
	}
	// The usual case is dense tensors with lse.
	_, err = s.build(s.dense())
	return s, err
}

// standardTile is a standardShape.

func (t *standardTile) String() string { return fmt.Sprintf("%dx%d", t.scoresBR, t.scoresBC) }

func (t *standardTile) scoresBlock() (rows, cols int)  { return t.scoresBR, t.scoresBC }
func (t *standardTile) softmaxRows() int               { return softmaxThreads / t.rowThreads }
func (t *standardTile) productBlock() (rows, keys int) { return t.productBR, t.productBC }
func (t *standardTile) pace() pace                     { return scalarPace }

func (t *standardTile) model() traffic.Standard {
	return traffic.Standard{Scores: traffic.Product{Rows: t.scoresBR, Columns: t.scoresBC}, Softmax: traffic.Rows{ReadTwice: t.rowKeep == 0},
		Product: traffic.Product{Rows: t.productBR, Columns: t.productBC}}
}

func (t *standardTile) scores(p *Problem, aligned bool) standardKernel {
	return standardKernel{"standard_scores." + p.DType.suffix(),
		constants{"WG": t.scoresThreads(), "BR": t.scoresBR, "BC": t.scoresBC, "D": p.HeadDim, "CAUSAL": boolInt(p.Causal != CausalNone),
			"ALIGNED": boolInt(aligned), "MR": t.scoresMR, "MC": t.scoresMC, "DK": t.scoresDK, "SHARED_V4": t.scoresShared()}, pipeline.KernelInfo{}}
}

func (t *standardTile) softmax(p *Problem, lse bool) standardKernel {
	return standardKernel{"standard_softmax." + p.DType.suffix(),
		softmaxConstants(p, lse, t.rowThreads, t.rowKeep, t.productBR+t.productBC, 0), pipeline.KernelInfo{}}
}

// softmaxConstants are those of standard_softmax: rowThreads invocations share a row and keep up to keep pieces of it each, the product
// reads up to zero columns beyond a row's last key, and lanes is the size of a subgroup, 0 where none is used.
func softmaxConstants(p *Problem, lse bool, rowThreads, keep, zero, lanes int) constants {
	return withLanes(constants{"WG": softmaxThreads, "TPR": rowThreads, "KEEP": keep, "CAUSAL": boolInt(p.Causal != CausalNone),
		"WRITE_LSE": boolInt(lse), "ZERO": zero, "DROPOUT": boolInt(p.dropThreshold() > 0)}, lanes)
}

func (t *standardTile) product(p *Problem, aligned bool) standardKernel {
	return t.sums("standard_product", p, p.ValueDim, aligned, false, true)
}

// sums is a product of the matrix, or of it turned over, by a tensor of dim columns; weights says that the matrix is P, of which
// some may be dropped.
func (t *standardTile) sums(name string, p *Problem, dim int, aligned, accumulate, weights bool) standardKernel {
	return standardKernel{name + "." + p.DType.suffix(),
		constants{"WG": t.productThreads(), "BR": t.productBR, "BC": t.productBC, "D": dim, "CAUSAL": boolInt(p.Causal != CausalNone),
			"ALIGNED": boolInt(aligned), "MR": t.productMR, "SHARED_V4": t.productShared(dim), "ACCUMULATE": boolInt(accumulate),
			"DROPOUT": boolInt(weights && p.dropThreshold() > 0)}, pipeline.KernelInfo{}}
}
