package flash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMatrixBackward compares the matrix tier's gradients with the scalar tier's, in registers and through shared memory, with
// masks, ragged ends, groups of heads, adding up, operands in shared memory, dk and dv apart, two tiles in shared memory (also
// with dropout). A CPU compiles each for seconds.
func TestMatrixBackward(t *testing.T) {
	d := testDevice(t)
	for _, c := range []struct {
		p      Problem
		tuning map[string]int
		long   string // left out with -short, and what is run instead
	}{
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 20, KeyLen: 23, HeadDim: 16, Causal: CausalBottomRight},
			map[string]int{"kv_split": 1, "q_prefetch": 1, "kv_prefetch": 1, "kv_a_reg": 1, "q_b_reg": 1, "max_groups": 2, "kv_bc": 1,
				"kv_ck": 1, "q_bc": 1, "q_ck": 1}, ""},
		{Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 37, HeadDim: 8, ValueDim: 16, Causal: CausalBottomRight},
			map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_w": 2, "kv_bc": 2, "kv_ck": 1, "q_bc": 2, "q_ck": 1},
			"two tiles with dropout, and with a mask in form 2"},
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 27, KeyLen: 21, HeadDim: 5, Dropout: 0.3},
			map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 2, "kv_ck": 1, "q_bc": 2, "q_ck": 1}, ""},
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 27, KeyLen: 21, HeadDim: 8, Causal: CausalTopLeft},
			map[string]int{"form": 2, "kv_prefetch": 2, "kv_w": 1, "q_w": 1, "kv_bc": 2, "kv_ck": 1, "q_bc": 2, "q_prefetch": 2, "q_ck": 1},
			""},
		{Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 19, HeadDim: 8, ValueDim: 13},
			map[string]int{"form": 3, "kv_prefetch": 1, "kv_w": 1, "q_w": 1, "kv_bc": 1, "kv_ck": 1, "q_bc": 1}, ""},
		{Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 37, HeadDim: 8, ValueDim: 13, Causal: CausalBottomRight},
			map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_w": 2, "kv_bc": 4, "kv_ck": 2, "q_bc": 4, "q_ck": 2},
			"the same with smaller tiles"},
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 27, KeyLen: 21, HeadDim: 3, Dropout: 0.3},
			map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 4, "kv_ck": 2, "q_bc": 4, "q_ck": 2}, "the same with smaller tiles"},
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 27, KeyLen: 21, HeadDim: 11, Causal: CausalTopLeft},
			map[string]int{"form": 2, "kv_prefetch": 2, "kv_w": 1, "q_w": 1, "kv_bc": 4, "kv_ck": 2, "q_bc": 4, "q_prefetch": 2, "q_ck": 2},
			"the same with smaller tiles"},
		{Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 19, HeadDim: 8, ValueDim: 13},
			map[string]int{"form": 3, "kv_prefetch": 2, "kv_w": 1, "q_w": 1, "kv_bc": 4, "kv_ck": 2, "q_bc": 2},
			"this form with smaller tiles"},
		{Problem{Batch: 2, Heads: 2, QueryLen: 13, KeyLen: 29, HeadDim: 13, ValueDim: 8}, map[string]int{"form": 2, "kv_w": 1, "q_w": 1,
			"kv_bc": 2, "q_bc": 2}, "this form with smaller tiles"},
	} {
		c.p.DType = F16
		if testing.Short() && c.tuning["form"] == kernel.FormShared { // the scalar kernels that it is compared with are there
			c.p = narrowed(c.p)
			c.p.Causal = CausalBottomRight
		} else if c.tuning["kv_split"] == 1 {
			c.p = narrowed(c.p)
		}
		t.Run(fmt.Sprint(c.p, c.tuning), func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			adds := c.tuning["kv_split"] == 1 || c.p.Dropout > 0 && !testing.Short() // two kernels more
			compareGradients(t, d, c.p, c.tuning, adds)
		})
	}
}

// compareGradients compares the matrix tier's gradients, with a tuning, with the scalar tier's; added up too if adds.
func compareGradients(t *testing.T, d *Device, p Problem, tuning map[string]int, adds bool) {
	t.Helper()
	compareTuned(t, d, p, backwardTile(t, d, Flash, p, tuning), adds)
}

// compareTuned is the same with parameters that this device alone need have.
func compareTuned(t *testing.T, d *Device, p Problem, tuning map[string]int, adds bool) {
	t.Helper()
	scalar := mustPlan(t, d, p, WithTier(TierScalar))
	_, b := newBackwardSample(t, d, scalar, F16)
	plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(tuning))
	require.Equal(t, TierMatrix, backwardInfo(t, plan).Tier)
	for _, b.Accumulate = range []bool{false, adds} {
		var got [2][3][]float32
		for i, p := range []*Plan{scalar, plan} {
			for _, g := range []*Tensor{b.DQ, b.DK, b.DV} {
				require.NoError(t, g.Upload(bg, make([]float32, g.Elements())))
			}
			require.NoError(t, p.Backward(bg, b))
			got[i] = [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
		}
		for i := range got[0] {
			require.InDeltaSlice(t, doubles(got[0][i]), doubles(got[1][i]), 1.2e-2)
		}
	}
	require.NoError(t, plan.Close())
	require.NoError(t, scalar.Close())
}

// planGradients plans flash2 with a forward pass of the scalar tier and a backward pass of another, for tests that look at the latter: no
// forward kernel of that tier is compiled.
func planGradients(t *testing.T, d *Device, p Problem, tier Tier, opts ...PlanOption) *Plan {
	t.Helper()
	plan := mustPlan(t, d, p, append(opts, WithImplementation(Flash), WithTier(TierScalar))...)
	plan.gradient.tier = tier
	return plan
}

// planBoth plans both passes on matrices, in the form that the backward pass is given; with -short the backward pass alone: conformance has
// the forward pass of such problems in every form.
func planBoth(t *testing.T, d *Device, p Problem, tile map[string]int) *Plan {
	t.Helper()
	backward := backwardTile(t, d, Flash, p, tile)
	if testing.Short() {
		return planGradients(t, d, p, TierMatrix, WithBackwardTuning(backward))
	}
	forward := map[string]int{}
	if form := backward["form"]; form > 0 {
		forward["form"] = form
	}
	plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(forward), WithBackwardTuning(backward))
	skipUnsupported(t, err)
	return plan
}

// requireOnMatrices requires of a plan that it says this, and that the first kernels on matrices take its backward pass but for those that
// put weights or their gradients into memory, which take fewer problems. It closes the plan.
func requireOnMatrices(t *testing.T, plan *Plan, says string) {
	t.Helper()
	defer plan.Close()
	require.Contains(t, plan.String(), says)
	info := backwardInfo(t, plan)
	require.Equal(t, TierMatrix, info.Tier)
	require.Empty(t, slices.DeleteFunc(info.WhyNotFaster, func(why string) bool {
		return strings.HasPrefix(why, "matrix_backward_slabs: ") || strings.HasPrefix(why, "matrix_backward_keeping: ")
	}))
}

// backwardInfo is what a plan says of its backward pass. The test skips where the device has none of its tier.
func backwardInfo(t *testing.T, plan *Plan) PassInfo {
	t.Helper()
	info, err := plan.BackwardInfo()
	skipUnsupported(t, err)
	return info
}

// skipUnsupported skips a test where a plan lacks a feature of the device, but not where a kernel failed.
func skipUnsupported(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrUnsupported) {
		require.NotContains(t, err.Error(), "self-check failed")
		t.Skip(err)
	}
	require.NoError(t, err)
}
