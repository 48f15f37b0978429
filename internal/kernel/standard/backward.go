package standard

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// gradient is a kernel of the backward pass of standard attention.
type gradient int

// The kernels in the order in which they run on a slab; shaders/standard/standard_backward_softmax.comp tells the story.
const (
	gradWeights gradient = iota // dP = dO Vᵀ
	gradScores                  // δ, and dS = Scale P∘(dP − δ), in place of dP
	gradValues                  // dV = Pᵀ dO
	gradQueries                 // dQ = dS K
	gradKeys                    // dK = dSᵀ Q
	standardGradients
)

// againLabel is the label of the products q·k made again, where the derivative of score functions needs them.
const againLabel = "standard_s"

// Labels of their dispatches.
var standardGradientLabels = [standardGradients]string{"standard_dp", "standard_ds", "standard_dv", "standard_dq", "standard_dk"}

// standardBackwardShape is how those kernels divide a problem, and how they are built for it.
type standardBackwardShape interface {
	String() string
	pace() kernel.Pace                    // of the products
	block(part gradient) (rows, cols int) // of a workgroup; cols 0 where it has all
	Model() traffic.BackwardStandard      // without labels and slabs
	Kernel(part gradient, p *attn.Problem, v kernel.GradientVariant) pass.Stage
	selfCheck(p *attn.Problem) attn.Problem // a small problem, with ragged edges and the diagonal across its tiles when causal
}

// gradientTiles are tiles of the forward kernels of a tier, each for the problem that has the shape of its product.
type gradientTiles[T any, S interface {
	*T
	standardShape
	row() *softmaxTile
}] struct {
	weights T // dP, and the rows of dS
	queries T // dQ
	values  T // dV: rows are keys
	keys    T // dK, the same
}

func (t *gradientTiles[T, S]) Model() traffic.BackwardStandard {
	row := S(&t.weights).row()
	return traffic.BackwardStandard{Weights: S(&t.weights).Model().Scores, Scores: backwardRows(row.RowThreads, row.RowKeep),
		Values: S(&t.values).Model().Product, Queries: S(&t.queries).Model().Product, Keys: S(&t.keys).Model().Product}
}

func (t *gradientTiles[T, S]) pace() kernel.Pace { return S(&t.weights).pace() }

func (t *gradientTiles[T, S]) block(part gradient) (rows, cols int) {
	switch part {
	case gradWeights:
		return S(&t.weights).scoresBlock()
	case gradScores:
		return S(&t.weights).softmaxRows(), 0
	}
	rows, _ = S(t.tile(part)).productBlock()
	return rows, 0
}

// tile is that of one of the products that are sums.
func (t *gradientTiles[T, S]) tile(part gradient) *T {
	return map[gradient]*T{gradValues: &t.values, gradQueries: &t.queries, gradKeys: &t.keys}[part]
}

// small is a small problem for the kernels, of so many queries beyond the largest block, whose rows must not be longer than the kernel of
// dS keeps.
func (t *gradientTiles[T, S]) small(of *attn.Problem, beyond int) attn.Problem {
	p := kernel.SelfCheckOf(of)
	rows, cols := S(&t.weights).scoresBlock()
	queries, keys := S(&t.queries).productBlock()
	values, valueStage := S(&t.values).productBlock()
	keyRows, keyStage := S(&t.keys).productBlock()
	p.QueryLen = max(rows, queries, valueStage, keyStage) + beyond
	row := S(&t.weights).row()
	p.KeyLen = row.kept(max(cols, 2*keys, values, keyRows)+3, backwardKeeps(row.RowKeep))
	return p
}

// backwardProgram is the backward pass of standard attention fitted to a problem. P is what the forward pass kept, in the slabs of the
// plan's forward program.
type backwardProgram struct {
	*pass.Backward
	problem attn.Problem
	forward *Program
	shape   standardBackwardShape
	grids   [][standardGradients]kernel.Grid // by slab
	slopes  bool                             // score functions have a derivative with respect to scores, which stand in the workspace too
}

// planGradients fits the kernels of a name and shape to a problem. Those that are trusted prove themselves only with functions of the
// user's in them.
func planGradients(name string, trusted bool, e *kernel.Env, p *attn.Problem, forward *Program, shape standardBackwardShape,
	t *kernel.Tuning) (_ kernel.BackwardProgram, err error) {
	s, err := fitGradients(e, p, forward, shape, t)
	if err != nil {
		return nil, err
	}
	k := &pass.Fitted{Env: e, Problem: &s.problem, Name: fmt.Sprintf("%s %v", name, shape), Named: shape.String(), Moves: s.model(),
		Trusted: trusted, Apart: true, DLSE: true, Pass: s.pass}
	if !trusted || s.slopes { // other functions stand in forward's kernels alone
		k.SelfCheck = s.selfCheck
	}
	s.Backward, err = pass.NewBackward(k)
	return s, err
}

