package flash

import "math"

// Ranges of tuning parameters.
var (
	rowRanges  = parameters{"row_threads": powers(1, softmaxThreads)}
	slabRanges = parameters{"max_slab": between(0, math.MaxInt32)} // bytes; for tests, and 0 sets no bound

	standardScalarRanges = groupBound.and(rowRanges, slabRanges, parameters{
		"br": between(1, 1024), "bc": multiples(8, 1024, 8), "mr": between(1, 16), "mc": multiples(4, 16, 4), "dk": multiples(8, 256, 8),
		"product_br": between(1, 1024), "product_bc": multiples(8, 1024, 8), "product_mr": between(1, 16), "product_tx": multiples(2, 256, 2),
	})

	scoresRanges = parameters{"wr": between(1, 64), "fr": between(1, 16), "fc": between(1, 64), "run": between(1, 1024)}
	blockRanges  = parameters{
		"wr": between(1, 64), "wc": between(1, 64), "fr": between(1, 16), "fc": between(1, 64), "stage": between(1, 1024),
	}
	standardMatrixRanges   = sideRanges.and(groupBound, rowRanges, slabRanges, scoresRanges, blockRanges.of("product_"), parameters{"half": onOff})
	standardGradientRanges = sideRanges.and(groupBound, scoresRanges.of("dp_"), blockRanges.of("dq_"), blockRanges.of("dv_"), blockRanges.of("dk_"),
		parameters{"half": onOff})
)
