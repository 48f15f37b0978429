package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

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

// blockMask is the block mask of a case, one for all heads; nil where it has none. Of the blocks that a row of blocks could attend to (with
// a causal mask those with an allowed key) Density takes part, chosen at random, each row by itself; what is left over of a
// row's fraction goes to the next, so that the share of all blocks is Density but for less than one block.
func (c Case) blockMask() *ref.BlockMask {
	if c.Density == 0 {
		return nil
	}
	m := &ref.BlockMask{B: 1, H: 1, Rows: (c.Nq + maskBlock - 1) / maskBlock, Cols: (c.N + maskBlock - 1) / maskBlock, BQ: maskBlock, BK: maskBlock}
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
		for _, column := range rand.New(rand.NewPCG(inputSeed, uint64(r))).Perm(columns)[:n] {
			m.Data[r*m.Cols+column] = true
		}
	}
	return m
}

// mask puts the block mask of a case into device memory; nil where it has none.
func (d *Device) mask(ctx context.Context, c Case) (*flash.BlockMask, error) {
	m := c.blockMask()
	if m == nil {
		return nil, nil
	}
	p, err := c.Problem()
	if err != nil {
		return nil, err
	}
	return d.dev.NewBlockMask(ctx, p, m.Data)
}

// ParseDensities reads a list of shares of nonzero blocks, above 0 and up to 1,
// or as percentages: 0.05 or 5%.
func ParseDensities(list []string) ([]float64, error) {
	var out []float64
	for _, s := range list {
		text, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
		v, err := strconv.ParseFloat(text, 64)
		if percent {
			v /= 100
		}
		if err != nil || !(v > 0 && v <= 1) {
			return nil, fmt.Errorf("density %q: it must be above 0 and at most 1, or 100%%", s)
		}
		out = append(out, v)
	}
	return out, nil
}

// hasTiles says whether the tunings of a grid are about an implementation.
func hasTiles(impl string) bool {
	return slices.Contains([]string{flash.Flash.String(), BlockSparse}, impl)
}
