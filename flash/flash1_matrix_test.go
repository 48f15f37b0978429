package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMatrixFlash1TileFitsAnyDevice: what is chosen keeps the device's limits, and K, V and the patches lie side by side in shared
// memory; only where that is too small for the smallest tile is there none, and that is said.
func TestMatrixFlash1TileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		c.Facts.Subgroup.MaxWorkgroupSubgroups = uint32(rapid.SampledFrom([]int{0, 4, 8, 32}).Draw(t, "subgroups"))
		s := drawMatrixShape(t, int(c.Facts.Subgroup.Size))
		p := drawProblem(t)
		tile, err := matrix.ChooseFlash1Tile(c, attnOf(p), s, rapid.IntRange(kernel.FormRegisters, kernel.FormShared).Draw(t, "form"),
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
		requireMatrixTile(t, c, &p, &tile)
		if tile.W > 1 && tile.Rows() >= 4*max(p.QueryLen, s.M) {
			t.Fatalf("%+v for %d queries", tile, p.QueryLen)
		}
		statistics, sums := tile.Flash1Rows(attnOf(p))
		heads, blocks := p.Batch*p.Heads, attn.CeilDiv(p.QueryLen, tile.Rows())
		lastFragment := ((heads*blocks*tile.Rows()-s.M)/s.M*attn.CeilDiv(p.ValueDim, s.N) + attn.CeilDiv(p.ValueDim, s.N) - 1) * s.M * s.N
		require.Equal(t, []uint64{uint64(8 * heads * blocks * tile.Rows()), uint64(4 * (lastFragment + s.M*s.N))},
			[]uint64{statistics, sums})
	})
}

// TestMatrixFlash1Tables: on the GPU that the table is written for, tiles take two thirds of a workgroup's shared memory, but for the one
// that was searched, which takes all of it.
func TestMatrixFlash1Tables(t *testing.T) {
	c, s := h200(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	for _, dim := range []int{16, 32, 64, 80, 96, 128, 192, 256} {
		p, err := Problem{Batch: 16, Heads: 32, QueryLen: 2048, HeadDim: dim, DType: F16}.Normalize()
		require.NoError(t, err)
		tile, err := matrix.ChooseFlash1Tile(c, attnOf(p), s, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		rows, most := 128, 32<<10
		if dim == 64 {
			rows, most = 256, 48<<10
		}
		require.LessOrEqual(t, tile.Shared(dim, dim).Bytes(), most, "D %d", dim)
		require.Equal(t, rows, tile.Rows(), "D %d", dim)
	}
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	fit := 0
	for _, given := range matrix.Flash1Candidates(c, attnOf(p)) {
		if tile, err := matrix.ChooseFlash1Tile(c, attnOf(p), s, kernel.FormRegisters, kernel.NewTuning(given)); err == nil {
			require.Equal(t, [2]int{given["bc"], given["w"]}, [2]int{tile.BC, tile.W})
			fit++
		}
	}
	require.Greater(t, fit, 20, "tiles to choose from")
	for _, bad := range []map[string]int{{"w": 0}, {"bc": 40}, {"bc": 4096}, {"prefetch": 2}, {"prefetch": 3}, {"q_reg": 0},
		{"max_first": 2}} {
		_, err := matrix.ChooseFlash1Tile(c, attnOf(p), s, kernel.FormRegisters, kernel.NewTuning(bad))
		require.ErrorIs(t, err, ErrArgument, "%v", bad)
	}
}

// TestMatrixFlash1Tiles forces what tiles are made of, one after the other.
func TestMatrixFlash1Tiles(t *testing.T) {
	vktest.Long(t, "the first paper's loops on matrices in the conformance suite")
	d := matrixDevice(t)
	f := matrixFragment(d)
	step := stepOf(f)
	ragged := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 12, ValueDim: 5, DType: F16,
		Causal: CausalBottomRight}
	two := ragged
	if testing.Short() {
		two.HeadDim = 5 // one fragment: with twice as many rows, two take a CPU a quarter of a minute to compile
	}
	whole := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 3*f.M + 1, KeyLen: 6 * step, HeadDim: 16, DType: F16})
	// rows of whole pieces
	ragged8 := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	whole8 := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 41, KeyLen: 6 * step, HeadDim: 16, DType: F16, Causal: CausalTopLeft})
	for name, test := range map[string]struct {
		p      Problem
		tuning map[string]int
	}{
		"growth by sums, Q ahead": {ragged, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 1, "max_first": 0}},
		"two row fragments":       {two, map[string]int{"w": 1, "rm": 2, "bc": 2, "ck": 1, "pipe": 1, "q_reg": 1}},
		"no masks":                {whole, map[string]int{"w": 2, "rm": 1, "bc": 3, "ck": 1, "prefetch": 1}},
		"one subgroup, form 2":    {whole, map[string]int{"br": 1, "form": kernel.FormRows, "max_key_blocks": 2}},
		"steps":                   {ragged8, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "max_first": 1, "steps": 1}},
		"steps, whole":            {whole8, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "max_first": 1, "steps": 1, "whole": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "steps" {
				vktest.Long(t, "steps with whole tiles")
			}
			if layout, err := d.env.Layout(attn.F16, f); err == nil && test.tuning["form"] != 0 && test.tuning["form"] < layout.Form {
				t.Skip(layout.Why)
			}
			given := forwardTile(t, d, Flash1, test.p, test.tuning)
			plan := runMatrix(t, d, test.p, given, WithImplementation(Flash1))
			require.Equal(t, Flash1, plan.Implementation())
			for k, v := range given {
				require.Equal(t, v, plan.Tuning()[k], k)
			}
			tile := constantsOf(plan)
			model := plan.program.Model().(traffic.KeysOutside)
			require.Equal(t, [3]int{tile["BR"], tile["BC"], f.N}, [3]int{model.Rows, model.Keys, model.Fragment})
		})
	}
	for _, bad := range []map[string]int{{"form": 4}, {"bc": 1}, {"prefetch": 2}, {"pack": 1}, {"heads_together": 2}} {
		_, err := d.Plan(ragged, WithImplementation(Flash1), WithTier(TierMatrix), WithTuning(bad))
		require.ErrorIs(t, err, ErrArgument, "%v", bad)
	}
}

// TestMatrixFlash1Checked: like every matrix kernel, this one proves itself before its first use, and one that failed is not used.
func TestMatrixFlash1Checked(t *testing.T) {
	d := matrixDevice(t)
	forgetProcess(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8, DType: F16}
	opts := []PlanOption{WithImplementation(Flash1), WithTier(TierMatrix)}
	m := mustPlan(t, d, p, opts...).program.(*pass.Forward)
	key, err := d.env.ProofKey(m.Compiled(kernel.Variant{Aligned: true, LSE: true}))
	require.NoError(t, err)
	require.Equal(t, kernel.Passed, d.env.Recall(key))

	longer := p // other lengths of keys share the pipeline
	longer.KeyLen = 1000
	other, err := d.env.ProofKey(mustPlan(t, d, longer, opts...).program.(*pass.Forward).Compiled(kernel.Variant{Aligned: true,
		LSE: true}))
	require.NoError(t, err)
	require.Equal(t, key, other)

	d.env.Remember(key, "o is wrong")
	_, err = d.Plan(p, opts...)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "matrix_flash1.f16")
	require.ErrorContains(t, err, "o is wrong")
	require.Equal(t, TierScalar, mustPlan(t, d, p, WithImplementation(Flash1)).Tier())
}
