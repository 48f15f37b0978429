package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMaxLogits: the largest score of a head is that of its largest row, −∞ without a pair, NaN with a score that is no number or +∞, and
// nothing that is hidden, dropped, or no score has a part in it.
func TestMaxLogits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	p := Problem{Q: NewTensor(2, 2, 3, 4), K: NewTensor(2, 1, 5, 4), V: NewTensor(2, 1, 5, 1)}
	for _, x := range []Tensor{p.Q, p.K} {
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
	}
	largest := func(p Problem) []float64 {
		t.Helper()
		out, err := MaxLogits(p)
		require.NoError(t, err)
		return out
	}
	all, err := Matrix(p, Masked)
	require.NoError(t, err)
	want := []float64{negInf, negInf, negInf, negInf}
	for i, s := range all.Data {
		want[i/15] = math.Max(want[i/15], s)
	}
	require.Equal(t, want, largest(p))

	more := p
	more.Sinks, more.Dropout = []float32{100, 100}, &Dropout{P: 0.5, Seed: 1}
	require.Equal(t, want, largest(more))
	hidden := p
	hidden.KeyLens, hidden.QueryLens = []int{0, 5}, []int{3, 1}
	got := largest(hidden)
	require.Equal(t, []float64{negInf, negInf}, got[:2])
	for h := range 2 {
		row := all.Data[(2+h)*15 : (2+h)*15+5]
		require.Equal(t, math.Max(math.Max(row[0], row[1]), math.Max(math.Max(row[2], row[3]), row[4])), got[2+h])
	}

	for _, x := range []float64{math.NaN(), math.Inf(1)} {
		bad := p
		bad.Q = NewTensor(2, 2, 3, 4)
		copy(bad.Q.Data, p.Q.Data)
		bad.Q.Data[4*3*2] = float32(x) // the first of batch entry 1 and its head 0
		bad.K = NewTensor(2, 1, 5, 4)
		copy(bad.K.Data, p.K.Data)
		bad.K.Data[20] = 1
		got := largest(bad)
		require.Equal(t, want[:2], got[:2])
		require.True(t, math.IsNaN(got[2]), got[2])
	}

	plain, err := PlainMaxLogits(p, BF16)
	require.NoError(t, err)
	for i := range want {
		require.InDelta(t, want[i], plain[i], math.Abs(want[i])/32)
	}
}