func fitGradients(e *kernel.Env, p *attn.Problem, forward *Program, shape standardBackwardShape,
	t *kernel.Tuning) (*backwardProgram, error) {
	s := &backwardProgram{problem: *p, forward: forward, shape: shape, slopes: p.Features()&attn.WithSlopes != 0}
	matrices, rule := uint64(2), "the device's memory, for the matrices P and dP"
	if s.slopes {
		matrices, rule = 3, "the device's memory, for the matrices P, dP and S"
	}
	var needed uint64
	for _, n := range forward.sizes {
		needed += matrices * n
	}
	if c := &e.Caps; !c.HasRoom(needed) {
		return nil, &pipeline.MemoryError{Label: "workspace", Needed: needed, Available: c.Memory(), Rule: rule}
	}
	for i := range forward.slabs {
		var g [standardGradients]kernel.Grid
		for part := range standardGradients {
			groups, flops, at := work(shape, p, &forward.slabs[i], part)
			var err error
			if g[part], err = kernel.GridFor(e, groups, flops, at, t); err != nil {
				return nil, err
			}
		}
		s.grids = append(s.grids, g)
	}
	return s, nil
}

// work is a kernel's workgroups over a slab, its operations, and the pace of them.
func work(shape standardBackwardShape, p *attn.Problem, b *Slab, part gradient) (groups uint64, flops float64, at kernel.Pace) {
	br, bc := shape.block(part)
	heads, rows := uint64(b.Heads), uint64(b.Heads)*uint64(b.Rows)
	pairs := float64(b.Heads) * float64(b.Rows) * float64(p.KeyLen)
	keyHeads := (b.Head0+b.Heads-1)/p.Group() - b.Head0/p.Group() + 1 // batch included, whose query heads the slab has
	queryBlocks, keyBlocks := heads*uint64(attn.CeilDiv(b.Rows, br)), uint64(keyHeads)*uint64(attn.CeilDiv(p.KeyLen, br))
	if !p.Packed.None() {
		queryBlocks = heads * kernel.RowBlocks{Rows: br}.Most(p)
		keyBlocks = uint64(keyHeads) * kernel.RowBlocks{Keys: true, Rows: br}.Most(p)
	}
	values, keys := 2*pairs*float64(max(64, p.ValueDim)), 2*pairs*float64(max(64, p.HeadDim))
	switch part {
	case gradWeights:
		return queryBlocks * uint64(attn.CeilDiv(p.KeyLen, bc)), values, shape.pace()
	case gradScores:
		return (rows + uint64(br) - 1) / uint64(br), 16 * pairs, kernel.ScalarPace
	case gradValues:
		return keyBlocks, values, shape.pace()
	case gradQueries:
		return queryBlocks, keys, shape.pace()
	}
	return keyBlocks, keys, shape.pace()
}

func (s *backwardProgram) model() traffic.Model {
	m := s.shape.Model()
	for part, label := range []*string{gradWeights: &m.Weights.Label, gradScores: &m.Scores.Label, gradValues: &m.Values.Label,
		gradQueries: &m.Queries.Label, gradKeys: &m.Keys.Label} {
		*label = standardGradientLabels[part]
	}
	if s.slopes {
		m.Again = s.forward.shape.Model().Scores
		m.Again.Label = againLabel
	}
	m.SlabHeads, m.SlabRows = s.forward.slabSize()
	return m
}

// pass is the kernels over every slab, in their order; with slopes the products q·k before them.
func (s *backwardProgram) pass(v pass.Variant) *pass.Pass {
	f, out := s.forward, &pass.Pass{Problem: &s.problem, Operands: attn.BackwardOperands[:]}
	names := []string{"dP"}
	if s.slopes { // S stands behind all of dP
		names = append(names, "S")
	}
	for _, name := range names {
		for i, size := range f.sizes {
			out.Scratch = append(out.Scratch, pass.Scratch{Name: fmt.Sprint(name, i), Bytes: size})
		}
	}
	products := f.shape.Scores(&f.problem, v.Output)
	var kernels [standardGradients]pass.Stage
	for part := range standardGradients {
		kernels[part] = s.shape.Kernel(part, &s.problem, kernel.GradientVariant{Aligned: v.Aligned, Accumulate: v.Accumulate, DLSE: v.LSE})
	}
	for i := range f.slabs {
		if s.slopes {
			products := f.scoresStage(products, againLabel, i, fmt.Sprint("S", i))
			products.Proves = false // with the forward pass it has
			out.Stages = append(out.Stages, products)
		}
		for part, k := range kernels {
			out.Stages = append(out.Stages, s.stage(gradient(part), k, v, i))
		}
	}
	out.Stages = again(out.Stages, len(out.Stages)/len(f.slabs))
	return out
}

