package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestLengthsOnMatrices: backward kernels on matrices prove themselves with lengths, in all forms: their self-checks compare with float64
// what comes out of two batch entries, one of them shorter than its tensors, which hold NaN from there on.
func TestLengthsOnMatrices(t *testing.T) {
	d := testDevice(t)
	for i, x := range []struct {
		set  func(p *Problem)
		more map[string]int
		long string
	}{
		{func(p *Problem) {}, map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 2, "kv_ck": 1, "q_bc": 2, "q_ck": 1},
			"two tiles in shared memory without lengths"},
		{func(p *Problem) { p.Causal, p.QueryLengths = CausalBottomRight, false }, map[string]int{"form": 2, "kv_w": 1, "q_w": 1}, ""},
		{func(p *Problem) { p.Causal, p.Sinks = CausalTopLeft, true }, map[string]int{"kv_prefetch": 1, "q_prefetch": 1},
			"lengths in form 2, and packed ones with sinks"},
		{func(p *Problem) { p.KeyLengths = false }, map[string]int{"form": 3, "kv_w": 1, "q_w": 1}, "this form with lengths of keys"},
		{func(p *Problem) { p.Window, p.ScoreFunction = SlidingWindow(20, 3), score.Softcap(3) }, nil, "windows of scalar kernels"},
		{func(p *Problem) {
			p.Bias = PerScore{DType: F16, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, nil, "a bias in TestLengthsOfNothing"},
		{func(p *Problem) { p.Bias = PerScore{DType: F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: p.KeyLen} },
			map[string]int{"form": 2}, "the other bias"},
		{func(p *Problem) { p.Dropout, p.Causal = 0.25, CausalBottomRight }, nil, "dropout of scalar kernels"},
	} {
		p := Problem{Batch: 3, Heads: 2, KeyHeads: 1, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, KeyLengths: true,
			QueryLengths: true}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			// The suite has the forward pass of such problems in every form.
			requireOnMatrices(t, planGradients(t, d, p, TierMatrix, WithBackwardTuning(backwardTile(t, d, Flash, p, x.more))), "lengths")
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
}

// TestLengthsOfNothing: gradients of kernels on matrices are those of scalar ones where batch entries have no key, no query, one, or all,
// gradients with respect to a bias among them; tensors hold NaN beyond the lengths, and gradients before.
func TestLengthsOfNothing(t *testing.T) {
	d := testDevice(t)
	for _, causal := range []Causal{CausalNone, CausalBottomRight} {
		if causal == CausalNone && testing.Short() {
			continue // three kernels more
		}
		p := Problem{Batch: 6, Heads: 2, KeyHeads: 1, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, Causal: causal, KeyLengths: true,
			QueryLengths: true}
		p.Bias = PerScore{DType: F32, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		if causal == CausalNone {
			p.Bias.Batch, p.Bias.Queries = 1, 1
		}
		keys, queries := []int{0, 40, 1, 64, 17, 33}, []int{20, 0, 45, 45, 33, 1}
		r := rand.New(rand.NewPCG(7, 8))
		tensor := func(dtype DType, shape [4]int, lens []int) *Tensor {
			x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
			require.NoError(t, err)
			values := make([]float32, x.Elements())
			for i := range values {
				values[i] = float32(r.NormFloat64())
				row := i / shape[3]
				if lens != nil && row%shape[2] >= lens[row/shape[2]/shape[1]] {
					values[i] = float32(math.NaN())
				}
			}
			require.NoError(t, x.Upload(t.Context(), values))
			return x
		}
		lengths := func(lens []int) *Tensor {
			x, values := tensor(Int32, [4]int{1, 1, 1, len(lens)}, nil), make([]float32, len(lens))
			for i, n := range lens {
				values[i] = float32(n)
			}
			require.NoError(t, x.Upload(t.Context(), values))
			return x
		}
		none := make([]int, p.Batch)
		f := Forward{Q: tensor(F16, p.QShape(), queries), K: tensor(F16, p.KShape(), keys), V: tensor(F16, p.VShape(), keys),
			O:   tensor(F16, p.OShape(), none),
			LSE: tensor(F32, p.LSEShape(), none), KeyLengths: lengths(keys), QueryLengths: lengths(queries)}
		bias := [4]int{p.Bias.Batch, 1, p.Bias.Queries, p.KeyLen}
		if f.Bias = tensor(F32, bias, nil); bias[2] > 1 {
			f.Bias = tensor(F32, bias, queries)
		}
		b := Backward{Forward: f, DO: tensor(F16, p.OShape(), queries), DLSE: tensor(F32, p.LSEShape(), queries)}
		var got [2][4][]float32
		for i, tier := range []Tier{TierScalar, TierMatrix} {
			plan := planGradients(t, d, p, tier)
			require.Equal(t, tier, backwardInfo(t, plan).Tier)
			b.DQ, b.DK, b.DV = tensor(F16, p.QShape(), none), tensor(F16, p.KShape(), none), tensor(F16, p.VShape(), none)
			b.DBias = tensor(F32, bias, make([]int, bias[0]))
			require.NoError(t, plan.Forward(t.Context(), f))
			require.NoError(t, plan.Backward(t.Context(), b))
			for j, x := range []*Tensor{b.DQ, b.DK, b.DV, b.DBias} {
				got[i][j] = make([]float32, x.Elements())
				require.NoError(t, x.Download(t.Context(), got[i][j]))
			}
		}
		for j, name := range []string{"dq", "dk", "dv", "dbias"} {
			require.InDeltaSlice(t, wide(got[0][j]), wide(got[1][j]), 2e-2, name)
			nonzero := 0
			for _, x := range got[1][j] {
				if x != 0 {
					nonzero++
				}
			}
			require.Greater(t, nonzero, 100/p.Batch, name)
		}
	}
}
