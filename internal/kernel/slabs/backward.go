package slabs

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Backward is the backward pass of wide heads on cooperative matrices, in five products: shaders/common/backward_delta.comp,
// matrix_backward_q.comp built with TO_MEMORY, which makes P and dS from lse as FlashAttention does (Dao 2023, algorithm 2) and puts them
// into memory, and the products of standard attention's backward pass. In matrix.Backward, sums of wide heads leave no room in registers
// for what they are made of, and P and dS are made two or three times. What stands in memory is bounded: some heads at a time, of a share
// of the device's memory.
var Backward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           name,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Parameters: kernel.FormRanges.And(kernel.GroupBound, matrix.WeightsRanges, standard.ProductRanges,
			kernel.Parameters{kernel.SlabsParameter: kernel.OnOff}),
		Can:         attn.WithBias,
		Yields:      true, // to the kernels that keep P and dS to themselves
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: matrix.BackwardLacks,
	},
	Plan: plan,
}

const name = "matrix_backward_slabs"

// memoryShare is the part of the device's memory that P and dS may take.
const memoryShare = 64

func plan(e *kernel.Env, p *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	asked, given := t.Given[kernel.SlabsParameter]
	s := &program{env: e, problem: *p, pitch: standard.PitchOf(p)}
	var taken bool
	if s.weights, taken, err = matrix.ChooseWeights(&e.Caps, p, &layout, fragment, form, t); err != nil {
		return nil, err
	}
	if !p.Bias.None() && !s.weights.MakesBias() {
		taken = false // what a bias gains is that its gradient needs no kernel of its own
	}
	switch use := t.Get(kernel.SlabsParameter, kernel.BoolInt(taken)); {
	case use == 0 && given:
		return nil, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.SlabsParameter + "] is 0"}
	case use == 0:
		return nil, &kernel.Declined{Why: "P and dS in memory are not measured to be faster here; WithBackwardTuning[" +
			kernel.SlabsParameter + "] = 1 insists"}
	}
	if s.products, err = standard.ChooseProducts(&e.Caps, p, fragment, t); err != nil {
		return nil, err
	}
	if err := s.cut(t); err != nil {
		if asked != 0 {
			return nil, t.Bad(kernel.SlabsParameter, "cannot be: %v", err)
		}
		return nil, &kernel.Declined{Why: err.Error()}
	}
	if s.delta, err = kernel.NewDeltaProgram(e, p, t); err != nil {
		return nil, err
	}
	perHead := uint64(attn.CeilDiv(p.QueryLen, s.weights.Tile.BlockRows()))
	grid, err := kernel.GridFor(e, perHead*uint64(p.Batch)*uint64(p.Heads), 2*kernel.PaddedFLOPs(p), kernel.MatrixPace, t)
	if err != nil {
		return nil, err
	}
	s.step = grid.Step
	if err := s.products.Over(e, s.slabs, s.pitch, t); err != nil {
		return nil, err
	}
	return s, s.usual()
}

// program is the kernels fitted to a problem.
type program struct {
	env      *kernel.Env
	problem  attn.Problem
	weights  *matrix.Weights
	products *standard.Products
	delta    *kernel.DeltaProgram
	slabs    []standard.Slab
	pitch    int    // elements from row to row of P and dS
	step     uint32 // workgroups of a dispatch of weights, at most

	kernels [32]atomic.Pointer[pipeline.Kernel] // of weights, by variant
	checked [32]atomic.Bool                     // by variant
}

// variant is what pipelines are built for: GradientVariant for the products, and for the kernel of weights whether the gradient with
// respect to the bias is wanted.
type variant struct {
	kernel.GradientVariant
	dBias, alignedBias bool
}

func (v variant) index() int {
	return v.Index() + 8*kernel.BoolInt(v.dBias) + 16*kernel.BoolInt(v.alignedBias)
}

// weights is that of the kernel of weights, which has no dlse, and adds to nothing but the gradient with respect to the bias.
func (v variant) weights() variant {
	v.DLSE, v.Accumulate = false, v.Accumulate && v.dBias
	return v
}

