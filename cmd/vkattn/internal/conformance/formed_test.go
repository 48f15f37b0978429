package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestGradientsOfAnotherFormAreNoticed: a target that forces a form, or a fragment, is also of backward kernels with these numbers.
func TestGradientsOfAnotherFormAreNoticed(t *testing.T) {
	forced := Target{Tier: flash.TierMatrix, Tuning: map[string]int{"decode": 0, "form": 2, "fk": 16}}
	require.True(t, forced.formsGradients())
	require.NoError(t, forced.formed(&flash.PassInfo{Tuning: map[string]int{"form": 2, "fk": 16, "kv_w": 4}}))
	for _, other := range []map[string]int{nil, {"form": 1, "fk": 16}, {"form": 2, "fk": 8}, {"fk": 16}} {
		require.ErrorContains(t, forced.formed(&flash.PassInfo{Tuning: other}), "the backward pass has", "%v", other)
	}
	for _, free := range []Target{{}, {Tuning: map[string]int{"decode": 0}}} {
		require.False(t, free.formsGradients())
		require.NoError(t, free.formed(&flash.PassInfo{}))
	}
}
