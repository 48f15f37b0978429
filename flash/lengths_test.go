package flash

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestLengthsOnMatrices: kernels on matrices prove themselves with lengths, both passes, in all forms: their self-checks compare with float64 what comes
// out of two batch entries, one of them shorter than its tensors, which hold NaN from there on.
func TestLengthsOnMatrices(t *testing.T) {
	d := testDevice(t)
	for i, x := range []struct {
		set  func(p *Problem)
		more map[string]int
		long string
	}{
		{func(p *Problem) {}, map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 16, "kv_ck": 8, "q_bc": 16, "q_ck": 8}, ""},
		{func(p *Problem) { p.Causal, p.QueryLengths = CausalBottomRight, false }, map[string]int{"form": 2, "kv_w": 1, "q_w": 1}, ""},
		{func(p *Problem) { p.Causal, p.Sinks = CausalTopLeft, true }, map[string]int{"kv_prefetch": 1, "q_prefetch": 1}, ""},
		{func(p *Problem) { p.KeyLengths = false }, map[string]int{"form": 3, "kv_w": 1, "q_w": 1}, "this form with lengths of keys"},
		{func(p *Problem) { p.Window, p.Score = SlidingWindow(20, 3), score.Softcap(3) }, nil, "windows of scalar kernels"},
		{func(p *Problem) {
			p.Bias = PerScore{DType: F16, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, nil, ""},
		{func(p *Problem) { p.Bias = PerScore{DType: F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: p.KeyLen} }, map[string]int{"form": 2}, "the other bias"},
		{func(p *Problem) { p.Dropout, p.Causal = 0.25, CausalBottomRight }, nil, "dropout of scalar kernels"},
	} {
		p := Problem{Batch: 3, Heads: 2, KeyHeads: 1, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, KeyLengths: true, QueryLengths: true}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			forward := map[string]int{}
			if form := x.more["form"]; form > 0 {
				forward["form"] = form
			}
			plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(forward), WithBackwardTuning(x.more))
			if errors.Is(err, ErrUnsupported) {
				require.NotContains(t, err.Error(), "self-check failed")
				t.Skip(err)
			}
			require.NoError(t, err)
			defer plan.Close()
			require.Contains(t, plan.String(), "lengths")
			info, err := plan.BackwardInfo()
			require.NoError(t, err)
			require.Equal(t, TierMatrix, info.Tier)
			require.Empty(t, info.WhyNotFaster)
		})
	}
}

// TestBadLengths: lengths are given where the problem has them, as it has them, and nowhere else; kernels without them say so.
func TestBadLengths(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 2, Heads: 1, QueryLen: 4, HeadDim: 8, DType: F32, KeyLengths: true}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	tensor := func(dtype DType, shape [4]int) *Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	q, o := tensor(F32, p.QShape()), tensor(F32, p.OShape())
	f := Forward{Q: q, K: q, V: q, O: o}
	requireRefused(t, "Forward.KeyLengths", plan.Forward(t.Context(), f))
	for _, bad := range []*Tensor{tensor(F32, [4]int{1, 1, 1, 2}), tensor(Int32, [4]int{1, 1, 1, 3}), tensor(Int32, [4]int{2, 1, 1, 1})} {
		f.KeyLengths = bad
		requireRefused(t, "Forward.KeyLengths", plan.Forward(t.Context(), f))
	}
	f.KeyLengths = tensor(Int32, [4]int{1, 1, 1, 2})
	f.QueryLengths = f.KeyLengths
	requireRefused(t, "Forward.QueryLengths", plan.Forward(t.Context(), f))
	_, err := d.Attention(t.Context(), nil, nil, nil, p)
	requireRefused(t, "Problem", err)
	for _, impl := range []Implementation{Standard, Flash1} {
		_, err := d.Plan(p, WithImplementation(impl))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "it has no lengths of keys or queries")
	}
}
