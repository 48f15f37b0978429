package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/zerotest"
)

// TestNoMethodPanicsOnZero: what no constructor made answers every method with an error or a zero result.
func TestNoMethodPanicsOnZero(t *testing.T) {
	zerotest.Run(t, AccumulatePlan{}, ArgumentError{}, BlockMask{}, Blocks{},
		Causal(0), DType(0), Device{}, DeviceInfo{}, Implementation(0), Layout(0), MaskBlocks{}, MergePlan{},
		Pages{}, Pending{}, Plan{}, Pool(0), Problem{}, Recording{}, SDPAGradients{},
		Tensor{}, UnsupportedError{}, Weights{}, Window{})
	require.Zero(t, Problem{Batch: 1, Heads: 1, QueryLen: 8, Blocks: Blocks{Keys: 64}}.MaskShape(), "half a block's size was forgotten")
}
