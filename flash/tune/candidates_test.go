package tune

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

func TestCandidates(t *testing.T) {
	d := testDevice(t)
	p := few
	got, err := Candidates(d, p, flash.WithTier(flash.TierScalar))
	require.NoError(t, err)
	require.Greater(t, len(got), 3)
	require.True(t, got[0].Default)
	require.Empty(t, got[0].Tuning)
	var effects []map[string]int
	for _, c := range got {
		require.Equal(t, "scalar_forward", c.Kernel)
		plan := mustPlan(t, d, p, flash.WithTier(flash.TierScalar), flash.WithTuning(c.Tuning), flash.WithoutStoredTuning())
		require.True(t, strings.HasSuffix(plan.ForwardInfo().Kernel, c.Tile))
		for _, e := range effects {
			require.NotEqual(t, e, plan.ForwardInfo().Tuning, "no tiling twice")
		}
		effects = append(effects, plan.ForwardInfo().Tuning)
	}
	back, err := BackwardCandidates(d, p, flash.WithTier(flash.TierScalar))
	require.NoError(t, err)
	require.Len(t, back, 1)
	require.True(t, back[0].Default)
	require.Equal(t, "scalar_backward", back[0].Kernel)
	standard, err := Candidates(d, p, flash.WithImplementation(flash.Standard))
	require.NoError(t, err)
	require.Len(t, standard, 1, "a kernel without a choice")
	_, err = Candidates(d, flash.Problem{})
	require.ErrorIs(t, err, flash.ErrArgument)
	_, err = Candidates(nil, p)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestDecodeCandidates: few rows have tiles of their own.
func TestDecodeCandidates(t *testing.T) {
	d := testDevice(t)
	p := flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 100, HeadDim: 16, DType: flash.F16}
	plan := mustPlan(t, d, p, flash.WithTier(flash.TierScalar))
	if plan.ForwardInfo().KernelName != "scalar_decode" {
		t.Skip(plan)
	}
	got, err := Candidates(d, p, flash.WithTier(flash.TierScalar))
	require.NoError(t, err)
	require.Greater(t, len(got), 3)
	require.Equal(t, "scalar_decode", got[0].Kernel)
}

// TestSplit: each name goes to the pass that has it.
func TestSplit(t *testing.T) {
	forward, backward := Split(map[string]int{"bc": 32, "kv_bc": 64, "nonsense": 1})
	require.Equal(t, map[string]int{"bc": 32, "nonsense": 1}, forward, "the forward pass refuses what nobody knows")
	require.Equal(t, map[string]int{"kv_bc": 64}, backward)
	require.Contains(t, Parameters(), "bc")
	require.NotContains(t, Parameters(), "kv_bc")
	require.Contains(t, BackwardParameters(), "kv_bc")
	require.IsIncreasing(t, Parameters())
}
