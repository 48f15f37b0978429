package flash

// Ranges of tuning parameters.
var (
	togetherRange  = parameter{1, 1 << 16, 0, false}
	subgroupRanges = parameters{
		"w": {1, 64, 0, false}, "rm": {1, 8, 0, false}, "bc": {1, 1024, 0, false}, "ck": {1, 1024, 0, false},
	}
	matrixRanges = formRanges.and(groupBound, subgroupRanges, parameters{
		"br": {1, 4096, 0, false}, "prefetch": {0, 5, 0, false}, "pipe": onOff, "max_first": onOff, "q_reg": fragmentRange, "keep_masks": onOff,
		"steps": onOff, "whole": onOff,
	})
	headRanges           = parameters{"heads_together": togetherRange, "pack": onOff, "parts": partsRange}
	backwardMatrixRanges = subgroupRanges.and(parameters{
		"prefetch": {0, 2, 0, false}, "a_reg": fragmentRange, "b_reg": fragmentRange, "heads_together": togetherRange,
	})
)
