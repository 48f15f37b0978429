package flash

import (
	"context"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

// jvpChoice is the kernel that a plan takes for passes in forward mode.
type jvpChoice = chosen[*kernel.JVPKernel, kernel.JVPProgram]

// forwardMode gives the plan's choice for passes in forward mode, made at the first call.
func (p *Plan) forwardMode() (*jvpChoice, error) {
	return p.jvp.once(func() (*jvpChoice, error) {
		what := "JVP of "
		if p.attn.Cached() {
			return nil, &UnsupportedError{What: what + p.attn.String(),
				Reasons: []string{"caches have no tangents: keys and values lie in pages or are quantised"}}
		}
		return p.selection.jvp.get(p, passKey{tier: p.gradient.tier}, func() (*jvpChoice, error) {
			of := p.attn.Gradients()
			return pick(p.dev, &of, catalogue.JVP, what, Flash, p.gradient.tier,
				func(k *kernel.JVPKernel) (program kernel.JVPProgram, t *kernel.Tuning, note string, err error) {
					t = kernel.NewTuning(nil)
					program, err = k.Plan(p.dev.env, &of, t)
					return program, t, "", err
				})
		})
	})
}

// JVPInfo says how the plan runs passes in forward mode. The kernel is chosen and built at the first call of this or of anything that needs
// it; what runs only forward never builds it.
func (p *Plan) JVPInfo() (_ PassInfo, err error) {
	defer during("JVPInfo", &err)
	return infoOf(p, p.forwardMode)
}

// JVP runs a pass in forward mode and waits. Recordings are kept for the next call until Close. Errors are as those of [Plan.Forward], or
// an [*UnsupportedError] where no kernel can run it: keys and values in a cache have no tangents.
func (p *Plan) JVP(ctx context.Context, j JVP) (err error) {
	defer during("JVP", &err)
	return awaited(ctx, func() (Pending, error) { return p.SubmitJVP(j) })
}

// SubmitJVP runs a pass in forward mode without waiting, as SubmitForward does a forward pass.
func (p *Plan) SubmitJVP(j JVP) (_ Pending, err error) {
	defer during("SubmitJVP", &err)
	return p.submit(passJVP, func(r *Recording) error { return r.JVP(j) })
}

// RecordJVP writes a pass in forward mode into the caller's command buffer, as RecordForward does a forward pass.
func (p *Plan) RecordJVP(cmd uintptr, j JVP) (_ *Recording, err error) {
	defer during("RecordJVP", &err)
	return p.record(cmd, func(r *Recording) error { return r.JVP(j) }, ForJVP())
}
