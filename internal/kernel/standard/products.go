package standard

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Products are the sums of a backward pass of which P and dS stand in memory, slab by slab: dV = Pᵀ dO, dQ = dS K and dK = dSᵀ Q, on
// cooperative matrices, as those of MatrixBackward. Another family makes P and dS.
type Products struct{ tiles *matrixGradients }

// products are the kernels of a backward pass that these are, in their order.
var products = [...]gradient{gradValues, gradQueries, gradKeys}

// ProductGrids are their workgroups over a slab.
type ProductGrids [len(products)]kernel.Grid

// ProductRanges are the ranges of their tuning parameters, the largest slab among them.
var ProductRanges = slabRanges.And(blockRanges.Of("dq_"), blockRanges.Of("dv_"), blockRanges.Of("dk_"),
	kernel.Parameters{"half": kernel.OnOff, PlainEdgesParameter: kernel.OnOff})

// PlainEdgesParameter is the tuning parameter that has dV and dK read P and dS where queries see a part of a block's keys as they are (1),
// or look at positions there (0).
const PlainEdgesParameter = "plain_edges"

// ChooseProducts chooses their tiles.
func ChooseProducts(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, t *kernel.Tuning) (*Products, error) {
	if err := turnable(f); err != nil {
		return nil, err
	}
	tiles, err := chooseMatrixGradients(c, p, f, t, false)
	if err != nil {
		return nil, err
	}
	return &Products{tiles}, nil
}

// TakePlainEdges has dV and dK read P and dS at edges as they are: what Behind says is 0 then.
func (s *Products) TakePlainEdges() { s.tiles.plainEdges = true }

// Grids fits them to a slab.
func (s *Products) Grids(e *kernel.Env, p *attn.Problem, b *Slab, t *kernel.Tuning) (grids ProductGrids, err error) {
	for n, part := range products {
		groups, flops, at := work(s.tiles, p, b, part)
		groups *= uint64(s.tiles.tile(part).ProductTile.across)
		if grids[n], err = kernel.GridFor(e, groups, flops, at, t); err != nil {
			return grids, err
		}
	}
	return grids, nil
}

// Blocks is how they cut rows of keys or queries, one after the other.
func (s *Products) Blocks() (all [len(products)]kernel.RowBlocks) {
	for n, part := range products {
		rows, columns := s.tiles.tile(part).productBlock()
		all[n] = kernel.RowBlocks{Keys: part != gradQueries, Rows: rows, Columns: columns}
	}
	return all
}

// Stages are those of the slab in a, whose P and dS are scratch of these names; tables are the places of their tables of packed sequences.
func (s *Products) Stages(v pass.Variant, grids *ProductGrids, a pass.Args, weights, grads string,
	tables [len(products)]int) (out []pass.Stage) {
	for n, part := range products {
		k := s.tiles.Kernel(part, a.Problem, kernel.GradientVariant{Aligned: v.Aligned, Accumulate: v.Accumulate})
		out = append(out, product(part, k, v, grids[n], a, weights, grads, tables[n]))
	}
	return out
}

func (s *Products) String() string { return s.tiles.productsString() }

// Behind is how many columns behind the last key of a row of P and dS are read as they are, and before its first, and must be 0.
func (s *Products) Behind(p *attn.Problem) int {
	behind := p.Mask().ReadBehind(s.tiles.queries.productBlock())
	if s.tiles.plainEdges {
		behind = max(behind, p.Mask().ReadBehind(s.tiles.values.productBlock()), p.Mask().ReadBehind(s.tiles.keys.productBlock()))
	}
	return behind
}

// Rows are the most queries, and the most keys, of any block and step, for a small problem with several of each.
func (s *Products) Rows() (queries, keys int) {
	q, k := s.tiles.queries.productBlock()
	v, vq := s.tiles.values.productBlock()
	kr, kq := s.tiles.keys.productBlock()
	return max(q, vq, kq), max(2*k, v, kr)
}

// Models are those of dV, dQ and dK, with the labels of their dispatches.
func (s *Products) Models() (values, queries, keys traffic.Product) {
	values, queries, keys = s.tiles.values.Model().Product, s.tiles.queries.Model().Product, s.tiles.keys.Model().Product
	values.Label, queries.Label, keys.Label = standardGradientLabels[gradValues], standardGradientLabels[gradQueries],
		standardGradientLabels[gradKeys]
	return values, queries, keys
}
