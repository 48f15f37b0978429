package matrix

import "github.com/vkattn/vkattn/internal/kernel"

// Ranges of tuning parameters.
var (
	togetherRange = kernel.Between(1, 1<<16)
	// of subgroups, and how much of K and V is staged
	rowsRanges     = kernel.Parameters{"w": kernel.Between(1, 64), "rm": kernel.Between(1, 8), "ck": kernel.Between(1, 1024)}
	subgroupRanges = rowsRanges.And(kernel.Parameters{"bc": kernel.Between(1, 1024)})
	numberRanges   = subgroupRanges.And(kernel.Parameters{
		"br": kernel.Between(1, 4096), "prefetch": kernel.Between(0, 5), "pipe": kernel.OnOff, "max_first": kernel.OnOff,
		"q_reg": kernel.FragmentRange, "keep_masks": kernel.OnOff,
		"steps": kernel.OnOff, "whole": kernel.OnOff,
	}) // of a Tile
	tileRanges = kernel.FormRanges.And(kernel.GroupBound, numberRanges)
	wideRanges = kernel.FormRanges.And(kernel.GroupBound, rowsRanges, kernel.Parameters{
		"split": kernel.Between(1, 64), "slice": kernel.Between(1, 1024), "v_keys": kernel.Between(1, 1024),
		"prefetch": kernel.Between(0, 3),
	})
	headRanges         = kernel.Parameters{"heads_together": togetherRange, "pack": kernel.OnOff, "parts": kernel.PartsRange}
	backwardTileRanges = subgroupRanges.And(kernel.Parameters{"prefetch": kernel.Between(0, 2), "a_reg": kernel.FragmentRange,
		"b_reg": kernel.FragmentRange})
	backwardMatrixRanges = backwardTileRanges.And(kernel.Parameters{"heads_together": togetherRange})
)
