package draw

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSampler: tokens come as often as their logits, the temperature and k say.
func TestSampler(t *testing.T) {
	logits := []float32{1, 3, 2, -50}
	require.Equal(t, 1, NewSampler(By{}, 9).Token(logits), "temperature 0")
	require.Equal(t, 0, NewSampler(By{}, 9).Token([]float32{3, 3, 2}), "the first of equals")
	require.Equal(t, 1, NewSampler(By{Temperature: 5, TopK: 1}, 9).Token(logits))
	const n = 20000
	for k, want := range map[int][]float64{0: {0.09, 0.665, 0.245, 0}, 2: {0, 0.731, 0.269, 0}} { // softmax
		s, drawn := NewSampler(By{Temperature: 1, TopK: k}, 9), make([]float64, len(logits))
		for range n {
			drawn[s.Token(logits)] += 1.0 / n
		}
		require.InDeltaSlice(t, want, drawn, 0.02)
	}
}

func TestCheck(t *testing.T) {
	require.NoError(t, By{}.Check())
	require.ErrorContains(t, By{Temperature: math.NaN()}.Check(), "-temperature NaN: must be at least 0")
	require.ErrorContains(t, By{Temperature: -1}.Check(), "-temperature -1")
	require.ErrorContains(t, By{TopK: -1}.Check(), "-top-k -1: must be at least 0")
}
