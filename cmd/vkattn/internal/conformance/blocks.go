package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// blockMasks sweeps block masks: blocks of whole tiles and of parts of them, shares of nonzero blocks from all to none, rows of blocks
// without any, masks of more than one word a row.
func blockMasks(s *suite) {
	for i, b := range []struct {
		rows, keys, nq, nk int
		share              float64
		perHead, core      bool
	}{
		{64, 64, 200, 260, 0.5, false, false},
		{32, 16, 77, 93, 0.3, true, true},
		{5, 7, 40, 50, 0.5, true, true},
		{16, 16, 50, 1100, 0.05, false, true}, // 69 columns of blocks: three words
		{128, 128, 300, 500, 0.05, true, false},
		{128, 64, 260, 200, 1, false, false},
		{64, 32, 130, 70, 0, true, false}, // nothing at all
		{64, 64, 130, 333, 0.25, true, false},
		{48, 24, 100, 100, 0.4, false, false},
		{1, 1, 20, 37, 0.5, true, false},
		{1, 128, 70, 300, 0.3, false, false},
		{100, 3, 150, 60, 0.2, true, false},
		{1000, 1000, 70, 90, 1, false, false},
		{64, 64, 1, 500, 0.5, true, false},
		{33, 65, 300, 120, 0.6, false, false},
	} {
		for j, dtype := range dtypes {
			if i > 1 && i%len(dtypes) != j {
				continue
			}
			size := flash.Blocks{Queries: b.rows, Keys: b.keys, PerHead: b.perHead, PerBatch: i%4 == 1}
			p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: b.nq, KeyLen: b.nk, HeadDim: s.dim(16), DType: dtype,
				Causal: causals[i%3], Blocks: size}
			c := &Case{Name: name(dtype, "blocks/%v-share%g-%dx%d", size, b.share, b.nq, b.nk), Core: b.core, Problem: p, Share: b.share}
			switch i % 5 {
			case 2:
				c.Layouts = all(Odd)
			case 3:
				c.Problem.HeadDim, c.Problem.ValueDim, c.Problem.Batch = s.dim(32), 16, 1
			case 4:
				c.Problem.Dropout, c.Seed = 0.25, 0x0123456789abcdef
			}
			s.add(c)
		}
	}
	// With what else hides scores, changes them or drops weights, on blocks of whole tiles and of others, forward and backward.
	for i, x := range []struct {
		name string
		size flash.Blocks
		set  func(p *flash.Problem)
		core bool
	}{
		{"window", flash.Blocks{Queries: 32, Keys: 32}, func(p *flash.Problem) { p.Window = flash.SlidingWindow(50, 20) }, false},
		{"window-odd", flash.Blocks{Queries: 12, Keys: 20, PerHead: true, PerBatch: true}, func(p *flash.Problem) {
			p.Window, p.Dropout = flash.SlidingWindow(40, -1), 0.25
		}, true},
		{"softcap", flash.Blocks{Queries: 64, Keys: 64, PerBatch: true}, func(p *flash.Problem) { p.ScoreFunction = score.Softcap(2) },
			true},
		{"bias", flash.Blocks{Queries: 32, Keys: 64, PerHead: true}, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
		{"all", flash.Blocks{Queries: 20, Keys: 33, PerBatch: true}, func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: flash.F32, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: 1, Keys: p.KeyLen}
			p.ScoreFunction, p.Sinks, p.Dropout = score.Softcap(4), true, 0.25
		}, false},
	} {
		p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: 170, HeadDim: s.dim(16), DType: dtypes[i%3],
			Causal: causals[i%3], Blocks: x.size}
		x.set(&p)
		c := s.add(&Case{Name: name(p.DType, "blocks/%s", x.name), Core: x.core, Problem: p, Share: 0.4})
		if p.Dropout > 0 {
			c.Seed = uint64(i)
		}
	}
	// Of entries and sequences with lengths, each of which has the top left corner of the mask.
	for i, x := range []struct {
		name       string
		size       flash.Blocks
		packed     bool
		queriesToo bool // lengths are of queries too
		set        func(p *flash.Problem)
		core       bool
	}{
		{"packed", flash.Blocks{Queries: 32, Keys: 32}, true, false, func(p *flash.Problem) {}, true},
		{"packed-odd", flash.Blocks{Queries: 12, Keys: 20, PerHead: true}, true, false, func(p *flash.Problem) {
			p.Causal = flash.CausalBottomRight
		}, true},
		{"packed-masks", flash.Blocks{Queries: 16, Keys: 64, PerBatch: true}, true, false, func(p *flash.Problem) {
			p.Causal, p.Window, p.Dropout = flash.CausalBottomRight, flash.SlidingWindow(40, -1), 0.25
		}, false},
		{"packed-used", flash.Blocks{Queries: 20, Keys: 33, PerBatch: true, PerHead: true}, true, true, func(p *flash.Problem) {
			p.KeyLengths, p.Sinks, p.ScoreFunction = true, true, score.Softcap(3)
		}, true},
		{"packed-top-left", flash.Blocks{Queries: 64, Keys: 64}, true, false, func(p *flash.Problem) {
			p.Causal = flash.CausalTopLeft
			p.Bias = flash.PerScore{DType: p.DType, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
		{"lengths", flash.Blocks{Queries: 32, Keys: 32}, false, true, func(p *flash.Problem) {
			p.KeyLengths, p.Causal = true, flash.CausalBottomRight
		}, true},
		{"lengths-odd", flash.Blocks{Queries: 9, Keys: 40, PerBatch: true}, false, false, func(p *flash.Problem) { p.KeyLengths = true },
			false},
	} {
		for j, dtype := range dtypes {
			if i > 1 && i%3 != j {
				continue
			}
			p := flash.Problem{Batch: 6, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: s.dim(16), DType: dtype, Blocks: x.size,
				QueryLengths: x.queriesToo}
			x.set(&p)
			c := s.add(&Case{Name: name(dtype, "blocks/%s", x.name), Core: x.core, Problem: p, Share: 0.5, Seed: uint64(i)})
			if x.packed {
				c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(j)+20)), i != 2)
			}
		}
	}
	// Each column of a mask in turn is the only one, whatever tiles make of it.
	for c := range 3 {
		p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 96, KeyLen: 96, HeadDim: s.dim(16), DType: flash.F16,
			Blocks: flash.Blocks{Queries: 32, Keys: 32}}
		s.add(&Case{Name: fmt.Sprintf("blocks/column-%d", c), Problem: p, bits: func(_, _, column int) bool { return column == c }})
	}
}

// takesBlocks says whether a drawn problem may have a block mask besides.
func (c *Case) takesBlocks() bool {
	return c.Problem.Lists == (flash.Lists{})
}

// drawBlocks makes the block mask of a case: of each block with probability Share, or as bits says.
func (c *Case) drawBlocks(p flash.Problem, r *rand.Rand) *ref.BlockMask {
	shape, batch := p.MaskShape(), 1
	if p.Blocks.PerBatch {
		batch = p.Batch
	}
	m := &ref.BlockMask{B: batch, H: shape[0] / batch, Rows: shape[1], Cols: shape[2], BQ: p.Blocks.Queries, BK: p.Blocks.Keys}
	for mask := range shape[0] {
		for row := range m.Rows {
			for column := range m.Cols {
				bit := r.Float64() < c.Share
				if c.bits != nil {
					bit = c.bits(mask, row, column)
				}
				m.Data = append(m.Data, bit)
			}
		}
	}
	return m
}
