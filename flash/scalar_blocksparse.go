package flash

import "github.com/vkattn/vkattn/internal/attn"

// scalarBlockSparse is shaders/scalar_forward.comp with a block mask.
var scalarBlockSparse = &kernel{
	offer: offer{
		name:           "scalar_forward_blocks",
		implementation: Flash,
		tier:           TierScalar,
		can:            attn.WithDropout | attn.WithBlocks,
		needs:          attn.WithBlocks,
		parameters:     scalarRanges,
		unsupported:    scalarLacks,
	},
	plan: func(d *environment, p *Problem, t *tuning) (program, error) {
		return fitScalarForward("scalar_forward_blocks", d, p, t)
	},
	candidates: scalarForwardCandidates,
}
