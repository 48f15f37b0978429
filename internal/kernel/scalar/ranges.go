package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Ranges of tuning parameters.
var (
	pieceRanges = kernel.PieceRanges.And(kernel.Parameters{"dk": kernel.Multiples(4, attn.MostDim, 4),
		"vc": kernel.Multiples(4, 1024, 4)})
	forwardRanges = pieceRanges.And(kernel.GroupBound, kernel.Parameters{
		"pc": kernel.Multiples(16, 1024, 4), "q_resident": kernel.OnOff,
		"v_early": kernel.OnOff, "subgroup": kernel.OnOff, "parts": kernel.PartsRange,
	})
	backwardRanges = pieceRanges.And(kernel.Parameters{"pc": kernel.Multiples(16, 1024, 4)})
)
