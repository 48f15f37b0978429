package flash

// Ranges of tuning parameters: pieces of a tile of scores that invocations own. They are unrolled.
var (
	pieceRanges = parameters{
		"br": between(1, 1024), "bc": multiples(8, 1024, 8), "mr": between(1, 16), "mc": multiples(4, 16, 4),
		"dk": multiples(4, 256, 4), "vc": multiples(4, 1024, 4),
	}
	scalarRanges = pieceRanges.and(groupBound, parameters{
		"pc": multiples(16, 1024, 4), "q_resident": onOff, "v_early": onOff, "subgroup": onOff, "parts": partsRange,
	})
	backwardRanges = pieceRanges.and(parameters{"pc": multiples(16, 1024, 4)})
)
