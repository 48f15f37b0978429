package flash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMatrixBias compares the gradient with respect to the bias of the two tiers, for what a bias is broadcast over, in registers and
// through shared memory, with bounds, dropout, tiles of several kinds, bias types, rows of 16 bytes and others, and adding up.
func TestMatrixBias(t *testing.T) {
	vktest.Long(t, "biases of the conformance suite")
	d := testDevice(t)
	for i, c := range []struct {
		p      Problem
		own    [3]bool
		tuning map[string]int
		long   string // left out with -short, and what is run instead
	}{
		{Problem{QueryLen: 45, KeyLen: 37, Causal: CausalBottomRight}, [3]bool{true, true, true},
			map[string]int{"q_prefetch": 1, "q_rm": 2, "q_w": 1}, ""},
		{Problem{QueryLen: 40, KeyLen: 72, Window: SlidingWindow(11, 3)}, [3]bool{true, true, true}, map[string]int{"q_prefetch": 2}, ""},
		{Problem{QueryLen: 45, KeyLen: 40, Dropout: 0.3}, [3]bool{true, true, true}, map[string]int{"form": 2}, ""},
		{Problem{QueryLen: 45, KeyLen: 40, Dropout: 0.3}, [3]bool{true, false, true}, nil, "another way of broadcasting in this form"},
		{Problem{QueryLen: 45, KeyLen: 37, Causal: CausalTopLeft}, [3]bool{false, false, true}, map[string]int{"q_rm": 2, "q_w": 1},
			"another way of broadcasting in this form"},
		{Problem{QueryLen: 45, KeyLen: 37, Causal: CausalBottomRight}, [3]bool{false, true, false},
			map[string]int{"q_rm": 2, "q_w": 1}, ""},
		{Problem{QueryLen: 45, KeyLen: 37}, [3]bool{true, false, false}, map[string]int{"form": 3, "q_rm": 2, "q_w": 1}, ""},
		{Problem{QueryLen: 45, KeyLen: 37, Causal: CausalTopLeft}, [3]bool{false, true, true}, map[string]int{"form": 2},
			"this form with dropout"},
	} {
		for _, dtype := range []DType{F16, F32} {
			if long := dtype == F32 != (i%3 == 1); long && testing.Short() {
				continue // one of the two
			}
			p := c.p
			p.Batch, p.Heads, p.KeyHeads, p.HeadDim, p.DType = 2, 4, 2, 16, F16
			p.Bias = PerScore{DType: dtype, Batch: 1, Heads: 1, Queries: 1, Keys: p.KeyLen}
			for j, n := range [3]int{p.Batch, p.Heads, p.QueryLen} {
				if c.own[j] {
					*[...]*int{&p.Bias.Batch, &p.Bias.Heads, &p.Bias.Queries}[j] = n
				}
			}
			given := map[string]int{"q_bc": 2, "q_ck": 1}
			for name, v := range c.tuning {
				given[name] = v
			}
			p = narrowed(p)
			t.Run(fmt.Sprint(p, given), func(t *testing.T) {
				vktest.Budget(t)
				if c.long != "" {
					vktest.Long(t, c.long)
				}
				compareBias(t, d, p, given, i%4 == 0 && (i == 0 || !testing.Short())) // adding up is another pipeline
			})
		}
	}
}

// compareBias runs both tiers, overwriting and, if adds, adding up.
func compareBias(t *testing.T, d *Device, p Problem, given map[string]int, adds bool) {
	plain, plan := planGradients(t, d, p, TierScalar), planGradients(t, d, p, TierScalar)
	choice, err := plan.backward()
	require.NoError(t, err)
	eachElsewhere(t, d, func(g *Device) error {
		_, err := matrix.PlanBias(g.env, &plan.attn, kernel.Biases[0], inFragments(&g.env.Caps, given))
		return err
	})
	// alone: a CPU compiles each kernel for seconds
	bias, err := matrix.PlanBias(d.env, &plan.attn, kernel.Biases[0], inFragments(&d.env.Caps, given))
	var no *kernel.Declined
	if errors.As(err, &no) {
		require.False(t, kernel.IsDenied(err), no.Why)
		t.Skip(err)
	}
	require.NoError(t, err)
	choice.program.(*scoreGradients).biases[0].Gradient = bias
	r, mk := rand.New(rand.NewPCG(5, 6)), plainly(t, d)
	shape := [4]int{p.Bias.Batch, p.Bias.Heads, p.Bias.Queries, p.Bias.Keys}
	p = plan.Problem()
	filled := func(dtype DType, shape [4]int) *Tensor {
		x := mk(dtype, shape)
		require.NoError(t, x.Upload(bg, randomValues(r, dtype, shape)))
		return x
	}
	f := Forward{Q: filled(F16, p.QShape()), K: filled(F16, p.KShape()), V: filled(F16, p.VShape()), Bias: filled(p.Bias.DType, shape),
		O: mk(F16, p.OShape()), LSE: mk(F32, p.LSEShape()), Seed: 7}
	require.NoError(t, plan.Forward(bg, f))
	b := Backward{Forward: f, DO: filled(F16, p.OShape()), DQ: mk(F16, p.QShape()), DK: mk(F16, p.KShape()), DV: mk(F16, p.VShape()),
		DBias: mk(p.Bias.DType, shape)}
	start := randomValues(r, p.Bias.DType, shape)
	for _, b.Accumulate = range []bool{false, true}[:1+kernel.BoolInt(adds)] {
		var got [2][]float64
		for i, p := range []*Plan{plain, plan} {
			require.NoError(t, b.DBias.Upload(bg, start))
			require.NoError(t, p.Backward(bg, b))
			got[i] = doubles(download(t, b.DBias))
		}
		require.InDeltaSlice(t, got[0], got[1], 1.2e-2)
	}
	require.NoError(t, plan.Close())
	require.NoError(t, plain.Close())
}

// TestBiasTier: a backward pass on matrices has its gradient with respect to the bias made there.
func TestBiasTier(t *testing.T) {
	d := testDevice(t)
	p := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 16, DType: F16, Bias: PerScore{DType: F16, Batch: 1, Heads: 1,
		Queries: 20, Keys: 20}})
	plan := planGradients(t, d, p, TierMatrix)
	choice, err := plan.backward()
	skipUnsupported(t, err)
	made := choice.program.(*scoreGradients).biases[0].Passes(pass.Variant{})
	require.Equal(t, "matrix_backward_bias", made.Stages[0].Label, choice.reasons)
	require.NoError(t, plan.Close())
}
