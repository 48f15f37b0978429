package standard

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
)

// MatrixBackward is the backward pass of standard attention with its four products on cooperative matrices: those of
// forward for dP and dQ, and shaders/standard/standard_backward_product_matrix.comp for dV and dK.
var MatrixBackward = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "standard_backward_matrix",
		Implementation: kernel.Standard,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can:            attn.WithDropout | attn.OfScores | attn.WithSinks | attn.WithLengths,
		Parameters:     gradientRanges,
		Reserved:       kernel.ReservedOnCPU,
		Unsupported:    kernel.MatrixLacks,
	},
	Plan: planMatrixBackward,
}

func planMatrixBackward(e *kernel.Env, p *attn.Problem, forward kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, err := e.Caps.ChooseFragment(p.DType, t)
	if err != nil {
		return nil, err
	}
	if err := turnable(fragment); err != nil {
		return nil, err
	}
	shape, err := ChooseMatrixGradients(&e.Caps, p, fragment, t)
	if err != nil {
		return nil, err
	}
	return planGradients("standard_backward_matrix", false, e, p, forward.(*Program), shape, t)
}

// turnable declines fragments that sums over queries cannot load column by column.
func turnable(f kernel.Fragment) error {
	if f.M%8 != 0 {
		return &kernel.Declined{Why: fmt.Sprintf("its fragments need M to be a multiple of 8, and the device's are %v", f)}
	}
	return nil
}

// matrixGradients is a standardBackwardShape.
type matrixGradients struct {
	gradientTiles[MatrixTile, *MatrixTile]
	// plainEdges: dV and dK take P and dS as they are where queries see some keys of a block alone, which must be 0 then as far as is read
	plainEdges bool
}

// ChooseMatrixGradients takes the tiles aimed at, made smaller until they fit; overrides from t replace single numbers.
func ChooseMatrixGradients(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, t *kernel.Tuning) (*matrixGradients, error) {
	return chooseMatrixGradients(c, p, f, t, true)
}

// chooseMatrixGradients leaves the tile of dP out where weights is not set.
func chooseMatrixGradients(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, t *kernel.Tuning,
	weights bool) (*matrixGradients, error) {
	s := new(matrixGradients)
	turned := *p // sums over queries
	turned.QueryLen, turned.KeyLen = p.KeyLen, p.QueryLen
	half := t.Get("half", kernel.BoolInt(halfAccumulators(c, p.DType, &f)))
	why := ""
	for _, x := range []struct {
		name string
		to   *MatrixTile
		p    attn.Problem
		dim  int
		turn bool
	}{{"dp_", &s.weights, *p, p.ValueDim, false}, {"dq_", &s.queries, *p, p.HeadDim, false}, {"dv_", &s.values, turned, p.ValueDim, true},
		{"dk_", &s.keys, turned, p.HeadDim, true}} {
		if x.to == &s.weights && !weights {
			continue
		}
		x.p.HeadDim, x.p.ValueDim = x.dim, x.dim
		var err error
		if *x.to, err = tileOf(c, &x.p, f, half, t); err != nil {
			return nil, err
		}
		if x.to == &s.weights {
			x.to.scoresTile.override(t, x.name)
			why = x.to.scoresTile.check(x.name, x.to.scoresShared(), &f, c)
			continue
		}
		if rule := x.to.finish(c, x.dim, x.turn, x.name, t); why == "" {
			why = rule
		}
	}
	if why != "" {
		return nil, t.NoTile(why)
	}
	return s, nil
}

// tileOf takes the tile aimed at for a product that is a problem's, with accumulators of fp16 for the way out or not.
func tileOf(c *kernel.Capabilities, p *attn.Problem, f kernel.Fragment, half int, t *kernel.Tuning) (MatrixTile, error) {
	own := kernel.NewTuning(map[string]int{"half": half})
	tile, err := ChooseMatrixTile(c, p, f, own)
	if err != nil {
		var bad *attn.ArgumentError
		if len(t.Given) == 0 && errors.As(err, &bad) { // half is not the caller's
			err = &kernel.Declined{Why: bad.Rule}
		}
		return tile, err
	}
	for _, r := range own.Rows {
		t.Took(r)
	}
	return tile, nil
}

