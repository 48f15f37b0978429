package flash

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestSpecializedModules: kernels compute the same bits, whether the driver gets their modules as they are or without what their
// constants rule out. Both are compared with float64 too, but where a function changes the scores.
func TestSpecializedModules(t *testing.T) {
	for _, c := range []struct {
		p        Problem
		opts     []PlanOption
		backward bool
	}{
		{Problem{Batch: 1, Heads: 2, QueryLen: 45, KeyLen: 53, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
			[]PlanOption{WithTier(TierMatrix)}, true},
		{Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 70, HeadDim: 24, DType: F32, ScoreFunction: score.Softcap(3),
			Window: SlidingWindow(20, 5)}, []PlanOption{WithTier(TierScalar)}, true},
		{Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F16}, []PlanOption{WithTier(TierScalar), WithImplementation(Flash1)},
			false},
		{Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F32},
			[]PlanOption{WithTier(TierScalar), WithImplementation(Standard)}, true},
		{Problem{Batch: 1, Heads: 8, KeyHeads: 2, QueryLen: 1, KeyLen: 200, HeadDim: 32, DType: F16},
			[]PlanOption{WithTier(TierScalar)}, false},
	} {
		t.Run(fmt.Sprint(c.p), func(t *testing.T) {
			vktest.Budget(t)
			var outputs [2][][]float32
			for i, on := range []string{"0", "1"} {
				t.Setenv(specialize.Env, on)
				d := testDevice(t)
				require.Equal(t, on == "1", d.env.Ctx.Specialized() > 0)
				plan, err := d.Plan(c.p, c.opts...)
				skipUnsupported(t, err)
				defer plan.Close()
				s, b := newBackwardSample(t, d, plan, c.p.DType)
				if c.p.ScoreFunction.Identity() { // its oracle knows no functions
					s.check(t, plan, s.f)
				}
				outputs[i] = append(outputs[i], download(t, s.f.O), download(t, s.f.LSE))
				if c.backward && !testing.Short() {
					require.NoError(t, plan.Backward(bg, b))
					outputs[i] = append(outputs[i], download(t, b.DQ), download(t, b.DK), download(t, b.DV))
				}
			}
			require.Equal(t, outputs[0][:2], outputs[1][:2])
			// Gradients of fp16 are sums of weights that kernels round to operands. Of a module that it specializes itself lavapipe leaves
			// some of them as they were: dv is nearer to what is right then.
			for i, x := range outputs[0][2:] {
				require.Len(t, outputs[1][2+i], len(x))
				for j, y := range outputs[1][2+i] {
					near := 0.0
					if c.p.DType == F16 {
						near = 1e-3 * math.Max(1, math.Abs(float64(x[j])))
					}
					require.InDelta(t, x[j], y, near, "gradient %d, element %d", i, j)
				}
			}
		})
	}
}

// TestSpecializes: what happens without the environment variable, and with it.
func TestSpecializes(t *testing.T) {
	for value, want := range map[string]bool{"": true, "0": false, "1": true} {
		t.Setenv(specialize.Env, value)
		got, err := specializes()
		require.NoError(t, err)
		require.Equal(t, want, got, value)
	}
	testDevice(t) // there is one
	t.Setenv(specialize.Env, "yes")
	_, err := Open(WithoutDiskCache())
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, `VKATTN_SPECIALIZE is "yes": must be 0 or 1`)
}
