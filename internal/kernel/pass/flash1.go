package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Flash1 is a kernel of the first FlashAttention, in which blocks of keys stay while queries pass by, and O, m and l of all rows are in
// memory between blocks: what its tile says of any problem.
type Flash1 struct {
	Label, Module, Tile string // as Fused's
	Keys                int    // of a block
	FLOPs               float64
	Pace                kernel.Pace
	Moves               traffic.Model
	Trusted             bool
	Buffers             *Buffers

	// Constants are those of dispatches that take so many blocks of keys.
	Constants func(p *attn.Problem, v kernel.Variant, keyBlocks int) kernel.Constants
	Made      pipeline.KernelInfo
	// Rows are the sizes of m and l of all rows, and of their O; 0: the output is its own memory.
	Rows      func(*attn.Problem) (statistics, sums uint64)
	SelfCheck func(*attn.Problem) attn.Problem
	WholeBias bool
}

// flash1 is one fitted to a problem.
type flash1 struct {
	*Flash1
	problem   *attn.Problem
	grid      kernel.Grid
	keyBlocks int // of a dispatch
}

// Forward fits the kernel to a problem, each dispatch so short as its operations at its pace ask for.
func (k *Flash1) Forward(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (*Forward, error) {
	p := *problem
	s, err := k.plan(e, &p, t)
	if err != nil {
		return nil, err
	}
	return NewForward(&Fitted{Env: e, Problem: &p, Name: k.Module + " " + k.Tile, Named: k.Tile, Moves: k.Moves, Trusted: k.Trusted,
		WholeBias: k.WholeBias, Pass: s.pass, SelfCheck: s.selfCheck}, 1)
}

// Pass is what the kernel does for a problem and tensors of a variant, without a device but for its facts.
func (k *Flash1) Pass(e *kernel.Env, p *attn.Problem, t *kernel.Tuning, v Variant) (*Pass, error) {
	s, err := k.plan(e, p, t)
	if err != nil {
		return nil, err
	}
	return s.pass(v), nil
}

func (k *Flash1) plan(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*flash1, error) {
	grid, keyBlocks, err := kernel.Flash1Grid(&e.Caps, p, k.Keys, k.FLOPs, k.Pace, t)
	return &flash1{k, p, grid, keyBlocks}, err
}

func (s *flash1) pass(v Variant) *Pass {
	p := s.problem
	m, o := s.Rows(p)
	out := &Pass{Problem: p, Operands: attn.ForwardOperands[:], Scratch: []Scratch{{statistics, m}}}
	bind := append(append(s.Buffers.Inputs(), s.Buffers.outputs(v)...), Bind{Name: "Statistics", To: statistics, Mode: pipeline.ReadWrite})
	if o == 0 {
		bind = append(bind, Bind{Name: s.Buffers.O, To: "O", Mode: pipeline.ReadWrite})
	} else {
		out.Scratch = append(out.Scratch, Scratch{sums, o})
		bind = append(bind, Bind{Name: "Sums", To: sums, Mode: pipeline.ReadWrite})
	}
	out.Stages = []Stage{{Label: s.Label, Module: s.Module, Proves: true, Made: s.Made, Grid: s.grid, Idle: "Q",
		Constants: s.Constants(p, kernel.Variant{Aligned: v.Aligned, LSE: v.LSE}, s.keyBlocks),
		Args:      Args{As: AsForward, Problem: p}, Bind: append(bind, Scores(p, 0)...)}}
	out.ClearMaxLogits()
	return out
}

// selfCheck is the pass of a small problem, with the same pipeline.
func (s *flash1) selfCheck(v Variant) (*Pass, error) {
	p := s.SelfCheck(s.problem)
	small, heads := *s, uint64(p.Batch)*uint64(p.Heads)
	small.problem = &p
	var err error
	small.grid, err = kernel.NewGrid(heads*uint64(attn.CeilDiv(attn.CeilDiv(p.KeyLen, s.Keys), s.keyBlocks)), heads)
	return small.pass(v), err
}
