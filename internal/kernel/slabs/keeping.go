package slabs

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/traffic"
)

// BackwardKeeping is the backward pass on cooperative matrices in five products, as FlashAttention-2's (Dao 2023, algorithm 2), with
// nothing added by atomics: shaders/common/backward_delta.comp; matrix_backward_kv.comp, which sums dK and dV and leaves dSᵀ in memory; and
// dQ as a product of that. It writes and reads one matrix where Backward has two, and the kernels of matrix.Backward make seven products.
// What stands in memory is bounded: some heads at a time, of a share of the device's memory.
var BackwardKeeping = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           keepingName,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        widthOfSums,
		Parameters: kernel.FormRanges.And(kernel.GroupBound, matrix.KeysRanges, standard.TurnedRanges,
			kernel.Parameters{kernel.KeepDSParameter: kernel.OnOff, kernel.SlabsParameter: kernel.OnOff}),
		Can:         attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked,
		Yields:      true, // to the kernels that keep dS to themselves
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: matrix.BackwardLacks,
	},
	Candidates: matrix.KeysCandidates,
	Plan:       planKeeping,
}

const keepingName = "matrix_backward_keeping"

func planKeeping(e *kernel.Env, problem *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(problem.DType, t)
	if err != nil {
		return nil, err
	}
	s, err := fitKeeping(e, problem, fragment, &layout, form, t)
	if err != nil {
		return nil, err
	}
	named := fmt.Sprintf("kv %v, %v %v form %d", &s.keys.Tile, s.product, fragment, form)
	return pass.NewBackward(&pass.Fitted{Env: e, Problem: s.problem, Name: keepingName + " " + named, Named: named, Moves: s.model(),
		DLSE: true, Pass: s.pass, SelfCheck: s.selfCheck})
}

// keeping is the kernels fitted to a problem.
type keeping struct {
	env     *kernel.Env
	problem *attn.Problem
	delta   *kernel.DeltaProgram
	keys    *matrix.Keys
	product *standard.Turned
	slabs   []keptSlab
}

// keptSlab is some heads of dSᵀ, whose rows are keys, and the workgroups of the kernels over it.
type keptSlab struct {
	standard.Slab
	keys, product kernel.Grid
}

func fitKeeping(e *kernel.Env, problem *attn.Problem, f kernel.Fragment, l *kernel.FragmentLayout, form int,
	t *kernel.Tuning) (*keeping, error) {
	p := *problem
	if !p.Bias.None() {
		return nil, &kernel.Declined{Why: "of a bias the gradient is made by other kernels"}
	}
	if t.Get(kernel.SlabsParameter, 0) != 0 {
		return nil, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.SlabsParameter + "] asks for P and dS in memory"}
	}
	asked, given := t.Given[kernel.KeepDSParameter]
	if given && asked == 0 {
		return nil, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.KeepDSParameter + "] is 0"}
	}
	keys, taken, err := matrix.ChooseKeys(&e.Caps, &p, l, f, form, t)
	if err != nil {
		return nil, err
	}
	if form != kernel.FormRegisters || !l.PairsOfOperands() {
		return nil, &kernel.Declined{Why: "it leaves operands in memory as registers hold them, by pairs, which is known of form 1 alone"}
	}
	slower := &kernel.Declined{Why: "dS in memory is not measured to be faster here; WithBackwardTuning[" + kernel.KeepDSParameter +
		"] = 1 insists"}
	if !given && !taken { // before rules about the product, which nobody asked for
		return nil, slower
	}
	product, err := standard.ChooseTurned(&e.Caps, &p, f, keys.Unit(p.DType), t)
	if err != nil {
		return nil, err
	}
	// Blocks of the product are large: where there are few, the kernel of queries, which has smaller ones for them, is faster.
	all, _ := heads(&p)
	enough := product.Groups(all) > 2*uint64(e.Caps.Prediction().Few)
	if t.Get(kernel.KeepDSParameter, kernel.BoolInt(enough)) == 0 {
		return nil, slower
	}
	slabs, err := cutByPowers(&p, product.HeadBytes(), min(e.Caps.Memory()/memoryShare, standard.LargestSlab(&e.Caps, t)))
	if err != nil {
		if asked != 0 {
			return nil, t.Bad(kernel.KeepDSParameter, "cannot be: %v", err)
		}
		return nil, &kernel.Declined{Why: err.Error()}
	}
	s := &keeping{env: e, problem: &p, keys: keys, product: product}
	grid, err := kernel.GridFor(e, keys.Groups(&p), 4*kernel.PaddedFLOPs(&p), kernel.MatrixPace, t)
	if err != nil {
		return nil, err
	}
	return s, s.over(slabs, grid.Step, t)
}

