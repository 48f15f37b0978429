package result

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

func TestQuantiles(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	require.Equal(t, 3.0, Median(v))
	require.InDelta(t, 1.8, Quantile(v, 0.2), 1e-12) // position 0.8 between 1 and 2
	require.InDelta(t, 4.2, Quantile(v, 0.8), 1e-12)
	require.Equal(t, 1.0, Quantile(v, 0))
	require.Equal(t, 5.0, Quantile(v, 1))
	require.Equal(t, []float64{5, 1, 4, 2, 3}, v, "the input stays as it was")
	require.Equal(t, 2.5, Median([]float64{1, 2, 3, 4}))
	require.True(t, math.IsNaN(Median(nil)))
}

func TestGeoMean(t *testing.T) {
	require.InDelta(t, 1, GeoMean([]float64{0.5, 2}), 1e-12)
	require.InDelta(t, 4, GeoMean([]float64{2, 8}), 1e-12)
	require.True(t, math.IsNaN(GeoMean(nil)))
	require.True(t, math.IsNaN(GeoMean([]float64{1, 0})))
}

func TestNormalInputs(t *testing.T) {
	for _, dtype := range []ref.DType{ref.F32, ref.F16, ref.BF16} {
		g := NewStream(dtype, 7)
		const n = 1 << 20
		values := g.Floats(0, n)
		var sum, squares, product float64
		for i, v := range values {
			sum += float64(v)
			squares += float64(v) * float64(v)
			product += float64(v) * float64(values[(i+1)%n])
		}
		// Standard errors are 1e-3; the quantile table ends at 4.2 σ, which takes 1e-4 off the variance.
		require.InDelta(t, 0, sum/n, 5e-3, "mean")
		require.InDelta(t, 1, squares/n, 1e-2, "variance")
		require.InDelta(t, 0, product/n, 5e-3, "neighbours are uncorrelated")

		// What the device gets is what the reference computes with, from any start.
		require.Equal(t, g.Floats(12345, 300001), dtype.Decode(g.Bytes(12345, 300001)))
		require.Equal(t, values[77:99], g.Floats(77, 22))
		require.NotEqual(t, g.Floats(0, 64), NewStream(dtype, 8).Floats(0, 64), "another seed")
	}
}
