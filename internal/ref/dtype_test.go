package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every 16-bit pattern survives decoding and encoding, NaNs as NaNs.
func TestSixteenBitRoundTrip(t *testing.T) {
	for _, dt := range []DType{F16, BF16} {
		for bits := range 1 << 16 {
			b := []byte{byte(bits), byte(bits >> 8)}
			x := dt.Decode(b)
			if math.IsNaN(float64(x[0])) {
				require.True(t, math.IsNaN(float64(dt.Decode(dt.Encode(x))[0])))
				continue
			}
			require.Equal(t, b, dt.Encode(x), "%s %#x", dt, bits)
		}
	}
}

func TestRounding(t *testing.T) {
	// Half an ulp above 1 is a tie and goes to the even 1; a little more goes up.
	for _, c := range []struct {
		dt  DType
		ulp float32
	}{{F16, 1.0 / 1024}, {BF16, 1.0 / 128}} {
		require.Equal(t, float32(1), c.dt.Round(1+c.ulp/2))
		require.Equal(t, 1+c.ulp, c.dt.Round(1+c.ulp*0.51))
		require.Equal(t, 1+2*c.ulp, c.dt.Round(1+c.ulp*1.5))
		require.Equal(t, float64(c.ulp), c.dt.Ulp(1))
		require.Equal(t, float64(c.ulp)/2, c.dt.Ulp(-0.75))
	}
	require.Equal(t, math.Ldexp(1, -24), F16.Ulp(0))
	require.Equal(t, math.Ldexp(1, -24), F16.Ulp(1e-7))
	require.True(t, math.IsInf(float64(F16.Round(1e6)), 1))
	require.Equal(t, float32(1e6), F32.Round(1e6))
	require.InDelta(t, 1e6, BF16.Round(1e6), 4096)
}
