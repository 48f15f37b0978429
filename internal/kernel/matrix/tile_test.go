package matrix

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/tiles"
)

// problem fills in what is left open, with as many key heads as heads.
func problem(p attn.Problem) *attn.Problem {
	if p.KeyHeads == 0 {
		p.KeyHeads = p.Heads
	}
	return kerneltest.Problem(p)
}

// requireTile checks a tile against the device, and shared memory against what the shader touches, which is worked
// out here from the indices it uses.
func requireTile(t *rapid.T, c *kernel.Capabilities, p *attn.Problem, tile *Tile) {
	l, f := &c.Facts.Limits, &tile.Fragment
	if why := tile.Check(p.HeadDim, p.ValueDim, c); why != "" {
		t.Fatalf("%+v: %s", tile, why)
	}
	if n := tile.W * f.Lanes; n > int(l.MaxWorkgroupInvocations) || n > int(l.MaxWorkgroupSize[0]) {
		t.Fatalf("%+v: %d invocations", tile, n)
	}
	if tile.Rows() != tile.W*tile.RM*f.M || tile.BC%tile.CK != 0 || tile.CK%f.N != 0 || tile.CK%f.K != 0 {
		t.Fatalf("%+v: chunks are not whole fragments", tile)
	}
	sh := tile.Shared(p.HeadDim, p.ValueDim)
	df, vf := attn.CeilDiv(p.HeadDim, f.K), attn.CeilDiv(p.ValueDim, f.N)
	tiles := 1 + kernel.BoolInt(tile.Prefetch == 3 || tile.Prefetch == 4)
	last := func(name string, index, length int) {
		if index >= length {
			t.Fatalf("%+v: %s[%d] of %d for D %d Dv %d", tile, name, index, length, p.HeadDim, p.ValueDim)
		}
	}
	// the last 16 bytes of the last key's last slice, of K and of V
	if sh.KPitch < df*f.K/8 || sh.VPitch < vf*f.N/8 || sh.KPitch%2 == 0 || sh.VPitch%2 == 0 {
		t.Fatalf("%+v: pitches %d and %d", tile, sh.KPitch, sh.VPitch)
	}
	tileLen := tile.BC * (sh.KPitch + sh.VPitch)
	last("KV (K)", (tiles-1)*tileLen+(tile.BC-1)*sh.KPitch+df*f.K/8-1, sh.Kv)
	last("KV (V)", (tiles-1)*tileLen+tile.BC*sh.KPitch+(tile.BC-1)*sh.VPitch+vf*f.N/8-1, sh.Kv)
	patches := sh.Kv
	if tile.KeysOutside {
		patches = sh.Rows
	}
	last("patches", (tile.W*f.M-1)*(sh.Patch|1)+sh.Patch-1, patches)
	if sh.Patch < 1 || sh.Patch%max(1, f.K/8) != 0 || sh.Patch%max(1, f.N/4) != 0 {
		t.Fatalf("%+v: a row of the patch, %d units, does not hold whole fragments", tile, sh.Patch)
	}
	if rest := df - tile.QReg; rest > 0 {
		last("Qs", (tile.Rows()-1)*sh.QPitch+rest*f.K/8-1, sh.Q)
	}
	switch tile.Form {
	case kernel.FormRows:
		last("X", tile.W*f.M*tile.CK-1, sh.X)
		last("H", tile.W*f.M*tile.CK/8-1, sh.H)
	case kernel.FormShared:
		last("X", tile.W*(f.M*tile.CK+f.M*f.N+3*tile.RM*f.M)-1, sh.X)
		last("H", tile.W*f.M*tile.CK/8-1, sh.H)
	}
	if min(sh.Kv, sh.Q, sh.X, sh.H, sh.KPitch, sh.VPitch, sh.QPitch) < 1 {
		t.Fatalf("%+v: an array of no length: %+v", tile, sh)
	}
	if n := 16*(sh.Kv+sh.Q+sh.H+sh.Rows) + 4*(sh.X+sh.Drop+sh.Scales); sh.Drop < 1 || n != sh.Bytes() || n > int(l.MaxSharedMemory) {
		t.Fatalf("%+v: %d bytes of shared memory", tile, n)
	}
}

// TestTileFitsAnyDevice: what is chosen keeps the device's limits; only where shared memory is too small for the
// smallest tile is there none, and that is said.
func TestTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		c.Facts.Subgroup.MaxWorkgroupSubgroups = uint32(rapid.SampledFrom([]int{0, 4, 8, 32}).Draw(t, "subgroups"))
		s := kerneltest.DrawFragment(t, int(c.Facts.Subgroup.Size))
		p := kerneltest.DrawProblem(t)
		form := rapid.IntRange(kernel.FormRegisters, kernel.FormShared).Draw(t, "form")
		tile, err := ChooseTile(c, p, s, form, kernel.NewTuning(nil))
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
		require.Equal(t, form, tile.Form)
		if tile.Pack && (p.Group() == 1) {
			t.Fatal("nothing to pack")
		}
		if _, err := kernel.NewGrid(tile.Groups(p), 0); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTilesOfTheTable: every row of the table, with each candidate of tune, keeps the limits where it is taken.
func TestTilesOfTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		s := kerneltest.DrawFragment(t, int(c.Facts.Subgroup.Size))
		p := kerneltest.DrawProblem(t)
		form := rapid.IntRange(kernel.FormRegisters, kernel.FormShared).Draw(t, "form")
		k := c.Prediction()
		for _, row := range c.Family().Rows("matrix_forward") {
			tile := TileOf(row).Complete(&k, p, s, form)
			if tile.Check(p.HeadDim, p.ValueDim, c) == "" {
				requireTile(t, c, p, &tile)
			}
		}
		for _, given := range ForwardCandidates(c, p) {
			tile, err := ChooseTile(c, p, s, form, kernel.NewTuning(given))
			if err != nil {
				require.ErrorIs(t, err, attn.ErrArgument)
				continue
			}
			requireTile(t, c, p, &tile)
			require.Equal(t, given["bc"], tile.BC)
			require.Equal(t, given["w"], tile.W)
		}
	})
}

// TestTilesMeasured: large problems get the table's rows as they are, small ones and grouped queries something smaller.
func TestTilesMeasured(t *testing.T) {
	c, s := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	choose := func(p attn.Problem) Tile {
		tile, err := ChooseTile(c, problem(p), s, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		return tile
	}
	shadowed := 0
	k := c.Prediction()
	require.Equal(t, "hopper", c.Family().Name)
	for i, r := range c.Family().Rows("matrix_forward") {
		if r.Source != tiles.Measured || r.When.Packed { // those of packed sequences: below
			continue
		}
		row := TileOf(r)
		p, ok := problemForRow(t, c, i)
		if !ok {
			shadowed++
			continue
		}
		tile, what := choose(p), fmt.Sprintf("%v, row %d", p, i)
		require.False(t, tile.Pack)
		require.Equal(t, rows0(row, s), tile.Rows(), what)
		require.Equal(t, []int{row.BC, row.Prefetch}, []int{tile.BC, tile.Prefetch}, what)
		require.Equal(t, []bool{row.Steps, r.When.Whole}, []bool{tile.Steps, !tile.Ragged(&p)}, what)
		if !p.Uneven() {
			require.Equal(t, max(1, row.HeadsTogether), tile.HeadsTogether, what)
		} else {
			require.Equal(t, CausalHeadsTogether(&k, &p), tile.HeadsTogether, what)
		}
	}
	require.Equal(t, 1, shadowed, "the last row of D 256 is for devices with less shared memory; every other one is taken")
	for dim, rows := range map[int]int{64: 128, 128: 128} {
		p := attn.Problem{Batch: 32, Heads: 32, QueryLen: 2403, HeadDim: dim, DType: attn.F16}
		require.Equal(t, 2*rows, func() int { x := choose(p); return x.Rows() }(), "a batch of dimension %d", dim)
		p.Packed = attn.Packed{Queries: 16384, Keys: 16384}
		require.Equal(t, rows, func() int { x := choose(p); return x.Rows() }(), "packed sequences of dimension %d", dim)
	}
	for keys, heads := range map[int]int{512: 64, 4096: 16, 65536: 4} { // 128 KiB, 1 MiB, 16 MiB a head, of the backward pass
		p := problem(attn.Problem{Batch: 4, Heads: 32, QueryLen: keys, HeadDim: 64, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.CausalTopLeft}})
		require.Equal(t, heads, HeadsTogether(&k, p))
		require.Equal(t, map[int]int{512: 64, 4096: 16, 65536: 4}[keys], CausalHeadsTogether(&k, p))
	}

	decode := choose(attn.Problem{Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1, KeyLen: 65536, HeadDim: 128, DType: attn.F16})
	require.True(t, decode.Pack)
	require.Equal(t, uint64(8), decode.Groups(&attn.Problem{Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1}))
	require.Equal(t, 64, decode.Rows(), "no more rows than hide latency")

	large := choose(attn.Problem{Batch: 8, Heads: 32, QueryLen: 4096, HeadDim: 64, DType: attn.F16})
	few := choose(attn.Problem{Batch: 1, Heads: 8, QueryLen: 512, HeadDim: 64, DType: attn.F16})
	require.Less(t, few.Rows(), large.Rows(), "more workgroups")
}

