package matrix

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestWideTileFitsAnyDevice: what is chosen keeps the device's limits, and shared memory holds what the shader touches, which is worked out
// here from the indices it uses.
func TestWideTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		c.Facts.Subgroup.MaxWorkgroupSubgroups = uint32(rapid.SampledFrom([]int{0, 4, 8, 32}).Draw(t, "subgroups"))
		f := kerneltest.DrawFragment(t, int(c.Facts.Subgroup.Size))
		p := kerneltest.DrawProblem(t)
		p.HeadDim, p.ValueDim = rapid.IntRange(1, attn.MostDim).Draw(t, "wide d"), rapid.IntRange(1, attn.MostDim).Draw(t, "wide dv")
		form := rapid.IntRange(kernel.FormRegisters, kernel.FormShared).Draw(t, "form")
		layout := kernel.FragmentLayout{ColOfComp: []int{0, rapid.IntRange(1, 2).Draw(t, "next column")}, RowOfComp: []int{0, 0}}
		given := map[string]int{}
		if candidates := ForwardWide.Candidates(c, p); rapid.Bool().Draw(t, "a candidate") {
			given = rapid.SampledFrom(candidates).Draw(t, "given")
		}
		tile, err := ChooseWideTile(c, p, f, &layout, form, kernel.NewTuning(given))
		if err != nil {
			var no *kernel.Declined
			if len(given) > 0 {
				require.ErrorIs(t, err, attn.ErrArgument)
				return
			}
			require.ErrorAs(t, err, &no)
			if c.Facts.Limits.MaxSharedMemory >= 32<<10 && f.M*f.N <= 256 && f.K <= 16 && f.Lanes <= 32 &&
				c.Facts.Limits.MaxWorkgroupInvocations >= 128 {
				t.Fatalf("%v in subgroups of %d, %v: %v", f, f.Lanes, p, err)
			}
			return
		}
		require.Empty(t, tile.Check(p.HeadDim, p.ValueDim, c))
		sh := tile.Shared(p.HeadDim, p.ValueDim)
		last := func(name string, index, length int) {
			if index >= length {
				t.Fatalf("%+v: %s[%d] of %d for D %d Dv %d", tile, name, index, length, p.HeadDim, p.ValueDim)
			}
		}
		rows, keys, perSubgroup := tile.Rows(), tile.Keys(), tile.RM*f.M
		teams, columns := tile.W/tile.Split, attn.CeilDiv(attn.CeilDiv(p.ValueDim, f.N), tile.Split)
		if rows != teams*perSubgroup || keys%tile.VKeys != 0 || tile.VKeys%f.K != 0 || tile.Slice%f.K != 0 || keys%f.K != 0 ||
			tile.CK%f.N != 0 {
			t.Fatalf("%+v: no whole fragments", tile)
		}
		if sh.SPitch%2+sh.VPitch%2+sh.PPitch%2 != 3 || sh.SPitch < tile.Slice/8 || sh.VPitch < attn.CeilDiv(p.ValueDim, 8) ||
			sh.PPitch < keys/8 {
			t.Fatalf("%+v: pitches %+v", tile, sh)
		}
		last("a step (K)", (rows+keys-1)*sh.SPitch+tile.Slice/8-1, sh.Step)
		last("a step (V)", (tile.VKeys-1)*sh.VPitch+tile.Split*columns*f.N/8-1, sh.Step)
		last("Staged", (1+kernel.BoolInt(tile.Prefetch == 3))*sh.Step-1, sh.Staged)
		last("Staged (patches)", (tile.W*f.M-1)*(f.N/4|1)+f.N/4-1, sh.Staged)
		last("Weights", (rows-1)*sh.PPitch+keys/8-1, sh.P)
		tops := 0
		if !tile.Words {
			tops = tile.W * perSubgroup * tile.CK
			require.Equal(t, rows*keys, tops)
		}
		last("X (maxima)", tops+tile.W*perSubgroup-1, sh.X)
		require.Equal(t, tile.Split*rows, tile.W*perSubgroup)
		if form == kernel.FormShared {
			require.False(t, tile.Words)
			last("X (factors)", tops+4*tile.W*perSubgroup+tile.W*f.M*f.N-1, sh.X)
		}
		if n := sh.Bytes(); n < 16*(sh.Staged+sh.P)+4*sh.X || n > int(c.Facts.Limits.MaxSharedMemory) {
			t.Fatalf("%+v: %d bytes of shared memory", tile, n)
		}
	})
}

// TestWideCandidatesFit: of MLA's dimensions, every tile of Hopper's own that tune measures fits an H200, and those
// of four subgroups leave room for a second workgroup: the driver gives a multiprocessor some 49 KiB.
func TestWideCandidatesFit(t *testing.T) {
	c, f, l := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kerneltest.LayoutOf(t, "NVIDIA 16x16x16")
	p := kerneltest.Problem(attn.Problem{Heads: 16, KeyHeads: 16, QueryLen: 4096, HeadDim: 576, ValueDim: 512, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}})
	for _, row := range c.Family().Own() {
		if row.Kernel != "matrix_forward_wide" {
			continue
		}
		tile, err := ChooseWideTile(c, p, f, l, kernel.FormRegisters, kernel.NewTuning(row.Values))
		require.NoError(t, err, row.Place())
		require.True(t, tile.Words)
		bytes := tile.Shared(p.HeadDim, p.ValueDim).Bytes()
		t.Logf("%v: %v, %d bytes", row, &tile, bytes)
		if tile.W == 4 {
			require.LessOrEqual(t, bytes, 49<<10/2, row.Place())
		}
	}
}
