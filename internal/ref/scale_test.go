package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefaultScale: without a scale, scores are those of 1/√D, of q and k and not of v.
func TestDefaultScale(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := Problem{Q: NewTensor(1, 1, 3, 5), K: NewTensor(1, 1, 4, 5), V: NewTensor(1, 1, 4, 2)}
	for _, x := range []Tensor{p.Q, p.K, p.V} {
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
	}
	o, lse, err := Forward(p)
	require.NoError(t, err)
	p.Scale = 1 / math.Sqrt(5)
	wantO, wantLSE, err := Forward(p)
	require.NoError(t, err)
	require.Equal(t, wantO, o)
	require.Equal(t, wantLSE, lse)
}
