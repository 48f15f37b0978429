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
	// In self-checks: what the one gradient is with respect to, and whether its rows can be moved 16 bytes at a time; "": there are those
	// of q, k and v.
	By        string
	AlignedBy bool
	Captured  string // or the captured tensor that it is with respect to
	With      string // or what a gradient besides those of q, k and v is with respect to, aligned as AlignedBy says
}