// of is the variant of a set of tensors.
func (s *program) of(g *kernel.Gradients) variant {
	v := variant{GradientVariant: g.Variant()}
	v.Aligned = v.Aligned && s.weights.BiasLies(&s.problem, g)
	v.dBias = s.weights.MakesBias() && g.DBias.Given()
	v.alignedBias = v.dBias && g.DBias.Aligned
	return v
}

// MakesBias says that the kernel of weights writes the gradient with respect to the bias on its way.
func (s *program) MakesBias(of kernel.Bias) bool {
	return of.Of(&s.problem) == &s.problem.Bias && s.weights.MakesBias()
}

// cut makes slabs of whole key heads, as even as can be.
func (s *program) cut(t *kernel.Tuning) error {
	p := &s.problem
	rowBytes := uint64(s.pitch * p.DType.Size())
	most := min(s.env.Caps.Memory()/memoryShare/2, standard.LargestSlab(&s.env.Caps, t))
	needed := uint64(p.Group()) * uint64(p.QueryLen) * rowBytes
	if needed > most {
		return fmt.Errorf("P of the heads of a key head takes %d bytes, and %d are left for it", needed, most)
	}
	slabs, err := standard.CutSlabs(p.Batch*p.KeyHeads, p.Group()*p.QueryLen, rowBytes, most)
	for _, b := range slabs { // of key heads, whose rows are those of their query heads
		s.slabs = append(s.slabs, standard.Slab{Head0: b.Head0 * p.Group(), Heads: b.Heads * p.Group(), Rows: p.QueryLen})
	}
	return err
}

func (s *program) Tile() string {
	return fmt.Sprintf("weights %v, %v %v form %d", &s.weights.Tile, s.products, s.weights.Tile.Fragment, s.weights.Tile.Form)
}

func (s *program) Dispatches() int {
	n := s.delta.Grid.Dispatches() + s.products.Dispatches()
	for i := range s.slabs {
		groups := s.slabs[i].Heads * attn.CeilDiv(s.problem.QueryLen, s.weights.Tile.BlockRows())
		n += attn.CeilDiv(groups, int(s.step))
	}
	return n
}

// Scratch is δ, and P and dS of a slab.
func (s *program) Scratch() []uint64 {
	slab := uint64(s.slabs[0].Heads) * uint64(s.problem.QueryLen) * uint64(s.pitch) * uint64(s.problem.DType.Size())
	return []uint64{s.delta.Bytes(), slab, slab}
}

func (s *program) Model() traffic.Model {
	m := traffic.BackwardSlabs{Delta: kernel.DeltaLabel, Weights: s.weights.Model(&s.problem), Behind: s.products.Behind(),
		DBias: s.weights.MakesBias()}
	m.Values, m.Queries, m.Keys = s.products.Models()
	return m
}

// ofWeights is the build of the kernel of weights.
func (s *program) ofWeights(v variant) kernel.Compiled {
	v = v.weights()
	return s.weights.Compiled(&s.problem, pass.Variant{Aligned: v.Aligned, Accumulate: v.Accumulate, DBias: v.dBias,
		AlignedDBias: v.alignedBias}, s.slabs[0].Heads, s.products.Behind())
}

// build makes the pipelines of a variant and lets those that were never run on this device and driver prove themselves.
func (s *program) build(v variant) error {
	if s.checked[v.index()].Load() {
		return nil
	}
	w := s.ofWeights(v)
	if err := kernel.Together(func() error {
		_, err := s.env.Variant(&s.kernels[v.weights().index()], w.Module, &s.problem, func() (kernel.Constants, pipeline.KernelInfo) {
			return w.Constants, s.weights.Info()
		})
		return err
	}, func() error { return s.products.Build(v.GradientVariant) }, func() error {
		_, err := s.delta.Kernel(v.Aligned, v.DLSE)
		return err
	}); err != nil {
		return err
	}
	tried := append(s.products.Compiled(v.GradientVariant), w)
	if err := s.env.Prove(name+" "+s.Tile(), tried, func() (string, error) { return s.try(v) }); err != nil {
		return err
	}
	s.checked[v.index()].Store(true)
	return nil
}

