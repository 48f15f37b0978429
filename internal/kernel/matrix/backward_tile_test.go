package matrix

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestMatrixBackwardTiles: two tiles in shared memory and what may be asked for.
func TestMatrixBackwardTiles(t *testing.T) {
	c, s := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	layout := kerneltest.LayoutOf(t, "NVIDIA 16x16x16")
	choose := func(p attn.Problem, prefix string, given map[string]int) (BackwardTile, error) {
		p.Batch, p.Heads, p.KeyHeads, p.DType = 2, 16, 16, attn.F16
		return ChooseBackwardTile(c, kerneltest.Problem(p), layout, s, kernel.FormRegisters, prefix, kernel.NewTuning(given))
	}
	for _, dim := range []int{80, 128} {
		p := attn.Problem{QueryLen: 8192, HeadDim: dim}
		kv, err := choose(p, "kv_", nil)
		require.NoError(t, err)
		require.Equal(t, 2, kv.Prefetch)
		p.ValueDim = dim
		two := kv.Shared(&p)
		kv.Prefetch = 1
		require.Equal(t, 2*kv.BC*2*(dim/8|1), two.Tile)
		require.Equal(t, 2*kv.BC, two.Stats)
		require.Equal(t, kv.BC, kv.Shared(&p).Stats)

		p.Dropout = 0.1
		kv, err = choose(p, "kv_", nil)
		require.NoError(t, err)
		require.Equal(t, 64, kv.BC, "dropout has tiles of its own")
	}
	for _, prefix := range []string{"kv_", "q_"} {
		tile, err := choose(attn.Problem{QueryLen: 8192, HeadDim: 64, Dropout: 0.1}, prefix, nil)
		require.NoError(t, err)
		require.Equal(t, [4]int{4, 2, 64, DrawBits}, [4]int{tile.W, tile.RM, tile.BC, tile.ByLane})
	}
	small, err := choose(attn.Problem{QueryLen: 128, HeadDim: 128}, "kv_", nil)
	require.NoError(t, err)
	require.Equal(t, BackwardTile{Fragment: s, Form: kernel.FormRegisters, Keys: true, W: 4, RM: 1, BC: 32, CK: 32, Prefetch: 2,
		AReg: 8, BReg: 8, HeadsTogether: 1},
		small,
		"fewer rows, and the same columns: of the next tile a chunk at a time is held")
	for _, given := range []map[string]int{{"kv_prefetch": 3}, {"kv_prefetch": -1}, {"kv_bc": 24}, {"kv_ck": 8},
		{"kv_bc": 64, "kv_ck": 16, "kv_prefetch": 2}} {
		_, err := choose(attn.Problem{QueryLen: 8192, HeadDim: 128}, "kv_", given)
		require.ErrorIs(t, err, attn.ErrArgument, "%v", given)
	}
}

