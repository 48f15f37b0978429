package conformance

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// TestJudgeNoticesWrongGradients: a gradient that is off, or no number, fails its case under the gradient's name; one that is right does
// not.
func TestJudgeNoticesWrongGradients(t *testing.T) {
	right := []float64{1, -2, 0.5, 4}
	for _, dtype := range []ref.DType{ref.F32, ref.F16, ref.BF16} {
		for name, test := range map[string]struct {
			got  []float32
			fail bool
		}{
			"right":            {[]float32{1, -2, 0.5, 4}, false},
			"one element":      {[]float32{1, -2, 0.6, 4}, true},
			"the wrong sign":   {[]float32{-1, 2, -0.5, -4}, true},
			"zeros":            {[]float32{0, 0, 0, 0}, true},
			"a NaN":            {[]float32{1, float32(math.NaN()), 0.5, 4}, true},
			"two times":        {[]float32{2, -4, 1, 8}, true},
			"an infinity":      {[]float32{1, -2, 0.5, float32(math.Inf(1))}, true},
			"other way around": {[]float32{4, 0.5, -2, 1}, true},
		} {
			var r Result
			(&Case{}).judge("dk", test.got, right, right, dtype, &r)
			if test.fail {
				require.Contains(t, r.Failure, "dk: ", "%s, %v", name, dtype)
			} else {
				require.Empty(t, r.Failure, "%s, %v", name, dtype)
			}
		}
	}
}

// TestJudgeKnowsRounding: where two weights of a row are nearly one and none, dq nearly cancels, and how far plain attention is off is
// luck. A random problem's gradient between that and the bounds of rounding is right; a named case's is not, nor what is beyond both.
func TestJudgeKnowsRounding(t *testing.T) {
	c := &Case{Name: "two keys", Problem: flash.Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 2, HeadDim: 8, DType: flash.F16}}
	c.Inputs(3, Normal(3, 3, 1), 1)
	require.NoError(t, c.prepare())
	require.NoError(t, c.differentiate(rand.New(rand.NewPCG(1, 2))))
	b, err := ref.RoundingBounds(c.inputs, ref.F16, ref.Rounds{}, &c.grads.do, c.grads.dlse)
	require.NoError(t, err)
	right := c.grads.answers[0]
	measure := ref.CheckGradient(right, right, c.grads.plain[0], ref.F16).Bound
	require.Greater(t, b.DQ.Data[0], 2*measure, "such a row")
	for _, test := range []struct {
		off      float64
		rounding bool
		pass     bool
	}{{measure / 2, false, true}, {b.DQ.Data[0] * 0.9, false, false}, {b.DQ.Data[0] * 0.9, true, true}, {b.DQ.Data[0] * 1.1, true, false}} {
		var r Result
		c.Rounding = test.rounding
		got := make([]float32, len(right))
		for i := range got {
			got[i] = float32(right[i])
		}
		got[0] += float32(test.off)
		c.judge("dq", got, right, c.grads.plain[0], ref.F16, &r)
		c.exactly([5][]float32{2: got}, nil, &r)
		require.Equal(t, test.pass, r.Failure == "", "%v: %s", test, r.Failure)
	}
}
