package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

// TestStandardBackwardTiles: tiles and ways out of the matrix tier other than those chosen prove themselves against the scalar tier (the
// check of every first use), and bad ones are refused with the parameter's name.
func TestStandardBackwardTiles(t *testing.T) {
	vktest.Long(t, "the tiles that are chosen, in the conformance suite")
	d := testDevice(t)
	for i, p := range []Problem{
		// conformance has dropout and ragged rows
		usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F16, Causal: CausalTopLeft, Dropout: 0.3}),
		usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 12, ValueDim: 20, DType: F16}),
	} {
		for j, tuning := range []map[string]int{{"half": 0}, {"dk_wr": 1, "dv_wr": 1, "dk_stage": 1, "dv_stage": 3},
			{"dk_fr": 3, "dp_run": 1, "dq_stage": 4}} {
			if testing.Short() && i != j { // a way out on one problem, tiles on the other
				continue
			}
			vktest.Budget(t)
			tile := backwardTile(t, d, Standard, p, tuning)
			plan, err := d.Plan(p, WithImplementation(Standard), WithTier(TierMatrix), WithBackwardTuning(tile))
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			info, err := plan.BackwardInfo()
			require.NoError(t, err, tile)
			require.Equal(t, TierMatrix, info.Tier)
			for name, v := range tile {
				require.Equal(t, v, info.Tuning[name])
			}
			require.NoError(t, plan.Close())
		}
	}
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 40, DType: F16} // wider than any fragment
	for _, bad := range []struct {
		tuning map[string]int
		says   string
	}{{map[string]int{"dk_stage": 3}, "dk_stage"}, {map[string]int{"dp_fr": 0}, "dp_fr"}, {map[string]int{"dq_wc": 1, "dq_fc": 1}, "dq_fc"},
		{map[string]int{"zz": 1}, "zz"}} {
		plan, err := d.Plan(p, WithImplementation(Standard), WithTier(TierMatrix), WithBackwardTuning(bad.tuning))
		if err == nil { // within the parameters' ranges: what it is for says more
			_, err = plan.BackwardInfo()
			require.NoError(t, plan.Close())
		}
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, bad.says)
	}
}
