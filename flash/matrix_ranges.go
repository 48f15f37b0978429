package flash

// Ranges of tuning parameters.
var (
	togetherRange  = between(1, 1<<16)
	subgroupRanges = parameters{
		"w": between(1, 64), "rm": between(1, 8), "bc": between(1, 1024), "ck": between(1, 1024),
	}
	matrixRanges = formRanges.and(groupBound, subgroupRanges, parameters{
		"br": between(1, 4096), "prefetch": between(0, 5), "pipe": onOff, "max_first": onOff, "q_reg": fragmentRange, "keep_masks": onOff,
		"steps": onOff, "whole": onOff,
	})
	headRanges           = parameters{"heads_together": togetherRange, "pack": onOff, "parts": partsRange}
	backwardMatrixRanges = subgroupRanges.and(parameters{
		"prefetch": between(0, 2), "a_reg": fragmentRange, "b_reg": fragmentRange, "heads_together": togetherRange,
	})
)
