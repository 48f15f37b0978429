package kernel

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Which keys a query sees by their positions, as kernels are told and as they are tried. What the rule is says internal/attn.Mask, and
// shaders/include/mask.glsl for kernels; its two bounds are among the push constants.

// MaskConstants are those of mask.glsl that every kernel declares.
func MaskConstants(p *attn.Problem) Constants { return boundConstants(p.Mask()) }

func boundConstants(m attn.Mask) Constants {
	return Constants{"UPPER_BOUND": BoolInt(m.High < attn.Unbounded), "LOWER_BOUND": BoolInt(m.Low > -attn.Unbounded)}
}

// selfCheckMask gives the problem of a self-check the masks that p has, of distances that end within a self-check's few hundred keys.
func selfCheckMask(small, p *attn.Problem) {
	if p.Causal != attn.CausalNone && !p.Padded() { // lengths tell them apart
		small.Causal = attn.CausalBottomRight
	}
	left, right := p.Window.Reach()
	small.Window = attn.NewWindow(min(left, 90), min(right, 20))
}

// seen says in the oracle's words which keys a query of a self-check sees.
func seen(p *attn.Problem, in *ref.Options) {
	in.Causal = [...]ref.Causal{attn.CausalNone: ref.NotCausal, attn.CausalBottomRight: ref.BottomRight,
		attn.CausalTopLeft: ref.TopLeft}[p.Causal]
	if !p.Window.None() {
		left, right := p.Window.Reach()
		in.Window = &ref.Window{Left: left, Right: right}
	}
}