// cutByPowers makes slabs of dSᵀ of whole key heads, of at most most bytes, each of a power of two of them but for the last: kernels are
// told the exponent.
func cutByPowers(p *attn.Problem, headBytes, most uint64) (slabs []standard.Slab, err error) {
	needed, err := fits("dS", p.Group(), 1, headBytes, most)
	if err != nil {
		return nil, err
	}
	queryHeads, _ := heads(p)
	each, all := 1, queryHeads/p.Group()
	for each < all && uint64(min(2*each, all))*needed <= most {
		each *= 2
	}
	for h := 0; h < all; h += each {
		slabs = append(slabs, standard.Slab{Head0: h * p.Group(), Heads: min(each, all-h) * p.Group(), Rows: p.KeyLen})
	}
	return slabs, nil
}

// over fits the kernels to slabs; a dispatch of the kernel of keys has step workgroups at most.
func (s *keeping) over(slabs []standard.Slab, step uint32, t *kernel.Tuning) (err error) {
	if s.delta, err = kernel.NewDeltaProgram(s.env, s.problem, t); err != nil {
		return err
	}
	s.slabs = nil
	for _, b := range slabs {
		product, err := s.product.Grid(s.env, &b, t)
		if err != nil {
			return err
		}
		s.slabs = append(s.slabs, keptSlab{b, s.keys.Grid(s.problem, &b, step), product})
	}
	return nil
}

func (s *keeping) model() traffic.Model {
	t := &s.keys.Tile
	return traffic.BackwardKeeping{Delta: kernel.DeltaLabel, Keys: s.keys.Model(s.problem), Queries: s.product.Model(),
		OperandKeys: t.Fragment.M, OperandQueries: t.Fragment.K, SubgroupKeys: t.RM * t.Fragment.M, ChunkQueries: t.CK}
}

// pass is the row term, then for every slab the kernel of keys and the product.
func (s *keeping) pass(v pass.Variant) *pass.Pass {
	const gradients, tableOfQueries = "dS", 1 // behind that of keys
	p, first := s.problem, &s.slabs[0]
	bytes := uint64(first.Heads) * s.product.HeadBytes()
	out := pass.BackwardOf(s.env, p, s.delta, v, []pass.Scratch{{Name: gradients, Bytes: bytes}},
		s.keys.Blocks().Over(first.keys, 1, false), s.product.Blocks().Over(first.product, 1, false))
	constants, together := s.keys.Constants(p, v, first.Heads), s.keys.Together(p, first.Heads)*p.Group()
	for i := range s.slabs {
		b := &s.slabs[i]
		out.Stages = append(out.Stages, over(i, []pass.Stage{s.keys.Stage(p, v, constants, b.keys, first.Slab, gradients),
			s.product.Stage(v, b.product, b.Slab, gradients, together, tableOfQueries)})...)
	}
	return out
}

// selfCheck is a small problem for the kernels: some blocks of rows and columns, the last ones ragged, the diagonal across them when
// causal.
func (s *keeping) selfCheck(v pass.Variant) (*pass.Pass, error) {
	p, small := kernel.SelfCheckOf(s.problem), *s
	small.problem = &p
	queries, keys := s.product.Rows()
	t := &s.keys.Tile
	p.QueryLen = max(2*t.BC, queries) + t.Fragment.M/2 + 1
	p.KeyLen = max(t.BlockRows(), keys) + t.Fragment.M/2 + 3
	kernel.PackSelfCheck(&p)
	small.product = s.product.For(&p)
	all, _ := heads(&p)
	whole := []standard.Slab{{Heads: all, Rows: p.KeyLen}}
	if err := small.over(whole, uint32(s.keys.Groups(&p)), kernel.NewTuning(nil)); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}
