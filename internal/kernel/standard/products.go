package standard

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Products are the sums of a backward pass of which P and dS stand in memory, slab by slab: dV = Pᵀ dO, dQ = dS K and dK = dSᵀ Q, on
// cooperative matrices, as those of MatrixBackward. Who has made P and dS, another kernel's program, says.
type Products struct {
	env     *kernel.Env
	problem attn.Problem
	tiles   *matrixGradients
	slabs   []Slab
	pitch   int
	grids   [][len(products)]kernel.Grid                      // by slab
	runs    int                                               // Dispatches in all
	kernels [len(products)][8]atomic.Pointer[pipeline.Kernel] // by variant
}

// products are the kernels of a backward pass that these are, in their order.
var products = [...]gradient{gradValues, gradQueries, gradKeys}

// ProductRanges are the ranges of their tuning parameters, the largest slab among them.
var ProductRanges = slabRanges.And(blockRanges.Of("dq_"), blockRanges.Of("dv_"), blockRanges.Of("dk_"),
	kernel.Parameters{"half": kernel.OnOff})

// ChooseProducts chooses their tiles.
func ChooseProducts(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, t *kernel.Tuning) (*Products, error) {
	if err := turnable(f); err != nil {
		return nil, err
	}
	tiles, err := chooseMatrixGradients(c, p, f, t, false)
	if err != nil {
		return nil, err
	}
	return &Products{problem: *p, tiles: tiles}, nil
}

// Over fits them to slabs of whole key heads, whose rows are pitch elements.
func (s *Products) Over(e *kernel.Env, slabs []Slab, pitch int, t *kernel.Tuning) error {
	s.env, s.slabs, s.pitch = e, slabs, pitch
	for i := range slabs {
		var grids [len(products)]kernel.Grid
		for n, part := range products {
			groups, flops, at := work(s.tiles, &s.problem, &slabs[i], part)
			var err error
			if grids[n], err = kernel.GridFor(e, groups, flops, at, t); err != nil {
				return err
			}
			s.runs += grids[n].Dispatches()
		}
		s.grids = append(s.grids, grids)
	}
	return nil
}

// On is the same products, their pipelines too, on a small problem that is one slab.
func (s *Products) On(e *kernel.Env, p *attn.Problem, pitch int) (*Products, error) {
	small := &Products{problem: *p, tiles: s.tiles}
	for n := range products {
		for i := range s.kernels[n] {
			small.kernels[n][i].Store(s.kernels[n][i].Load())
		}
	}
	return small, small.Over(e, []Slab{{Heads: p.Batch * p.Heads, Rows: p.QueryLen}}, pitch, kernel.NewTuning(nil))
}

func (s *Products) String() string  { return s.tiles.productsString() }
func (s *Products) Dispatches() int { return s.runs }

// Behind is how many columns behind the last key of a row of dS are read, and must be 0.
func (s *Products) Behind() int {
	return s.problem.Mask().ReadBehind(s.tiles.queries.productBlock())
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

// Compiled is what the driver compiles for a variant.
func (s *Products) Compiled(v kernel.GradientVariant) (all []kernel.Compiled) {
	for _, part := range products {
		k := s.tiles.Kernel(part, &s.problem, v)
		all = append(all, kernel.Compiled{Module: k.Module, Constants: k.Constants, Functions: s.problem.Code()})
	}
	return all
}

// Build makes the pipelines of a variant.
func (s *Products) Build(v kernel.GradientVariant) error {
	var makes []func() error
	for n, part := range products {
		makes = append(makes, func() error {
			k := s.tiles.Kernel(part, &s.problem, v)
			_, err := s.env.Variant(&s.kernels[n][v.Index()], k.Module, &s.problem,
				func() (kernel.Constants, pipeline.KernelInfo) { return k.Constants, k.Made })
			return err
		})
	}
	return kernel.Together(makes...)
}

// Record makes the gradients of slab i of P, weights, and dS, gradients, with the pipelines of a variant.
func (s *Products) Record(r *kernel.Recorder, g *kernel.Gradients, v kernel.GradientVariant, i int, weights,
	gradients pipeline.Binding) error {
	a := pass.Args{As: pass.AsProduct, Problem: &s.problem, Slab: s.slabs[i], Pitch: s.pitch}
	for n, part := range products {
		matrix, x, y := gradients, &g.Q, &g.DK
		switch part {
		case gradValues:
			matrix, x, y = weights, &g.DO, &g.DV
		case gradQueries:
			x, y = &g.K, &g.DQ
		}
		r.Access[0] = pipeline.Access{Binding: matrix, Mode: pipeline.Read}
		r.Access[1] = pipeline.Access{Binding: x.Binding, Mode: pipeline.Read}
		r.Access[2] = g.Output(y)
		if i > 0 && part != gradQueries { // to which every slab may add
			r.Access[2].Mode = pipeline.ReadWrite
		}
		grid := s.grids[i][n]
		if err := r.Dispatch(s.kernels[n][v.Index()].Load(), r.Access[:3], a.OfSlab(&r.Push, x, y, nil), grid, grid.Total,
			standardGradientLabels[part]); err != nil {
			return err
		}
	}
	return nil
}
