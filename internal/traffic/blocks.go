package traffic

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
)

// blocks is a block mask: its bits, or how likely each of them is set.
type blocks struct {
	problem attn.Problem
	shape   [3]int // masks, rows and columns of blocks
	bits    []bool // nil: likely
	likely  float64
}

func newBlocks(p attn.Problem, c Call) (blocks, error) {
	b := blocks{problem: p, shape: p.MaskShape(), bits: c.Blocks, likely: c.Nonzero}
	if n := float64(b.shape[0]) * float64(b.shape[1]) * float64(b.shape[2]); b.bits != nil && float64(len(b.bits)) != n {
		return b, bad("the number of bits of the block mask", len(b.bits), "must be %g, for %d masks of %d × %d blocks", n, b.shape[0],
			b.shape[1], b.shape[2])
	}
	if b.bits == nil && !(b.likely > 0 && b.likely <= 1) {
		return b, bad("the share of nonzero blocks", b.likely, "must be above 0 and at most 1, or the block mask be given")
	}
	return b, nil
}

// masks is the number of heads that are counted one by one, for all batch entries: those with a mask of their own. Where only the share of
// blocks is known all are alike.
func (b *blocks) masks() float64 {
	if b.bits == nil {
		return 1
	}
	return float64(b.shape[0])
}

// countable refuses walks of so many blocks of queries over so many tiles of keys, and masks of so many blocks, that they take too long.
func (b *blocks) countable(name string, queries, tiles float64) error {
	each := queries * tiles
	if b.bits != nil { // for share, and for each block of queries
		columns := float64(b.shape[2])
		each += float64(b.shape[1])*columns + queries*columns
	}
	return atMost(mostTiles, name, b.problem, b.masks()*each)
}

// share is that of pairs of a query and a key that it may see which lie in nonzero blocks.
func (b *blocks) share() float64 {
	if b.bits == nil {
		return b.likely
	}
	p, all, nonzero := b.problem, 0.0, 0.0
	for i, bit := range b.bits {
		if bit {
			row, column := i/b.shape[2]%b.shape[1]*p.Blocks.Queries, i%b.shape[2]*p.Blocks.Keys
			nonzero += p.Mask().Part(row, min(p.Blocks.Queries, p.QueryLen-row), column, min(p.Blocks.Keys, p.KeyLen-column)).Pairs()
		}
	}
	if all = float64(b.shape[0]) * p.Mask().Pairs(); all == 0 {
		return 0
	}
	return nonzero / all
}

// blockRows is the mask's rows of blocks that some queries touch, of one head.
type blockRows struct {
	keys   int   // of a block
	rows   int   // of blocks
	before []int // nonzero columns before each, where one in any of the rows is enough; nil: likely
	zero   float64

	columns int     // the last number of columns that any was asked about without bits
	some    float64 // and what it said: most tiles touch as many
}

// of gives the rows of blocks of n queries from first on.
func (b *blocks) of(head, first, n int) blockRows {
	from, to := first/b.problem.Blocks.Queries, (first+n-1)/b.problem.Blocks.Queries
	r := blockRows{keys: b.problem.Blocks.Keys, rows: to - from + 1, zero: 1 - b.likely}
	if b.bits == nil {
		return r
	}
	columns := b.shape[2]
	r.before = make([]int, columns+1)
	for c := range columns {
		r.before[c+1] = r.before[c]
		for row := from; row <= to; row++ {
			if b.bits[(head*b.shape[1]+row)*columns+c] {
				r.before[c+1]++
				break
			}
		}
	}
	return r
}

// any is how likely one of the blocks with keys from begin up to end is nonzero: 0 or 1 where the mask is known.
func (r *blockRows) any(begin, end int) float64 {
	if begin >= end {
		return 0
	}
	from, to := begin/r.keys, (end-1)/r.keys+1
	if r.before != nil {
		return one(r.before[to] > r.before[from])
	}
	if n := to - from; n != r.columns {
		r.columns, r.some = n, 1-math.Pow(r.zero, float64(r.rows*n))
	}
	return r.some
}
