package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
)

// matrixStandardBackward is the backward pass of standard attention with its four products on cooperative matrices: those of
// forward for dP and dQ, and shaders/standard/standard_backward_product_matrix.comp for dV and dK.
var matrixStandardBackward = &backwardKernel{
	offer: offer{
		name:           "standard_backward_matrix",
		implementation: Standard,
		tier:           TierMatrix,
		can:            attn.WithDropout,
		parameters:     standardGradientRanges,
		reserved:       reservedOnCPU,
		unsupported:    matrixLacks,
	},
	plan: planMatrixStandardBackward,
}

func planMatrixStandardBackward(e *environment, p *Problem, forward program, t *tuning) (backwardProgram, error) {
	fragment, err := e.caps.chooseFragment(p.DType, t)
	if err != nil {
		return nil, err
	}
	if fragment.M%8 != 0 {
		return nil, &declined{why: fmt.Sprintf("its fragments need M to be a multiple of 8, and the device's are %v", fragment)}
	}
	shape, err := chooseStandardMatrixGradients(&e.caps, p, fragment, t)
	if err != nil {
		return nil, err
	}
	s, err := newStandardBackward(e, p, forward.(*standardProgram), shape, t)
	if err != nil {
		return nil, err
	}
	s.check = shape.verify
	// On a device of the caller's, whose queue recording must leave alone, the other variants are looked at now too.
	variants := []gradientVariant{s.dense()}
	if e.attached {
		for i := range 8 {
			v := gradientVariant{aligned: i&1 != 0, accumulate: i&2 != 0, dlse: i&4 != 0}
			if v != variants[0] && (variants[0].aligned || !v.aligned) {
				variants = append(variants, v)
			}
		}
	}
	for _, v := range variants {
		if err := s.build(v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// standardMatrixGradients is a standardBackwardShape: tiles of the forward kernels, each for the problem that has the shape of its
// product.
type standardMatrixGradients struct {
	weights standardMatrixTile // dP, and the rows of dS
	queries standardMatrixTile // dQ
	values  standardMatrixTile // dV: rows are keys
	keys    standardMatrixTile // dK, the same
}

// chooseStandardMatrixGradients takes the tiles aimed at, made smaller until they fit; overrides from t replace single numbers.
func chooseStandardMatrixGradients(c *capabilities, p *Problem, f matrixShape, t *tuning) (*standardMatrixGradients, error) {
	s := new(standardMatrixGradients)
	turned := *p // sums over queries
	turned.QueryLen, turned.KeyLen = p.KeyLen, p.QueryLen
	half := t.get("half", boolInt(halfAccumulators(c, p.DType, &f)))
	why := ""
	for _, x := range []struct {
		name string
		to   *standardMatrixTile
		p    Problem
		dim  int
		turn bool
	}{{"dp_", &s.weights, *p, p.ValueDim, false}, {"dq_", &s.queries, *p, p.HeadDim, false}, {"dv_", &s.values, turned, p.ValueDim, true}, {"dk_", &s.keys, turned, p.HeadDim, true}} {
		x.p.HeadDim, x.p.ValueDim = x.dim, x.dim
		var err error
		if *x.to, err = chooseStandardMatrixTile(c, &x.p, f, newTuning(map[string]int{"half": half})); err != nil {
			var bad *ArgumentError
			if len(t.given) == 0 && errors.As(err, &bad) { // half is not the caller's
				err = &declined{why: bad.Rule}
			}
			return nil, err
		}
		if x.to == &s.weights {
			x.to.scoresTile.override(t, x.name)
			why = x.to.scoresTile.check(x.name, x.to.scoresShared(), &f, c)
			continue
		}
		block, shared := &x.to.productTile, x.to.productShared
		if x.turn {
			shared = x.to.turnedShared
			for block.check("", shared(), &f, c) != "" && block.smaller(&f) {
			}
		}
		block.override(t, x.name)
		if rule := block.check(x.name, shared(), &f, c); rule != "" && why == "" {
			why = rule
		}
		if cols := block.cols(&f); cols < x.dim && why == "" {
			why = fmt.Sprintf("%swc·%sfc·n = %d must be at least the dimension %d", x.name, x.name, cols, x.dim)
		}
	}
	switch {
	case why == "":
		return s, nil
	case len(t.given) > 0:
		return nil, badArgument("WithBackwardTuning", fmt.Sprint(t.given), "%s", why)
	}
	return nil, &declined{why: why}
}

// override replaces the numbers of a block by those that the caller gave under the names with this prefix.
func (b *matrixBlock) override(t *tuning, name string) {
	b.WR, b.WC = t.get(name+"wr", b.WR), t.get(name+"wc", b.WC)
	b.FR, b.FC = t.get(name+"fr", b.FR), t.get(name+"fc", b.FC)
	b.stage = t.get(name+"stage", b.stage)
}

func (b *scoresBlock) override(t *tuning, name string) {
	b.WR, b.FR, b.FC, b.run = t.get(name+"wr", b.WR), t.get(name+"fr", b.FR), t.get(name+"fc", b.FC), t.get(name+"run", b.run)
}

// turnedShared is the length of shared memory of a sum over queries, in units of 16 bytes: of the matrix, whose rows are queries and
// whose columns are the block's rows, and of what it multiplies; later the strips of the result.
func (t *standardMatrixTile) turnedShared() int {
	b := &t.productTile
	return max(b.stage*(b.rows(&t.fragment)/8|1)+b.stage*(b.cols(&t.fragment)/8|1), b.strips(&t.fragment, t.wide()))
}

func (s *standardMatrixGradients) model() traffic.BackwardStandard {
	return traffic.BackwardStandard{Weights: s.weights.model().Scores, Scores: backwardRows(s.weights.rowThreads, s.weights.rowKeep),
		Values: s.values.model().Product, Queries: s.queries.model().Product, Keys: s.keys.model().Product}
}

func (s *standardMatrixGradients) String() string {
	f := &s.weights.fragment
	keys, _ := s.keys.productBlock()
	return fmt.Sprintf("dp %dx%d, dk %dx%d %v", s.weights.scoresTile.rows(f), s.weights.scoresTile.tile(f), keys, s.keys.productTile.stage, s.keys.fragment)
}

func (s *standardMatrixGradients) pace() pace { return s.weights.pace() }

func (s *standardMatrixGradients) block(part standardGradient) (rows, cols int) {
	switch part {
	case gradWeights:
		return s.weights.scoresBlock()
	case gradScores:
		return s.weights.softmaxRows(), 0
	case gradValues:
		rows, _ = s.values.productBlock()
	case gradQueries:
		rows, _ = s.queries.productBlock()
	case gradKeys:
		rows, _ = s.keys.productBlock()
	}
	return rows, 0
}

func (s *standardMatrixGradients) kernel(part standardGradient, p *Problem, v gradientVariant) standardKernel {
	switch part {
	case gradWeights:
		return s.weights.scores(p, v.aligned)
	case gradScores:
		rows, keys := s.queries.productBlock()
		return standardKernel{"standard_backward_softmax_subgroup." + p.DType.suffix(),
			backwardSoftmaxSpec(p, v, s.weights.rowThreads, s.weights.rowKeep, rows+keys, s.weights.fragment.Lanes), s.weights.subgroups()}
	case gradValues:
		return s.values.kernel("standard_backward_product_matrix", &s.values.productTile, p.ValueDim, s.values.turnedShared(), p, v.aligned, v.accumulate, true)
	case gradQueries:
		return s.queries.kernel("standard_product_matrix", &s.queries.productTile, p.HeadDim, s.queries.productShared(), p, v.aligned, v.accumulate, false)
	}
	return s.keys.kernel("standard_backward_product_matrix", &s.keys.productTile, p.HeadDim, s.keys.turnedShared(), p, v.aligned, v.accumulate, false)
}

// verify lets pipelines that were never run on this device and driver prove themselves on a small problem.
func (t *standardMatrixGradients) verify(s *standardBackwardProgram, v gradientVariant) error {
	var tried []compiled
	for part := range standardGradients {
		tried = append(tried, t.kernel(part, &s.problem, v).compiled())
	}
	return s.env.prove(fmt.Sprintf("standard_backward_matrix %v", t), tried, func() (string, error) { return t.try(s, v) })
}

// try runs the pipelines of a variant on a small problem, with ragged edges and the diagonal across its tiles when causal, on weights that
// the scalar tier kept. A row must not be longer than the kernel of dS keeps.
func (t *standardMatrixGradients) try(s *standardBackwardProgram, v gradientVariant) (wrong string, err error) {
	d, p := s.env, trialOf(&s.problem)
	rows, cols := t.weights.scoresBlock()
	queries, keys := t.queries.productBlock()
	values, valueStage := t.values.productBlock()
	keyRows, keyStage := t.keys.productBlock()
	p.QueryLen = max(rows, queries, valueStage, keyStage) + t.weights.fragment.M/2 + 1
	p.KeyLen = max(cols, 2*keys, values, keyRows) + 3
	if keep := backwardKeeps(t.weights.rowKeep); keep > 0 {
		p.KeyLen = min(p.KeyLen, 4*t.weights.rowThreads*keep)
	}
	forward, err := scalarStandard.plan(d, &p, newTuning(nil))
	if err != nil {
		return "", err
	}
	mine, err := newStandardBackward(d, &p, forward.(*standardProgram), t, newTuning(nil))
	if err != nil {
		return "", err
	}
	for part := range standardGradients { // the very pipelines that are in question, not others of the small problem
		mine.kernels[part][v.index()].Store(s.kernels[part][v.index()].Load())
	}
	return d.tryBackward(&p, v, forward, mine.scratch(), mine.run)
}
