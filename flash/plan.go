package flash

import "context"

// Plan is how one problem runs on one device.
type Plan struct{}

// Plan chooses a kernel for a problem.
func (d *Device) Plan(p Problem, opts ...PlanOption) (*Plan, error) { return nil, errUnfinished }

func (p *Plan) Problem() Problem               { return Problem{} }
func (p *Plan) Implementation() Implementation { return 0 }
func (p *Plan) Tier() Tier                     { return "" }

// Kernel names the kernel and its tile, for example "scalar_forward 64x32".
func (p *Plan) Kernel() string { return "" }

// Tuning gives the tuning parameters in effect by name.
func (p *Plan) Tuning() map[string]int { return nil }

// WorkspaceBytes is the device memory that one recording of the plan takes beyond inputs and outputs.
func (p *Plan) WorkspaceBytes() uint64 { return 0 }

// WhyNotFaster lists the kernels preferred over the chosen one, each with the reason it was not chosen.
func (p *Plan) WhyNotFaster() []string { return nil }

// String describes the plan in a few lines.
func (p *Plan) String() string { return "" }

// Forward names the tensors of one forward pass. LSE may be nil: then it is not written.
type Forward struct {
	Q, K, V, O, LSE *Tensor
	Uses            ForwardUses
}

// Forward runs the plan and waits.
func (p *Plan) Forward(ctx context.Context, q, k, v, o, lse *Tensor) error { return errUnfinished }

// SubmitForward runs the plan without waiting.
func (p *Plan) SubmitForward(f Forward) (*Pending, error) { return nil, errUnfinished }

// RecordForward writes the plan into the caller's command buffer.
func (p *Plan) RecordForward(cmd uintptr, f Forward) (*Recording, error) { return nil, errUnfinished }

// NewRecording makes an empty recording with its own descriptors and workspace.
func (p *Plan) NewRecording(opts ...RecordingOption) (*Recording, error) { return nil, errUnfinished }

// Close frees the recordings that the plan keeps for reuse.
func (p *Plan) Close() error { return nil }

// Attention computes o for slices: q [B,Hq,Nq,D], k [B,Hk,Nk,D], v [B,Hk,Nk,Dv] in row-major order.
func Attention(ctx context.Context, q, k, v []float32, p Problem) ([]float32, error) {
	return nil, errUnfinished
}
