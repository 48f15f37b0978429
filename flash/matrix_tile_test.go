package flash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/vk"
)

// drawMatrixShape makes up a fragment that a device may list.
func drawMatrixShape(t *rapid.T, lanes int) matrixShape {
	side := rapid.SampledFrom([]int{8, 16, 32})
	s := matrixShape{M: side.Draw(t, "m"), N: side.Draw(t, "n"), K: side.Draw(t, "k"), Lanes: lanes}
	if !s.fits() {
		t.Skip("no fragment for the shader")
	}
	return s
}

// drawProblem makes up a problem that matrices can run.
func drawProblem(t *rapid.T) Problem {
	kv := rapid.IntRange(1, 8).Draw(t, "key heads")
	p, err := Problem{Batch: rapid.IntRange(1, 4).Draw(t, "batch"), Heads: kv * rapid.IntRange(1, 8).Draw(t, "group"), KeyHeads: kv,
		QueryLen: rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 5000)).Draw(t, "nq"),
		HeadDim:  rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
		DType: DType(rapid.IntRange(1, 2).Draw(t, "dtype")), Causal: Causal(rapid.IntRange(0, 2).Draw(t, "causal"))}.Normalize()
	require.NoError(t, err)
	return p
}

// requireMatrixTile checks a tile against the device, and shared memory against what the shader touches, which is worked
// out here from the indices it uses.
func requireMatrixTile(t *rapid.T, c *capabilities, p *Problem, tile *matrixTile) {
	l, f := &c.facts.Limits, &tile.fragment
	if why := tile.check(p.HeadDim, p.ValueDim, c); why != "" {
		t.Fatalf("%+v: %s", tile, why)
	}
	if n := tile.W * f.Lanes; n > int(l.MaxWorkgroupInvocations) || n > int(l.MaxWorkgroupSize[0]) {
		t.Fatalf("%+v: %d invocations", tile, n)
	}
	if tile.rows() != tile.W*tile.RM*f.M || tile.BC%tile.CK != 0 || tile.CK%f.N != 0 || tile.CK%f.K != 0 {
		t.Fatalf("%+v: chunks are not whole fragments", tile)
	}
	sh := tile.shared(p.HeadDim, p.ValueDim)
	df, vf := ceilDiv(p.HeadDim, f.K), ceilDiv(p.ValueDim, f.N)
	tiles := 1 + boolInt(tile.Prefetch == 3 || tile.Prefetch == 4)
	last := func(name string, index, length int) {
		if index >= length {
			t.Fatalf("%+v: %s[%d] of %d for D %d Dv %d", tile, name, index, length, p.HeadDim, p.ValueDim)
		}
	}
	// the last 16 bytes of the last key's last slice, of K and of V
	if sh.kPitch < df*f.K/8 || sh.vPitch < vf*f.N/8 || sh.kPitch%2 == 0 || sh.vPitch%2 == 0 {
		t.Fatalf("%+v: pitches %d and %d", tile, sh.kPitch, sh.vPitch)
	}
	tileLen := tile.BC * (sh.kPitch + sh.vPitch)
	last("KV (K)", (tiles-1)*tileLen+(tile.BC-1)*sh.kPitch+df*f.K/8-1, sh.kv)
	last("KV (V)", (tiles-1)*tileLen+tile.BC*sh.kPitch+(tile.BC-1)*sh.vPitch+vf*f.N/8-1, sh.kv)
	patches := sh.kv
	if tile.KeysOutside {
		patches = sh.rows
	}
	last("patches", (tile.W*f.M-1)*(sh.patch|1)+sh.patch-1, patches)
	if sh.patch < 1 || sh.patch%max(1, f.K/8) != 0 || sh.patch%max(1, f.N/4) != 0 {
		t.Fatalf("%+v: a row of the patch, %d units, does not hold whole fragments", tile, sh.patch)
	}
	if rest := df - tile.QReg; rest > 0 {
		last("Qs", (tile.rows()-1)*sh.qPitch+rest*f.K/8-1, sh.q)
	}
	switch tile.Form {
	case formRows:
		last("X", tile.W*f.M*tile.CK-1, sh.x)
		last("H", tile.W*f.M*tile.CK/8-1, sh.h)
	case formShared:
		last("X", tile.W*(f.M*tile.CK+f.M*f.N+3*tile.RM*f.M)-1, sh.x)
		last("H", tile.W*f.M*tile.CK/8-1, sh.h)
	}
	if min(sh.kv, sh.q, sh.x, sh.h, sh.kPitch, sh.vPitch, sh.qPitch) < 1 {
		t.Fatalf("%+v: an array of no length: %+v", tile, sh)
	}
	if n := 16*(sh.kv+sh.q+sh.h+sh.rows) + 4*(sh.x+sh.drop); sh.drop < 1 || n != sh.bytes() || n > int(l.MaxSharedMemory) {
		t.Fatalf("%+v: %d bytes of shared memory", tile, n)
	}
}

