package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMatrixBackwardIsTrusted: no self-check refuses the kernels of a backward pass on matrices. Tests that compare their gradients skip
// where the device cannot run them, and a kernel that computes something else is such a one: it declines, and the scalar tier steps in.
func TestMatrixBackwardIsTrusted(t *testing.T) {
	d := matrixDevice(t)
	var tuning map[string]int
	if slowCompiler(d) {
		tuning = map[string]int{"kv_bc": 8, "kv_ck": 8, "kv_w": 1, "q_bc": 8, "q_ck": 8, "q_w": 1}
	}
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 20, KeyLen: 23, HeadDim: 8, DType: F16}
	for _, impl := range []Implementation{Flash, Standard} {
		var plan *Plan
		if impl == Flash {
			plan = planGradients(t, d, p, TierMatrix, WithBackwardTuning(tuning))
		} else {
			plan = mustPlan(t, d, usual(p), WithImplementation(impl), WithTier(TierMatrix))
		}
		info, err := plan.BackwardInfo()
		if errors.Is(err, ErrUnsupported) {
			require.NotContains(t, err.Error(), "self-check failed", "%v", impl)
			t.Log(impl, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, TierMatrix, info.Tier)
		}
		require.NoError(t, plan.Close())
	}
}
