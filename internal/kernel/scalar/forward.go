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
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked |
			attn.WithPages | attn.WithQuantised,
		Parameters:  forwardRanges.And(kernel.IndirectRange, kernel.Parameters{kernel.DecodeParameter: kernel.OnOff}),
		Unsupported: kernel.ScalarLacks,
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
	prog := &ForwardProgram{Shape: tile}
	if err := prog.Fit(e, p, name, tile.workgroups(p), p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return nil, err
	}
	module := kernel.CacheModule("scalar_forward", p)
	if tile.Parts > 1 {
		module += "_parts"
	}
	if tile.Subgroup {
		module += "_subgroup"
	}
	prog.CheckedKernels = kernel.CheckedKernels{Env: e, For: &prog.Problem, Module: module + "." + p.DType.Suffix(), Named: tile.String(),
		Trusted:  true,
		Describe: prog.Describe, Try: prog.try}
	return prog, prog.Usual(p)
}

// ForwardProgram is scalar_forward fitted to a problem.
type ForwardProgram struct {
	kernel.ForwardPass
	Shape ForwardTile
}

func (s *ForwardProgram) Model() traffic.Model {
	return traffic.QueriesOutside{Label: s.Label, Rows: s.Shape.BR, Keys: s.Shape.BC, QAgain: !s.Shape.QResident, Parts: s.Shape.Parts,
		Combine: s.Combine.Label()}
}

// Describe gives the specialization constants of a variant, and what else its pipeline is made with.
func (s *ForwardProgram) Describe(v kernel.Variant) (kernel.Constants, pipeline.KernelInfo) {
	p, t := &s.Problem, &s.Shape
	sh := t.Shared(p.HeadDim, p.ValueDim)
	c := kernel.Constants{"WG": t.Threads(), "BR": t.BR, "BC": t.BC, "MR": t.MR, "MC": t.MC, "DK": t.DK, "VC": t.VC,
		"PC": t.PC, "Q_RESIDENT": kernel.BoolInt(t.QResident), "V_EARLY": kernel.BoolInt(t.VEarly), "K_AT": sh.KAt, "V_AT": sh.VAt,
		"P_AT": sh.PAt, "SHARED_V4": sh.Length, "REDUCE_LEN": sh.reduce,
		"DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(kernel.ForwardConstants(p, v), kernel.WithinConstants(p))
	return c.And(kernel.PartsOrBlocks(p, s.Combine, t.Parts)), s.Env.Subgroups(t.Subgroup)
}

// try runs a pipeline on a small problem, of two blocks of queries and three of keys, the last ones ragged, and says what is wrong with the
// output.
func (s *ForwardProgram) try(k *pipeline.Kernel, v kernel.Variant) (wrong string, err error) {
	p := kernel.TrialOf(&s.Problem)
	p.QueryLen, p.KeyLen = s.Shape.BR+3, 2*s.Shape.BC+3
	kernel.GrowForBlocks(&p, true)
	kernel.PackTrial(&p)
	return s.TryOn(&p, s.Shape.workgroups(&p), k, v)
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
