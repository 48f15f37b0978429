package matrix

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/vk"
)

// TestPartsStayWithinBounds: parts hold enough keys each, and take little memory, whatever the device says of itself.
func TestPartsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		c.Facts.Multiprocessors = uint32(rapid.SampledFrom([]int{0, 1, 40, 132, 1000}).Draw(t, "multiprocessors"))
		p := kerneltest.DrawProblem(t)
		p.KeyLen = rapid.IntRange(1, 1<<20).Draw(t, "nk")
		tile, err := ChooseTile(c, p, kerneltest.DrawFragment(t, int(c.Facts.Subgroup.Size)), kernel.FormRegisters,
			kernel.NewTuning(nil))
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, tile.Parts, 1)
		if tile.Parts > 1 {
			size := kernel.PartsScratch(p, tile.Parts)
			require.LessOrEqual(t, size[0]+size[1], uint64(kernel.MostPartsBytes))
			require.GreaterOrEqual(t, p.KeyLen/tile.Parts, kernel.LeastPartKeys)
			require.NotEqual(t, vk.DeviceCPU, c.Facts.Type)
		}
	})
}

// TestFullDevicesKeepTheirTile: where there are workgroups enough, rows of the table are taken as they are and keys stay together.
func TestFullDevicesKeepTheirTile(t *testing.T) {
	for _, d := range []int{64, 128, 256} {
		for n := 512; n <= 16384; n *= 2 {
			for _, mask := range []attn.Causal{attn.CausalNone, attn.CausalBottomRight} {
				p := problem(attn.Problem{Batch: 16384 / n, Heads: 2048 / d, QueryLen: n, HeadDim: d, DType: attn.F16,
					ByPosition: attn.ByPosition{Causal: mask}})
				tile, err := ChooseTile(kerneltest.Hopper(), p, kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kernel.FormRegisters,
					kernel.NewTuning(nil))
				require.NoError(t, err)
				require.Equal(t, 1, tile.Parts, "%v", p)
				require.True(t, slices.ContainsFunc(kerneltest.Hopper().Suiting(kernel.Asked(p, tile.Fragment), "matrix_forward"),
					func(row *tiles.Row) bool {
						r := TileOf(row)
						return r.W == tile.W && r.RM == tile.RM && r.BC == tile.BC && r.CK == tile.CK && r.Prefetch == tile.Prefetch
					}), "%v: %+v", p, tile)
			}
		}
	}
}

// TestChosenPartsAreNearlyTheFastest: the predicted tile and parts, against what was measured on an H200 for many
// (testdata/results/experiments/27-parts.txt has all; here are the fastest, and the limit for the choice).
func TestChosenPartsAreNearlyTheFastest(t *testing.T) {
	type choice struct{ w, rm, parts int }
	for _, m := range []struct {
		d, heads, nq, nk int
		mask             attn.Causal
		good             []choice // within 12 % of the fastest measured
	}{
		{128, 8, 1024, 1024, attn.CausalNone, []choice{{8, 2, 4}, {4, 1, 2}, {8, 1, 2}}},
		{128, 8, 1024, 1024, attn.CausalBottomRight, []choice{{4, 1, 4}, {4, 1, 2}}},
		{128, 8, 2048, 2048, attn.CausalNone, []choice{{8, 2, 2}, {4, 2, 2}, {8, 1, 1}}},
		{128, 8, 2048, 2048, attn.CausalBottomRight, []choice{{4, 1, 2}}},
		{128, 8, 64, 4096, attn.CausalNone, []choice{{4, 1, 16}, {4, 1, 32}}},
		{128, 8, 256, 4096, attn.CausalNone, []choice{{4, 2, 16}, {4, 1, 8}, {8, 2, 16}}},
		{128, 8, 512, 16384, attn.CausalNone, []choice{{8, 2, 8}, {4, 2, 8}, {8, 2, 16}}},
		{64, 16, 1024, 1024, attn.CausalNone, []choice{{4, 2, 1}, {8, 1, 1}, {4, 2, 2}, {4, 1, 1}}},
		{64, 16, 1024, 1024, attn.CausalBottomRight, []choice{{4, 2, 1}, {4, 1, 2}, {4, 2, 2}, {8, 2, 2}, {4, 1, 1}}},
		{64, 16, 2048, 2048, attn.CausalNone, []choice{{8, 2, 1}, {4, 2, 1}}},
		{64, 16, 2048, 2048, attn.CausalBottomRight, []choice{{4, 1, 1}, {4, 2, 2}, {8, 2, 2}, {4, 2, 1}}},
		{64, 16, 64, 4096, attn.CausalNone, []choice{{4, 1, 16}, {4, 1, 8}}},
		{64, 16, 256, 4096, attn.CausalNone, []choice{{4, 2, 8}, {8, 2, 8}, {4, 2, 4}, {4, 1, 8}}},
		{64, 16, 64, 16384, attn.CausalNone, []choice{{4, 1, 16}}},
		{64, 16, 256, 16384, attn.CausalNone, []choice{{8, 2, 8}, {4, 2, 8}, {8, 2, 16}}},
		{256, 4, 1024, 1024, attn.CausalNone, []choice{{8, 1, 4}}},
		{256, 4, 1024, 1024, attn.CausalBottomRight, []choice{{8, 1, 4}}},
		{256, 4, 2048, 2048, attn.CausalNone, []choice{{8, 1, 2}}},
		{256, 4, 2048, 2048, attn.CausalBottomRight, []choice{{8, 1, 4}, {8, 1, 3}, {8, 1, 2}}},
	} {
		p := problem(attn.Problem{Batch: 1, Heads: m.heads, QueryLen: m.nq, KeyLen: m.nk, HeadDim: m.d, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: m.mask}})
		tile, err := ChooseTile(kerneltest.Hopper(), p, kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kernel.FormRegisters,
			kernel.NewTuning(nil))
		require.NoError(t, err)
		require.Contains(t, m.good, choice{tile.W, tile.RM, tile.Parts}, "%v", p)
	}
}

// TestPartsOfAGivenTile: a tile from the caller, or from the tuning file, has parts that suit it.
func TestPartsOfAGivenTile(t *testing.T) {
	p := problem(attn.Problem{Batch: 1, Heads: 8, QueryLen: 64, KeyLen: 1 << 14, HeadDim: 128, DType: attn.F16})
	for _, test := range []struct {
		tuning map[string]int
		parts  int
	}{
		{nil, 33}, {map[string]int{"w": 4, "rm": 1}, 33}, // two workgroups on each of 132 multiprocessors, 8 heads
		{map[string]int{"w": 8, "rm": 2}, 16}, {map[string]int{"br": 128}, 16}, {map[string]int{"w": 8, "parts": 3}, 3},
	} {
		tuning := kernel.NewTuning(test.tuning)
		tile, err := ChooseTile(kerneltest.Hopper(), p, kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kernel.FormRegisters, tuning)
		require.NoError(t, err)
		require.Equal(t, test.parts, tile.Parts, "%v: %v", test.tuning, tile.String())
		require.Equal(t, test.parts, tuning.Effect["parts"])
	}
}