// TestMatrixTileFitsAnyDevice: what is chosen keeps the device's limits; only where shared memory is too small for the
// smallest tile is there none, and that is said.
func TestMatrixTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		c.facts.Subgroup.MaxWorkgroupSubgroups = uint32(rapid.SampledFrom([]int{0, 4, 8, 32}).Draw(t, "subgroups"))
		s := drawMatrixShape(t, int(c.facts.Subgroup.Size))
		p := drawProblem(t)
		form := rapid.IntRange(formRegisters, formShared).Draw(t, "form")
		tile, err := chooseMatrixTile(c, &p, s, form, newTuning(nil))
		if err != nil {
			var no *declined
			require.ErrorAs(t, err, &no)
			require.Contains(t, no.why, "shared memory")
			if dim := max(p.HeadDim, p.ValueDim); c.facts.Limits.MaxSharedMemory >= 32<<10 && s.M*s.N <= 256 && s.K <= 16 && dim <= 128 {
				t.Fatalf("%v in subgroups of %d, %v: %v", s, s.Lanes, p, err)
			}
			return
		}
		requireMatrixTile(t, c, &p, &tile)
		require.Equal(t, form, tile.Form)
		if tile.Pack && (p.group() == 1) {
			t.Fatal("nothing to pack")
		}
		if _, err := newGrid(tile.groups(&p), 0); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMatrixTilesOfTheTable: every row of the table, with each candidate of tune, keeps the limits where it is taken.
func TestMatrixTilesOfTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		s := drawMatrixShape(t, int(c.facts.Subgroup.Size))
		p := drawProblem(t)
		form := rapid.IntRange(formRegisters, formShared).Draw(t, "form")
		k := c.prediction()
		for _, row := range c.family().Rows("matrix_forward") {
			tile := tileOf(row).complete(&k, &p, s, form)
			if tile.check(p.HeadDim, p.ValueDim, c) == "" {
				requireMatrixTile(t, c, &p, &tile)
			}
		}
		for _, given := range matrixForwardCandidates(c, &p) {
			tile, err := chooseMatrixTile(c, &p, s, form, newTuning(given))
			if err != nil {
				require.ErrorIs(t, err, ErrArgument)
				continue
			}
			requireMatrixTile(t, c, &p, &tile)
			require.Equal(t, given["bc"], tile.BC)
			require.Equal(t, given["w"], tile.W)
		}
	})
}

// h200 is what tiles depend on, of the GPU that the table was measured on.
func h200() *capabilities {
	f := &vk.Facts{EffectiveVersion: vk.Version13, Type: vk.DeviceDiscrete, VendorID: 0x10de}
	f.Limits.MaxSharedMemory, f.Limits.MaxWorkgroupInvocations = 48<<10, 1024
	f.Limits.MaxWorkgroupSize = [3]uint32{1024, 1024, 64}
	f.Subgroup.Size, f.Subgroup.MaxWorkgroupSubgroups = 32, 32
	f.Multiprocessors, f.MultiprocessorSubgroups = 132, 64
	return &capabilities{facts: f}
}

