package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Forward is FlashAttention-2 in fp32 arithmetic: shaders/scalar/scalar_forward.comp.
var Forward = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "scalar_forward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can:            attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked | attn.WithPages | attn.WithQuantised,
		Parameters:     forwardRanges.And(kernel.IndirectRange, kernel.Parameters{kernel.DecodeParameter: kernel.OnOff}),
		Unsupported:    kernel.ScalarLacks,
	},
	Plan:       planForward,
	Candidates: forwardCandidates,
}

func planForward(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	return fitForward("scalar_forward", e, p, t)
}

// fitForward plans the kernel of this name: with a block mask or without.
func fitForward(name string, e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	tile, err := ChooseForwardTile(&e.Caps, p, t)
	if err != nil {
		return nil, err
	}
	g, err := kernel.GridFor(e, tile.groups(p)*uint64(tile.Parts), p.ForwardFLOPs(), kernel.ScalarPace, t)
	if err != nil {
		return nil, err
	}
	prog := &ForwardProgram{Problem: *p, name: name, Shape: tile, grid: g}
	module := kernel.CacheModule("scalar_forward", p)
	if tile.Parts > 1 {
		module += "_parts"
		if prog.Combine, err = kernel.NewCombiner(e, p, tile.Parts, t); err != nil {
			return nil, err
		}
	}
	if prog.rows, err = kernel.NewRowTables(e, p, tile.blocks().Planned(p, g, tile.Parts, "", t)); err != nil {
		return nil, err
	}
	if tile.Subgroup {
		module += "_subgroup"
	}
	prog.CheckedKernels = kernel.CheckedKernels{Env: e, For: &prog.Problem, Module: module + "." + p.DType.Suffix(), Named: tile.String(), Trusted: true,
		Describe: prog.Describe, Try: prog.try}
	return prog, prog.Usual(p)
}

// ForwardProgram is scalar_forward fitted to a problem.
type ForwardProgram struct {
	kernel.CheckedKernels
	Problem attn.Problem
	name    string // of the kernel
	Shape   ForwardTile
	grid    kernel.Grid
	Combine *kernel.Combiner // of keys in parts; nil: in one
	rows    kernel.RowTables // of packed sequences
}

func (s *ForwardProgram) Scratch() []uint64 { return append(s.Combine.Scratch(), s.rows.Scratch()...) }
func (s *ForwardProgram) Dispatches() int {
	return s.grid.Dispatches() + s.Combine.Dispatches() + s.rows.Dispatches()
}

func (s *ForwardProgram) Model() traffic.Model {
	return traffic.QueriesOutside{Label: s.name, Rows: s.Shape.BR, Keys: s.Shape.BC, QAgain: !s.Shape.QResident, Parts: s.Shape.Parts, Combine: s.Combine.Label()}
}

// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (s *ForwardProgram) Describe(v kernel.Variant) (kernel.Constants, pipeline.KernelInfo) {
	p, t := &s.Problem, &s.Shape
	sh := t.Shared(p.HeadDim, p.ValueDim)
	c := kernel.Constants{"WG": t.Threads(), "BR": t.BR, "BC": t.BC, "MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC,
		"PC": t.PC, "Q_RESIDENT": kernel.BoolInt(t.QResident), "V_EARLY": kernel.BoolInt(t.VEarly), "K_AT": sh.KAt, "V_AT": sh.VAt,
		"P_AT": sh.PAt, "SHARED_V4": sh.Length, "REDUCE_LEN": sh.reduce, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(kernel.ForwardConstants(p, v), kernel.WithinConstants(p))
	return c.And(kernel.PartsOrBlocks(p, s.Combine, t.Parts)), s.Env.Subgroups(t.Subgroup)
}

func (s *ForwardProgram) Record(r *kernel.Recorder, f *kernel.Operands) error {
	k, err := s.Kernel(f.Variant(s.Combine))
	if err != nil {
		return err
	}
	return s.run(r, f, k)
}

// run records the dispatches with a given pipeline.
func (s *ForwardProgram) run(r *kernel.Recorder, f *kernel.Operands, k *pipeline.Kernel) error {
	if err := s.rows.Record(r, &f.Scores, r.Scratch[len(r.Scratch)-len(s.rows):]); err != nil {
		return err
	}
	return r.Forward(k, &s.Problem, f, s.grid, s.name, s.Combine)
}

// try runs a pipeline on a small problem, of two blocks of queries and three of keys, the last ones ragged, and says what is wrong with the
// output.
func (s *ForwardProgram) try(k *pipeline.Kernel, v kernel.Variant) (wrong string, err error) {
	small := ForwardProgram{Problem: kernel.TrialOf(&s.Problem), name: s.name, Shape: s.Shape}
	p := &small.Problem
	p.QueryLen, p.KeyLen = s.Shape.BR+3, 2*s.Shape.BC+3
	kernel.GrowForBlocks(p, true)
	kernel.PackTrial(p)
	if small.grid, err = kernel.NewGrid(s.Shape.groups(p)*uint64(s.Shape.Parts), 0); err != nil {
		return "", err
	}
	if small.rows, err = kernel.NewRowTables(s.Env, p, s.Shape.blocks().Over(small.grid, s.Shape.Parts, s.rows.Counted(0))); err != nil {
		return "", err
	}
	if s.Combine != nil {
		if small.Combine, err = kernel.NewCombiner(s.Env, p, s.Shape.Parts, kernel.NewTuning(nil)); err != nil {
			return "", err
		}
	}
	return s.Env.TryForward(p, v, small.Scratch(), func(r *kernel.Recorder, f *kernel.Operands) error { return small.run(r, f, k) })
}

// candidates are the shapes that were fastest on some device, and their neighbours.
func forwardCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	var out []map[string]int
	for _, r := range c.Family().Candidates("scalar_forward") {
		if br := r.Get("br"); br > 16 && br >= 4*p.QueryLen { // mostly empty
			continue
		}
		out = append(out, map[string]int{"br": r.Get("br"), "bc": r.Get("bc"), "mr": r.Get("mr"), "mc": r.Get("mc")})
	}
	return out
}
