package flash

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decodeDevice is a test device that scalar_decode runs on.
func decodeDevice(t *testing.T) *Device {
	d := testDevice(t)
	if why := d.caps.lacksShuffles(); why != "" {
		t.Skip(why)
	}
	return d
}

// TestDecode: few queries are computed in registers, whatever the rows, the parts of the keys, the lanes of a key and the keys at a time.
func TestDecode(t *testing.T) {
	d := decodeDevice(t)
	grouped := Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 203, HeadDim: 40, ValueDim: 24, DType: F16, Causal: CausalBottomRight}
	ragged := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 3, KeyLen: 95, HeadDim: 19, ValueDim: 33, DType: BF16}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"as it is chosen", grouped, nil},
		{"one part", grouped, map[string]int{"parts": 1, "w": 2}},
		{"parts", grouped, map[string]int{"parts": 3, "w": 1, "lpr": 8, "u": 2}},
		{"more parts than keys", grouped, map[string]int{"parts": 210, "lpr": 2, "rows": 5, "u": 3}},
		{"rows apart", grouped, map[string]int{"rows": 4, "parts": 2, "w": 2, "u": 1}},
		{"several dispatches", grouped, map[string]int{"rows": 1, "parts": 3, "max_groups": 5}},
		{"ragged", ragged, map[string]int{"lpr": 8}},
		{"ragged parts", ragged, map[string]int{"lpr": 2, "parts": 2, "rows": 2, "w": 3}},
		{"a lane each", Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 500, HeadDim: 8, DType: F16}, map[string]int{"lpr": 1, "u": 8, "parts": 4}},
		{"fp32", Problem{Batch: 1, Heads: 3, KeyHeads: 1, QueryLen: 2, KeyLen: 77, HeadDim: 12, ValueDim: 18, DType: F32, Causal: CausalTopLeft}, map[string]int{"parts": 2, "w": 2}},
		{"rows that see nothing", Problem{Batch: 1, Heads: 2, QueryLen: 8, KeyLen: 5, HeadDim: 16, DType: F16, Causal: CausalBottomRight}, map[string]int{"parts": 2}},
		{"no key at all in a block of rows", Problem{Batch: 1, Heads: 1, QueryLen: 7, KeyLen: 2, HeadDim: 16, DType: F32, Causal: CausalBottomRight}, map[string]int{"rows": 3, "w": 2}},
		{"negative scale", Problem{Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 90, HeadDim: 16, DType: BF16, Scale: -0.8}, nil},
		{"wide", Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 2, KeyLen: 60, HeadDim: 256, DType: F16}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSample(t, test.p)
			plan := mustPlan(t, d, s.p, WithTier(TierScalar), WithTuning(test.tuning))
			require.Equal(t, "scalar_decode", plan.kernel.name())
			for name, v := range test.tuning {
				require.Equal(t, v, plan.Tuning()[name])
			}
			f := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, f.Q, f.K, f.V, f.O, f.LSE))
			first := s.check(t, plan, f)
			s.poison(t, f)
			require.NoError(t, plan.Forward(bg, f.Q, f.K, f.V, f.O, f.LSE))
			require.Equal(t, first, download(t, f.O), "the same inputs, the same bits")
		})
	}
}