// TestMatrixTilesMeasured: large problems get the table's rows as they are, small ones and grouped queries something smaller.
func TestMatrixTilesMeasured(t *testing.T) {
	c, s := h200(), matrixShape{M: 16, N: 16, K: 16, Lanes: 32}
	choose := func(p Problem) matrixTile {
		p, err := p.Normalize()
		require.NoError(t, err)
		tile, err := chooseMatrixTile(c, &p, s, formRegisters, newTuning(nil))
		require.NoError(t, err)
		return tile
	}
	shadowed := 0
	k := c.prediction()
	require.Equal(t, "hopper", c.family().Name)
	for i, r := range c.family().Rows("matrix_forward") {
		if r.Source != tiles.Measured {
			continue
		}
		row := tileOf(r)
		p, ok := problemForRow(t, c, i)
		if !ok {
			shadowed++
			continue
		}
		tile, what := choose(p), fmt.Sprintf("%v, row %d", p, i)
		require.False(t, tile.Pack)
		require.Equal(t, rows0(row, s), tile.rows(), what)
		require.Equal(t, []int{row.BC, row.Prefetch}, []int{tile.BC, tile.Prefetch}, what)
		require.Equal(t, []bool{row.Steps, r.When.Whole}, []bool{tile.Steps, !tile.ragged(&p)}, what)
		if p.Causal == CausalNone {
			require.Equal(t, max(1, row.HeadsTogether), tile.HeadsTogether, what)
		} else {
			require.Equal(t, causalHeadsTogether(&k, &p), tile.HeadsTogether, what)
		}
	}
	require.Equal(t, 1, shadowed, "the last row of D 256 is for devices with less shared memory; every other one is taken")
	for keys, heads := range map[int]int{512: 64, 4096: 16, 65536: 4} { // 128 KiB, 1 MiB, 16 MiB a head, of the backward pass
		p, err := Problem{Batch: 4, Heads: 32, QueryLen: keys, HeadDim: 64, DType: F16, Causal: CausalTopLeft}.Normalize()
		require.NoError(t, err)
		require.Equal(t, heads, headsTogether(&k, &p))
		require.Equal(t, map[int]int{512: 64, 4096: 16, 65536: 4}[keys], causalHeadsTogether(&k, &p))
	}

	decode := choose(Problem{Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1, KeyLen: 65536, HeadDim: 128, DType: F16})
	require.True(t, decode.Pack)
	require.Equal(t, uint64(8), decode.groups(&Problem{Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1}))
	require.Equal(t, 64, decode.rows(), "no more rows than hide latency")

	large := choose(Problem{Batch: 8, Heads: 32, QueryLen: 4096, HeadDim: 64, DType: F16})
	few := choose(Problem{Batch: 1, Heads: 8, QueryLen: 512, HeadDim: 64, DType: F16})
	require.Less(t, few.rows(), large.rows(), "more workgroups")
}

// problemForRow is a large problem that the table's row i is the first to suit, if there is one.
func problemForRow(t *testing.T, c *capabilities, i int) (Problem, bool) {
	rows := c.family().Rows("matrix_forward")
	row := rows[i]
	for _, dtype := range []DType{F16, BF16} {
		for _, causal := range []Causal{CausalNone, CausalTopLeft} {
			for _, dropout := range []float64{0, 0.1} {
				for _, blocks := range []Blocks{{}, {Queries: 128, Keys: 128}} {
					for _, more := range []int{0, 1} {
						p, err := Problem{Batch: 16, Heads: 32, QueryLen: max(row.When.LeastKeys, 512) + more, HeadDim: row.When.MaxDim, DType: dtype, Causal: causal,
							Dropout: dropout, Blocks: blocks}.Normalize()
						require.NoError(t, err)
						if slices.IndexFunc(rows, func(r *tiles.Row) bool { return r.Suits(asked(&p, matrixShape{M: 16, N: 16, K: 16, Lanes: 32})) }) == i {
							return p, true
						}
					}
				}
			}
		}
	}
	return Problem{}, false
}

// rows0 is rows for a row of the table, which has no fragment.
func rows0(t matrixTile, s matrixShape) int { t.fragment = s; return t.rows() }

func TestMatrixTuningErrors(t *testing.T) {
	c, s := h200(), matrixShape{M: 16, N: 16, K: 16, Lanes: 32}
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	for _, given := range []map[string]int{
		{"w": 0}, {"w": 33}, {"rm": 0}, {"br": 50}, {"br": 0}, {"bc": 0}, {"bc": 40}, {"bc": 4096}, {"ck": 8}, {"ck": 0}, {"prefetch": 6}, {"pipe": 2},
		{"max_first": 2}, {"q_reg": 0}, {"heads_together": 0}, {"prefetch": 3, "bc": 192, "ck": 16}, {"prefetch": 4, "bc": 192, "ck": 16},
	} {
		_, err := chooseMatrixTile(c, &p, s, formRegisters, newTuning(given))
		require.ErrorIs(t, err, ErrArgument, "%v", given)
	}
	tn := newTuning(map[string]int{"br": 96, "rm": 2, "bc": 32, "ck": 16})
	tile, err := chooseMatrixTile(c, &p, s, formRegisters, tn)
	require.NoError(t, err)
	require.Equal(t, 96, tile.rows())
	require.Equal(t, 3, tile.W)
	require.Equal(t, 3, tn.effect["w"])
}
