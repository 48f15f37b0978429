package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Turned is dQ = Scale dS K of which dSᵀ stands in memory, slab by slab, as operands of keys by queries:
// shaders/standard/standard_backward_product_matrix.comp with queries and keys exchanged. Another family makes dSᵀ, without Scale and what
// dropout multiplies by.
type Turned struct {
	tile   MatrixTile
	turned attn.Problem
	unit   float64 // how much smaller than dS what stands in memory is
}

// TurnedRanges are the ranges of its tuning parameters, the largest slab among them.
var TurnedRanges = slabRanges.And(blockRanges.Of("dq_"), kernel.Parameters{"half": kernel.OnOff})

// ChooseTurned chooses its tile; unit is how much smaller than dS what stands in memory is.
func ChooseTurned(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, unit float64, t *kernel.Tuning) (*Turned, error) {
	if err := turnable(f); err != nil {
		return nil, err
	}
	if f.M*f.K%(8*f.Lanes) != 0 {
		return nil, &kernel.Declined{Why: fmt.Sprintf("lanes hold no whole 16 bytes of operands of %v", f)}
	}
	own := *p
	own.ValueDim = p.HeadDim
	tile, err := tileOf(c, &own, f, t.Get("half", kernel.BoolInt(halfAccumulators(c, p.DType, &f))), t)
	if err != nil {
		return nil, err
	}
	why := tile.finish(c, p.HeadDim, true, "dq_", t)
	if b := &tile.ProductTile; why == "" && (b.stage%f.M != 0 || b.rows(&f)%f.K != 0) {
		why = fmt.Sprintf("dq_stage = %d must be a multiple of the fragment's M = %d, and its rows = %d of K = %d", b.stage, f.M,
			b.rows(&f), f.K)
	}
	if why != "" {
		return nil, t.NoTile(why)
	}
	s := &Turned{tile: tile, unit: unit}
	return s.For(p), nil
}

// For is the same tile for another problem.
func (s *Turned) For(p *attn.Problem) *Turned {
	of := *s
	of.turned = p.Turned()
	return &of
}

// HeadBytes is the bytes of dSᵀ of a head, in whole operands: as many as ds_rows() of matrix_backward_kv.comp says, by the most queries.
func (s *Turned) HeadBytes() uint64 {
	f, p := &s.tile.fragment, &s.turned
	down := uint64(attn.CeilDiv(p.QueryLen, f.M))
	if !p.Packed.None() {
		down = p.QueryBlocks(f.M, 1)
	}
	return down * uint64(f.M) * uint64(attn.CeilDiv(p.KeyLen, f.K)*f.K) * uint64(p.DType.Size())
}

// Blocks is how it cuts rows of queries.
func (s *Turned) Blocks() kernel.RowBlocks {
	rows, columns := s.tile.productBlock()
	return kernel.RowBlocks{Rows: rows, Columns: columns}
}

// Grid is its workgroups over a slab.
func (s *Turned) Grid(e *kernel.Env, b *Slab, t *kernel.Tuning) (kernel.Grid, error) {
	queries := uint64(s.turned.KeyLen)
	if !s.turned.Packed.None() { // heads are those of all sequences
		queries = s.turned.KeyRows()
	}
	pairs := float64(b.Heads) * float64(b.Rows) * float64(queries)
	return kernel.GridFor(e, s.Groups(b.Heads), 2*pairs*float64(max(64, s.turned.HeadDim)), s.tile.pace(), t)
}

// Groups are the workgroups for so many heads.
func (s *Turned) Groups(heads int) uint64 {
	b := s.Blocks()
	if !s.turned.Packed.None() {
		return uint64(heads) * s.turned.KeyBlocks(b.Rows)
	}
	return uint64(heads) * uint64(attn.CeilDiv(s.turned.KeyLen, b.Rows))
}

// Stage makes dQ of a slab, which is scratch of this name, with this table of packed sequences; blocks of one place of `together` query
// heads follow one another.
func (s *Turned) Stage(v pass.Variant, g kernel.Grid, b Slab, grads string, together, table int) pass.Stage {
	p, t := &s.turned, &s.tile
	k := ofSum(t.Kernel("standard_backward_product_matrix", &t.ProductTile, p.HeadDim, t.turnedShared(), p, v.Aligned, v.Accumulate, false),
		false, together)
	a := pass.Args{As: pass.AsProduct, Problem: p, Slab: b, X: "K", Y: "DQ", Factor: p.Scale * s.unit}
	stage := on(k, standardGradientLabels[gradQueries], g, a, read(grads), read(a.X), pass.Bind{To: a.Y, Mode: v.Written()})
	if p.Padded() {
		of := p.Turned() // lengths and tables are those of the problem as it is
		stage.Bind = append(stage.Bind, pass.Scores(&of, table)...)
	}
	return stage
}

func (s *Turned) String() string {
	rows, keys := s.tile.productBlock()
	return fmt.Sprintf("dq %dx%d", rows, keys)
}

// Rows are the queries of a block and the keys of two steps, for a small problem with several of each.
func (s *Turned) Rows() (queries, keys int) {
	rows, step := s.tile.productBlock()
	return rows, 2 * step
}

// Model is how it walks, with the label of its dispatches.
func (s *Turned) Model() traffic.Product {
	m := s.tile.Model().Product
	m.Label = standardGradientLabels[gradQueries]
	return m
}
