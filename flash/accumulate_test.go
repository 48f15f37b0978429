package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGradientsAddUp: with Accumulate gradients are added to what is there, and without it nothing of that is left, in aligned rows and
// others.
func TestGradientsAddUp(t *testing.T) {
	d := testDevice(t)
	for _, dim := range []int{8, 5} {
		for _, impl := range []Implementation{Flash, Standard} {
			if impl == Standard && (dim == 5 || testing.Short()) {
				continue // rows of its matrices are aligned in any case; conformance adds up gradients of every kernel
			}
			p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 9, KeyLen: 11, HeadDim: dim, Causal: CausalBottomRight}
			if testing.Short() && dim == 5 {
				p.ValueDim = 3 // as TestBackwardFiniteDifferences has it
			}
			plan := mustPlan(t, d, p, WithImplementation(impl), WithTier(TierScalar))
			_, b := newBackwardSample(t, d, plan, F32)
			gradients := []*Tensor{b.DQ, b.DK, b.DV}
			run := func(start float32) (out [3][]float32) {
				for i, g := range gradients {
					was := make([]float32, g.Elements())
					for j := range was {
						was[j] = start * float32(j%7-3)
					}
					require.NoError(t, g.Upload(bg, was))
					defer func() { out[i] = download(t, g) }()
				}
				require.NoError(t, plan.Backward(bg, b))
				return out
			}
			want := run(0)
			require.Equal(t, want, run(1), "%v, D %d: overwritten", impl, dim)
			b.Accumulate = true
			sum := run(1)
			for i := range want {
				for j := range want[i] {
					require.InDelta(t, want[i][j]+float32(j%7-3), sum[i][j], 1e-5, "%v, D %d: d%c[%d]", impl, dim, "qkv"[i], j)
				}
			}
			require.NoError(t, plan.Close())
		}
	}
}
