package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
)

// standardGradient is a kernel of the backward pass of standard attention.
type standardGradient int

// The kernels in the order in which they run on a slab; shaders/standard/standard_backward_softmax.comp tells the story.
const (
	gradWeights standardGradient = iota // dP = dO Vᵀ
	gradScores                          // δ, and dS = Scale P∘(dP − δ), in place of dP
	gradValues                          // dV = Pᵀ dO
	gradQueries                         // dQ = dS K
	gradKeys                            // dK = dSᵀ Q
	standardGradients
)

// Labels of their dispatches.
var standardGradientLabels = [standardGradients]string{"standard_dp", "standard_ds", "standard_dv", "standard_dq", "standard_dk"}

// standardBackwardShape is how those kernels divide a problem, and how they are built for it.
type standardBackwardShape interface {
	String() string
	pace() pace                                   // of the products
	block(part standardGradient) (rows, cols int) // of a workgroup; cols 0 where it has all
	kernel(part standardGradient, p *Problem, v gradientVariant) standardKernel
}

// gradientVariant says what the pipelines of a set of tensors are built for.
type gradientVariant struct{ aligned, accumulate, dlse bool }

func (v gradientVariant) index() int {
	return boolInt(v.aligned) + 2*boolInt(v.accumulate) + 4*boolInt(v.dlse)
}

func (g *gradients) variant() gradientVariant {
	return gradientVariant{g.aligned(), g.accumulate, g.hasDLSE}
}

// standardBackwardProgram is the backward pass of standard attention fitted to a problem. P is what the forward pass kept, in the
// slabs of the plan's forward program.
type standardBackwardProgram struct {
	dev     *Device
	problem Problem
	forward *standardProgram
	shape   standardBackwardShape
	grids   [][standardGradients]grid // by slab
	runs    int                       // dispatches in all

	// check looks at the kernels of a variant before their first use; nil where none is needed.
	check func(s *standardBackwardProgram, v gradientVariant) error

	kernels [standardGradients][8]atomic.Pointer[pipeline.Kernel] // by variant
	checked [8]atomic.Bool                                        // the same
}

func newStandardBackward(d *Device, p *Problem, forward *standardProgram, shape standardBackwardShape, t *tuning) (*standardBackwardProgram, error) {
	s := &standardBackwardProgram{dev: d, problem: *p, forward: forward, shape: shape}
	var err error
	var needed uint64 // P too
	for _, n := range forward.sizes {
		needed += 2 * n
	}
	if memory := d.info.DeviceMemory(); needed > memory {
		return nil, &MemoryError{Label: "workspace", Needed: needed, Available: memory, Rule: "the device's memory, for the matrices P and dP"}
	}
	for i := range forward.slabs {
		b := &forward.slabs[i]
		heads, rows, pairs := uint64(b.heads), uint64(b.heads)*uint64(b.rows), float64(b.heads)*float64(b.rows)*float64(p.KeyLen)
		keyHeads := uint64(b.keyHeads(p.group()))
		var g [standardGradients]grid
		for part := range standardGradients {
			br, bc := shape.block(part)
			groups, flops, at := heads*uint64(ceilDiv(b.rows, br)), 2*pairs, shape.pace()
			switch part {
			case gradWeights:
				groups *= uint64(ceilDiv(p.KeyLen, bc))
				flops *= float64(max(64, p.ValueDim))
			case gradScores:
				groups, flops, at = (rows+uint64(br)-1)/uint64(br), 16*pairs, scalarPace
			case gradValues:
				groups = keyHeads * uint64(ceilDiv(p.KeyLen, br))
				flops *= float64(max(64, p.ValueDim))
			case gradQueries:
				flops *= float64(max(64, p.HeadDim))
			case gradKeys:
				groups = keyHeads * uint64(ceilDiv(p.KeyLen, br))
				flops *= float64(max(64, p.HeadDim))
			}
			if g[part], err = gridFor(d, groups, flops, at, t); err != nil {
				return nil, err
			}
			s.runs += g[part].dispatches()
		}
		s.grids = append(s.grids, g)
	}
	return s, nil
}

// keyHeads is the number of key heads, batch included, whose query heads a slab has.
func (b *slab) keyHeads(group int) int { return (b.head0+b.heads-1)/group - b.head0/group + 1 }

func (s *standardBackwardProgram) tile() string    { return s.shape.String() }
func (s *standardBackwardProgram) dispatches() int { return s.runs }

// scratch is dP, in slabs as P.
func (s *standardBackwardProgram) scratch() []uint64 { return s.forward.sizes }

// dense is the variant of dense tensors, gradients overwritten, without dlse: the usual case.
func (s *standardBackwardProgram) dense() gradientVariant {
	size := s.problem.DType.Size()
	return gradientVariant{aligned: s.problem.HeadDim*size%16 == 0 && s.problem.ValueDim*size%16 == 0}
}

