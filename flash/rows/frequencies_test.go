package rows

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNTKFrequencies: the first pair stays, the last is slower by the factor, and all are those of one base.
func TestNTKFrequencies(t *testing.T) {
	const columns, base, factor = 128, 10000, 4
	got, err := NTKFrequencies(columns, base, factor)
	require.NoError(t, err)
	changed := base * math.Pow(factor, 128.0/126)
	for j, f := range got {
		require.InEpsilon(t, math.Pow(changed, -float64(j)/64), f, 1e-12)
	}
	require.Equal(t, 1.0, got[0])
	require.InEpsilon(t, math.Pow(base, -63.0/64)/factor, got[63], 1e-12)
	got, err = NTKFrequencies(2, base, factor)
	require.NoError(t, err)
	require.Equal(t, []float64{1}, got)
}

// TestByPartsFrequencies: those of Llama 3.1 (Hugging Face Transformers, modeling_rope_utils.py, _compute_llama3_parameters, in its own
// words).
func TestByPartsFrequencies(t *testing.T) {
	got, err := ByPartsFrequencies(128, 500000, 8, 8192, 1, 4)
	require.NoError(t, err)
	kept, between, slowed := 0, 0, 0
	for j, f := range got {
		was := math.Pow(500000, -float64(j)/64)
		wavelength := 2 * math.Pi / was
		want := was
		switch {
		case wavelength < 8192.0/4:
			kept++
		case wavelength > 8192:
			want = was / 8
			slowed++
		default:
			smooth := (8192/wavelength - 1) / (4 - 1)
			want = (1-smooth)*was/8 + smooth*was
			between++
		}
		require.InEpsilon(t, want, f, 1e-12, "pair %d", j)
	}
	require.Positive(t, kept)
	require.Positive(t, between)
	require.Positive(t, slowed)
}

// TestBadFrequencies: what cannot be is refused with the argument's name.
func TestBadFrequencies(t *testing.T) {
	for _, c := range []struct {
		argument     string
		columns      int
		base, factor float64
	}{{"columns", 3, 1e4, 2}, {"columns", 0, 1e4, 2}, {"base", 4, 0, 2}, {"base", 4, math.NaN(), 2}, {"factor", 4, 1e4, 0},
		{"factor", 4, 1e4, math.Inf(1)}} {
		_, err := NTKFrequencies(c.columns, c.base, c.factor)
		requireRefused(t, c.argument, err)
		_, err = ByPartsFrequencies(c.columns, c.base, c.factor, 100, 1, 4)
		requireRefused(t, c.argument, err)
	}
	for _, c := range []struct {
		argument  string
		length    int
		low, high float64
	}{{"length", 0, 1, 4}, {"low", 9, -1, 4}, {"low", 9, math.NaN(), 4}, {"high", 9, 4, 4}, {"high", 9, 1, math.Inf(1)}} {
		_, err := ByPartsFrequencies(8, 1e4, 2, c.length, c.low, c.high)
		requireRefused(t, c.argument, err)
	}
}
