package standard

import (
	"math"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Ranges of tuning parameters.
var (
	rowRanges  = kernel.Parameters{"row_threads": kernel.Powers(1, softmaxThreads)}
	slabRanges = kernel.Parameters{"max_slab": kernel.Between(0, math.MaxInt32)} // bytes; for tests, and 0 sets no bound

	scalarRanges = kernel.GroupBound.And(rowRanges, slabRanges, kernel.Parameters{
		"br": kernel.Between(1, 1024), "bc": kernel.Multiples(8, 1024, 8), "mr": kernel.Between(1, 16), "mc": kernel.Multiples(4, 16, 4), "dk": kernel.Multiples(8, 256, 8),
		"product_br": kernel.Between(1, 1024), "product_bc": kernel.Multiples(8, 1024, 8), "product_mr": kernel.Between(1, 16), "product_tx": kernel.Multiples(2, 256, 2),
	})

	scoresRanges = kernel.Parameters{"wr": kernel.Between(1, 64), "fr": kernel.Between(1, 16), "fc": kernel.Between(1, 64), "run": kernel.Between(1, 1024)}
	blockRanges  = kernel.Parameters{
		"wr": kernel.Between(1, 64), "wc": kernel.Between(1, 64), "fr": kernel.Between(1, 16), "fc": kernel.Between(1, 64), "stage": kernel.Between(1, 1024),
	}
	matrixRanges   = kernel.SideRanges.And(kernel.GroupBound, rowRanges, slabRanges, scoresRanges, blockRanges.Of("product_"), kernel.Parameters{"half": kernel.OnOff})
	gradientRanges = kernel.SideRanges.And(kernel.GroupBound, scoresRanges.Of("dp_"), blockRanges.Of("dq_"), blockRanges.Of("dv_"), blockRanges.Of("dk_"),
		kernel.Parameters{"half": kernel.OnOff})
)
