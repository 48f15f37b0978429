package standard

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
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
	Kernel(part gradient, p *attn.Problem, v kernel.GradientVariant) standardKernel
	trial(p *attn.Problem) attn.Problem // a small problem, with ragged edges and the diagonal across its tiles when causal
}

// BackwardProgram is the backward pass of standard attention fitted to a problem. P is what the forward pass kept, in the
// slabs of the plan's forward program.
type BackwardProgram struct {
	env     *kernel.Env
	problem attn.Problem
	forward *Program
	shape   standardBackwardShape
	grids   [][standardGradients]kernel.Grid // by slab
	runs    int                              // Dispatches in all
	slopes  bool                             // score functions have a derivative by scores, which stand in the workspace too

	// check looks at the kernels of a variant before their first use; nil where none is needed.
	check func(v kernel.GradientVariant) error

	kernels [standardGradients][8]atomic.Pointer[pipeline.Kernel] // by variant
	checked [8]atomic.Bool                                        // the same
}

func newStandardBackward(e *kernel.Env, p *attn.Problem, forward *Program, shape standardBackwardShape,
	t *kernel.Tuning) (*BackwardProgram, error) {
	s := &BackwardProgram{env: e, problem: *p, forward: forward, shape: shape, slopes: p.Features()&attn.WithSlopes != 0}
	var err error
	matrices, rule := uint64(2), "the device's memory, for the matrices P and dP"
	if s.slopes {
		matrices, rule = 3, "the device's memory, for the matrices P, dP and S"
	}
	var needed uint64
	for _, n := range forward.sizes {
		needed += matrices * n
	}
	if memory := e.Caps.Memory(); needed > memory {
		return nil, &pipeline.MemoryError{Label: "workspace", Needed: needed, Available: memory, Rule: rule}
	}
	for i := range forward.slabs {
		b := &forward.slabs[i]
		var g [standardGradients]kernel.Grid
		for part := range standardGradients {
			if g[part], err = s.grid(b, part, t); err != nil {
				return nil, err
			}
			s.runs += g[part].Dispatches()
		}
		if s.slopes {
			s.runs += forward.grids[i].scores.Dispatches()
		}
		s.grids = append(s.grids, g)
	}
	return s, nil
}

// grid is a kernel's workgroups over a slab.
func (s *BackwardProgram) grid(b *Slab, part gradient, t *kernel.Tuning) (kernel.Grid, error) {
	groups, flops, at := s.work(b, part)
	return kernel.GridFor(s.env, groups, flops, at, t)
}

// work is a kernel's workgroups over a slab, its operations, and the pace of them.
func (s *BackwardProgram) work(b *Slab, part gradient) (groups uint64, flops float64, at kernel.Pace) {
	p := &s.problem
	br, bc := s.shape.block(part)
	heads, rows := uint64(b.Heads), uint64(b.Heads)*uint64(b.Rows)
	pairs := float64(b.Heads) * float64(b.Rows) * float64(p.KeyLen)
	queryBlocks, keyBlocks := heads*uint64(attn.CeilDiv(b.Rows, br)), uint64(b.keyHeads(p.Group()))*uint64(attn.CeilDiv(p.KeyLen, br))
	values, keys := 2*pairs*float64(max(64, p.ValueDim)), 2*pairs*float64(max(64, p.HeadDim))
	switch part {
	case gradWeights:
		return queryBlocks * uint64(attn.CeilDiv(p.KeyLen, bc)), values, s.shape.pace()
	case gradScores:
		return (rows + uint64(br) - 1) / uint64(br), 16 * pairs, kernel.ScalarPace
	case gradValues:
		return keyBlocks, values, s.shape.pace()
	case gradQueries:
		return queryBlocks, keys, s.shape.pace()
	}
	return keyBlocks, keys, s.shape.pace()
}

// keyHeads is the number of key heads, batch included, whose query heads a slab has.
func (b *Slab) keyHeads(group int) int { return (b.Head0+b.Heads-1)/group - b.Head0/group + 1 }

