package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// TestMatrixBackwardIsTrusted: no self-check refuses the kernels of a backward pass on matrices. Tests that compare their gradients skip
// where the device cannot run them, and a kernel that computes something else is such a one: it declines, and the scalar tier steps in.
func TestMatrixBackwardIsTrusted(t *testing.T) {
	d := matrixDevice(t)
	var tuning map[string]int
	if slowCompiler(d) {
		tuning = map[string]int{"kv_bc": 1, "kv_ck": 1, "kv_w": 1, "q_bc": 1, "q_ck": 1, "q_w": 1}
	}
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 20, KeyLen: 23, HeadDim: 8, DType: F16}
	for _, impl := range []Implementation{Flash, Standard} {
		var plan *Plan
		if impl == Flash {
			plan = planGradients(t, d, p, TierMatrix, WithBackwardTuning(backwardTile(t, d, Flash, p, tuning)))
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

// TestProbe: the layouts of lavapipe and NVIDIA are known; on every device a layout can be probed and is remembered.
func TestProbe(t *testing.T) {
	d := matrixDevice(t)
	for _, f := range d.env.Caps.Fragments(attn.F16) {
		key, err := d.env.ProbeKey(attn.F16, f)
		require.NoError(t, err)
		d.env.Forget(key)
		l, err := d.env.Layout(attn.F16, f)
		require.NoError(t, err)
		t.Logf("%v in subgroups of %d: form %d %s %+v", f, f.Lanes, l.Form, l.Why, l)
		require.NotEmpty(t, d.env.Recall(key), "remembered")
		again, err := d.env.Layout(attn.F16, f)
		require.NoError(t, err)
		require.Equal(t, l, again)
		if d.env.Caps.Facts.Type == vk.DeviceCPU && f == (kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}) {
			require.Equal(t, kernel.FormRegisters, l.Form)
			require.Equal(t, []int{0, 0, 0}, l.RowLane)
			require.Equal(t, []int{1, 2, 4}, l.ColLane)
			require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, l.RowOfComp)
			require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, l.AOfComp)
		}
		if d.env.Caps.Facts.VendorID == 0x10de && f == (kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}) {
			require.Equal(t, kernel.FormRegisters, l.Form)
			require.Equal(t, []int{0, 8}, l.RowOfSlot)
		}
	}
}
