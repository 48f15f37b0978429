package flash

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestHiddenSlopes: a pair that does not count has no gradient, also where its function has no finite slope there: whatever hides it, the
// gradients are those of standard attention, which asks for the weight first.
func TestHiddenSlopes(t *testing.T) {
	d := matrixDevice(t)
	const queries, keys = 19, 21
	base := Problem{Batch: 1, Heads: 2, QueryLen: queries, KeyLen: keys, HeadDim: 8, DType: F16}
	build := func(e score.Float) score.Function {
		f, err := score.New(e)
		require.NoError(t, err)
		return f
	}
	width := score.Capture("width", keys)
	tensor, function, ahead, edges := base, base, base, base
	tensor.ScoreFunction = build(score.S().Div(width.At(score.Key())))
	tensor.Mask = PerScore{DType: Bool, Batch: 1, Heads: 1, Queries: 1, Keys: keys}
	function.ScoreFunction, function.MaskFunction = tensor.ScoreFunction, madeMask(t, width.At(score.Key()).Equal(score.Const(0)).Not())
	ahead.ScoreFunction = build(score.S().Div(score.Position().Sub(score.Key()).Add(score.ConstInt(1)).Float()))
	ahead.Causal = CausalTopLeft
	edges.ScoreFunction = build(score.S().Abs().Log())
	values := make([]float32, keys) // 0 of the hidden ones
	bits := make([]byte, keys)
	for i := range keys - 3 {
		values[i], bits[i] = 1+float32(i)/16, 1
	}
	for _, x := range []struct {
		name string
		p    Problem
	}{{"a mask tensor", tensor}, {"a mask function", function}, {"causal order", ahead}, {"edges", edges}} {
		f := Forward{}
		mk := plainly(t, d)
		upload := func(shape [4]int, seed uint64) *Tensor {
			y := mk(F16, shape)
			require.NoError(t, y.Upload(bg, randomValues(rand.New(rand.NewPCG(seed, 7)), F16, shape)))
			return y
		}
		f.Q, f.K, f.V = upload(x.p.QShape(), 1), upload(x.p.KShape(), 2), upload(x.p.VShape(), 3)
		f.O, f.LSE = mk(F16, x.p.OShape()), mk(F32, x.p.LSEShape())
		if captured := x.p.ScoreFunction.Captures(); len(captured) > 0 {
			f.Captured[0] = mk(F32, [4]int{1, 1, 1, keys})
			require.NoError(t, f.Captured[0].Upload(bg, values))
		}
		if x.p.Mask != (PerScore{}) {
			f.Mask = mk(Bool, [4]int{1, 1, 1, keys})
			require.NoError(t, f.Mask.UploadBytes(bg, bits))
		}
		gradients := func(impl Implementation, tier Tier, tuning map[string]int) [3][]float32 {
			plan := mustPlan(t, d, x.p, WithImplementation(impl), WithTier(TierScalar), WithBackwardTuning(tuning))
			plan.gradient.tier = tier
			b := Backward{Forward: f, DO: upload(x.p.OShape(), 4), DQ: mk(F16, x.p.QShape()), DK: mk(F16, x.p.KShape()),
				DV: mk(F16, x.p.VShape())}
			if impl == Standard {
				weights, err := plan.NewWeights()
				require.NoError(t, err)
				defer weights.Close()
				b.Weights = weights
			}
			require.NoError(t, plan.Forward(bg, b.Forward))
			require.NoError(t, plan.Backward(bg, b))
			require.NoError(t, plan.Close())
			return [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
		}
		want := gradients(Standard, TierScalar, nil)
		for _, way := range []struct {
			name string
			tier Tier
			form int
		}{{"scalar", TierScalar, 0}, {"form 1", TierMatrix, kernel.FormRegisters}, {"form 2", TierMatrix, kernel.FormRows}} {
			t.Run(x.name+", "+way.name, func(t *testing.T) {
				vktest.Budget(t)
				if way.form > 0 && x.name != "a mask tensor" {
					vktest.Long(t, "what else hides a pair")
				}
				var tuning map[string]int
				if way.form > 0 {
					tuning = map[string]int{"form": way.form}
				}
				for i, g := range gradients(Flash, way.tier, tuning) {
					for _, v := range g {
						require.False(t, math.IsNaN(float64(v)))
					}
					require.InDeltaSlice(t, doubles(want[i]), doubles(g), 2e-2)
				}
			})
		}
	}
}
