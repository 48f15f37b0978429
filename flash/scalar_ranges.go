package flash

// Ranges of tuning parameters: pieces of a tile of scores that invocations own. They are unrolled.
var (
	pieceRanges = parameters{
		"br": {1, 1024, 0, false}, "bc": {8, 1024, 8, false}, "mr": {1, 16, 0, false}, "mc": {4, 16, 4, false},
		"dk": {4, 256, 4, false}, "vc": {4, 1024, 4, false},
	}
	scalarRanges = pieceRanges.and(groupBound, parameters{
		"pc": {16, 1024, 4, false}, "q_resident": onOff, "v_early": onOff, "subgroup": onOff, "parts": partsRange,
	})
	backwardRanges = pieceRanges.and(parameters{"pc": {16, 1024, 4, false}})
)