// problemForRow is a large problem that the table's row i is the first to suit, if there is one.
func problemForRow(t *testing.T, c *kernel.Capabilities, i int) (attn.Problem, bool) {
	rows := c.Family().Rows("matrix_forward")
	row := rows[i]
	var window attn.Window
	if row.When.Mask == "window" {
		window = attn.NewWindow(100, -1)
	}
	for _, scores := range []score.Function{{}, score.Softcap(30)} { // with functions rows of bare problems are passed over
		for _, dtype := range []attn.DType{attn.F16, attn.BF16} {
			for _, causal := range []attn.Causal{attn.CausalNone, attn.CausalTopLeft} {
				for _, dropout := range []float64{0, 0.1} {
					for _, blocks := range []attn.Blocks{{}, {Queries: 128, Keys: 128}} {
						for _, more := range []int{0, 1} {
							p := attn.Problem{Batch: 16, Heads: 32, QueryLen: max(row.When.LeastKeys, 512) + more, HeadDim: row.When.MaxDim,
								DType: dtype, ByPosition: attn.ByPosition{Causal: causal, Window: window}, Dropout: dropout,
								Blocks: blocks, Score: scores}
							if row.When.Bias {
								p.Bias = attn.PerScore{In: true, DType: dtype, Own: [4]bool{false, true, true, true}}
							}
							p = *problem(p)
							if slices.IndexFunc(rows, func(r *tiles.Row) bool {
								return r.Suits(kernel.Asked(&p, kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}))
							}) == i {
								return p, true
							}
						}
					}
				}
			}
		}
	}
	return attn.Problem{}, false
}

// rows0 is rows for a row of the table, which has no fragment.
func rows0(t Tile, s kernel.Fragment) int { t.Fragment = s; return t.Rows() }

func TestTuningErrors(t *testing.T) {
	c, s := kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	p := problem(attn.Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: attn.F16})
	for _, given := range []map[string]int{
		{"w": 0}, {"w": 33}, {"rm": 0}, {"br": 50}, {"br": 0}, {"bc": 0}, {"bc": 40}, {"bc": 4096}, {"ck": 8}, {"ck": 0}, {"prefetch": 6},
		{"pipe": 2},
		{"max_first": 2}, {"late": 4},
		{"q_reg": 0}, {"heads_together": 0}, {"prefetch": 3, "bc": 192, "ck": 16}, {"prefetch": 4, "bc": 192, "ck": 16},
	} {
		_, err := ChooseTile(c, p, s, kernel.FormRegisters, kernel.NewTuning(given))
		require.ErrorIs(t, err, attn.ErrArgument, "%v", given)
	}
	tn := kernel.NewTuning(map[string]int{"br": 96, "rm": 2, "bc": 32, "ck": 16})
	tile, err := ChooseTile(c, p, s, kernel.FormRegisters, tn)
	require.NoError(t, err)
	require.Equal(t, 96, tile.Rows())
	require.Equal(t, 3, tile.W)
	require.Equal(t, 3, tn.Effect["w"])
}

// TestKeyTermsOfTypes: keys of blocks with a least number are two elements each, others whole numbers; on every device the tile has room
// for them.
func TestKeyTermsOfTypes(t *testing.T) {
	for _, g := range kerneltest.GPUs {
		if len(g.Fragments) == 0 {
			continue
		}
		c := g.Everything()
		for _, dim := range []int{32, 64, 128, 256} {
			for _, x := range []struct {
				dtype, keys attn.DType
				terms       int
			}{{attn.BF16, attn.Q8_0, 0}, {attn.BF16, attn.Q4_0, 0}, {attn.BF16, attn.F8E4M3, 1}, {attn.BF16, attn.BF16, 1},
				{attn.BF16, attn.Q5_1, 2}, {attn.F16, attn.IQ4_NL, 0}, {attn.F16, attn.F8E5M2, 1},
				{attn.F16, attn.Q8_0, 0}, {attn.F16, attn.Q4_1, 2}, {attn.F16, attn.F8E4M3, 1}, {attn.F16, attn.F16, 1}} {
				p := kerneltest.Problem(attn.Problem{Heads: 16, KeyHeads: 16, QueryLen: 1024, HeadDim: dim, DType: x.dtype,
					KeyType: x.keys})
				tile, err := ChooseTile(c, p, c.Fragments(x.dtype)[0], kernel.FormRegisters,
					kernel.NewTuning(nil))
				require.NoError(t, err, "%s, D %d", g.Name, dim)
				want := max(x.terms, 1)
				if x.keys == x.dtype {
					want = 0 // no cache
				}
				require.Equal(t, want, tile.KeyTerms, "%s, D %d: %v beside %v", g.Name, dim, x.keys, x.dtype)
				require.Equal(t, x.terms == 0, tile.WholeKeys)
				require.Empty(t, tile.Check(dim, dim, c), "%s, D %d: %v beside %v", g.Name, dim, x.keys, x.dtype)
			}
		}
	}
}
