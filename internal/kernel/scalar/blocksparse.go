package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// BlockSparse is shaders/scalar/scalar_forward.comp with a block mask.
var BlockSparse = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "scalar_forward_blocks",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.WithBlocks | attn.OfScores | attn.WithSinks | attn.WithLengths |
			attn.WithPacked | attn.WithPages | attn.WithQuantised | attn.WithMaxLogit,
		Needs:       attn.WithBlocks,
		Parameters:  forwardRanges.And(kernel.IndirectRange),
		Unsupported: kernel.ScalarLacks,
	},
	Plan: func(d *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
		return fitForward("scalar_forward_blocks", d, p, t)
	},
	Candidates: forwardCandidates,
}
