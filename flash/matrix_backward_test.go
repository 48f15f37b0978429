package flash

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMatrixBackward compares the matrix tier's gradients with the scalar tier's, in registers and through shared memory, with
// masks, ragged ends, groups of heads, adding up, operands in shared memory, dk and dv apart. A CPU compiles each for seconds.
func TestMatrixBackward(t *testing.T) {
	d := testDevice(t)
	for _, c := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 20, KeyLen: 23, HeadDim: 16, Causal: CausalBottomRight},
			map[string]int{"kv_split": 1, "q_prefetch": 1, "kv_prefetch": 1, "kv_a_reg": 1, "q_b_reg": 1, "max_groups": 2, "kv_bc": 16, "q_bc": 16}},
		{Problem{Batch: 2, Heads: 2, QueryLen: 13, KeyLen: 29, HeadDim: 13, ValueDim: 8}, map[string]int{"form": 2, "kv_w": 1, "q_w": 1, "kv_bc": 16, "q_bc": 16}},
	} {
		c.p.DType = F16
		t.Run(fmt.Sprint(c.p, c.tuning), func(t *testing.T) {
			scalar := mustPlan(t, d, c.p, WithTier(TierScalar))
			_, b := newBackwardSample(t, d, scalar, F16)
			plan, err := d.Plan(c.p, WithTier(TierMatrix), WithBackwardTuning(c.tuning))
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			info, err := plan.BackwardInfo()
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			require.Equal(t, TierMatrix, info.Tier)
			for _, b.Accumulate = range []bool{false, c.tuning["form"] == 0} {
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
		})
	}
}
