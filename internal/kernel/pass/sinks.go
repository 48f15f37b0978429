package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// sinksLabel is the label of dispatches of backward_sinks, and the name of the module.
const sinksLabel = "backward_sinks"

const sinkThreads = 128 // of a workgroup; every device allows it

// NewSinks fits the gradient with respect to the sinks, for any tier, to a problem that has them: shaders/common/backward_sinks.comp. more
// is what Behind has between δ and the table.
func NewSinks(e *kernel.Env, p *attn.Problem, more ...Scratch) (*Gradient, error) {
	k, err := fitSinks(e, p, more)
	if err != nil {
		return nil, err
	}
	return NewGradient(k, kernel.GradientVariant{})
}

func fitSinks(e *kernel.Env, problem *attn.Problem, more []Scratch) (*Fitted, error) {
	p := *problem
	// Two reads a row: reckon with 16 operations.
	grid, err := kernel.GridFor(e, uint64(p.Heads), 16*p.AllHeads()*float64(p.QueryLen), kernel.ScalarPace, kernel.NewBackwardTuning(nil))
	return &Fitted{Env: e, Problem: &p, Name: sinksLabel, Pass: func(v Variant) *Pass {
		out := Behind(&p, more...)
		out.Stages = []Stage{{Label: sinksLabel, Module: sinksLabel, Constants: SinkGradientConstants(&p, v.Accumulate), Grid: grid,
			Args: Args{As: AsBackward, Problem: &p, X: "DSinks"}, Idle: "LSE",
			Bind: append([]Bind{{Name: "Lse", To: "LSE", Mode: pipeline.Read}, {Name: "Delta", To: Delta, Mode: pipeline.Read},
				{Name: "DSinks", To: "DSinks", Mode: v.Written()}}, Scores(&p, 0)...)}}
		return out
	}}, err
}

// SinkGradientConstants are the specialization constants of backward_sinks.
func SinkGradientConstants(p *attn.Problem, accumulate bool) kernel.Constants {
	return kernel.Constants{"WG": sinkThreads, "ACCUMULATE": kernel.BoolInt(accumulate)}.And(kernel.SinkConstants(p),
		kernel.LengthConstants(p))
}
