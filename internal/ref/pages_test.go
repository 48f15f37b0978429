package ref

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGather: rows come from the pages that the table names, in its order, and from nowhere else.
func TestGather(t *testing.T) {
	pool := NewTensor(3, 2, 2, 1)
	for i := range pool.Data {
		pool.Data[i] = float32(i + 1) // page p, head h, row n is 4p + 2h + n + 1
	}
	out, err := Gather(pool, [][]int{{2, 0}, {1, 3}, {-1, 1}, {}}, 3)
	require.NoError(t, err)
	require.Equal(t, []float32{
		9, 10, 1, 11, 12, 3,
		5, 6, 0, 7, 8, 0,
		0, 0, 5, 0, 0, 7,
		0, 0, 0, 0, 0, 0}, out.Data)
	for _, bad := range []func() (Tensor, error){
		func() (Tensor, error) { return Gather(Tensor{}, [][]int{{0}}, 1) },
		func() (Tensor, error) { return Gather(pool, nil, 1) },
		func() (Tensor, error) { return Gather(pool, [][]int{{0}}, 0) },
	} {
		_, err := bad()
		require.Error(t, err)
	}
}
