package conformance

import (
	"context"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestKeysInParts: kernels keep the suite's bounds with the keys cut into parts, which a plan does by itself only where queries are too
// few to fill a GPU.
func TestKeysInParts(t *testing.T) {
	dev := device(t)
	scalar, matrix := `^(core|numeric|golden)/`, `^core/(d16/none|one|empty-rows)/f16`
	if testing.Short() {
		scalar, matrix = `^core/(narrow/f16|gqa/bf16|empty-rows/f32)`, `^core/narrow/f16` // of matrices flash's tests run more
	}
	for _, o := range []Options{
		{Tiers: []flash.Tier{flash.TierScalar}, Filter: regexp.MustCompile(scalar), Tunings: []map[string]int{{"parts": 3, "decode": 0}}},
		{Tiers: []flash.Tier{flash.TierMatrix}, Filter: regexp.MustCompile(matrix), Tunings: []map[string]int{{"parts": 3, "form": 1}}},
	} {
		o.Families, o.Seed, o.Vectors = []string{"flash2"}, 1, os.DirFS(goldenFolder)
		if len(Targets(dev, o)) == 0 {
			require.Equal(t, []flash.Tier{flash.TierMatrix}, o.Tiers)
			require.False(t, required("VKATTN_REQUIRE_MATRIX"))
			continue
		}
		results, err := Run(context.Background(), dev, o)
		require.NoError(t, err)
		passed := 0
		for _, r := range results {
			if r.Skipped == "" {
				require.True(t, r.Pass, "%s on %s (%s): %s", r.Case, r.Target, r.Kernel, r.Failure)
				require.Contains(t, r.Kernel, ", keys in 3 parts")
				passed++
			}
		}
		require.NotZero(t, passed)
		t.Logf("%v: %d cases passed of %d", o.Tiers, passed, len(results))
	}
	require.Empty(t, takeMessages())
}
