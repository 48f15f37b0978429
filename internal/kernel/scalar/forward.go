package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Forward is FlashAttention-2 in fp32 arithmetic: shaders/scalar/scalar_forward.comp.
var Forward = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "scalar_forward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked |
			attn.WithPages | attn.WithQuantised | attn.WithMaxLogit,
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
	k, err := fusedForward(name, e, p, t)
	if err != nil {
		return nil, err
	}
	return k.Forward(e, p, t)
}

func fusedForward(name string, e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*pass.Fused, error) {
	tile, err := ChooseForwardTile(&e.Caps, p, t)
	if err != nil {
		return nil, err
	}
	module := kernel.CacheModule("scalar_forward", p)
	if tile.Parts > 1 {
		module += "_parts"
	}
	if tile.Subgroup {
		module += "_subgroup"
	}
	return &pass.Fused{Label: name, Module: module + "." + p.DType.Suffix(), Tile: tile.String(), Parts: tile.Parts, Groups: tile.groups,
		Rows: func(*attn.Problem) kernel.RowBlocks { return tile.blocks() }, FLOPs: p.ForwardFLOPs(), Pace: kernel.ScalarPace,
		Moves: traffic.QueriesOutside{Label: name, Rows: tile.BR, Keys: tile.BC, QAgain: !tile.QResident, Parts: tile.Parts,
			Combine: kernel.CombineLabel(tile.Parts)},
		Trusted: true, Buffers: pass.Views, Constants: tile.Constants, Made: e.Subgroups(tile.Subgroup), SelfCheck: tile.selfCheck}, nil
}

// Constants are the specialization constants of scalar_forward.
func (t *ForwardTile) Constants(p *attn.Problem, v kernel.Variant) kernel.Constants {
	sh := t.Shared(p.HeadDim, p.ValueDim)
	return kernel.Constants{"WG": t.Threads(), "K_AT": sh.KAt, "V_AT": sh.VAt, "P_AT": sh.PAt, "SHARED_V4": sh.Length,
		"REDUCE_LEN": sh.reduce, "DROPOUT": kernel.BoolInt(p.DropThreshold() > 0)}.And(forwardFields.Constants(t),
		kernel.ForwardConstants(p, v), kernel.WithinConstants(p), kernel.MaxLogitConstants(p),
		kernel.PartsOrBlocks(p, t.Parts))
}

// selfCheck is a small problem of two blocks of queries and three of keys, the last ones ragged.
func (t *ForwardTile) selfCheck(of *attn.Problem) attn.Problem {
	p := kernel.SelfCheckOf(of)
	p.QueryLen, p.KeyLen = t.BR+3, 2*t.BC+3
	kernel.GrowForBlocks(&p, true)
	kernel.PackSelfCheck(&p)
	return p
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