// finish makes the block of a sum of dim columns smaller until it fits, if the matrix is turned over, which takes more shared memory, and
// replaces single numbers by the caller's, whose names begin with name. It gives the rule that the block breaks then, "" when it breaks
// none.
func (t *MatrixTile) finish(c *kernel.Capabilities, dim int, turn bool, name string, tuning *kernel.Tuning) string {
	f, block, shared := &t.fragment, &t.ProductTile, t.productShared
	if turn {
		shared = t.turnedShared
		for block.check("", shared(), f, c) != "" && block.smaller(f) {
		}
	}
	block.override(tuning, name)
	if rule := block.check(name, shared(), f, c); rule != "" {
		return rule
	}
	if cols := block.across * block.cols(f); cols < dim {
		return fmt.Sprintf("%swc·%sfc·n = %d must be at least the dimension %d", name, name, cols, dim)
	}
	return ""
}

// override replaces the numbers of a block by those that the caller gave under the names with this prefix.
func (b *matrixBlock) override(t *kernel.Tuning, name string) {
	b.WR, b.WC = t.Get(name+"wr", b.WR), t.Get(name+"wc", b.WC)
	b.FR, b.FC = t.Get(name+"fr", b.FR), t.Get(name+"fc", b.FC)
	b.stage = t.Get(name+"stage", b.stage)
}

func (b *scoresBlock) override(t *kernel.Tuning, name string) {
	b.WR, b.FR, b.FC, b.run = t.Get(name+"wr", b.WR), t.Get(name+"fr", b.FR), t.Get(name+"fc", b.FC), t.Get(name+"run", b.run)
}

// turnedShared is the length of shared memory of a sum over queries, in units of 16 bytes: of the matrix, whose rows are queries and
// whose columns are the block's rows, and of what it multiplies; later the strips of the result.
func (t *MatrixTile) turnedShared() int {
	b := &t.ProductTile
	return max(b.stage*(b.rows(&t.fragment)/8|1)+b.stage*(b.cols(&t.fragment)/8|1), b.strips(&t.fragment, t.wide()))
}

func (s *matrixGradients) String() string {
	f := &s.weights.fragment
	keys, _ := s.keys.productBlock()
	return fmt.Sprintf("dp %dx%d, dk %dx%d %v", s.weights.scoresTile.rows(f), s.weights.scoresTile.Tile(f), keys, s.keys.ProductTile.stage,
		s.keys.fragment)
}

func (s *matrixGradients) Kernel(part gradient, p *attn.Problem, v kernel.GradientVariant) pass.Stage {
	switch part {
	case gradWeights:
		return s.weights.Scores(p, v.Aligned)
	case gradScores:
		return pass.Stage{Module: "standard_backward_softmax_subgroup." + p.DType.Suffix(), Made: s.weights.subgroups(),
			Constants: BackwardSoftmaxSpec(p, v, s.weights.RowThreads, s.weights.RowKeep, p.Mask().ReadBehind(s.queries.productBlock()),
				s.weights.fragment.Lanes)}
	case gradValues:
		return s.sum(&s.values, p.ValueDim, p, v, true)
	case gradQueries:
		return s.queries.Kernel("standard_product_matrix", &s.queries.ProductTile, p.HeadDim, s.queries.productShared(), p, v.Aligned,
			v.Accumulate, false)
	}
	return s.sum(&s.keys, p.HeadDim, p, v, false)
}

// sum is the kernel of a sum over queries, of P if weights, else of dS.
func (s *matrixGradients) sum(t *MatrixTile, dim int, p *attn.Problem, v kernel.GradientVariant, weights bool) pass.Stage {
	k := t.Kernel("standard_backward_product_matrix", &t.ProductTile, dim, t.turnedShared(), p, v.Aligned, v.Accumulate, weights)
	return ofSum(k, s.plainEdges, 0)
}

// ofSum adds the constants that a sum over rows of a matrix has beside those of other products; with turned heads that go side by side the
// matrix is dSᵀ.
func ofSum(k pass.Stage, plainEdges bool, turned int) pass.Stage {
	k.Constants = k.Constants.And(kernel.Constants{"PLAIN_EDGES": kernel.BoolInt(plainEdges), "TURNED": kernel.BoolInt(turned > 0),
		"TOGETHER": max(turned, 1)})
	return k
}

func (s *matrixGradients) selfCheck(of *attn.Problem) attn.Problem {
	return s.small(of, s.weights.fragment.M/2+1)
}

// productsString names the products alone.
func (s *matrixGradients) productsString() string {
	keys, _ := s.keys.productBlock()
	queries, _ := s.queries.productBlock()
	return fmt.Sprintf("dk %dx%d, dq %dx%d", keys, s.keys.ProductTile.stage, queries, s.queries.ProductTile.stage)
}
