package traffic

import "github.com/vkattn/vkattn/internal/attn"

// Names of the steps of a backward pass; dropout's is StepDropout.
const (
	StepDelta        = "δ = Σ dO∘O"
	StepScoresAgain  = "QKᵀ again"
	StepWeightsAgain = "P again"
	StepWeightGrads  = "dP = dO Vᵀ"
	StepScoreGrads   = "dS = P∘(dP − δ)"
	StepValueGrads   = "dV = Pᵀ dO"
	StepQueryGrads   = "dQ = dS K"
	StepKeyGrads     = "dK = dSᵀ Q"
)

// gradients gives the operations of these steps of a backward pass, without dropout's where there is none.
func gradients(p attn.Problem, names ...string) []Step {
	const elementwise = 2 // a difference and an exponential, a difference and a product
	pairs, d, dv := p.AllHeads()*p.PaperPairs(), float64(p.HeadDim), float64(p.ValueDim)
	flops := map[string]float64{
		StepDelta:       2 * p.AllHeads() * float64(p.QueryLen) * dv,
		StepScoresAgain: 2 * pairs * d, StepWeightsAgain: elementwise * pairs, StepWeightGrads: 2 * pairs * dv,
		StepDropout:    dropoutOps * pairs,
		StepScoreGrads: elementwise * pairs, StepValueGrads: 2 * pairs * dv, StepQueryGrads: 2 * pairs * d, StepKeyGrads: 2 * pairs * d,
	}
	var steps []Step
	for _, name := range names {
		if name != StepDropout || p.Dropout > 0 {
			steps = append(steps, Step{Name: name, FLOPs: flops[name]})
		}
	}
	return steps
}

// gradientsOf is the named steps as a kernel does them: with these bytes, and with the scores, the weights and dropout computed again
// times.
func gradientsOf(p attn.Problem, label string, again float64, bytes map[string]Step, names ...string) []Step {
	steps := gradients(p, names...)
	for i := range steps {
		s := &steps[i]
		s.Kernel, s.Read, s.Written = label, bytes[s.Name].Read, bytes[s.Name].Written
		switch s.Name {
		case StepScoresAgain, StepWeightsAgain, StepDropout:
			s.FLOPs *= again
		}
	}
	return steps
}
