package matrix

import (
	"maps"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Block-sparse attention is Flash with a block mask: the same shaders, specialized with BLOCK_MASK, whose loop over tiles of keys walks
// from one tile that holds some of the mask to the next. (Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with
// IO-Awareness", 2022, section 3.3.)

// BlockSparse is shaders/matrix/matrix_forward.comp with a block mask.
var BlockSparse = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_forward_blocks",
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked | attn.WithMaxLogit,
		Needs:       attn.WithBlocks,
		Parameters:  tileRanges.And(headRanges, lateRange, repeatRange, kernel.IndirectRange),
		Unsupported: kernel.MatrixLacks,
		Reserved:    kernel.ReservedOnCPU,
	},
	Plan: func(d *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
		return fitForward("matrix_forward_blocks", "matrix_forward", p.DType, d, p, t, ChooseBlockTile)
	},
	Candidates: blockCandidates,
}

// blockCandidates are the rows of plain attention, as far as what they ask for goes with blocks: growth is noticed as the problem's row has
// it, and where blocks have classes by a start with masked tiles too.
func blockCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	out := candidatesOf(c, "matrix_forward", "late", "repeat", "sums", "look_apart")
	if p.Blocks.Classed {
		for _, m := range slices.Clone(out) {
			late := maps.Clone(m)
			late["late"] = lateTurned
			out = append(out, late)
		}
	}
	return out
}

// ChooseBlockTile is ChooseTile for a problem with a block mask.
func ChooseBlockTile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, form int, t *kernel.Tuning) (Tile, error) {
	k := c.Prediction()
	tile, err := firstTile(c.Suiting(kernel.Asked(p, s), "matrix_forward_blocks", "matrix_forward"), c, p, t, func(tile Tile) Tile {
		tile = tile.Complete(&k, p, s, form)
		tile.Pack = false // rows of one tile would be of several heads, and of queries that lie close together
		return tile.Within(p)
	})
	if err != nil {
		return tile, err
	}
	if tile.Pack {
		return tile, t.Bad("pack", "must be 0 with a block mask")
	}
	if p.Blocks.Classed || !p.Blocks.OfTiles(tile.Rows(), tile.BC) {
		tile.KeepMasks = true // the loop with masks is the one that looks at single scores
	}
	return tile, nil
}

// Within cuts a tile down so that it lies in one block of the problem's mask, and leaves it as it is where that would make it too
// small to be worth it.
func (t Tile) Within(p *attn.Problem) Tile {
	const (
		leastRows      = 32
		leastSubgroups = 4  // fewer hide no latency
		mostPieces     = 12 // of 16 bytes, that an invocation holds of the next tile
	)
	cut := t
	cut.W, cut.RM = 0, 0
	better := func(w, rm int) bool { // more rows; among as many, enough subgroups, and then more rows each
		if w*rm != cut.W*cut.RM {
			return w*rm > cut.W*cut.RM
		}
		return w >= leastSubgroups && rm > cut.RM || cut.W < leastSubgroups && w > cut.W
	}
	for rm := 1; rm <= t.RM; rm++ {
		for w := 1; w <= t.W*t.RM/rm; w++ {
			if p.Blocks.Queries%(w*rm*t.Fragment.M) == 0 && better(w, rm) {
				cut.W, cut.RM = w, rm
			}
		}
	}
	if cut.Rows() < min(t.Rows(), leastRows) {
		return t
	}
	pieces := func(bc, threads int) int { return attn.CeilDiv(bc*attn.CeilDiv(p.HeadDim+p.ValueDim, 8), threads) }
	most := max(mostPieces, pieces(t.BC, t.Threads()))
	for _, ck := range []int{t.CK, max(t.Fragment.N, t.Fragment.K)} {
		for bc := t.BC / ck * ck; bc > 0; bc -= ck {
			if p.Blocks.Keys%bc == 0 && (cut.Prefetch == 0 || bc == ck || pieces(bc, cut.Threads()) <= most) {
				cut.CK, cut.BC = ck, bc
				return cut
			}
		}
	}
	return t
}
