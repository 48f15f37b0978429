package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// TestDropoutOfWideTiles: where an invocation's keys lie in two groups of 64, each group has a draw of its own, and where they lie
// in one, a draw serves all of them.
func TestDropoutOfWideTiles(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 17, KeyLen: 150, HeadDim: 16, DType: F16, Dropout: 0.4}
	want := ref.Dropout{P: p.Dropout, Seed: 0x0123456789abcdef, Offset: 3}
	for _, tile := range []map[string]int{{"br": 16, "bc": 128, "mr": 2, "mc": 8}, {"br": 16, "bc": 64, "mr": 2, "mc": 8}} {
		tile["decode"] = 0
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(tile))
		mask, err := plan.DropoutMask(bg, want.Seed, want.Offset)
		require.NoError(t, err)
		require.Equal(t, want.Mask(1, p.Heads, p.QueryLen, p.KeyLen), mask, plan.ForwardInfo().Kernel)
		require.NoError(t, plan.Close())
	}
}
