package conformance

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

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
