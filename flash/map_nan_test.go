package flash

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMapKeepsNaN: a cell of which a weight is no number is none, of every pool and on every tier, however cells are cut; others are what
// they were.
func TestMapKeepsNaN(t *testing.T) {
	vktest.Long(t, "TestMapOfNoNumbers in the command")
	d := testDevice(t)
	for _, dtype := range []DType{F32, F16} {
		p := Problem{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 131, HeadDim: 16, DType: dtype}
		s := newSample(t, p)
		const bad = 41 // of head 1
		s.q[(p.QueryLen+bad)*p.HeadDim+3] = float32(math.NaN())
		everyMap(t, d, p, func(t *testing.T, plan *Plan) {
			f := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, f))
			for _, pool := range []Pool{PoolSum, PoolMean, PoolMax} {
				for _, size := range [][2]int{{1, 1}, {7, 5}, {70, 131}, {70, 1}} {
					t.Run(fmt.Sprint(dtype, pool, size), func(t *testing.T) {
						h, w := size[0], size[1]
						out := plainly(t, d)(F32, [4]int{1, 2, h, w})
						require.NoError(t, plan.Map(bg, Map{Forward: f, Out: out, Pool: pool}))
						cells := make([]float32, 2*h*w)
						require.NoError(t, out.Download(bg, cells))
						for i, x := range cells {
							head, y := i/w/h, i/w%h
							none := head == 1 && y*p.QueryLen/h <= bad && bad < (y+1)*p.QueryLen/h
							require.Equal(t, none, x != x, "cell %d", i)
						}
					})
				}
			}
		})
	}
}
