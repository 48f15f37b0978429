package matrix

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestFlash1TileFitsAnyDevice: what is chosen keeps the device's limits, and K, V and the patches lie side by side in shared
// memory; only where that is too small for the smallest tile is there none, and that is said.
func TestFlash1TileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		c.Facts.Subgroup.MaxWorkgroupSubgroups = uint32(rapid.SampledFrom([]int{0, 4, 8, 32}).Draw(t, "subgroups"))
		s := kerneltest.DrawFragment(t, int(c.Facts.Subgroup.Size))
		p := kerneltest.DrawProblem(t)
		tile, err := ChooseFlash1Tile(c, p, s, rapid.IntRange(kernel.FormRegisters, kernel.FormShared).Draw(t, "form"),
			kernel.NewTuning(nil))
		if err != nil {
			var no *kernel.Declined
			require.ErrorAs(t, err, &no)
			require.Contains(t, no.Why, "shared memory")
			if dim := max(p.HeadDim, p.ValueDim); c.Facts.Limits.MaxSharedMemory >= 32<<10 && s.M*s.N <= 256 && s.K <= 16 && dim <= 128 {
				t.Fatalf("%v in subgroups of %d, %v: %v", s, s.Lanes, p, err)
			}
			return
		}
		requireTile(t, c, p, &tile)
		if tile.W > 1 && tile.Rows() >= 4*max(p.QueryLen, s.M) {
			t.Fatalf("%+v for %d queries", tile, p.QueryLen)
		}
		statistics, sums := tile.Flash1Rows(p)
		heads, blocks := p.Batch*p.Heads, attn.CeilDiv(p.QueryLen, tile.Rows())
		lastFragment := ((heads*blocks*tile.Rows()-s.M)/s.M*attn.CeilDiv(p.ValueDim, s.N) + attn.CeilDiv(p.ValueDim, s.N) - 1) * s.M * s.N
		require.Equal(t, []uint64{uint64(8 * heads * blocks * tile.Rows()), uint64(4 * (lastFragment + s.M*s.N))},
			[]uint64{statistics, sums})
	})
}

// TestFlash1Tables: on the GPU that the table is written for, tiles take two thirds of a workgroup's shared memory, but for the one
// that was searched, which takes all of it.
func TestFlash1Tables(t *testing.T) {
	c, s := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	for _, dim := range []int{16, 32, 64, 80, 96, 128, 192, 256} {
		p := problem(attn.Problem{Batch: 16, Heads: 32, QueryLen: 2048, HeadDim: dim, DType: attn.F16})
		tile, err := ChooseFlash1Tile(c, p, s, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		rows, most := 128, 32<<10
		if dim == 64 {
			rows, most = 256, 48<<10
		}
		require.LessOrEqual(t, tile.Shared(dim, dim).Bytes(), most, "D %d", dim)
		require.Equal(t, rows, tile.Rows(), "D %d", dim)
	}
	p := problem(attn.Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: attn.F16})
	fit := 0
	for _, given := range Flash1Candidates(c, p) {
		if tile, err := ChooseFlash1Tile(c, p, s, kernel.FormRegisters, kernel.NewTuning(given)); err == nil {
			require.Equal(t, [2]int{given["bc"], given["w"]}, [2]int{tile.BC, tile.W})
			fit++
		}
	}
	require.Greater(t, fit, 20, "tiles to choose from")
	for _, bad := range []map[string]int{{"w": 0}, {"bc": 40}, {"bc": 4096}, {"prefetch": 2}, {"prefetch": 3}, {"q_reg": 0},
		{"max_first": 2}} {
		_, err := ChooseFlash1Tile(c, p, s, kernel.FormRegisters, kernel.NewTuning(bad))
		require.ErrorIs(t, err, attn.ErrArgument, "%v", bad)
	}
}
