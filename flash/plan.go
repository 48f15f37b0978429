package flash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Plan is how one problem runs on one device: a kernel, its tile, its workspace. It may be used from several goroutines, and
// be in flight any number of times: descriptors and workspace belong to the recordings.
type Plan struct {
	dev        *Device
	problem    Problem
	attn       attn.Problem // the same, as kernels take it
	*selection              // what was chosen for it, as the device keeps it
	captured   []captured   // by the functions of its scores
	classes    string       // which mask functions it has, where blocks are classed by them

	gradient backwardChoices // made when first asked for
	jvp      choice[*kernel.JVPKernel, kernel.JVPProgram]
	maps     mapChoice // likewise

	mu     sync.Mutex
	free   [passes][]*Recording    // made for Forward, Backward, JVP and their Submit forms, not in flight
	all    map[*Recording]struct{} // those and the ones in flight
	closed bool
}

// Plan chooses the fastest kernel that can run the problem on this device, within what the options allow, and builds its usual pipelines;
// variants for unaligned tensors are built when they are first met. What depends on more than Vulkan promises, kernels on matrices, and any
// kernel with the problem's ScoreFunction or MaskFunction in it, is run on a small problem and compared with attention in float64 before
// its first use on a device and driver (see tune.SelfCheck); a kernel that fails is passed over, and the plan says so. No tensor is
// allocated yet. A problem that was planned before with the same options costs microseconds, so that a program may plan for each call.
//
// The error is an [*ArgumentError] for a problem or an option that cannot be, an [*UnsupportedError] with every kernel's reason
// where none can run it, a [*MemoryError] where a workspace passes what the device can bind.
func (d *Device) Plan(p Problem, opts ...PlanOption) (_ *Plan, err error) {
	defer during("Plan", &err)
	if p, err = p.Normalize(); err != nil {
		return nil, err
	}
	placed, err := p.moved()
	if err != nil {
		return nil, err
	}
	var o planOptions
	for _, opt := range opts {
		if opt != nil {
			err = errors.Join(err, opt(&o))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	plan := &Plan{dev: d, problem: p, attn: placed.attn(), all: map[*Recording]struct{}{}}
	if p.MaskBlocks != (Blocks{}) {
		plan.classes = kernel.FunctionKey(p.MaskFunction)
	}
	plan.gradient.tier, plan.gradient.given = o.tier, o.backwardTuning
	plan.maps.dev, plan.maps.name = d, "Plan"
	if plan.captured, err = d.captured(context.Background(), &placed); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeTables(plan.captured))
		}
	}()
	if plan.selection, err = d.selected(&plan.attn, &o); err != nil {
		return nil, err
	}
	if err := d.adopt(plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// Problem is the plan's problem with all defaults filled in.
func (p *Plan) Problem() Problem {
	if p == nil {
		return Problem{}
	}
	return p.problem
}

// Device is the device that made the plan.
func (p *Plan) Device() *Device {
	if p == nil {
		return nil
	}
	return p.dev
}

// made says whether the plan came from Device.Plan; a zero Plan describes itself as nothing.
func (p *Plan) made() bool { return p != nil && p.selection != nil }

// Implementation is the algorithm that runs.
func (p *Plan) Implementation() Implementation {
	if !p.made() {
		return 0
	}
	return Implementation(p.kernel.Implementation)
}

// ForwardInfo says how the plan runs forward passes: what [Device.Plan] chose. Of a zero Plan it is zero. No workspace is allocated before
// the first recording, and a forward pass that is given Weights takes none.
func (p *Plan) ForwardInfo() PassInfo {
	if !p.made() {
		return PassInfo{}
	}
	return p.info()
}

// Tuned says whether the tile is one that `vkattn tune` measured: stored for this device, or in the file of WithTiles.
func (p *Plan) Tuned() bool {
	return p.made() && (p.tuned != nil || slices.ContainsFunc(p.rows, func(r *tiles.Row) bool { return r.Source == tiles.Tuned }))
}

// String describes the plan in a few lines: problem, device, tier, kernel and tile, workspace in bytes, the row of tiles that
// the tile is from, with file and line, and each faster kernel with the reason why it was not chosen.
func (p *Plan) String() string {
	if !p.made() {
		return "no plan"
	}
	var b strings.Builder
	info := p.ForwardInfo()
	fmt.Fprintf(&b, "%v on %s\n", p.problem, p.dev.info.Name)
	fmt.Fprintf(&b, "  %v, tier %s: %s, workspace %d bytes in %d buffers",
		p.Implementation(), info.Tier, info.Kernel, info.WorkspaceBytes, len(p.program.Scratch()))
	if e := p.tuned; e != nil {
		fmt.Fprintf(&b, "\n  tile measured on this device by vkattn tune: %.2f × the built-in choice", e.Gain)
	}
	if p.tuned == nil {
		for _, r := range p.rows {
			fmt.Fprintf(&b, "\n  %s: %s, %s", r.Kernel, r.Place(), r.Source)
		}
	}
	for _, r := range p.reasons {
		fmt.Fprintf(&b, "\n  not chosen: %s", r)
	}
	return b.String()
}

// Forward runs the plan and waits: O and LSE are computed from Q, K and V, as [Problem] says. Recordings, with their workspace, are kept
// for the next call until Close.
//
// The error is an [*ArgumentError] for a tensor that does not fit its place, a [*MemoryError] where there is no room for the
// workspace, the context's own where it is cancelled, after the device has finished.
func (p *Plan) Forward(ctx context.Context, f Forward) (err error) {
	defer during("Forward", &err)
	return awaited(ctx, func() (Pending, error) { return p.SubmitForward(f) })
}

// SubmitForward runs the plan without waiting. The tensors must stay until Wait; a submission that is never waited for keeps
// its recording until Close.
func (p *Plan) SubmitForward(f Forward) (_ Pending, err error) {
	defer during("SubmitForward", &err)
	return p.submit(passForward, func(r *Recording) error { return r.Forward(f) })
}

// submit prepares a recording of the plan's own and submits it.
func (p *Plan) submit(which direction, prepare func(*Recording) error) (pending Pending, err error) {
	r, err := p.take(which)
	if err != nil {
		return Pending{}, err
	}
	if err = prepare(r); err == nil {
		if pending, err = r.Submit(); err == nil {
			return pending, nil
		}
	}
	p.put(r)
	return Pending{}, err
}

// record prepares a recording for the caller and writes it into a command buffer.
func (p *Plan) record(cmd uintptr, prepare func(*Recording) error, opts ...RecordingOption) (*Recording, error) {
	r, err := p.NewRecording(opts...)
	if err != nil {
		return nil, err
	}
	if err = prepare(r); err == nil {
		err = r.Record(cmd)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// RecordForward writes the plan into the caller's command buffer, with the barriers before and after it that the tensors' uses ask for
// ([Tensor.Used]); see Recording.Record. The caller closes the recording when
// the device has finished with the command buffer. Where the same tensors or command buffers come again and again, a
// NewRecording of one's own saves making descriptors and workspace each time.
func (p *Plan) RecordForward(cmd uintptr, f Forward) (_ *Recording, err error) {
	defer during("RecordForward", &err)
	return p.record(cmd, func(r *Recording) error { return r.Forward(f) })
}

// NewRecording makes an empty recording with descriptors and workspace of its own. It lives until its own Close, or the device's. Where
// functions of the problem have tables, which the plan owns, nothing can be submitted from the plan's Close on.
func (p *Plan) NewRecording(opts ...RecordingOption) (_ *Recording, err error) {
	defer during("NewRecording", &err)
	o, err := recordingOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	if err := p.usable(); err != nil {
		return nil, err
	}
	return newRecording(p, o)
}

func (p *Plan) usable() error {
	if p == nil || p.dev == nil {
		return badArgument("Plan", "nil or zero", "must come from Device.Plan")
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: Plan", ErrClosed)
	}
	return p.dev.usable()
}

// take gives a recording that is not in flight.
func (p *Plan) take(which direction) (*Recording, error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if n := len(p.free[which]); n > 0 {
		r := p.free[which][n-1]
		p.free[which] = p.free[which][:n-1]
		p.mu.Unlock()
		return r, nil
	}
	p.mu.Unlock()
	r, err := newRecording(p, recordingOptions{pass: which})
	if err != nil {
		return nil, err
	}
	r.takeBack = p.put
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(fmt.Errorf("%w: Plan", ErrClosed), r.Close())
	}
	p.all[r] = struct{}{}
	return r, nil
}

// put takes a recording back.
func (p *Plan) put(r *Recording) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.free[r.pass.direction] = append(p.free[r.pass.direction], r)
	}
}

// Close frees the recordings that the plan keeps for Forward, Backward, JVP and their Submit forms, after waiting for those in flight.
// Closing again does nothing.
func (p *Plan) Close() (err error) {
	defer during("Plan.Close", &err)
	if p == nil || p.dev == nil {
		return nil
	}
	p.dev.disown(p)
	return p.release()
}

func (p *Plan) release() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	all := p.all
	p.free, p.all = [passes][]*Recording{}, nil
	p.mu.Unlock()
	err := p.maps.release()
	for r := range all {
		err = errors.Join(err, r.Close())
	}
	return errors.Join(err, closeTables(p.captured))
}
