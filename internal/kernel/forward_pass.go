package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// ForwardPass is the dispatches of a fused forward kernel for a problem: the table of packed sequences, the kernel itself and, where keys
// are in parts, their combination. Programs embed it.
type ForwardPass struct {
	CheckedKernels
	Problem attn.Problem
	Combine *Combiner // of keys in parts; nil: in one
	Label   string    // of the kernel's own dispatches
	grid    Grid
	rows    RowTables
}

// Cut is how a tile cuts a problem into workgroups.
type Cut struct {
	Groups uint64    // for each part of the keys
	Parts  int       // of the keys
	Blocks RowBlocks // of queries, where sequences are packed
}

// Fit lays the dispatches out, each so short as the kernel's operations at this pace ask for.
func (s *ForwardPass) Fit(e *Env, p *attn.Problem, label string, c Cut, flops float64, at Pace, t *Tuning) error {
	grid, err := GridFor(e, c.Groups*uint64(c.Parts), flops, at, t)
	if err != nil {
		return err
	}
	if c.Blocks, err = c.Blocks.Planned(p, grid, c.Parts, "", t); err != nil {
		return err
	}
	return s.lay(e, p, label, c, grid, t)
}

func (s *ForwardPass) lay(e *Env, p *attn.Problem, label string, c Cut, g Grid, t *Tuning) (err error) {
	s.Problem, s.Label, s.grid = *p, label, g
	if c.Parts > 1 {
		if s.Combine, err = NewCombiner(e, p, c.Parts, t); err != nil {
			return err
		}
	}
	s.rows, err = NewRowTables(e, p, c.Blocks)
	return err
}

// Usual builds the pipelines that a plan looks at.
func (s *ForwardPass) Usual(p *attn.Problem) error {
	if s.Combine == nil {
		return s.CheckedKernels.Usual(p)
	}
	return Together(func() error { return s.CheckedKernels.Usual(p) }, s.Combine.usual)
}

func (s *ForwardPass) Scratch() []uint64 { return append(s.Combine.Scratch(), s.rows.Scratch()...) }
func (s *ForwardPass) Dispatches() int {
	return s.grid.Dispatches() + s.Combine.Dispatches() + s.rows.Dispatches()
}

// Record writes the dispatches with the pipeline that the operands ask for.
func (s *ForwardPass) Record(r *Recorder, f *Operands) error {
	return s.RecordAs(f.Variant(s.Combine), r, f)
}

// RecordAs writes them with the pipeline of a variant.
func (s *ForwardPass) RecordAs(v Variant, r *Recorder, f *Operands) error {
	k, err := s.Kernel(v)
	if err != nil {
		return err
	}
	return s.run(k, r, f)
}

// run writes the dispatches with a given pipeline.
func (s *ForwardPass) run(k *pipeline.Kernel, r *Recorder, f *Operands) error {
	if err := s.rows.Record(r, &f.Scores, r.Scratch[len(r.Scratch)-len(s.rows):]); err != nil {
		return err
	}
	access, at := r.forwardAccess(k, &s.Problem, f), r.Push.Forward(&s.Problem, f)
	if s.Combine == nil {
		return r.DispatchBlocks(k, &s.Problem, access, at, s.grid, s.Label)
	}
	s.Combine.bind(r)
	if err := r.DispatchBlocks(k, &s.Problem, access, at, s.grid, s.Label); err != nil {
		return err
	}
	return s.Combine.Record(r, f)
}

// TryOn runs a pipeline of this pass on a small problem, which its tile cuts like this, and says what is wrong with the output.
func (s *ForwardPass) TryOn(p *attn.Problem, c Cut, k *pipeline.Kernel, v Variant) (wrong string, err error) {
	return s.TryOnWithin(outputBounds[p.DType], p, c, k, v)
}

// TryOnWithin is TryOn with a bound of its own for o.
func (s *ForwardPass) TryOnWithin(bound float64, p *attn.Problem, c Cut, k *pipeline.Kernel, v Variant) (wrong string, err error) {
	grid, err := NewGrid(c.Groups*uint64(c.Parts), 0)
	if err != nil {
		return "", err
	}
	c.Blocks = c.Blocks.Over(grid, c.Parts, s.rows.Counted(0))
	var small ForwardPass
	if err := small.lay(s.Env, p, s.Label, c, grid, NewTuning(nil)); err != nil {
		return "", err
	}
	return s.Env.TryForwardWithin(bound, &small.Problem, v, small.Scratch(),
		func(r *Recorder, f *Operands) error { return small.run(k, r, f) })
}

// TryOnFew is TryOn for kernels for few queries, whose workgroups take batch keys at a time: on as many queries, and two batches of keys
// for each part, and some.
func (s *ForwardPass) TryOnFew(batch, parts int, cut func(*attn.Problem) Cut, k *pipeline.Kernel, v Variant) (wrong string, err error) {
	p := TrialOf(&s.Problem)
	p.KeyHeads = 2
	p.Heads = p.KeyHeads * s.Problem.Group()
	p.QueryLen, p.KeyLen = s.Problem.QueryLen, 2*batch*parts+3
	PackTrial(&p)
	return s.TryOn(&p, cut(&p), k, v)
}

// forwardAccess binds the tensors of a fused forward kernel: q, k, v, o, lse and, where it can do with one, the block mask, or q in its
// place, untouched, where the problem has none.
func (r *Recorder) forwardAccess(k *pipeline.Kernel, p *attn.Problem, f *Operands) []pipeline.Access {
	r.Access[0] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: f.K.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: f.V.Binding, Mode: pipeline.Read}
	r.Access[3] = pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Write}
	r.Access[4] = f.LSEAccess()
	r.Access[5] = pipeline.Access{Binding: f.Q.Binding, Mode: pipeline.Unused}
	if !p.Blocks.None() {
		r.Access[5] = pipeline.Access{Binding: f.Blocks, Mode: pipeline.Read}
	}
	r.BindLengths(6, p, &f.Scores, f.Q.Binding)
	r.BindScores(forwardScores, k, p, &f.Scores, f.Q.Binding)
	r.bindCache(p, &f.Cache)
	return r.Accesses(k)
}

// forwardScores is where the bindings of score.glsl begin in fused forward kernels.
const forwardScores = 8

// ForwardConstants are what every fused forward kernel is told of the problem and of its tensors.
func ForwardConstants(p *attn.Problem, v Variant) Constants {
	return Constants{"D": p.HeadDim, "DV": p.ValueDim, "ALIGNED": BoolInt(v.Aligned),
		"WRITE_LSE": BoolInt(v.LSE)}.And(MaskConstants(p), ScoreConstants(p), SinkConstants(p), CacheConstants(p))
}

// PartsOrBlocks are the constants of the builds for keys in parts, or of the block mask, which the others can do with but for those for
// caches, and of lengths.
func PartsOrBlocks(p *attn.Problem, parts int) Constants {
	if parts > 1 {
		return Constants{"PARTS": parts}.And(LengthConstants(p))
	}
	if p.Cached() {
		return LengthConstants(p)
	}
	return BlockConstants(p.Blocks).And(LengthConstants(p))
}

// LSEAccess binds lse, or o in its place, untouched, when there is none.
func (f *Operands) LSEAccess() pipeline.Access {
	if !f.HasLSE {
		return pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Unused}
	}
	return pipeline.Access{Binding: f.LSE.Binding, Mode: pipeline.Write}
}
