package kernel

import (
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Gradients are the operands of one backward pass. Without dlse, dlse is the zero operand and HasDLSE false.
type Gradients struct {
	Operands             // of the forward pass, as it left them
	DO, DLSE, DQ, DK, DV Operand
	// With respect to Scores.Of, in the same places: without a buffer where one is not wanted, or there is none
	DScores             [len(attn.ScoreOperands)]Operand
	DCaptured           [MostCaptured]pipeline.Binding // in the order of Captured; without a buffer where it is not wanted
	HasDLSE, Accumulate bool
	HasDCaptured        bool
}

// List gives the tensors in the order of attn.BackwardOperands.
func (g *Gradients) List() (all [len(attn.BackwardOperands)]*Operand) {
	forward, own := g.Operands.List(), [len(all)]*Operand{&g.DO, &g.DLSE, &g.DQ, &g.DK, &g.DV}
	for i, at := range attn.WithGradient {
		own[5+i] = &g.DScores[at]
	}
	attn.Pick(all[:], attn.BackwardPlaces, forward[:], own[:])
	return all
}

// ByScore says whether a gradient with respect to any of Scores.Of is wanted.
func (g *Gradients) ByScore() bool {
	return slices.ContainsFunc(g.DScores[:], func(o Operand) bool { return o.Given() })
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
