package standard

import (
	"math"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Ranges of tuning parameters.
var (
	rowRanges  = kernel.Parameters{"row_threads": kernel.Powers(1, softmaxThreads)}
	slabRanges = kernel.Parameters{maxSlab: kernel.Between(0, math.MaxInt32)} // bytes; for tests, and 0 sets no bound

	scalarRanges = kernel.GroupBound.And(rowRanges, slabRanges, kernel.PieceRanges, kernel.TileRanges.Of("product_"), kernel.Parameters{
		"dk": kernel.Multiples(8, 256, 8), "product_tx": kernel.Multiples(2, 256, 2),
	})

	// subgroups below one another, and the fragments of each
	fragmentsRanges = kernel.Parameters{"wr": kernel.Between(1, 64), "fr": kernel.Between(1, 16), "fc": kernel.Between(1, 64)}
	scoresRanges    = fragmentsRanges.And(kernel.Parameters{"run": kernel.Between(1, 1024)})
	blockRanges     = fragmentsRanges.And(kernel.Parameters{"wc": kernel.Between(1, 64), "stage": kernel.Between(1, 1024)})
	matrixRanges    = kernel.SideRanges.And(kernel.GroupBound, rowRanges, slabRanges, scoresRanges, blockRanges.Of("product_"),
		kernel.Parameters{"half": kernel.OnOff})
	gradientRanges = kernel.SideRanges.And(kernel.GroupBound, scoresRanges.Of("dp_"), blockRanges.Of("dq_"), blockRanges.Of("dv_"),
		blockRanges.Of("dk_"),
		kernel.Parameters{"half": kernel.OnOff})
)
