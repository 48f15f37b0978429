package standard

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Products are the sums of a backward pass of which P and dS stand in memory, slab by slab: dV = Pᵀ dO, dQ = dS K and dK = dSᵀ Q, on
// cooperative matrices, as those of MatrixBackward. Who has made P and dS, another kernel's program, says.
type Products struct {
	tiles   *matrixGradients
	program BackwardProgram
}

// products are the kernels of BackwardProgram that these are, in their order.
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
	return &Products{tiles: tiles, program: BackwardProgram{problem: *p, shape: tiles}}, nil
}

// Over fits them to slabs of whole key heads, whose rows are pitch elements.
func (s *Products) Over(e *kernel.Env, slabs []Slab, pitch int, t *kernel.Tuning) error {
	s.program.env = e
	s.program.forward = &Program{env: e, Problem: s.program.problem, Pitch: pitch, slabs: slabs}
	for i := range slabs {
		var grids [standardGradients]kernel.Grid
		for _, part := range products {
			var err error
			if grids[part], err = s.program.grid(&slabs[i], part, t); err != nil {
				return err
			}
			s.program.runs += grids[part].Dispatches()
		}
		s.program.grids = append(s.program.grids, grids)
	}
	return nil
}

// On is the same products, their pipelines too, on a small problem that is one slab.
func (s *Products) On(e *kernel.Env, p *attn.Problem, pitch int) (*Products, error) {
	small := &Products{tiles: s.tiles, program: BackwardProgram{problem: *p, shape: s.tiles}}
	for _, part := range products {
		for i := range s.program.kernels[part] {
			small.program.kernels[part][i].Store(s.program.kernels[part][i].Load())
		}
	}
	return small, small.Over(e, []Slab{{Heads: p.Batch * p.Heads, Rows: p.QueryLen}}, pitch, kernel.NewTuning(nil))
}

func (s *Products) String() string  { return s.tiles.productsString() }
func (s *Products) Dispatches() int { return s.program.runs }

// Behind is how many columns behind the last key of a row of dS are read, and must be 0.
func (s *Products) Behind() int {
	return s.program.problem.Mask().ReadBehind(s.tiles.queries.productBlock())
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
func (s *Products) Compiled(v kernel.GradientVariant) []kernel.Compiled {
	var all []kernel.Compiled
	for _, part := range products {
		all = append(all, s.tiles.Kernel(part, &s.program.problem, v).Compiled(&s.program.problem))
	}
	return all
}

// Build makes the pipelines of a variant.
func (s *Products) Build(v kernel.GradientVariant) error {
	var makes []func() error
	for _, part := range products {
		makes = append(makes, func() error { return s.program.buildPart(part, v) })
	}
	return kernel.Together(makes...)
}

// Record makes the gradients of slab i of P, weights, and dS, gradients, with the pipelines of a variant.
func (s *Products) Record(r *kernel.Recorder, g *kernel.Gradients, v kernel.GradientVariant, i int, weights,
	gradients pipeline.Binding) error {
	for _, part := range products {
		if err := s.program.recordPart(r, g, v, i, part, weights, gradients); err != nil {
			return err
		}
	}
	return nil
}
