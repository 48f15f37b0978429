package flash

import "math"

// Ranges of tuning parameters.
var (
	rowRanges  = parameters{"row_threads": {1, softmaxThreads, 0, true}}
	slabRanges = parameters{"max_slab": {0, math.MaxInt32, 0, false}} // bytes; for tests, and 0 sets no bound

	standardScalarRanges = groupBound.and(rowRanges, slabRanges, parameters{
		"br": {1, 1024, 0, false}, "bc": {8, 1024, 8, false}, "mr": {1, 16, 0, false}, "mc": {4, 16, 4, false}, "dk": {8, 256, 8, false},
		"product_br": {1, 1024, 0, false}, "product_bc": {8, 1024, 8, false}, "product_mr": {1, 16, 0, false}, "product_tx": {2, 256, 2, false},
	})

	scoresRanges = parameters{"wr": {1, 64, 0, false}, "fr": {1, 16, 0, false}, "fc": {1, 64, 0, false}, "run": {1, 1024, 0, false}}
	blockRanges  = parameters{
		"wr": {1, 64, 0, false}, "wc": {1, 64, 0, false}, "fr": {1, 16, 0, false}, "fc": {1, 64, 0, false}, "stage": {1, 1024, 0, false},
	}
	standardMatrixRanges   = sideRanges.and(groupBound, rowRanges, slabRanges, scoresRanges, blockRanges.of("product_"), parameters{"half": onOff})
	standardGradientRanges = sideRanges.and(groupBound, scoresRanges.of("dp_"), blockRanges.of("dq_"), blockRanges.of("dv_"), blockRanges.of("dk_"),
		parameters{"half": onOff})
)
