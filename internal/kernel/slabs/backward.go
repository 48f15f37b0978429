package slabs

import (
	"fmt"
	"math"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/traffic"
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
		MostDim:        attn.MostDim,
		Parameters: kernel.FormRanges.And(kernel.GroupBound, matrix.WeightsRanges, standard.ProductRanges,
			kernel.Parameters{kernel.SlabsParameter: kernel.OnOff, kernel.KeepDSParameter: kernel.OnOff}),
		Can:         attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked,
		Yields:      true, // to the kernels that keep P and dS to themselves
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: matrix.BackwardLacks,
	},
	Plan: plan,
}

const name = "matrix_backward_slabs"

// widthOfSums is the head dimension up to which registers have room for sums and operands.
const widthOfSums = 128

// Parts of the device's memory that P and dS may take, and of wide heads, which have no other kernel on matrices.
const (
	memoryShare     = 64
	wideMemoryShare = 16
)

func plan(e *kernel.Env, problem *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(problem.DType, t)
	if err != nil {
		return nil, err
	}
	s, err := fit(e, problem, fragment, &layout, form, t)
	if err != nil {
		return nil, err
	}
	named := fmt.Sprintf("weights %v, %v %v form %d", &s.weights.Tile, s.products, fragment, form)
	return pass.NewBackward(&pass.Fitted{Env: e, Problem: s.problem, Name: name + " " + named, Named: named, Moves: s.model(),
		WholeBias: layout.PairsOfBias(s.problem, form), DBias: s.weights.MakesBias(), DLSE: true, Pass: s.pass, SelfCheck: s.selfCheck})
}

// fitted is the kernels fitted to a problem.
type fitted struct {
	env      *kernel.Env
	problem  *attn.Problem
	delta    *kernel.DeltaProgram
	weights  *matrix.Weights
	products *standard.Products
	slabs    []slab
}

// slab is some heads of P and dS, and the workgroups of the kernels over it.
type slab struct {
	standard.Slab
	weights  kernel.Grid
	products standard.ProductGrids
}

func fit(e *kernel.Env, problem *attn.Problem, f kernel.Fragment, l *kernel.FragmentLayout, form int, t *kernel.Tuning) (*fitted, error) {
	p := *problem
	if t.Get(kernel.KeepDSParameter, 0) != 0 {
		return nil, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.KeepDSParameter + "] asks for dS in memory"}
	}
	asked, given := t.Given[kernel.SlabsParameter]
	weights, taken, err := matrix.ChooseWeights(&e.Caps, &p, l, f, form, t)
	if err != nil {
		return nil, err
	}
	switch narrow := max(p.HeadDim, p.ValueDim) <= widthOfSums; {
	case !p.Bias.None() && !weights.MakesBias() && !kernel.IsWide(&p):
		taken = false // what a bias gains is that its gradient needs no kernel of its own
	case p.Padded() && narrow:
		taken = false // not measured: registers have room
	}
	switch use := t.Get(kernel.SlabsParameter, kernel.BoolInt(taken)); {
	case use == 0 && given:
		return nil, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.SlabsParameter + "] is 0"}
	case use == 0:
		return nil, &kernel.Declined{Why: "P and dS in memory are not measured to be faster here; WithBackwardTuning[" +
			kernel.SlabsParameter + "] = 1 insists"}
	}
	products, err := standard.ChooseProducts(&e.Caps, &p, f, t)
	if err != nil {
		return nil, err
	}
	if t.Get(standard.PlainEdgesParameter, 1) != 0 {
		products.TakePlainEdges()
	}
	slabs, err := cut(&e.Caps, &p, t)
	if err != nil {
		if asked != 0 {
			return nil, t.Bad(kernel.SlabsParameter, "cannot be: %v", err)
		}
		return nil, &kernel.Declined{Why: err.Error()}
	}
	s := &fitted{env: e, problem: &p, weights: weights, products: products}
	grid, err := kernel.GridFor(e, s.groups(), 2*kernel.PaddedFLOPs(&p), kernel.MatrixPace, t)
	if err != nil {
		return nil, err
	}
	return s, s.over(slabs, grid.Step, t)
}

// groups are the workgroups of weights over all slabs.
func (s *fitted) groups() uint64 {
	p := s.problem
	return s.weights.Blocks().Most(p) * uint64(p.Heads)
}

// heads are the query heads of a slab with all of them, and how many rows each has: of packed sequences those of all sequences.
func heads(p *attn.Problem) (heads, rows int) {
	if !p.Packed.None() {
		return p.Heads, int(p.QueryRows())
	}
	return p.Batch * p.Heads, p.QueryLen
}

// tables are how rows of packed sequences are cut, each way once, and which of these ways is each product's. The first is that of weights:
// blocks of as many rows are the same, whatever a kernel walks over, but for their order.
func (s *fitted) tables() (all []kernel.RowBlocks, products [3]int) {
	all = []kernel.RowBlocks{s.weights.Blocks().Over(s.slabs[0].weights, 1, false)}
	for i, b := range s.products.Blocks() {
		at := slices.IndexFunc(all, func(a kernel.RowBlocks) bool { return a.Keys == b.Keys && a.Rows == b.Rows })
		if at < 0 {
			at, all = len(all), append(all, b.Over(s.slabs[0].products[i], 1, false))
		}
		products[i] = at
	}
	return all, products
}

