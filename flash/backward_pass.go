package flash

import "github.com/vkattn/vkattn/pipeline"

// gradients are the operands of one backward pass. Without dlse, dlse is the zero operand and hasDLSE false.
type gradients struct {
	q, k, v, o, lse, do, dlse operand
	dq, dk, dv                operand
	hasDLSE, accumulate       bool
	drop                      draw
	weights                   []pipeline.Binding // Backward.Weights
}

// aligned says whether rows of all tensors can be moved 16 bytes at a time.
func (g *gradients) aligned() bool {
	return g.q.aligned && g.k.aligned && g.v.aligned && g.do.aligned && g.dq.aligned && g.dk.aligned && g.dv.aligned
}

// gradientVariant says what the pipelines of a set of tensors are built for.
type gradientVariant struct{ aligned, accumulate, dlse bool }

func (g *gradients) variant() gradientVariant {
	return gradientVariant{g.aligned(), g.accumulate, g.hasDLSE}
}

// backwardInputs are the first six bindings of both kernels of a backward pass.
func (r *recorder) backwardInputs(g *gradients, delta *operand) {
	for i, o := range [...]*operand{&g.q, &g.k, &g.v, &g.do, &g.lse, delta} {
		r.access[i] = pipeline.Access{Binding: o.binding, Mode: pipeline.Read}
	}
}

// output is how a kernel touches a gradient.
func (g *gradients) output(o *operand) pipeline.Access {
	if g.accumulate {
		return pipeline.Access{Binding: o.binding, Mode: pipeline.ReadWrite}
	}
	return pipeline.Access{Binding: o.binding, Mode: pipeline.Write}
}

func (v gradientVariant) index() int {
	return boolInt(v.aligned) + 2*boolInt(v.accumulate) + 4*boolInt(v.dlse)
}
