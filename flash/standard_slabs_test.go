package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// TestStandardGradientsOfSlabs: gradients are the same whether the weights lie in one buffer, in one for each head, or in several for the
// rows of a head, whose parts of dk and dv add up; likewise where the scores of a slab stand beside, for a derivative by them.
func TestStandardGradientsOfSlabs(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 37, KeyLen: 45, HeadDim: 8, Causal: CausalBottomRight, DType: F32}
	const rowBytes = 48 * 4
	for _, f := range []score.Function{{}, score.Softcap(1)} {
		p.ScoreFunction = f
		var want [3][]float32
		for _, limit := range []int{0, 37 * rowBytes, 10 * rowBytes} {
			plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar), WithTuning(map[string]int{"max_slab": limit}))
			_, b := newBackwardSample(t, d, plan, F32)
			require.NoError(t, plan.Backward(bg, b))
			got := [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
			if limit == 0 {
				want = got
			}
			for i, name := range []string{"dq", "dk", "dv"} {
				require.InDeltaSlice(t, doubles(want[i]), doubles(got[i]), 2e-5, "%s, %v, slabs of %d bytes", name, f, limit)
			}
			require.NoError(t, plan.Close())
		}
	}
}
