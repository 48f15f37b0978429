package traffic

import "github.com/vkattn/vkattn/internal/attn"

// ForwardOperations is a forward pass by a kernel of which nothing is known: operations, no bytes.
type ForwardOperations struct{}

// Kind is "operations".
func (ForwardOperations) Kind() string { return "operations" }

// Steps are without kernels.
func (ForwardOperations) Steps(p attn.Problem, c Call) ([]Step, error) {
	if p.Blocks.None() {
		return forward(p, 1), nil
	}
	b, err := newBlocks(p, c)
	if err == nil {
		err = b.countable("the block mask", 0, 0)
	}
	if err != nil {
		return nil, err
	}
	return forward(p, b.share()), nil
}

// BackwardOperations is the same of a backward pass: scores and weights again, dP = dO·Vᵀ, dS, and the three gradients. The products are
// 2.5 × the forward pass's where HeadDim = ValueDim.
type BackwardOperations struct{}

// Kind is "backward operations".
func (BackwardOperations) Kind() string { return "backward operations" }

// Steps are without kernels.
func (BackwardOperations) Steps(p attn.Problem, _ Call) ([]Step, error) {
	return gradients(p, StepDelta, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads,
		StepQueryGrads, StepKeyGrads), nil
}