// stage has a kernel work on slab i, whose P the forward pass has kept.
func (s *backwardProgram) stage(part gradient, k pass.Stage, v pass.Variant, i int) pass.Stage {
	weights, grads, g := pass.Kept(i), fmt.Sprint("dP", i), s.grids[i][part]
	label, args := standardGradientLabels[part], func(as pass.ArgsAs, x, y string) pass.Args { return s.forward.args(as, i, x, y) }
	switch part {
	case gradWeights:
		a, unscaled := args(pass.AsScores, "DO", "V"), s.problem
		unscaled.Scale, a.Problem = 1, &unscaled
		return withLengths(on(k, label, g, a, read("DO"), read("V"), pass.Bind{To: grads, Mode: pipeline.Write}), 0)
	case gradScores:
		k.Total = uint32(s.forward.slabs[i].Heads * s.forward.slabs[i].Rows)
		k = on(k, label, g, args(pass.AsRows, "DLSE", ""), read(weights), pass.Bind{To: grads, Mode: pipeline.ReadWrite},
			pass.Given("", "DLSE", v.LSE, pipeline.Read, weights))
		if s.slopes {
			raw := read(fmt.Sprint("S", i))
			raw.Name = "Raw"
			k.Bind = append(append(k.Bind, raw), pass.Scores(&s.problem, 0)...)
			return k
		}
		return withLengths(k, 0)
	}
	return product(part, k, v, g, args(pass.AsProduct, "", ""), weights, grads, 0)
}

// product is one of the sums over the slab in a, whose P and dS are bound by these names, with this table of packed sequences.
func product(part gradient, k pass.Stage, v pass.Variant, g kernel.Grid, a pass.Args, weights, grads string, table int) pass.Stage {
	matrix := grads
	switch part {
	case gradValues:
		matrix, a.X, a.Y = weights, "DO", "DV"
	case gradQueries:
		a.X, a.Y = "K", "DQ"
	case gradKeys:
		a.X, a.Y = "Q", "DK"
	}
	if part != gradQueries { // every slab behind the first may add to dK and dV
		v.Accumulate = v.Accumulate || a.Slab.Head0+a.Slab.Row0 > 0
	}
	return withLengths(on(k, standardGradientLabels[part], g, a, read(matrix), read(a.X), pass.Bind{To: a.Y, Mode: v.Written()}), table)
}

// selfCheck is the pass of a small problem, on weights that the scalar tier keeps.
func (s *backwardProgram) selfCheck(v pass.Variant) (*pass.Pass, error) {
	p, e := s.shape.selfCheck(&s.problem), s.forward.env
	forward, err := Scalar.Plan(e, &p, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	small, err := fitGradients(e, &p, forward.(*Program), s.shape, kernel.NewTuning(nil))
	if err != nil {
		return nil, err
	}
	out := small.pass(v)
	out.Follows = forward
	return out, nil
}

// Record has the products q·k, which are the forward pass's kernel, prove themselves with that.
func (s *backwardProgram) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	if s.slopes {
		if err := s.forward.readyScores(&g.Q, &g.K); err != nil {
			return err
		}
	}
	return s.Backward.Record(r, g)
}

// backwardKeeps is the number of pieces of P and of dP that an invocation keeps in registers, given the number that the softmax of the
// forward pass keeps: 0 where both would not fit, and rows are read twice.
func backwardKeeps(forward int) int {
	if forward > 8 {
		return 0
	}
	return forward
}

// backwardRows is the model of the kernel of dS.
func backwardRows(rowThreads, keep int) traffic.Rows {
	return traffic.Rows{ReadTwice: backwardKeeps(keep) == 0, Readers: rowThreads}
}

// BackwardSoftmaxSpec are the constants of standard_backward_softmax: rowThreads invocations share a row, and each keeps keep pieces of it;
// zero is the number of columns beyond a row's last key that the product reads. lanes is the size of a subgroup, 0 where none is used.
func BackwardSoftmaxSpec(p *attn.Problem, v kernel.GradientVariant, rowThreads, keep, zero, lanes int) kernel.Constants {
	return withLanes(kernel.Constants{"WG": softmaxThreads, "TPR": rowThreads, "KEEP": backwardKeeps(keep),
		"DLSE": kernel.BoolInt(v.DLSE), "ZERO": zero, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0),
	}.And(kernel.MaskConstants(p), kernel.SlopeConstants(p), kernel.LengthConstants(p)), lanes)
}

// withLanes appends the size of a subgroup, which the builds that use subgroups declare; lanes is 0 for the others.
func withLanes(c kernel.Constants, lanes int) kernel.Constants {
	if lanes == 0 {
		return c
	}
	return c.And(kernel.Constants{"SG": lanes})
}