func (s *BackwardProgram) Tile() string    { return s.shape.String() }
func (s *BackwardProgram) Dispatches() int { return s.runs }

func (s *BackwardProgram) Model() traffic.Model {
	m := s.shape.Model()
	for part, label := range []*string{gradWeights: &m.Weights.Label, gradScores: &m.Scores.Label, gradValues: &m.Values.Label,
		gradQueries: &m.Queries.Label, gradKeys: &m.Keys.Label} {
		*label = standardGradientLabels[part]
	}
	if s.slopes {
		m.Again = s.forward.Shape.Model().Scores
		m.Again.Label = againLabel
	}
	m.SlabHeads, m.SlabRows = s.forward.slabSize()
	return m
}

// Scratch is dP, in slabs as P, and then with slopes S as well.
func (s *BackwardProgram) Scratch() []uint64 {
	if s.slopes {
		return slices.Concat(s.forward.sizes, s.forward.sizes)
	}
	return s.forward.sizes
}

// dense is the variant of dense tensors, gradients overwritten, without dlse: the usual case.
func (s *BackwardProgram) dense() kernel.GradientVariant {
	size := s.problem.DType.Size()
	return kernel.GradientVariant{Aligned: s.problem.HeadDim*size%16 == 0 && s.problem.ValueDim*size%16 == 0}
}

// build makes the pipelines of a variant, built and checked at the first call.
func (s *BackwardProgram) build(v kernel.GradientVariant) error {
	i := v.Index()
	if s.checked[i].Load() {
		return nil
	}
	var makes []func() error
	for part := range standardGradients {
		makes = append(makes, func() error { return s.buildPart(part, v) })
	}
	if err := kernel.Together(makes...); err != nil {
		return err
	}
	if s.check != nil {
		if err := s.check(v); err != nil {
			return err
		}
	}
	s.checked[i].Store(true)
	return nil
}

// buildPart makes the pipeline of a kernel for a variant.
func (s *BackwardProgram) buildPart(part gradient, v kernel.GradientVariant) error {
	w := s.shape.Kernel(part, &s.problem, v)
	_, err := s.env.Variant(&s.kernels[part][v.Index()], w.module, &s.problem,
		func() (kernel.Constants, pipeline.KernelInfo) { return w.Spec, w.info })
	return err
}

// usual builds the usual variant. Where variants are checked, on a device of the caller's, whose queue recording must leave alone, the
// others are looked at now too.
func (s *BackwardProgram) usual() error {
	dense := s.dense()
	err := s.build(dense)
	if !s.env.Attached || s.check == nil {
		return err
	}
	for i := range 8 {
		v := kernel.GradientVariant{Aligned: i&1 != 0, Accumulate: i&2 != 0, DLSE: i&4 != 0}
		if err == nil && (dense.Aligned || !v.Aligned) {
			err = s.build(v)
		}
	}
	return err
}

// verify lets pipelines of the kernels of a name that were never run on this device and driver prove themselves on a small problem, on
// weights that the scalar tier keeps.
func (s *BackwardProgram) verify(name string, v kernel.GradientVariant) error {
	var tried []kernel.Compiled
	for part := range standardGradients {
		tried = append(tried, s.shape.Kernel(part, &s.problem, v).Compiled(&s.problem))
	}
	return s.env.Prove(fmt.Sprintf("%s %v", name, s.shape), tried, func() (wrong string, err error) {
		p := s.shape.trial(&s.problem)
		forward, err := Scalar.Plan(s.env, &p, kernel.NewTuning(nil))
		if err != nil {
			return "", err
		}
		mine, err := newStandardBackward(s.env, &p, forward.(*Program), s.shape, kernel.NewTuning(nil))
		if err != nil {
			return "", err
		}
		for part := range standardGradients { // the very pipelines that are in question, not others of the small problem
			mine.kernels[part][v.Index()].Store(s.kernels[part][v.Index()].Load())
		}
		return s.env.TryBackward(&p, v, forward, mine.Scratch(), mine.run)
	})
}

func (s *BackwardProgram) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	if err := s.build(g.Variant()); err != nil {
		return err
	}
	return s.run(r, g)
}

