package flash

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
)

// scoreGradients is a backward program and, behind it, the gradients by what goes with scores: bias and sinks. These are kernels of their own, which
// need of the others nothing but δ, and make that again where they run.
type scoreGradients struct {
	kernel.BackwardProgram
	delta *kernel.DeltaProgram
	bias  *scalar.BiasGradient // nil without a bias
	sinks *kernel.SinkGradient // nil without sinks
}

// withScoreGradients puts them behind a program where the problem has any.
func withScoreGradients(e *kernel.Env, p *attn.Problem, program kernel.BackwardProgram) (kernel.BackwardProgram, error) {
	if !p.Bias.In && !p.Sinks {
		return program, nil
	}
	s := &scoreGradients{BackwardProgram: program}
	var err error
	if s.delta, err = kernel.NewDeltaProgram(e, p, kernel.NewBackwardTuning(nil)); err != nil {
		return nil, err
	}
	if p.Bias.In {
		if s.bias, err = scalar.PlanBias(e, p); err != nil {
			return nil, err
		}
	}
	if p.Sinks {
		if s.sinks, err = kernel.NewSinkGradient(e, p); err != nil {
			return nil, err
		}
	}
	return s, nil
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
