package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Fused is a forward kernel that keeps scores to itself: what its tile says of any problem.
type Fused struct {
	Label   string // of its dispatches, and the kernel's name
	Module  string
	Tile    string
	Parts   int // of the keys
	Groups  func(*attn.Problem) uint64
	Rows    func(*attn.Problem) kernel.RowBlocks // how packed sequences are cut
	FLOPs   float64
	Pace    kernel.Pace
	Moves   traffic.Model
	Trusted bool
	InKeys  bool     // of Fitted
	Buffers *Buffers // of the module

	Constants func(*attn.Problem, kernel.Variant) kernel.Constants
	Made      pipeline.KernelInfo
	SelfCheck func(*attn.Problem) attn.Problem // a small problem, for a self-check
	Bound     float64                          // of its output; 0: that of the storage type
	WholeBias bool                             // of Fitted
}

// fused is one fitted to a problem.
type fused struct {
	*Fused
	env     *kernel.Env
	problem *attn.Problem
	rows    kernel.RowBlocks
	combine *kernel.Combiner // nil: keys are in one part
}

// Forward fits the kernel to a problem, each dispatch so short as its operations at its pace ask for.
func (k *Fused) Forward(e *kernel.Env, problem *attn.Problem, t *kernel.Tuning) (*Forward, error) {
	p := *problem
	s, err := k.plan(e, &p, t)
	if err != nil {
		return nil, err
	}
	return NewForward(&Fitted{Env: e, Problem: &p, Name: k.Module + " " + k.Tile, Named: k.Tile, Moves: k.Moves, Trusted: k.Trusted,
		InKeys: k.InKeys, WholeBias: k.WholeBias, Bound: k.Bound, Pass: s.pass, SelfCheck: func(v Variant) (*Pass, error) {
			small := k.SelfCheck(&p)
			rows, err := k.rows(&small).Small(k.Groups(&small), s.rows.Counted)
			if err != nil {
				return nil, err
			}
			s, err := k.fit(e, &small, rows, kernel.NewTuning(nil))
			if err != nil {
				return nil, err
			}
			return s.pass(v), nil
		}}, k.Parts)
}

// Pass is what the kernel does for a problem and tensors of a variant, without a device but for its facts.
func (k *Fused) Pass(e *kernel.Env, p *attn.Problem, t *kernel.Tuning, v Variant) (*Pass, error) {
	s, err := k.plan(e, p, t)
	if err != nil {
		return nil, err
	}
	return s.pass(v), nil
}

func (k *Fused) plan(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*fused, error) {
	rows, err := k.rows(p).Planned(e, p, k.Groups(p), k.FLOPs, k.Pace, "", t)
	if err != nil {
		return nil, err
	}
	return k.fit(e, p, rows, t)
}

// rows is how rows are cut, a workgroup for each part.
func (k *Fused) rows(p *attn.Problem) kernel.RowBlocks {
	rows := k.Rows(p)
	rows.Parts = k.Parts
	return rows
}

func (k *Fused) fit(e *kernel.Env, p *attn.Problem, rows kernel.RowBlocks, t *kernel.Tuning) (s *fused, err error) {
	s = &fused{Fused: k, env: e, problem: p, rows: rows}
	if k.Parts > 1 {
		s.combine, err = kernel.NewCombiner(e, p, k.Parts, t)
	}
	return s, err
}

// pass is the table of packed sequences, the kernel itself and, where keys are in parts, their combination.
func (s *fused) pass(v Variant) *Pass {
	p, parts, names := s.problem, s.combine != nil, s.Buffers
	out := &Pass{Problem: p, Operands: attn.ForwardOperands[:]}
	o := names.outputs(v)
	if parts {
		for i, name := range []string{sums, statistics} {
			out.Scratch = append(out.Scratch, Scratch{name, kernel.PartsScratch(p, s.Parts)[i]})
		}
		o = []Bind{{Name: names.Sums, To: sums, Mode: pipeline.Write},
			{Name: names.Statistics, To: statistics, Mode: pipeline.Write, May: true},
			{Name: names.LSE, To: statistics, Mode: pipeline.Write, May: true}}
	}
	out.tables(s.env, s.rows)
	out.Stages = append(out.Stages, Stage{Label: s.Label, Module: s.Module, Proves: true, Made: s.Made, Grid: s.rows.Grid, Idle: "Q",
		Constants: s.Constants(p, kernel.Variant{Aligned: v.Aligned, LSE: v.LSE || parts, InKeys: v.InKeys}),
		Counts:    CountsOf(p, s.rows, 0), Args: Args{As: AsForward, Problem: p},
		Bind: append(append(names.Inputs(), o...), Scores(p, 0)...)})
	if parts {
		out.combine(s.combine, v)
	}
	out.ClearMaxLogits()
	return out
}

// SelfCheckOfFew is a small problem for kernels for few queries, whose workgroups take batch keys at a time: as many queries, and two
// batches of keys for each part, and some; with lists as many of each, for a few queries.
func SelfCheckOfFew(p *attn.Problem, batch, parts int) attn.Problem {
	small := kernel.SelfCheckOf(p)
	small.KeyHeads = 2
	small.Heads = small.KeyHeads * p.Group()
	small.QueryLen, small.KeyLen = p.QueryLen, 2*batch*parts+3
	if !p.Lists.None() {
		small.QueryLen, small.Lists.Keys = min(p.QueryLen, 3), small.KeyLen
		small.KeyLen += 5
	}
	kernel.PackSelfCheck(&small)
	return small
}
