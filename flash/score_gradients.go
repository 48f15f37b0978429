package flash

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
)

// scoreGradients is a backward program and, behind it, the gradients with respect to what goes with scores: bias, sinks and what functions
// capture. These are kernels of their own, which need of the others nothing but δ, and make that again where they run.
type scoreGradients struct {
	kernel.BackwardProgram
	before *pass.Backward // what they find in memory: tables of packed sequences and δ
	biases []biasGradient // of those that there are
	sinks  *pass.Gradient // nil without sinks
	// In the order of the captured tensors, nil where one has none; sums is the workspace that they take one after the other.
	captured [MaxCaptured]*scalar.CapturedGradient
	sums     uint64
	first    int // where the workspace of all this begins: delta, sums if there are any, tables
}

// biasGradient is a kernel that makes the gradient with respect to a bias.
type biasGradient struct {
	of kernel.Bias
	*pass.Gradient
}

// withScoreGradients puts them behind a program of a kernel where the problem has any that it does not make itself. Where they are made by
// kernels of another tier, note says why.
func withScoreGradients(e *kernel.Env, p *attn.Problem, program kernel.BackwardProgram, of *kernel.Offer,
	given map[string]int) (_ kernel.BackwardProgram, note string, err error) {
	s := &scoreGradients{BackwardProgram: program}
	every := p.Lists.None() // beside lists there is that of sinks alone: Backward.check refuses the others
	if every {
		if err = s.planCaptured(e, p, of.Implementation, given["q_"+kernel.IndirectParameter] != 0); err != nil {
			return nil, "", err
		}
	}
	for _, of := range kernel.Biases {
		if m, ok := program.(kernel.BiasMaker); ok && m.MakesBias(of) {
			continue
		}
		if every && of.In(p) {
			s.biases = append(s.biases, biasGradient{of: of})
		}
	}
	if len(s.biases) == 0 && !p.Sinks && s.sums == 0 {
		return program, "", nil
	}
	s.first = len(program.Scratch())
	var sums []pass.Scratch
	if c := s.anyCaptured(); c != nil {
		sums = append(sums, pass.Scratch{Name: c.Totals.Name, Bytes: s.sums})
	}
	rows, err := scalar.ScoreRows(e, p, s.anyCaptured())
	if err != nil {
		return nil, "", err
	}
	if s.before, err = pass.NewRowTerm(e, p, rows, sums...); err != nil {
		return nil, "", err
	}
	for i := range s.biases {
		b := &s.biases[i]
		program, why, err := planBias(e, p, b.of, of.Tier, given, sums)
		if err != nil {
			return nil, why, err
		}
		b.Gradient, note = program, cmp.Or(note, why)
	}
	if p.Sinks {
		if s.sinks, err = pass.NewSinks(e, p, sums...); err != nil {
			return nil, note, err
		}
	}
	return s, note, nil
}

// planBias is the gradient with respect to one bias: it takes the kernel on matrices for a program that is on matrices itself, unless the
// device cannot; note says why it cannot.
func planBias(e *kernel.Env, p *attn.Problem, of kernel.Bias, tier kernel.Tier,
	given map[string]int, sums []pass.Scratch) (_ *pass.Gradient, note string, err error) {
	if tier == kernel.TierMatrix {
		bias, err := matrix.PlanBias(e, p, of, given, sums...)
		var no *kernel.Declined
		switch {
		case err == nil:
			return bias, "", nil
		case !errors.As(err, &no):
			return nil, "", err
		}
		note = "its gradient with respect to the bias is made by scalar_backward_bias, because " + no.Why
	}
	bias, err := scalar.PlanBias(e, p, of, sums...)
	if err != nil {
		return nil, note, err
	}
	return bias, note, nil
}

// planCaptured fits the gradients with respect to captured tensors that there are. Their pipelines are made where they are first wanted.
func (s *scoreGradients) planCaptured(e *kernel.Env, p *attn.Problem, of kernel.Implementation, counted bool) error {
	all, err := p.Code().Captures()
	if err != nil {
		return err
	}
	for i, t := range all {
		if t.Table() {
			continue
		}
		by, err := p.Score.Gradient(t.Name)
		if err != nil { // of integers, of a mask, or read at two indices: refused where it is asked for
			continue
		}
		if s.captured[i], err = scalar.PlanCaptured(e, p, by, of, counted); err != nil {
			return err
		}
		s.sums = max(s.sums, s.captured[i].Totals.Bytes)
	}
	return nil
}

// anyCaptured is one of the captured tensors' gradients, nil if there is none.
func (s *scoreGradients) anyCaptured() *scalar.CapturedGradient {
	for _, c := range s.captured {
		if c != nil {
			return c
		}
	}
	return nil
}

// Scratch is the program's, then delta and, where there are any, the sums of captured gradients and tables.
func (s *scoreGradients) Scratch() []uint64 {
	return slices.Concat(s.BackwardProgram.Scratch(), s.before.Scratch())
}

// sumsAt is the place of the sums in Scratch, behind δ, where there are any.
func (s *scoreGradients) sumsAt() int { return s.first + 1 }

func (s *scoreGradients) Dispatches() int {
	n := s.BackwardProgram.Dispatches() + s.before.Dispatches()
	for _, b := range s.biases {
		n += b.Dispatches()
	}
	if s.sinks != nil {
		n += s.sinks.Dispatches()
	}
	for _, c := range s.captured {
		if c != nil {
			n += c.Dispatches()
		}
	}
	return n
}

func (s *scoreGradients) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	if err := s.BackwardProgram.Record(r, g); err != nil || !g.ByScore() && !g.HasDCaptured {
		return err
	}
	all := r.Scratch
	r.Scratch = all[s.first:] // δ, sums if there are any, tables
	defer func() { r.Scratch = all }()
	if err := s.before.Record(r, g); err != nil {
		return err
	}
	for i := range s.biases {
		if b := &s.biases[i]; g.DScores[b.of.At].Given() {
			if err := b.Record(r, g); err != nil {
				return err
			}
		}
	}
	if g.DScores[attn.AtSinks].Given() {
		if err := s.sinks.Record(r, g); err != nil {
			return err
		}
	}
	for i, to := range g.DCaptured {
		if to.Buffer == nil {
			continue
		}
		if err := s.captured[i].Record(r, g); err != nil {
			return err
		}
	}
	return nil
}
