package matrix

import "github.com/vkattn/vkattn/internal/kernel"

// Ranges of tuning parameters: those of the rows of tiles, and what rows leave to the kernel.
var (
	// of a Tile; br is another way to say w
	numberRanges = kernel.RowRanges("matrix_forward").But("heads_together", "late", "repeat", "sums", "look_apart").
			And(kernel.Parameters{"br": kernel.Between(1, 4096)})
	tileRanges = kernel.FormRanges.And(kernel.GroupBound, numberRanges)
	wideRanges = kernel.FormRanges.And(kernel.GroupBound, kernel.RowRanges(wideKernel))
	headRanges = kernel.RowRanges("matrix_forward").Only("heads_together").And(kernel.Parameters{"pack": kernel.OnOff,
		"parts": kernel.PartsRange})
	lateRange            = kernel.RowRanges("matrix_forward").Only("late", "sums", "look_apart")
	repeatRange          = kernel.RowRanges("matrix_forward").Only("repeat")
	backwardTileRanges   = kernel.RowRanges(keysLabel)
	backwardMatrixRanges = backwardTileRanges.And(headRanges.Only("heads_together"))
)
