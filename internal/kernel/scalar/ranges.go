package scalar

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Ranges of tuning parameters: pieces of a tile of scores that invocations own. They are unrolled.
var (
	pieceRanges = kernel.Parameters{
		"br": kernel.Between(1, 1024), "bc": kernel.Multiples(8, 1024, 8), "mr": kernel.Between(1, 16), "mc": kernel.Multiples(4, 16, 4),
		"dk": kernel.Multiples(4, 256, 4), "vc": kernel.Multiples(4, 1024, 4),
	}
	forwardRanges = pieceRanges.And(kernel.GroupBound, kernel.Parameters{
		"dk": kernel.Multiples(4, attn.MostDim, 4), "pc": kernel.Multiples(16, 1024, 4), "q_resident": kernel.OnOff, "v_early": kernel.OnOff, "subgroup": kernel.OnOff, "parts": kernel.PartsRange,
	})
	backwardRanges = pieceRanges.And(kernel.Parameters{"pc": kernel.Multiples(16, 1024, 4)})
)
