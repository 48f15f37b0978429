package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMatrix: each stage adds to the one before what it says, and the weights of the last are those that o is made of.
func TestMatrix(t *testing.T) {
	p, _, _ := everything(3)
	p.Dropout, p.Sinks = nil, nil
	var m [Weights + 1]Array
	for s := Products; s <= Weights; s++ {
		var err error
		m[s], err = Matrix(p, s)
		require.NoError(t, err)
	}
	o, lse, err := Forward(p)
	require.NoError(t, err)
	for _, r := range AllRows(p.Q) {
		products, scores, masked, weights := m[Products].Row(r.B, r.H, r.I), m[Scores].Row(r.B, r.H, r.I), m[Masked].Row(r.B, r.H, r.I),
			m[Weights].Row(r.B, r.H, r.I)
		l := lse.Row(r.B, r.H, r.I)[0]
		sum := make([]float64, p.V.D)
		for j := range products {
			require.InDelta(t, -0.7*dot(p.Q.Row(r.B, r.H, r.I), p.K.Row(r.B, r.H/2, j)), products[j], 1e-12)
			slope := float64(p.Slopes[r.H])
			require.InDelta(t, 2*math.Tanh(products[j]/2)-slope*math.Abs(float64(r.I+2-j)), scores[j], 1e-12)
			if !p.Allows(r.B, r.H, r.I, j) {
				require.True(t, math.IsInf(masked[j], -1))
				require.Zero(t, weights[j])
				continue
			}
			require.InDelta(t, scores[j]+float64(p.Bias.broadcastRow(r.B, r.H, r.I)[j]), masked[j], 1e-12)
			require.InDelta(t, math.Exp(masked[j]-l), weights[j], 1e-12)
			axpy(weights[j], p.V.Row(r.B, r.H/2, j), sum)
		}
		require.InDeltaSlice(t, o.Row(r.B, r.H, r.I), sum, 1e-12)
	}
	_, err = Matrix(p, Weights+1)
	require.ErrorContains(t, err, "no stage")
}

// TestKeyLens: padding is not there: each batch entry is attention with fewer keys, causal order and window aligned with its own last key.
func TestKeyLens(t *testing.T) {
	p, do, _ := everything(4)
	p.Bias, p.Mask, p.Blocks, p.Dropout, p.Sinks = nil, nil, nil, nil, nil
	p.KeyLens = []int{2, 6} // fewer than the queries, and more
	o, lse, err := Forward(p)
	require.NoError(t, err)
	g, err := Backward(p, do, nil)
	require.NoError(t, err)
	for b, n := range p.KeyLens {
		one := Problem{Options: p.Options}
		one.KeyLens = nil
		cut := func(x Tensor, rows int) Tensor {
			out := NewTensor(1, x.H, rows, x.D)
			for h := range x.H {
				for i := range rows {
					copy(out.Row(0, h, i), x.Row(b, h, i))
				}
			}
			return out
		}
		one.Q, one.K, one.V = cut(p.Q, 5), cut(p.K, n), cut(p.V, n)
		wantO, wantLSE, err := Forward(one)
		require.NoError(t, err)
		require.Equal(t, wantO.Data, o.Data[b*len(wantO.Data):(b+1)*len(wantO.Data)])
		require.Equal(t, wantLSE.Data, lse.Data[b*len(wantLSE.Data):(b+1)*len(wantLSE.Data)])
		want, err := Backward(one, cut(do, 5), nil)
		require.NoError(t, err)
		for h := range p.K.H {
			for j := range p.K.N {
				if j < n {
					require.Equal(t, want.DK.Row(0, h, j), g.DK.Row(b, h, j))
				} else {
					require.Equal(t, make([]float64, p.V.D), g.DV.Row(b, h, j), "padding has no gradient")
				}
			}
		}
	}
	for _, bad := range [][]int{{1}, {1, 8}, {-1, 2}} {
		p.KeyLens = bad
		require.Error(t, p.Check())
	}
}

// TestOffset: an offset given by itself is the diagonal, whatever the lengths.
func TestOffset(t *testing.T) {
	p, _, _ := everything(5)
	p.Mask, p.Blocks, p.Slopes, p.Window = nil, nil, nil, nil
	want, _, err := Forward(p)
	require.NoError(t, err)
	two := 2 // 7 keys less 5 queries
	p.Offset = &two
	got, _, err := Forward(p)
	require.NoError(t, err)
	require.Equal(t, want, got)
	p.Causal, p.Offset = TopLeft, nil
	want, _, err = Forward(p)
	require.NoError(t, err)
	none := 0
	p.Causal, p.Offset = BottomRight, &none
	got, _, err = Forward(p)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestRotary: a turn by 90° exchanges the columns of a pair, keeps lengths, and leaves the other columns alone.
func TestRotary(t *testing.T) {
	x := Tensor{1, 1, 1, 6, []float32{1, 2, 3, 4, 5, 6}}
	zero, one := Tensor{1, 1, 1, 2, []float32{0, 0}}, Tensor{1, 1, 1, 2, []float32{1, 1}}
	halves, err := Rotary(x, zero, one, false)
	require.NoError(t, err)
	require.Equal(t, []float64{-3, -4, 1, 2, 5, 6}, halves.Data)
	pairs, err := Rotary(x, zero, one, true)
	require.NoError(t, err)
	require.Equal(t, []float64{-2, 1, -4, 3, 5, 6}, pairs.Data)
	_, err = Rotary(x, NewTensor(1, 1, 1, 4), NewTensor(1, 1, 1, 4), false)
	require.ErrorContains(t, err, "turn 8 columns")
	_, err = Rotary(x, zero, NewTensor(1, 1, 2, 2), false)
	require.ErrorContains(t, err, "want the same")
	_, err = Rotary(x, NewTensor(1, 1, 2, 2), NewTensor(1, 1, 2, 2), false)
	require.ErrorContains(t, err, "do not fit")
}

// TestScatter: rows go where they are sent, round the end of a circular cache.
func TestScatter(t *testing.T) {
	cache, update := NewTensor(2, 1, 3, 1), Tensor{2, 1, 2, 1, []float32{1, 2, 3, 4}}
	got, err := Scatter(cache, update, []int{1, 0}, false)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 1, 2, 3, 4, 0}, got.Data)
	got, err = Scatter(cache, update, []int{2, 0}, true)
	require.NoError(t, err)
	require.Equal(t, []float64{2, 0, 1, 3, 4, 0}, got.Data)
	for _, at := range [][]int{{2, 0}, {-1, 0}, {0}} {
		_, err = Scatter(cache, update, at, false)
		require.Error(t, err)
	}
	_, err = Scatter(cache, update, []int{3, 0}, true)
	require.Error(t, err)
	_, err = Scatter(cache, NewTensor(2, 1, 4, 1), []int{0, 0}, true)
	require.ErrorContains(t, err, "an update of 4 rows")
	_, err = Scatter(cache, NewTensor(2, 2, 2, 1), []int{0, 0}, true)
	require.ErrorContains(t, err, "rows alone")
}