// TestDecodeChoice: few rows of a key head take scalar_decode on their own and on the scalar tier; what asks for another kernel gets it.
func TestDecodeChoice(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 1, Heads: 8, KeyHeads: 2, QueryLen: 2, KeyLen: 600, HeadDim: 16, DType: F32}
	kernel := func(p Problem, opts ...PlanOption) string {
		plan := mustPlan(t, d, p, opts...)
		defer plan.Close()
		return plan.kernel.name()
	}
	require.Equal(t, "scalar_decode", kernel(p))
	require.Equal(t, "scalar_decode", kernel(p, WithTier(TierScalar)))
	require.Equal(t, "scalar_decode", kernel(p, WithTuning(map[string]int{"decode": 1})))
	require.Equal(t, "scalar_forward", kernel(p, WithTier(TierScalar), WithTuning(map[string]int{"decode": 0})))
	require.Equal(t, "scalar_forward", kernel(p, WithTier(TierScalar), WithTuning(map[string]int{"br": 8})))

	long, dropping := p, p
	long.QueryLen, dropping.Dropout = 3, 0.1
	for why, p := range map[string]Problem{"12 rows for each key head: it takes up to 8": long, "scalar_decode: it has no dropout": dropping} {
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, "scalar_forward", plan.kernel.name())
		require.Contains(t, plan.String(), why)
		_, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"decode": 1}))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, why)
	}
	for name, v := range map[string]int{"decode": 2, "rows": 9, "w": 33, "lpr": 3, "u": 0, "parts": 1025} {
		_, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{name: v}))
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, fmt.Sprintf("WithTuning[%s] is %d", name, v))
	}
	_, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"partz": 2}))
	require.ErrorContains(t, err, "partz")
	got, err := d.Candidates(p)
	require.NoError(t, err)
	require.Greater(t, len(got), 3)
	require.Equal(t, "scalar_decode", got[0].Kernel)
}

// TestDecodeTileFitsAnyDevice: on every device with shuffles, few rows have a tile within its limits and the shader's rules, and parts
// take little memory.
func TestDecodeTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		s := &c.facts.Subgroup
		s.Size, s.FullSubgroups, s.RequiredSizeCompute = max(s.Size, 4), true, true
		c.enabled.ComputeFullSubgroups, c.enabled.SubgroupSizeControl, c.enabled.Storage16 = true, true, true
		group := rapid.IntRange(1, decodeRows).Draw(t, "group")
		p, err := Problem{Batch: rapid.IntRange(1, 60).Draw(t, "batch"), Heads: group, KeyHeads: 1, QueryLen: rapid.IntRange(1, decodeRows/group).Draw(t, "queries"),
			KeyLen: rapid.IntRange(1, 1<<18).Draw(t, "keys"), HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType: DType(rapid.IntRange(0, 2).Draw(t, "dtype")), Causal: Causal(rapid.IntRange(0, 2).Draw(t, "causal"))}.Normalize()
		require.NoError(t, err)
		require.Empty(t, scalarDecode{}.unsupported(c, &p))
		tile, err := chooseDecodeTile(c, &p, newTuning(nil))
		require.NoError(t, err)
		if name, why := tile.check(&p, &c.facts.Limits); why != "" {
			t.Fatalf("%+v: %s %s", tile, name, why)
		}
		require.Equal(t, int(c.facts.Subgroup.Size), tile.Lanes)
		require.LessOrEqual(t, tile.threads(), int(c.facts.Limits.MaxWorkgroupInvocations))
		require.GreaterOrEqual(t, tile.Meet, 1)
		require.LessOrEqual(t, tile.Meet, tile.Rows)
		if tile.Parts > 1 {
			size := partsScratch(&p, tile.Parts)
			require.LessOrEqual(t, size[0]+size[1], uint64(decodeMostBytes))
			require.LessOrEqual(t, tile.groups(&p)*uint64(tile.Parts), uint64(decodeBeside*c.multiprocessors()))
			require.GreaterOrEqual(t, p.visible(p.QueryLen-1)/tile.Parts, decodePartKeys)
		}
	})
}

// TestDecodeMasksNaN: what no query may see leaves no trace, where its batch is not computed.
func TestDecodeMasksNaN(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 2, KeyLen: 400, HeadDim: 16, DType: F32, Causal: CausalTopLeft}
	s := newSample(t, p)
	nan := float32(math.NaN())
	for i := 2 * p.HeadDim; i < len(s.k); i++ { // top-left: the second query sees two keys
		s.k[i], s.v[i] = nan, nan
	}
	for _, parts := range []int{1, 3} {
		plan := mustPlan(t, d, s.p, WithTuning(map[string]int{"parts": parts}))
		f := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, f.Q, f.K, f.V, f.O, f.LSE))
		require.False(t, slices.ContainsFunc(s.check(t, plan, f), func(x float32) bool { return x != x }))
	}
}