// run records the dispatches with the pipelines that are there.
func (s *BackwardProgram) run(r *kernel.Recorder, g *kernel.Gradients) error {
	for i := range s.forward.slabs {
		if s.slopes {
			k, err := s.forward.scoresFor(&g.Q, &g.K)
			if err != nil {
				return err
			}
			if err := s.forward.recordScores(r, &g.Q, &g.K, i, s.scores(r, i), &k, againLabel); err != nil {
				return err
			}
		}
		for part := range standardGradients {
			if err := s.recordPart(r, g, g.Variant(), i, part, g.Weights[i], r.Scratch[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// scores is where the scores of a slab stand.
func (s *BackwardProgram) scores(r *kernel.Recorder, i int) pipeline.Binding {
	return r.Scratch[len(s.forward.slabs)+i]
}

// recordPart records a kernel over slab i, whose P and dP (later dS) are weights and grads.
func (s *BackwardProgram) recordPart(r *kernel.Recorder, g *kernel.Gradients, v kernel.GradientVariant, i int, part gradient, weights,
	grads pipeline.Binding) error {
	b, w := &s.forward.slabs[i], &r.Push
	total := s.grids[i][part].Total
	read := func(n int, from pipeline.Binding) { r.Access[n] = pipeline.Access{Binding: from, Mode: pipeline.Read} }
	k := s.kernels[part][v.Index()].Load()
	access := r.Access[:3]
	var at int
	switch part {
	case gradWeights:
		at = s.forward.scoresArgs(w, b, &g.DO, &g.V, 1)
		read(0, g.DO.Binding)
		read(1, g.V.Binding)
		r.Access[2] = pipeline.Access{Binding: grads, Mode: pipeline.Write}
	case gradScores:
		at = s.forward.RowsArgs(w, b, &g.DLSE, &g.Drop)
		read(0, weights)
		r.Access[1] = pipeline.Access{Binding: grads, Mode: pipeline.ReadWrite}
		r.Access[2] = pipeline.Access{Binding: weights, Mode: pipeline.Unused}
		if g.HasDLSE {
			read(2, g.DLSE.Binding)
		}
		access = r.Accesses(k)
		for n := 3; n < len(access); n++ {
			r.Access[n] = pipeline.Access{Binding: weights, Mode: pipeline.Unused}
		}
		if s.slopes {
			read(3, s.scores(r, i))
			r.BindScores(4, k, &s.problem, &g.Scores, weights) // shaders/standard/standard_backward_softmax.comp
		}
		total = uint32(b.Heads * b.Rows)
	case gradValues:
		at = s.forward.productArgs(w, b, &g.DO, &g.DV)
		read(0, weights)
		read(1, g.DO.Binding)
		r.Access[2] = s.sum(g, &g.DV, i)
	case gradQueries:
		at = s.forward.productArgs(w, b, &g.K, &g.DQ)
		read(0, grads)
		read(1, g.K.Binding)
		r.Access[2] = g.Output(&g.DQ)
	case gradKeys:
		at = s.forward.productArgs(w, b, &g.Q, &g.DK)
		read(0, grads)
		read(1, g.Q.Binding)
		r.Access[2] = s.sum(g, &g.DK, i)
	}
	return r.Dispatch(k, access, at, s.grids[i][part], total, standardGradientLabels[part])
}

// sum is how a slab's dispatch touches a gradient to which every slab may add.
func (s *BackwardProgram) sum(g *kernel.Gradients, o *kernel.Operand, slab int) pipeline.Access {
	if slab > 0 {
		return pipeline.Access{Binding: o.Binding, Mode: pipeline.ReadWrite}
	}
	return g.Output(o)
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
	}.And(kernel.MaskConstants(p), kernel.SlopeConstants(p)), lanes)
}

// withLanes appends the size of a subgroup, which the builds that use subgroups declare; lanes is 0 for the others.
func withLanes(c kernel.Constants, lanes int) kernel.Constants {
	if lanes == 0 {
		return c
	}
	return c.And(kernel.Constants{"SG": lanes})
}
