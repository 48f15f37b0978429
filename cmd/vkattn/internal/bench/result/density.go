package result

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// maskBlock is the side of the blocks of a block mask, in queries and keys.
const maskBlock = 128

// blocks says what block mask a case has.
func (c Case) blocks() flash.Blocks {
	if c.Density == 0 {
		return flash.Blocks{}
	}
	return flash.Blocks{Queries: maskBlock, Keys: maskBlock}
}

// BlockMask is the block mask of a case, one for all heads; nil where it has none. Of the blocks that a row of blocks could attend to (with
// a causal mask those with an allowed key) Density takes part, chosen at random, each row by itself; what is left over of a
// row's fraction goes to the next, so that the share of all blocks is Density but for less than one block.
func (c Case) BlockMask() *ref.BlockMask {
	if c.Density == 0 {
		return nil
	}
	m := &ref.BlockMask{B: 1, H: 1, Rows: (c.Nq + maskBlock - 1) / maskBlock, Cols: (c.N + maskBlock - 1) / maskBlock, BQ: maskBlock,
		BK: maskBlock}
	m.Data = make([]bool, m.Rows*m.Cols)
	due := 0.0
	for r := range m.Rows {
		columns := m.Cols
		if c.Causal {
			last := min((r+1)*maskBlock, c.Nq) - 1 + c.N - c.Nq // key
			columns = min(max(last+maskBlock, 0)/maskBlock, m.Cols)
		}
		due += c.Density * float64(columns)
		n := min(int(due+1e-9), columns)
		due -= float64(n)
		for _, column := range rand.New(rand.NewPCG(InputSeed, uint64(r))).Perm(columns)[:n] {
			m.Data[r*m.Cols+column] = true
		}
	}
	return m
}

// computed is the share of blocks that rates count: Density, or 0 where the problem is so small that no block is a part of it.
func (c Case) computed() float64 {
	if slices.Contains(c.BlockMask().Data, true) {
		return c.Density
	}
	return 0
}

// EmptyMask says why a case has a time and no rate; "" where it has one.
func (c Case) EmptyMask() string {
	if c.Density == 0 || c.computed() > 0 {
		return ""
	}
	return fmt.Sprintf("no block is nonzero, so there is no rate: a density of %g leaves less than one block of %d × %d", c.Density,
		maskBlock, maskBlock)
}

// classes says of what blocks a case's mask function is asked beforehand: by the library's own fused kernels, and where there are queries
// for a block.
func (c Case) classes() flash.Blocks {
	if c.Impl != flash.Flash.String() || c.Mask == "" || c.Nq < flash.UsualMaskBlocks.Queries {
		return flash.Blocks{}
	}
	return flash.UsualMaskBlocks
}

// SeenBlocks are the classed blocks of which some pair is seen, in row-major order.
func (c Case) SeenBlocks() []bool {
	b := c.classes()
	columns := (c.N + b.Keys - 1) / b.Keys
	out := make([]bool, (c.Nq+b.Queries-1)/b.Queries*columns)
	for i := range c.Nq {
		for first, end := c.Seen(i); first < end; first = (first/b.Keys + 1) * b.Keys {
			out[i/b.Queries*columns+first/b.Keys] = true
		}
	}
	return out
}
