package ref

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckGradientRefuses: a gradient may be three times as wrong as plain attention's, and no more.
func TestCheckGradientRefuses(t *testing.T) {
	ref := []float64{1, -2, 0, 100}
	plain := []float64{1, -2.001, 0, 100}
	v := CheckGradient([]float64{1.0045, -2, 0, 100}, ref, plain, F16)
	require.False(t, v.OK)
	require.Equal(t, 0, v.At)
	require.InDelta(t, 3e-3+1e-5+1.0/1024, v.Bound, 1e-9)
	require.False(t, CheckGradient([]float64{1, -2, 0, 100.01}, ref, plain, F32).OK)
	require.True(t, CheckGradient([]float64{1, -2, 0, 100.0001}, ref, plain, F32).OK)
}
