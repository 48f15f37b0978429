package flash

import "fmt"

// Block-sparse attention is Flash with a block mask: the same shaders, specialized with BLOCK_MASK, whose loop over tiles of keys walks
// from one tile that holds some of the mask to the next. (Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with
// IO-Awareness", 2022, section 3.3.)

// scalarBlockSparse is shaders/scalar/scalar_forward.comp with a block mask.
var scalarBlockSparse = &kernel{
	offer: offer{
		name:           "scalar_forward_blocks",
		implementation: Flash,
		tier:           TierScalar,
		can:            withDropout | withBlocks,
		needs:          withBlocks,
		parameters:     scalarRanges,
		unsupported:    scalarLacks,
	},
	plan: func(d *Device, p *Problem, t *tuning) (program, error) {
		return fitScalarForward("scalar_forward_blocks", d, p, t)
	},
	candidates: scalarForwardCandidates,
}

// matrixBlockSparse is shaders/matrix/matrix_forward.comp with a block mask.
var matrixBlockSparse = &kernel{
	offer: offer{
		name:           "matrix_forward_blocks",
		implementation: Flash,
		tier:           TierMatrix,
		can:            withDropout | withBlocks,
		needs:          withBlocks,
		parameters:     matrixRanges.and(headRanges),
		unsupported:    matrixLacks,
		reserved:       reservedOnCPU,
	},
	plan: func(d *Device, p *Problem, t *tuning) (program, error) {
		return fitMatrixForward("matrix_forward_blocks", d, p, t, chooseBlockTile)
	},
	candidates: matrixForwardCandidates,
}

// chooseBlockTile is chooseMatrixTile for a problem with a block mask.
func chooseBlockTile(c *capabilities, p *Problem, s matrixShape, form int, t *tuning) (matrixTile, error) {
	tile, err := firstMatrixTile(matrixTiles, c, p, s, t, func(tile matrixTile) matrixTile {
		tile = tile.complete(c, p, s, form)
		tile.Pack = false // rows of one tile would be of several heads, and of queries that lie close together
		return tile.within(p)
	})
	if err != nil {
		return tile, err
	}
	if tile.Pack {
		return tile, t.bad("pack", "must be 0 with a block mask")
	}
	if !p.Blocks.ofTiles(tile.rows(), tile.BC) {
		tile.KeepMasks = true // the loop with masks is the one that looks at single scores
	}
	return tile, nil
}

// within cuts a tile down so that it lies in one block of the problem's mask, and leaves it as it is where that would make it too
// small to be worth it.
func (t matrixTile) within(p *Problem) matrixTile {
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
			if p.Blocks.Queries%(w*rm*t.fragment.M) == 0 && better(w, rm) {
				cut.W, cut.RM = w, rm
			}
		}
	}
	if cut.rows() < min(t.rows(), leastRows) {
		return t
	}
	pieces := func(bc, threads int) int { return ceilDiv(bc*ceilDiv(p.HeadDim+p.ValueDim, 8), threads) }
	most := max(mostPieces, pieces(t.BC, t.threads()))
	for _, ck := range []int{t.CK, max(t.fragment.N, t.fragment.K)} {
		for bc := t.BC / ck * ck; bc > 0; bc -= ck {
			if p.Blocks.Keys%bc == 0 && (cut.Prefetch == 0 || bc == ck || pieces(bc, cut.threads()) <= most) {
				cut.CK, cut.BC = ck, bc
				return cut
			}
		}
	}
	return t
}

// String gives the size of a block, queries by keys, for example "64x128 per head".
func (b Blocks) String() string {
	text := fmt.Sprintf("%dx%d", b.Queries, b.Keys)
	if b.PerHead {
		text += " per head"
	}
	return text
}
