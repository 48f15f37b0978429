package tune

import (
	"errors"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Work is what one step of a pass costs, all heads together: operations, and the bytes that its workgroups load from and store to device
// memory.
//
// Bytes are counted where an invocation asks for them: a tile of K that a hundred workgroups stage counts a hundred times, and
// the lse of a row that 16 lanes load counts 16 times, although caches serve most of them. Elements beyond a tensor's edge do
// not count: there shaders load something inside in their place, and throw it away. Nor do the bits of a block mask.
type Work struct {
	Name    string  `json:"step"`             // in the words of the papers: "QKᵀ", "softmax", "dV = Pᵀ dO"
	Kernel  string  `json:"kernel,omitempty"` // flash.Timing.Label of the dispatches that do it; "": not known
	FLOPs   float64 `json:"flops"`            // operations, a multiply-add counting as two
	Read    float64 `json:"read_bytes"`       // loaded from device memory, caches or not
	Written float64 `json:"written_bytes"`    // stored to device memory
}

// Bytes is Read + Written.
func (w Work) Bytes() float64 { return w.Read + w.Written }

// Total adds steps up.
func Total(steps []Work) Work {
	of := make([]traffic.Step, len(steps))
	for i, s := range steps {
		of[i] = traffic.Step(s)
	}
	return Work(traffic.Total(of))
}

// Call is what one call of a plan's Forward or Backward adds to what its plan knows, as far as work is counted.
type Call struct {
	LSE bool // forward: lse is written
	// forward: v is the first columns of k, where it lies; kernels that know read them once
	ValuesInKeys bool

	// For a problem with a block mask, set one of the two. Blocks is the mask, as flash.Device.NewBlockMask takes it: the count is exact.
	// Nonzero is the share of its blocks that are attended to, above 0 and at most 1: the count is what is to be expected of masks in which
	// each block is attended to with this probability, whatever the others are. Of a problem with MaskBlocks they are the blocks of which
	// some pair is seen, and all pairs of those are counted.
	Blocks  []bool
	Nonzero float64

	Accumulate bool // backward: gradients are added to what is there, which is read
	DLSE       bool // backward: the gradient of lse is read
	DBias      bool // backward: the gradient of the bias is wanted; counted where the kernels of the other gradients make it
}

// Model is the work of the kernels of one pass as a function of the problem: the order of their loops with the numbers of a tiling. As JSON
// it is an object of both, so that results can be kept with it, and it be asked about other lengths later. The zero Model is none.
type Model struct{ of traffic.Model }

// IsZero says that there is no model.
func (m Model) IsZero() bool { return m.of == nil }

// Work counts the steps of the pass for a problem, kernel by kernel: what two kernels do is there twice. The error is a
// [*flash.ArgumentError] for a problem or a call that cannot be, or numbers of the model that are far from any kernel's; it wraps
// [flash.ErrUnsupported] where there is no model.
func (m Model) Work(p flash.Problem, c Call) ([]Work, error) {
	a, err := within.Problem(p)
	if err != nil {
		return nil, err
	}
	if m.of == nil {
		return nil, &flash.UnsupportedError{What: "counting work", Reasons: []string{"there is no model of the kernel"}}
	}
	steps, err := m.of.Steps(a, traffic.Call(c))
	var wrong *traffic.Error
	if errors.As(err, &wrong) {
		return nil, badArgument(wrong.Name, wrong.Value, "%s", wrong.Rule)
	}
	if err != nil {
		return nil, err
	}
	out := make([]Work, len(steps))
	for i, s := range steps {
		out[i] = Work(s)
	}
	return out, nil
}

// MarshalJSON gives the model's kind and numbers, null for none.
func (m Model) MarshalJSON() ([]byte, error) {
	if m.of == nil {
		return []byte("null"), nil
	}
	return traffic.Marshal(m.of)
}

// UnmarshalJSON reads what MarshalJSON wrote. The error names a kind that this version does not know.
func (m *Model) UnmarshalJSON(data []byte) (err error) {
	if m == nil {
		return badArgument("Model", nil, "must not be nil")
	}
	if string(data) == "null" {
		return nil
	}
	m.of, err = traffic.Unmarshal(data)
	return err
}

// ForwardModel is the model of a plan's forward pass; none for a plan that Device.Plan did not make.
func ForwardModel(p *flash.Plan) Model {
	_, program := within.Forward(p)
	if program == nil {
		return Model{}
	}
	return Model{program.Model()}
}

// BackwardModel is the model of a plan's backward pass. The error says why there are no kernels for one, as [flash.Plan.BackwardInfo] does.
func BackwardModel(p *flash.Plan) (_ Model, err error) {
	defer within.During("BackwardModel", &err)
	_, program, err := within.Backward(p)
	if err != nil {
		return Model{}, err
	}
	return Model{program.Model()}, nil
}

// JVPModel is what the kernel of a plan's pass in forward mode does and moves; the kernel is chosen at the first call.
func JVPModel(p *flash.Plan) (_ Model, err error) {
	defer within.During("JVPModel", &err)
	_, program, err := within.JVP(p)
	if err != nil {
		return Model{}, err
	}
	return Model{program.Model()}, nil
}

// LeastForwardBytes is what a forward pass cannot do without, were the caches endless: inputs read and outputs written once, lse among
// them; of Standard, whose kernels are separate, the matrix of scores four times as well: written, read, written as weights, read.
func LeastForwardBytes(p flash.Problem, of flash.Implementation) (float64, error) {
	return least(p, func(a attn.Problem) float64 { return traffic.LeastForward(a, of == flash.Standard) })
}

// LeastBackwardBytes is the same of the backward pass: q, k, v, o, do and lse read, dq, dk and dv written; of Standard, whose weights stand
// in memory, the matrices of weights, dP and dS as well: P read twice, dP and dS written and read.
func LeastBackwardBytes(p flash.Problem, of flash.Implementation) (float64, error) {
	return least(p, func(a attn.Problem) float64 { return traffic.LeastBackward(a, of == flash.Standard) })
}

// LeastJVPBytes is the same of a pass in forward mode with tangents of q, k and v.
func LeastJVPBytes(p flash.Problem, _ flash.Implementation) (float64, error) {
	return least(p, func(a attn.Problem) float64 { return traffic.LeastJVP(a) })
}

func least(p flash.Problem, of func(attn.Problem) float64) (float64, error) {
	a, err := within.Problem(p)
	if err != nil {
		return 0, err
	}
	return of(a), nil
}