// build makes the pipelines of a variant, built and checked at the first call.
func (s *standardBackwardProgram) build(v gradientVariant) error {
	i := v.index()
	if s.checked[i].Load() {
		return nil
	}
	for part := range standardGradients {
		w := s.shape.kernel(part, &s.problem, v)
		if _, err := s.dev.variant(&s.kernels[part][i], w.module, func() (constants, pipeline.KernelInfo) { return w.spec, w.info }); err != nil {
			return err
		}
	}
	if s.check != nil {
		if err := s.check(s, v); err != nil {
			return err
		}
	}
	s.checked[i].Store(true)
	return nil
}

func (s *standardBackwardProgram) record(r *recorder, g *gradients) error {
	err := s.build(g.variant())
	if err == nil {
		return s.run(r, g)
	}
	return refused(err, "backward of "+s.problem.String())
}

// run records the dispatches with the pipelines that are there.
func (s *standardBackwardProgram) run(r *recorder, g *gradients) error {
	for i := range s.forward.slabs {
		for part := range standardGradients {
			if err := s.recordPart(r, g, i, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *standardBackwardProgram) recordPart(r *recorder, g *gradients, i int, part standardGradient) error {
	b, w := &s.forward.slabs[i], &r.push
	weights, grads := g.weights[i], r.scratch[i]
	total := s.grids[i][part].total
	read := func(n int, from pipeline.Binding) { r.access[n] = pipeline.Access{Binding: from, Mode: pipeline.Read} }
	var at int
	switch part {
	case gradWeights:
		at = w.scores(s.forward, b, &g.do, &g.v, 1)
		read(0, g.do.binding)
		read(1, g.v.binding)
		r.access[2] = pipeline.Access{Binding: grads, Mode: pipeline.Write}
	case gradScores:
		at = w.rows(s.forward, b, &g.dlse, &g.drop)
		read(0, weights)
		r.access[1] = pipeline.Access{Binding: grads, Mode: pipeline.ReadWrite}
		r.access[2] = pipeline.Access{Binding: weights, Mode: pipeline.Unused}
		if g.hasDLSE {
			read(2, g.dlse.binding)
		}
		total = uint32(b.heads * b.rows)
	case gradValues:
		at = w.product(s.forward, b, &g.do, &g.dv)
		read(0, weights)
		read(1, g.do.binding)
		r.access[2] = s.sum(g, &g.dv, i)
	case gradQueries:
		at = w.product(s.forward, b, &g.k, &g.dq)
		read(0, grads)
		read(1, g.k.binding)
		r.access[2] = g.output(&g.dq)
	case gradKeys:
		at = w.product(s.forward, b, &g.q, &g.dk)
		read(0, grads)
		read(1, g.q.binding)
		r.access[2] = s.sum(g, &g.dk, i)
	}
	k := s.kernels[part][g.variant().index()].Load()
	return r.dispatch(k, r.access[:3], at, s.grids[i][part], total, standardGradientLabels[part])
}

// sum is how a slab's dispatch touches a gradient to which every slab may add.
func (s *standardBackwardProgram) sum(g *gradients, o *operand, slab int) pipeline.Access {
	if slab > 0 {
		return pipeline.Access{Binding: o.binding, Mode: pipeline.ReadWrite}
	}
	return g.output(o)
}

// backwardKeeps is the number of pieces of P and of dP that an invocation keeps in registers, given the number that the softmax of the
// forward pass keeps: 0 where both would not fit, and rows are read twice.
func backwardKeeps(forward int) int {
	if forward > 8 {
		return 0
	}
	return forward
}

// backwardSoftmaxSpec are the constants of standard_backward_softmax: rowThreads invocations share a row, and each keeps keep pieces of it;
// zero is the number of columns beyond a row's last key that the product reads. lanes is the size of a subgroup, 0 where none is used.
func backwardSoftmaxSpec(p *Problem, v gradientVariant, rowThreads, keep, zero, lanes int) constants {
	return withLanes(constants{{"WG", softmaxThreads}, {"TPR", rowThreads}, {"KEEP", backwardKeeps(keep)},
		{"CAUSAL", boolInt(p.Causal != CausalNone)}, {"DLSE", boolInt(v.dlse)}, {"ZERO", zero}, {"DROPOUT", boolInt(p.dropThreshold() > 0)}}, lanes)
}

// withLanes appends the size of a subgroup, which the builds that use subgroups declare; lanes is 0 for the others.
func withLanes(c constants, lanes int) constants {
	if lanes == 0 {
		return c
	}
	return append(c, constant{"SG", lanes})
}
