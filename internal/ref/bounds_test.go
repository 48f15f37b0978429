package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckOutput(t *testing.T) {
	ref := []float64{1, -2, 0, 100}
	plain := []float64{1, -2.001, 0, 100}
	require.True(t, CheckOutput([]float64{1.002, -2, 0, 100}, ref, plain, F16).OK)
	v := CheckOutput([]float64{1.004, -2, 0, 100}, ref, plain, F16)
	require.False(t, v.OK)
	require.Equal(t, 0, v.At)
	require.InDelta(t, 0.004, v.Err, 1e-9)
	require.InDelta(t, 2e-3+1e-5+1.0/1024, v.Bound, 1e-9)
	require.True(t, CheckGradient([]float64{1.0035, -2, 0, 100}, ref, plain, F16).OK)
	require.False(t, CheckOutput([]float64{1, -2, math.NaN(), 100}, ref, plain, F16).OK)
	require.False(t, CheckOutput([]float64{1, -2, 0, math.Inf(1)}, ref, plain, F16).OK)
	require.False(t, CheckOutput([]float64{1, -2, 0}, ref, plain, F16).OK)
	// A plain that overflowed excuses nobody.
	require.False(t, CheckOutput([]float64{2, -2, 0, 100}, ref, []float64{math.Inf(1), -2, 0, 100}, F16).OK)
}

func TestCheckOutputFP32(t *testing.T) {
	ref := make([]float64, 10000)
	for i := range ref {
		ref[i] = math.Sin(float64(i))
	}
	out := append([]float64(nil), ref...)
	require.True(t, CheckOutput(out, ref, ref, F32).OK)
	out[77] += 2e-3 // little in the norm, a wrong element all the same
	v := CheckOutput(out, ref, ref, F32)
	require.False(t, v.OK)
	require.Equal(t, 77, v.At)
	for i := range out {
		out[i] = ref[i] * (1 + 2e-5)
	}
	require.False(t, CheckOutput(out, ref, ref, F32).OK)
	out[3] = math.NaN()
	require.False(t, CheckOutput(out, ref, ref, F32).OK)
}

func TestCheckTight(t *testing.T) {
	ref := []float64{1e-10, -2e-10}
	require.True(t, CheckOutput([]float64{0, 0}, ref, ref, BF16).OK, "1e-5 forgives everything this small")
	require.False(t, CheckTight([]float64{0, 0}, ref, ref, BF16).OK)
	require.True(t, CheckTight([]float64{1.003e-10, -2e-10}, ref, ref, BF16).OK)
}

func TestCheckLSE(t *testing.T) {
	inf := math.Inf(-1)
	require.True(t, CheckLSE([]float64{1.0009, inf}, []float64{1, inf}, nil, F16).OK)
	require.False(t, CheckLSE([]float64{1.0011, inf}, []float64{1, inf}, nil, F16).OK)
	require.False(t, CheckLSE([]float64{1.0001}, []float64{1}, nil, F32).OK)
	require.False(t, CheckLSE([]float64{1, -1e30}, []float64{1, inf}, nil, F16).OK)
	require.False(t, CheckLSE([]float64{inf}, []float64{1}, nil, F16).OK)
	require.False(t, CheckLSE([]float64{math.NaN()}, []float64{inf}, nil, F16).OK)
	require.True(t, CheckLSE([]float64{1.02}, []float64{1}, []float64{0.99}, F16).OK)
}
