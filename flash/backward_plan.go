package flash

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// backwardChoice is the kernel that a plan takes for backward passes.
type backwardChoice = chosen[*kernel.BackwardKernel, kernel.BackwardProgram]

// backwardChoices is a plan's, with what it depends on.
type backwardChoices struct {
	tier  Tier           // insisted on; "" for the fastest that can
	given map[string]int // tuning
	choice[*kernel.BackwardKernel, kernel.BackwardProgram]
}

// backward gives the plan's choice for backward passes, made at the first call.
func (p *Plan) backward() (*backwardChoice, error) {
	return p.gradient.once(func() (*backwardChoice, error) {
		if p.attn.Cached() {
			return nil, &UnsupportedError{What: fmt.Sprintf("backward of %v", p.attn),
				Reasons: []string{"caches have no gradients: keys and values lie in pages or are quantised"}}
		}
		g, key := &p.gradient, passKey{tier: p.gradient.tier}
		if len(g.given) > 0 {
			key.tuning = kernel.Constants(g.given).String()
		}
		return p.selection.backward.get(p, key, func() (*backwardChoice, error) {
			of := p.attn.Gradients()
			return pick(p.dev, &of, catalogue.Backward, "backward of ", p.Implementation(), g.tier,
				func(k *kernel.BackwardKernel) (program kernel.BackwardProgram, t *kernel.Tuning, note string, err error) {
					t = kernel.NewBackwardTuning(g.given)
					if err := t.Fits(&k.Offer); err != nil {
						return nil, nil, "", err
					}
					if program, err = k.Plan(p.dev.env, &of, p.program, t); err == nil {
						program, note, err = withScoreGradients(p.dev.env, &of, program, &k.Offer, g.given)
					}
					return program, t, note, err
				})
		})
	})
}

// BackwardInfo says how the plan runs backward passes. Their kernels are chosen and built at the first call of this or of
// anything that needs them; what runs only forward never builds them.
func (p *Plan) BackwardInfo() (_ PassInfo, err error) {
	defer during("BackwardInfo", &err)
	return infoOf(p, p.backward)
}

// DropoutProbability is the probability in effect, Problem.Dropout taken to the nearest 1/256.
func (p *Plan) DropoutProbability() float64 {
	if p == nil {
		return 0
	}
	return float64(p.attn.DropThreshold()) / 256
}

// Backward runs a backward pass and waits. Recordings, with their workspace, are kept for the next call until Close. Errors are as
// those of [Plan.Forward], or an [*UnsupportedError] where the implementation has no backward pass for the problem.
func (p *Plan) Backward(ctx context.Context, b Backward) (err error) {
	defer during("Backward", &err)
	return awaited(ctx, func() (Pending, error) { return p.SubmitBackward(b) })
}

// SubmitBackward runs a backward pass without waiting, as SubmitForward does a forward one.
func (p *Plan) SubmitBackward(b Backward) (_ Pending, err error) {
	defer during("SubmitBackward", &err)
	return p.submit(passBackward, func(r *Recording) error { return r.Backward(b) })
}

// RecordBackward writes a backward pass into the caller's command buffer, as RecordForward does a forward one.
func (p *Plan) RecordBackward(cmd uintptr, b Backward) (_ *Recording, err error) {
	defer during("RecordBackward", &err)
	return p.record(cmd, func(r *Recording) error { return r.Backward(b) }, ForBackward())
}
