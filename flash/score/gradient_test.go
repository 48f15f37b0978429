package score_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
)

// Coefficient and index against differences of the value by each element of the tensor.
func TestGradient(t *testing.T) {
	bias := score.Capture("bias", 6, 2)
	add := score.RelativeBias(bias, score.Key().Sub(score.Position()).Add(score.ConstInt(2)))
	gate := score.S().Mul(bias.At(score.Key(), score.Head()).Mul(score.Const(0.3)).Exp()) // not linear, and one index
	gated, err := score.New(gate)
	require.NoError(t, err)
	values := make([]float32, 12)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	for name, functions := range map[string][]score.Function{
		"added": {add}, "added, then capped": {add, score.Softcap(2)}, "capped, then added": {score.Softcap(2), add}, "gate": {gated},
		"slopes": {score.ALiBiFrom(bias), score.Softcap(4)},
	} {
		f, err := score.Compose(functions...)
		require.NoError(t, err)
		g, err := f.Gradient("bias")
		require.NoError(t, err)
		assert.Equal(t, "bias", g.Tensor().Name)
		weight, err := g.Bind(score.Data{"bias": values})
		require.NoError(t, err)
		for i := range 4 {
			for j := range 5 {
				p := score.Point{S: 1.5, Head: i % 2, Query: i, Position: i + 1, Key: j}
				c, index := weight.At(p)
				for n := range values {
					const h = 1.0 / 1024
					change := func(h float32) float64 {
						v := slices.Clone(values)
						v[n] += h
						e, err := f.Bind(score.Data{"bias": v})
						require.NoError(t, err)
						return e.Value(p)
					}
					want := 0.0
					if n == index {
						want = c
					}
					assert.InDelta(t, want, (change(h)-change(-h))/(2*h), 1e-3, "%s: element %d at %+v", name, n, p)
				}
			}
		}
	}
}

func TestGradientRefuses(t *testing.T) {
	bias, ids := score.Capture("bias", 6), score.CaptureInt("ids", 6)
	twice, err := score.New(score.S().Add(bias.At(score.Key())).Add(bias.At(score.Query())).Add(ids.At(score.Key()).Float()))
	require.NoError(t, err)
	for name, says := range map[string]string{"bias": "more than one index", "ids": "holds integers", "": "no tensor",
		"other": "no tensor"} {
		_, err := twice.Gradient(name)
		assert.ErrorContains(t, err, says)
	}
	one := score.RelativeBias(score.Capture("bias", 6, 1), score.Key())
	other := score.RelativeBias(score.Capture("bias", 6, 1), score.Query())
	f, err := score.Compose(one, other)
	require.NoError(t, err)
	_, err = f.Gradient("bias")
	assert.ErrorContains(t, err, "more than one index")
}

// The derivative at ties is what the documentation says.
func TestTies(t *testing.T) {
	s, zero := score.S(), score.Const(0)
	double := s.Mul(score.Const(2))
	for name, c := range map[string]struct {
		e    score.Float
		want float64
	}{
		"abs": {s.Abs(), 0}, "max": {s.Max(double), 1}, "max the other way": {double.Max(s), 2}, "min": {s.Min(double), 1},
		"min the other way": {double.Min(s), 2},
		"relu":              {s.Max(zero), 1}, "negative relu": {zero.Max(s), 0}, "a factor 0": {s.Mul(zero), 0},
		"a comparison":    {s.Less(zero).Select(s, double), 2},
		"a NaN not taken": {s.Greater(zero).Select(s.Log(), s), 1}, "a constant": {score.Const(3), 0},
	} {
		f, err := score.New(c.e)
		require.NoError(t, err)
		_, slope := value(t, f, nil, score.Point{})
		assert.Equal(t, c.want, slope, name)
	}
}