// TestDrawsByLane: weights look for what dropout draws as the layout and the tile allow, in bits for narrow heads and where no sums take
// registers.
func TestDrawsByLane(t *testing.T) {
	nvidia := kerneltest.LayoutOf(t, "NVIDIA 16x16x16")
	base := func(keys bool) BackwardTile {
		return BackwardTile{Fragment: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, Form: kernel.FormRegisters, Keys: keys, W: 4,
			RM: 2, BC: 64, CK: 16}
	}
	for _, keys := range []bool{true, false} {
		p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 512, KeyLen: 512, HeadDim: 64, ValueDim: 64, DType: attn.F16, Dropout: 0.1}
		tile := base(keys)
		require.Equal(t, DrawBits, tile.LaneOfDraws(&p, nvidia))
		words := tile.Shared(&p).Drop
		tile.ByLane = DrawBits
		if keys {
			require.Equal(t, words, 4*tile.Shared(&p).Drop)
		} else {
			require.Equal(t, leastDrop, tile.Shared(&p).Drop, "bits of a lane's own draws are in registers")
		}

		for want, change := range map[int]func(*BackwardTile, *attn.Problem){
			DrawWords: func(_ *BackwardTile, p *attn.Problem) { p.ValueDim = 65 },
			DrawEach:  func(_ *BackwardTile, p *attn.Problem) { p.Dropout = 0 },
		} {
			tile, q := base(keys), p
			change(&tile, &q)
			require.Equal(t, want, tile.LaneOfDraws(&q, nvidia))
		}
		tile = base(keys)
		tile.Form = kernel.FormShared
		require.Equal(t, DrawEach, tile.LaneOfDraws(&p, nvidia))
		tile = base(keys)
		tile.W, tile.BC = 3, 48 // 96 keys, or 48
		require.Equal(t, DrawEach, tile.LaneOfDraws(&p, nvidia))
		tile = base(keys)
		tile.Fragment, tile.CK = kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}, 8
		own := DrawBits // of a row a lane has columns 8 apart
		if keys {
			own = DrawEach
		}
		require.Equal(t, own, tile.LaneOfDraws(&p, kerneltest.LayoutOf(t, "lavapipe")))
		half := tile
		half.BC = 8 // a byte of a draw is for a key by its place among 16
		if !keys {
			require.Equal(t, DrawEach, half.LaneOfDraws(&p, kerneltest.LayoutOf(t, "lavapipe")))
		}
		tile = base(keys)
		tile.Fragment, tile.CK = kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 32}, 8
		require.Equal(t, own, tile.LaneOfDraws(&p, nvidia), "a lane has 16 keys of no row, and its draws of rows")
	}
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 512, KeyLen: 512, HeadDim: 256, ValueDim: 256, DType: attn.F16, Dropout: 0.1}
	tile := base(false)
	require.Equal(t, DrawWords, tile.LaneOfDraws(&p, nvidia), "sums take registers")
	tile.ToMemory = true
	require.Equal(t, DrawBits, tile.LaneOfDraws(&p, nvidia))
	tile.Slice = 64
	require.Equal(t, DrawWords, tile.LaneOfDraws(&p, nvidia))
	p.HeadDim, p.ValueDim = 64, 64
	tile = base(true)
	tile.W, tile.RM = 4, 3 // 48 keys of a subgroup pass from one group of 64 to another
	require.Equal(t, DrawWords, tile.LaneOfDraws(&p, nvidia))
	tile = base(true)
	odd := *nvidia
	odd.ColOfComp = []int{0, 8, 1, 9, 0, 8, 1, 9}
	require.Equal(t, DrawWords, tile.LaneOfDraws(&p, &odd))
}

// TestMatrixBiasTiles: on a large GPU the tile stays one of many keys beside what the gradient leaves through.
func TestMatrixBiasTiles(t *testing.T) {
	c, f := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	layout := kerneltest.LayoutOf(t, "NVIDIA 16x16x16")
	for _, dim := range []int{32, 64, 96, 128, 256} {
		for _, own := range []bool{true, false} {
			p := kerneltest.Problem(attn.Problem{Heads: 32, KeyHeads: 32, QueryLen: 4096, HeadDim: dim, DType: attn.F16,
				ByScore: attn.ByScore{Bias: attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, own, true, true}}}})
			tuning := kernel.NewBackwardTuning(nil)
			q, err := ChooseBackwardTile(c, p, layout, f, kernel.FormRegisters, "q_", tuning)
			require.NoError(t, err)
			tile, err := ChooseBiasTile(c, p, layout, f, kernel.FormRegisters, tuning)
			require.NoError(t, err)
			require.Equal(t, [2]int{q.W, q.RM}, [2]int{tile.W, tile.RM}, "%d %v", dim, own)
			if own {
				require.GreaterOrEqual(t, 2*tile.BC, q.BC, dim)
			} else {
				require.Equal(t, tile.CK, tile.BC)
			}
		}
	}
}

// TestTilesOfDBias: on a large GPU the tile that is chosen has room for the gradient with respect to a bias.
func TestTilesOfDBias(t *testing.T) {
	c, f, layout := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kerneltest.LayoutOf(t, "NVIDIA 16x16x16")
	for _, dim := range []int{16, 32, 48, 64} {
		for _, with := range []attn.Problem{{}, {ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}, {Dropout: 0.1},
			{ByPosition: attn.ByPosition{Window: attn.NewWindow(1024, 0)}}} {
			with.Heads, with.KeyHeads, with.QueryLen, with.HeadDim, with.DType = 32, 32, 4096, dim, attn.F16
			with.Bias = attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, true, true, true}}
			p := kerneltest.Problem(with)
			tile, err := ChooseBackwardTile(c, p, layout, f, kernel.FormRegisters, "q_", kernel.NewBackwardTuning(nil))
			require.NoError(t, err)
			tile.DBias = true
			require.Empty(t, tile.Check("q_", p, c), "%v", p)
		}
	}
}