// usual builds the variants of dense tensors, gradients overwritten, with and without that by the bias where it is made here. On a device
// of the caller's, whose queue recording must leave alone, the others are looked at now too.
func (s *program) usual() error {
	size := s.problem.DType.Size()
	aligned := s.problem.HeadDim*size%16 == 0 && s.problem.ValueDim*size%16 == 0
	alignedBias := s.problem.KeyLen*s.problem.Bias.DType.Size()%16 == 0
	var makes []func() error
	for i := range s.checked {
		v := variant{kernel.GradientVariant{Aligned: i&1 != 0, Accumulate: i&2 != 0, DLSE: i&4 != 0}, i&8 != 0, i&16 != 0}
		usual := v == variant{kernel.GradientVariant{Aligned: aligned}, v.dBias, v.dBias && alignedBias}
		can := (aligned || !v.Aligned) && (s.weights.MakesBias() || !v.dBias) && (v.dBias && alignedBias || !v.alignedBias)
		if can && (usual || s.env.Attached) {
			makes = append(makes, func() error { return s.build(v) })
		}
	}
	return kernel.Together(makes...)
}

func (s *program) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	v := s.of(g)
	if err := s.build(v); err != nil {
		return err
	}
	return s.run(r, g, v)
}

func (s *program) run(r *kernel.Recorder, g *kernel.Gradients, v variant) error {
	delta, weights, gradients := kernel.Operand{Binding: r.Scratch[0]}, r.Scratch[1], r.Scratch[2]
	if err := s.delta.Record(r, g, &delta); err != nil {
		return err
	}
	k := s.kernels[v.weights().index()].Load()
	for i := range s.slabs {
		b := &s.slabs[i]
		if err := s.weights.Record(r, k, &s.problem, g, &delta, b.Head0, b.Heads, s.pitch, s.step, weights, gradients); err != nil {
			return err
		}
		if err := s.products.Record(r, g, v.GradientVariant, i, weights, gradients); err != nil {
			return err
		}
	}
	return nil
}

// trial is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when causal.
func (s *program) trial(v variant) attn.Problem {
	small := kernel.TrialOf(&s.problem)
	queries, keys := s.products.Rows()
	t := &s.weights.Tile
	small.QueryLen = max(t.BlockRows(), queries) + t.Fragment.M/2 + 1
	small.KeyLen = max(2*t.BC, keys) + 3
	if !small.Masked() && s.problem.KeyLen%t.BC == 0 {
		small.KeyLen = attn.CeilDiv(small.KeyLen, t.BC) * t.BC
	}
	if v.alignedBias {
		small.KeyLen = attn.CeilDiv(small.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&small, &s.problem)
	return small
}

// try runs the kernels of a variant on a small problem and says what is wrong with the gradients.
func (s *program) try(v variant) (wrong string, err error) {
	p := s.trial(v)
	mine := &program{env: s.env, problem: p, weights: s.weights, pitch: standard.PitchOf(&p)}
	mine.slabs = []standard.Slab{{Heads: p.Batch * p.Heads, Rows: p.QueryLen}}
	mine.step = uint32(p.Batch * p.Heads * attn.CeilDiv(p.QueryLen, s.weights.Tile.BlockRows()))
	i := v.weights().index()
	mine.kernels[i].Store(s.kernels[i].Load()) // the very pipelines that are in question
	if mine.products, err = s.products.On(s.env, &p, mine.pitch); err != nil {
		return "", err
	}
	if mine.delta, err = kernel.NewDeltaProgram(s.env, &p, kernel.NewTuning(nil)); err != nil {
		return "", err
	}
	tried := v.GradientVariant
	if v.dBias {
		tried.With, tried.AlignedBy = "Bias", v.alignedBias
	}
	return s.env.TryBackward(&p, tried, nil, mine.Scratch(),
		func(r *kernel.Recorder, g *kernel.Gradients) error { return mine.run(r, g, v) })
}
