package bench

import (
	"context"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/pipeline"
)

// readied is a plan of a case, with tensors for one run of its passes.
type readied struct {
	deviceShape
	plan    *flash.Plan
	lse     *flash.Tensor // of the forward pass alone
	mask    masks
	forward flash.Forward
}

// ready makes it. What it returns is to be closed, beside an error too.
func (d *Device) ready(ctx context.Context, c result.Case, passes result.Passes) (p *readied, err error) {
	p = &readied{deviceShape: deviceShape{d: d, c: c, passes: passes}}
	if p.problem, err = c.Problem(); err != nil {
		return p, err
	}
	opts, err := d.options(c)
	if err != nil {
		return p, err
	}
	set, err := d.newSet(ctx, c, p.problem, passes, result.InputSeed)
	if err != nil {
		return p, err
	}
	p.sets = []tensorSet{set}
	lse := set.grad.lse
	if lse == nil {
		if p.lse, err = d.newLSE(p.problem); err != nil {
			return p, err
		}
		lse = p.lse
	}
	if p.plan, err = d.dev.Plan(p.problem, opts...); err != nil {
		return p, err
	}
	if p.mask, err = d.masks(ctx, c); err != nil {
		return p, err
	}
	p.forward = p.deviceShape.forward(0, lse, p.mask)
	if passes.Bwd {
		p.forward.Weights, err = p.plan.NewWeights()
	}
	return p, err
}

// backward is the case's backward pass.
func (p *readied) backward() flash.Backward {
	return p.deviceShape.backward(0, p.forward.Weights, p.mask)
}

func (p *readied) close() {
	p.forward.Weights.Close()
	p.mask.Close()
	p.plan.Close()
	p.lse.Close()
	for i := range p.sets {
		p.sets[i].close()
	}
}

// ListedPass is what a pass of a case does on a device.
type ListedPass struct {
	Case      result.Case
	Backward  bool
	Beside    string // what it is of Beside; "": a pass
	Kernel    string // with its tile
	Tier      flash.Tier
	Workspace uint64 // bytes beyond inputs and outputs
	*pipeline.Listing
}

// List gives what the passes of a job do, which nothing measures.
func (d *Device) List(ctx context.Context, j result.Job) (out []ListedPass, err error) {
	passes := j.Passes.OrDefault()
	p, err := d.ready(ctx, j.Case, passes)
	defer p.close()
	if err != nil {
		return nil, err
	}
	if passes.Fwd {
		info := p.plan.ForwardInfo()
		pass := ListedPass{Case: j.Case, Kernel: info.Kernel, Tier: info.Tier, Workspace: info.WorkspaceBytes}
		if pass.Listing, err = d.list(p.plan, func(r *flash.Recording) error { return r.Forward(p.forward) }); err != nil {
			return nil, err
		}
		out = append(out, pass)
	}
	if passes.Bwd {
		info, err := p.plan.BackwardInfo()
		if err != nil {
			return out, err
		}
		pass := ListedPass{Case: j.Case, Backward: true, Kernel: info.Kernel, Tier: info.Tier, Workspace: info.WorkspaceBytes}
		if pass.Listing, err = d.list(p.plan, func(r *flash.Recording) error { return r.Backward(p.backward()) },
			flash.ForBackward()); err != nil {
			return out, err
		}
		out = append(out, pass)
	}
	return out, nil
}

func (d *Device) list(plan *flash.Plan, record func(*flash.Recording) error, opts ...flash.RecordingOption) (*pipeline.Listing, error) {
	var r *flash.Recording
	defer func() { r.Close() }()
	return tune.List(d.dev, func() (_ *flash.Recording, err error) {
		if r, err = plan.NewRecording(opts...); err == nil {
			err = record(r)
		}
		return r, err
	})
}
