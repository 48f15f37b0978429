package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Gradients are the operands of one backward pass. Without dlse, dlse is the zero operand and HasDLSE false.
type Gradients struct {
	Q, K, V, O, LSE, DO, DLSE Operand
	Scores
	DQ, DK, DV Operand
	ScoreGradients
	Blocks              pipeline.Binding               // the block mask, where the problem has one
	DCaptured           [MostCaptured]pipeline.Binding // in the order of Captured; without a buffer where it is not wanted
	HasDLSE, Accumulate bool
	HasDCaptured        bool
	Drop                Draw
	Weights             []pipeline.Binding // Backward.Weights
}

// List gives the tensors in the order of attn.BackwardOperands.
func (g *Gradients) List() [len(attn.BackwardOperands)]*Operand {
	all := [len(attn.BackwardOperands)]*Operand{&g.Q, &g.K, &g.V, &g.O, &g.LSE, &g.DO, &g.DLSE, &g.DQ, &g.DK, &g.DV}
	scores, gradients := g.Scores.list(), g.ScoreGradients.list()
	copy(all[len(all)-len(gradients):], gradients[:])
	copy(all[len(all)-len(gradients)-len(scores):], scores[:])
	return all
}

// Aligned says whether rows of all tensors can be moved 16 bytes at a time.
func (g *Gradients) Aligned() bool {
	return g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned && g.DQ.Aligned && g.DK.Aligned && g.DV.Aligned
}

// GradientVariant says what the pipelines of a set of tensors are built for.
type GradientVariant struct {
	Aligned, Accumulate, DLSE bool
	// In trials: what the one gradient is by that is made, and whether its rows can be moved 16 bytes at a time; "": those by q, k and v.
	By        string
	AlignedBy bool
	Captured  string // or the captured tensor that the one gradient is by
	With      string // or what a gradient besides those by q, k and v is by, aligned as AlignedBy says
}

func (g *Gradients) Variant() GradientVariant {
	return GradientVariant{Aligned: g.Aligned(), Accumulate: g.Accumulate, DLSE: g.HasDLSE}
}

// BackwardInputs are the first six bindings of both kernels of a backward pass.
func (r *Recorder) BackwardInputs(g *Gradients, delta *Operand) {
	for i, o := range [...]*Operand{&g.Q, &g.K, &g.V, &g.DO, &g.LSE, delta} {
		r.Access[i] = pipeline.Access{Binding: o.Binding, Mode: pipeline.Read}
	}
}

// BackwardScores binds what goes with scores, the block mask too, and gives all bindings of a backward kernel.
func (r *Recorder) BackwardScores(k *pipeline.Kernel, p *attn.Problem, g *Gradients) []pipeline.Access {
	const at, blocks, lengths = 8, 11, 12 // shaders/include/scalar_backward.glsl, matrix_backward.glsl
	r.BindScores(at, k, p, &g.Scores, g.Q.Binding)
	r.Access[blocks] = pipeline.Access{Binding: g.Q.Binding, Mode: pipeline.Unused} // no sinks here
	if !p.Blocks.None() {
		r.Access[blocks] = pipeline.Access{Binding: g.Blocks, Mode: pipeline.Read}
	}
	r.BindLengths(lengths, p, &g.Scores, g.Q.Binding)
	return r.Accesses(k)
}

// Accesses are those of a kernel, but for the one that dispatch binds.
func (r *Recorder) Accesses(k *pipeline.Kernel) []pipeline.Access {
	n := k.Bindings()
	if r.Count != nil {
		n--
	}
	return r.Access[:n]
}

// Output is how a kernel touches a gradient.
func (g *Gradients) Output(o *Operand) pipeline.Access {
	if g.Accumulate {
		return pipeline.Access{Binding: o.Binding, Mode: pipeline.ReadWrite}
	}
	return pipeline.Access{Binding: o.Binding, Mode: pipeline.Write}
}

func (v GradientVariant) Index() int {
	return BoolInt(v.Aligned) + 2*BoolInt(v.Accumulate) + 4*BoolInt(v.DLSE)
}