// over fits the kernels to slabs; a dispatch of weights has step workgroups at most.
func (s *fitted) over(slabs []standard.Slab, step uint32, t *kernel.Tuning) (err error) {
	if s.delta, err = kernel.NewDeltaProgram(s.env, s.problem, t); err != nil {
		return err
	}
	s.slabs = nil
	for _, b := range slabs {
		products, err := s.products.Grids(s.env, s.problem, &b, t)
		if err != nil {
			return err
		}
		s.slabs = append(s.slabs, slab{b, s.weights.Grid(s.problem, &b, step), products})
	}
	return nil
}

// cut makes slabs of P and dS of whole key heads, as even as can be.
func cut(c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning) ([]standard.Slab, error) {
	share := uint64(memoryShare)
	if kernel.IsWide(p) {
		share = wideMemoryShare
	}
	all, rows := heads(p)
	rowBytes, most := uint64(standard.PitchOf(p)*p.DType.Size()), min(c.Memory()/share/2, standard.LargestSlab(c, t))
	if _, err := fits("P", p.Group(), rows, rowBytes, most); err != nil {
		return nil, err
	}
	group := p.Group()
	slabs, err := standard.CutSlabs(all/group, group*rows, rowBytes, most)
	for i, b := range slabs { // of key heads, whose rows are those of their query heads
		slabs[i] = standard.Slab{Head0: b.Head0 * group, Heads: b.Heads * group, Rows: rows}
	}
	return slabs, err
}

// fits is the bytes of a matrix of the heads of a key head, group of them, each of rows rows of rowBytes bytes. The error says that they
// are more than most.
func fits(name string, group, rows int, rowBytes, most uint64) (uint64, error) {
	needed, ok := standard.ScoreBytes(group, rows, rowBytes)
	if !ok {
		needed = math.MaxUint64
	}
	if needed > most {
		return 0, fmt.Errorf("%s of the heads of a key head takes %d bytes, and %d are left for it", name, needed, most)
	}
	return needed, nil
}

func (s *fitted) model() traffic.Model {
	m := traffic.BackwardSlabs{Delta: kernel.DeltaLabel, Weights: s.weights.Model(s.problem), Behind: s.products.Behind(s.problem),
		DBias: s.weights.MakesBias()}
	m.Values, m.Queries, m.Keys = s.products.Models()
	return m
}

// pass is the row term, then for every slab the kernel of weights and the products.
func (s *fitted) pass(v pass.Variant) *pass.Pass {
	const weights, gradients = "P", "dS"
	p, pitch, first := s.problem, standard.PitchOf(s.problem), &s.slabs[0]
	bytes := uint64(first.Heads) * uint64(first.Rows) * uint64(pitch) * uint64(p.DType.Size())
	blocks, tables := s.tables()
	out := pass.BackwardOf(s.env, p, s.delta, v, []pass.Scratch{{Name: weights, Bytes: bytes}, {Name: gradients, Bytes: bytes}}, blocks...)
	constants := s.weights.Constants(p, v, first.Heads, s.products.Behind(p))
	for i := range s.slabs {
		b := &s.slabs[i]
		a := pass.Args{As: pass.AsProduct, Problem: p, Slab: b.Slab, Pitch: pitch}
		stages := append([]pass.Stage{s.weights.Stage(v, constants, b.weights, a, weights, gradients)},
			s.products.Stages(v, &b.products, a, weights, gradients, tables)...)
		out.Stages = append(out.Stages, over(i, stages)...)
	}
	return out
}

// over is the stages over slab i: over those behind the first they have its pipelines.
func over(i int, stages []pass.Stage) []pass.Stage {
	if i > 0 {
		for j := range stages {
			stages[j].Again = len(stages)
		}
	}
	return stages
}

// selfCheck is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when
// causal.
func (s *fitted) selfCheck(v pass.Variant) (*pass.Pass, error) {
	p, small := kernel.SelfCheckOf(s.problem), *s
	small.problem = &p
	queries, keys := s.products.Rows()
	t := &s.weights.Tile
	p.QueryLen = max(t.BlockRows(), queries) + t.Fragment.M/2 + 1
	p.KeyLen = max(2*t.BC, keys) + 3
	if !p.Masked() && s.problem.KeyLen%t.BC == 0 {
		p.KeyLen = attn.CeilDiv(p.KeyLen, t.BC) * t.BC
	}
	if v.AlignedDBias {
		p.KeyLen = attn.CeilDiv(p.KeyLen, 8) * 8
	}
	kernel.GrowForBias(&p, s.problem)
	kernel.PackSelfCheck(&p)
	all, rows := heads(&p)
	whole := []standard.Slab{{Heads: all, Rows: rows}}
	if err := small.over(whole, uint32(small.groups()), kernel.NewTuning(nil)); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}
