package score

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMoved: a function at other places is what the function is there, and functions at different places are the same code.
func TestMoved(t *testing.T) {
	slopes := Table([]float32{0.5, 0.25, 0.125, 2}, 4)
	table := Capture("bias", 40, 50)
	odd,
		err := New(S().Mul(Query().Add(Key()).Float()).Add(table.At(Query(),
		Key())).Add(Batch().Mul(ConstInt(3)).Float()).Sub(Key().Float().Sub(Position().Float())))
	require.NoError(t, err)
	f, err := Compose(ALiBiFrom(slopes), Softcap(4), odd)
	require.NoError(t, err)
	m, err := ComposeMasks(PrefixLM(7), Dilated(3, -1))
	require.NoError(t, err)
	to := Places{Query: 11, Key: 20, Head: 2, Position: 14, Batch: 5}
	there, err := f.Moved(to)
	require.NoError(t, err)
	seen, err := m.Moved(to)
	require.NoError(t, err)
	elsewhere, err := f.Moved(Places{Query: 1, Key: 64, Head: 1, Position: -3})
	require.NoError(t, err)
	require.Equal(t, there.CacheKey(), elsewhere.CacheKey())
	require.NotEqual(t, f.CacheKey(), there.CacheKey())

	values := make([]float32, 40*50)
	for i := range values {
		values[i] = float32(i%13) - 6
	}
	data := Data{"bias": values}
	at := func(f Function, a Point) float64 {
		e, err := f.Bind(data)
		require.NoError(t, err)
		return e.Value(a)
	}
	sees := func(m MaskFunction, a Point) bool {
		e, err := m.Bind(data)
		require.NoError(t, err)
		return e.Allows(a)
	}
	some := 0
	for q := range 9 {
		for k := range 17 {
			for h := range 2 {
				local := Point{S: float64(q) - 3.5, Batch: h, Head: h, Query: q, Key: k, Position: q + 8}
				whole := Point{S: local.S, Batch: h + to.Batch, Head: h + to.Head, Query: q + to.Query, Key: k + to.Key,
					Position: q + 8 + to.Position}
				require.InDelta(t, at(f, whole), at(there, local), 1e-9*math.Abs(at(f, whole))+1e-9)
				require.Equal(t, sees(m, whole), sees(seen, local))
				if sees(m, whole) {
					some++
				}
			}
		}
	}
	require.NotZero(t, some)

	same, err := Function{}.Moved(to)
	require.NoError(t, err)
	require.True(t, same.Identity())
	all, err := MaskFunction{}.Moved(to)
	require.NoError(t, err)
	require.True(t, all.Everything())
	bad, _ := New(Float{})
	_, err = bad.Moved(to)
	require.Error(t, err)
}

// TestMovedTooFar: places that devices have no numbers for are refused, and none is another one's.
func TestMovedTooFar(t *testing.T) {
	f, m := ALiBi([]float32{1}), PrefixLM(7)
	for _, to := range []Places{{Query: 1 << 32}, {Key: -1<<31 - 1}, {Head: 1 << 31}, {Batch: 1 << 40}, {Position: math.MaxInt},
		{Position: math.MaxInt32, Key: -1}, {Position: math.MinInt32, Key: 1}} {
		there, err := f.Moved(to)
		require.ErrorContains(t, err, "must fit 32 bits")
		require.Error(t, there.Err())
		_, err = m.Moved(to)
		require.ErrorContains(t, err, "must fit 32 bits")
	}
	for _, to := range []Places{{Query: math.MaxInt32, Batch: math.MinInt32}, {Position: math.MaxInt32},
		{Key: math.MaxInt32, Position: -1}} {
		_, err := f.Moved(to)
		require.NoError(t, err)
		_, err = m.Moved(to)
		require.NoError(t, err)
	}
}
