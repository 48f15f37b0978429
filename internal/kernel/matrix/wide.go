package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// wideKernel is the kernel's name, the label of its dispatches, and that of its rows of tiles.
const wideKernel = "matrix_forward_wide"

// ForwardWide is FlashAttention-2 on cooperative matrices for heads that pass what Forward keeps in registers and shared memory:
// shaders/matrix/matrix_forward_wide.comp.
var ForwardWide = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           wideKernel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		Can:            attn.OfScores | attn.WithSinks | attn.WithMaxLogit,
		LeastDim:       kernel.PlainDims + 1,
		MostDim:        attn.MostDim,
		Parameters:     wideRanges.And(headRanges, kernel.Parameters{kernel.DecodeParameter: kernel.OnOff}),
		Reserved:       kernel.ReservedOnCPU,
		Unsupported:    kernel.MatrixLacks,
	},
	Plan:       planWide,
	Candidates: wideCandidates,
}

func planWide(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	tile, err := ChooseWideTile(&e.Caps, p, fragment, &layout, form, t)
	if err != nil {
		return nil, err
	}
	return tile.fused(p, &layout).Forward(e, p, t)
}

// fused is the kernel with this tile: nothing is fetched beyond the last tile, and Q comes again with each.
func (t WideTile) fused(p *attn.Problem, l *kernel.FragmentLayout) *pass.Fused {
	module := wideKernel
	if t.Parts > 1 {
		module += "_parts"
	}
	return &pass.Fused{Label: wideKernel, Module: module + "." + p.DType.Suffix(), Tile: t.String(), Parts: t.Parts, Groups: t.Groups,
		Rows: func(*attn.Problem) kernel.RowBlocks { return kernel.RowBlocks{} }, // it takes no packed sequences
		Moves: traffic.QueriesOutside{Label: wideKernel, Rows: t.Rows(), Keys: t.Keys(), Packed: t.Pack, Parts: t.Parts,
			Combine: kernel.CombineLabel(t.Parts), QAgain: true, NoneUnseen: true},
		FLOPs: kernel.PaddedFLOPs(p), Pace: kernel.MatrixPace, Buffers: buffers, Made: t.Fragment.Subgroups(), SelfCheck: t.selfCheck,
		Constants: func(p *attn.Problem, v kernel.Variant) kernel.Constants { return t.Constants(p, l, v) }}
}

// Constants are the specialization constants of matrix_forward_wide.
func (t *WideTile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	f, sh := &t.Fragment, t.Shared(p.HeadDim, p.ValueDim)
	c := kernel.Constants{"WG": t.Threads(), "BR": t.Rows(), "BC": t.Keys(), "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "FORM": t.Form,
		"S_PITCH": sh.SPitch, "V_PITCH": sh.VPitch, "P_PITCH": sh.PPitch, "STEP_LEN": sh.Step, "STAGED_LEN": sh.Staged, "X_LEN": sh.X,
		"P_LEN": sh.P, "WORDS": kernel.BoolInt(t.Words), "MASKS": kernel.BoolInt(t.masks(p))}.
		And(wideFields.Constants(t), wideCutFields.Constants(t), kernel.ForwardConstants(p, v), l.Constants(), kernel.MaxLogitConstants(p))
	if t.Parts > 1 {
		c["PARTS"] = t.Parts
	}
	return c
}

// masks says that some tiles of keys need a mask.
func (t *WideTile) masks(p *attn.Problem) bool { return p.Masked() || p.KeyLen%t.Keys() != 0 }

// selfCheck is a small problem for the tile: two blocks of queries, the second ragged, some whole tiles of keys and, where the pipeline
// takes it, a ragged one, the diagonal across them when causal.
func (t *WideTile) selfCheck(p *attn.Problem) attn.Problem {
	return smallForward(p, t.Rows(), t.Keys(), t.Fragment.M, t.Pack, t.masks(p))
}

func wideCandidates(c *kernel.Capabilities, _ *attn.Problem) []map[string]int {
	return rowTunings(c, wideKernel, wideFields, func(t *WideTile) (w, rm int) { return t.W, t.RM })
}
