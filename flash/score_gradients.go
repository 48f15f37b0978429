package flash

import (
	"errors"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
)

// scoreGradients is a backward program and, behind it, the gradients by what goes with scores: bias and sinks. These are kernels of their own, which
// need of the others nothing but δ, and make that again where they run.
type scoreGradients struct {
	kernel.BackwardProgram
	delta *kernel.DeltaProgram
	bias  biasGradient         // nil without a bias
	sinks *kernel.SinkGradient // nil without sinks
}

// biasGradient is a kernel that makes the gradient by the bias.
type biasGradient interface {
	Dispatches() int
	Record(r *kernel.Recorder, g *kernel.Gradients, delta *kernel.Operand) error
}

// withScoreGradients puts them behind a program of a tier where the problem has any. Where they are made by kernels of another tier, note says why.
func withScoreGradients(e *kernel.Env, p *attn.Problem, program kernel.BackwardProgram, tier kernel.Tier, given map[string]int) (_ kernel.BackwardProgram, note string, err error) {
	if !p.Bias.In && !p.Sinks {
		return program, "", nil
	}
	s := &scoreGradients{BackwardProgram: program}
	if s.delta, err = kernel.NewDeltaProgram(e, p, kernel.NewBackwardTuning(nil)); err != nil {
		return nil, "", err
	}
	if p.Bias.In {
		if s.bias, note, err = planBias(e, p, tier, given); err != nil {
			return nil, note, err
		}
	}
	if p.Sinks {
		if s.sinks, err = kernel.NewSinkGradient(e, p); err != nil {
			return nil, note, err
		}
	}
	return s, note, nil
}

// planBias takes the kernel on matrices for a program that is on matrices itself, unless the device cannot; note says why it cannot.
func planBias(e *kernel.Env, p *attn.Problem, tier kernel.Tier, given map[string]int) (_ biasGradient, note string, err error) {
	if tier == kernel.TierMatrix {
		bias, err := matrix.PlanBias(e, p, given)
		var no *kernel.Declined
		switch {
		case err == nil:
			return bias, "", nil
		case !errors.As(err, &no):
			return nil, "", err
		}
		note = "its gradient by the bias is made by scalar_backward_bias, because " + no.Why
	}
	bias, err := scalar.PlanBias(e, p)
	if err != nil {
		return nil, note, err
	}
	return bias, note, nil
}

func (s *scoreGradients) Scratch() []uint64 {
	return append(append([]uint64(nil), s.BackwardProgram.Scratch()...), s.delta.Bytes())
}

func (s *scoreGradients) Dispatches() int {
	n := s.BackwardProgram.Dispatches() + s.delta.Grid.Dispatches()
	if s.bias != nil {
		n += s.bias.Dispatches()
	}
	if s.sinks != nil {
		n += s.sinks.Dispatches()
	}
	return n
}

func (s *scoreGradients) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	if err := s.BackwardProgram.Record(r, g); err != nil || !g.HasDBias && !g.HasDSinks {
		return err
	}
	delta := kernel.Operand{Binding: r.Scratch[len(r.Scratch)-1]}
	if err := s.delta.Record(r, g, &delta); err != nil {
		return err
	}
	if g.HasDBias {
		if err := s.bias.Record(r, g, &delta); err != nil {
			return err
		}
	}
	if g.HasDSinks {
		return s.sinks.Record(r, g, &delta)
	}
	return nil
}
