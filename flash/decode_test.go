package flash

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// decodeDevice is a test device that scalar_decode runs on.
func decodeDevice(t *testing.T) *Device {
	d := testDevice(t)
	if why := d.env.Caps.LacksShuffles(); why != "" {
		t.Skip(why)
	}
	return d
}

// TestDecode: few queries are computed in registers, whatever the rows, the parts of the keys, the lanes of a key and the keys at a time.
func TestDecode(t *testing.T) {
	d := decodeDevice(t)
	grouped := Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 203, HeadDim: 40, ValueDim: 24, DType: F16,
		Causal: CausalBottomRight}
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
		{"a lane each", Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 500, HeadDim: 8, DType: F16},
			map[string]int{"lpr": 1, "u": 8, "parts": 4}},
		{"fp32", Problem{Batch: 1, Heads: 3, KeyHeads: 1, QueryLen: 2, KeyLen: 77, HeadDim: 12, ValueDim: 18, DType: F32,
			Causal: CausalTopLeft}, map[string]int{"parts": 2, "w": 2}},
		{"rows that see nothing", Problem{Batch: 1, Heads: 2, QueryLen: 8, KeyLen: 5, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
			map[string]int{"parts": 2}},
		{"no key at all in a block of rows", Problem{Batch: 1, Heads: 1, QueryLen: 7, KeyLen: 2, HeadDim: 16, DType: F32,
			Causal: CausalBottomRight}, map[string]int{"rows": 3, "w": 2}},
		{"negative scale", Problem{Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 90, HeadDim: 16, DType: BF16, Scale: -0.8}, nil},
		{"wide", Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 2, KeyLen: 60, HeadDim: 256, DType: F16}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			switch test.name {
			case "more parts than keys", "several dispatches", "ragged parts", "negative scale", "wide":
				vktest.Long(t, "these one at a time; conformance has scales and wide heads")
			}
			testDecode(t, d, scalar.DecodeKernel, TierScalar, test.p, test.tuning)
		})
	}
}

// testDecode computes a problem twice with a kernel for few queries and a tuning, and checks the outputs.
func testDecode(t *testing.T, d *Device, kernel string, tier Tier, p Problem, tuning map[string]int) {
	t.Helper()
	s := newSample(t, p)
	if tier == TierMatrix {
		tuning = forwardTile(t, d, Flash, p, tuning)
	}
	plan := mustPlan(t, d, s.p, WithTier(tier), WithTuning(tuning))
	require.Equal(t, kernel, plan.kernel.Name)
	for name, v := range tuning {
		require.Equal(t, v, plan.ForwardInfo().Tuning[name])
	}
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	first := s.check(t, plan, f)
	s.poison(t, f)
	require.NoError(t, plan.Forward(bg, f))
	require.Equal(t, first, download(t, f.O), "the same inputs, the same bits")
}

// TestDecodeRowsMeetInTurns: where subgroups' sums of all rows do not fit into shared memory together, they meet a few rows at a time, and
// no subgroup stores its next rows before all have read the last.
func TestDecodeRowsMeetInTurns(t *testing.T) {
	d := decodeDevice(t)
	s := newSample(t, Problem{Batch: 2, Heads: 5, KeyHeads: 1, QueryLen: 1, KeyLen: 400, HeadDim: 8, ValueDim: 128, DType: F16})
	plan := mustPlan(t, d, s.p, WithTier(TierScalar), WithTuning(map[string]int{"w": 8, "rows": 5, "u": 1, "parts": 1}))
	made := plan.program.(*pass.Forward).Passes(pass.Variant{})
	require.Less(t, made.Stages[0].Constants["MEET"], 5)
	f := s.tensors(t, d, plainly(t, d))
	for range 3 {
		s.poison(t, f)
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	}
}

// TestDecodePadding: testDecodePadding for scalar_decode.
func TestDecodePadding(t *testing.T) {
	d := decodeDevice(t)
	for _, dtype := range []DType{F32, F16} {
		if testing.Short() && dtype == F32 {
			continue
		}
		for _, keys := range []int{1, 3, 29, 64} { // subgroups without a key, groups of lanes without one, batches with some
			for _, parts := range []int{1, 2} {
				testDecodePadding(t, d, TierScalar, dtype, keys, map[string]int{"decode": 1, "w": 2, "u": 4, "lpr": 2, "parts": parts})
			}
		}
	}
}

// testDecodePadding: keys that are not there add nothing, not even where the last key's values, which are read in their place, are
// infinite: what a row attends to is infinite then, and no other column is.
func testDecodePadding(t *testing.T, d *Device, tier Tier, dtype DType, keys int, tuning map[string]int) {
	t.Helper()
	p, err := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 1, KeyLen: keys, HeadDim: 8, ValueDim: 24, DType: dtype}.Normalize()
	require.NoError(t, err)
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	v := slices.Clone(s.v)
	last := v[(keys-1)*p.ValueDim:]
	last[3], last[7] = float32(math.Inf(1)), float32(math.Inf(-1))
	require.NoError(t, f.V.Upload(bg, v))
	require.NoError(t, mustPlan(t, d, p, WithTier(tier), WithTuning(tuning)).Forward(bg, f))
	for i, o := range download(t, f.O) {
		at := fmt.Sprintf("%v, %d keys, %v: o[%d]", dtype, keys, tuning, i)
		switch i % p.ValueDim {
		case 3:
			require.Equal(t, math.Inf(1), float64(o), at)
		case 7:
			require.Equal(t, math.Inf(-1), float64(o), at)
		default:
			require.InDelta(t, s.o[i], float64(o), 2e-2, at)
		}
	}
}

// TestDecodeLargeScores: with scores of some fifty, fp32 gradients of one query are off by what products of q and k rounded to fp32 leave,
// ε·|score|, and the statistics that pass from scalar_decode to the backward pass add little to it.
func TestDecodeLargeScores(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 3, Heads: 6, KeyHeads: 2, QueryLen: 1, KeyLen: 650, HeadDim: 20, DType: F32}
	plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"decode": 1}))
	p = plan.Problem()
	s, b := newBackwardSample(t, d, plan, F32)
	for _, x := range []struct {
		values []float32
		tensor *Tensor
	}{{s.q, b.Q}, {s.k, b.K}} {
		for i := range x.values {
			x.values[i] *= 4
		}
		require.NoError(t, x.tensor.Upload(bg, x.values))
	}
	s.forward(t, plan)
	require.NoError(t, plan.Backward(bg, b))
	dv := download(t, b.DV)

	// dV = Pᵀ dO with exact scores; and with scores that each pass sums in fp32, one of them with q scaled before, all else exact.
	exact, rounded := make([]float64, len(dv)), make([]float64, len(dv))
	group := p.Heads / p.KeyHeads
	logSumExp := func(scores []float64) float64 {
		most, total := slices.Max(scores), 0.0
		for _, x := range scores {
			total += math.Exp(x - most)
		}
		return most + math.Log(total)
	}
	for bh := range p.Batch * p.Heads {
		q, kh := s.q[bh*p.HeadDim:][:p.HeadDim], bh/p.Heads*p.KeyHeads+bh%p.Heads/group
		scores, forward, backward := make([]float64, p.KeyLen), make([]float64, p.KeyLen), make([]float64, p.KeyLen)
		for j := range p.KeyLen {
			k := s.k[(kh*p.KeyLen+j)*p.HeadDim:]
			var sum, scaled float32
			for i := range q {
				scores[j] += p.Scale * float64(q[i]) * float64(k[i])
				scaled += q[i] * float32(p.Scale) * k[i]
				sum += q[i] * k[i]
			}
			forward[j], backward[j] = float64(scaled), p.Scale*float64(sum)
		}
		lse, roundedLSE := logSumExp(scores), logSumExp(forward)
		for j := range p.KeyLen {
			for c := range p.ValueDim {
				at, do := (kh*p.KeyLen+j)*p.ValueDim+c, float64(s.do[bh*p.ValueDim+c])
				exact[at] += math.Exp(scores[j]-lse) * do
				rounded[at] += math.Exp(backward[j]-roundedLSE) * do
			}
		}
	}
	relative := func(x []float64) float64 {
		var e, n float64
		for i := range x {
			e += (x[i] - exact[i]) * (x[i] - exact[i])
			n += exact[i] * exact[i]
		}
		return math.Sqrt(e / n)
	}
	got, unavoidable := relative(doubles(dv)), relative(rounded)
	t.Logf("dv off by %.1e, of which the products of q and k leave %.1e", got, unavoidable)
	require.Less(t, got, 3*unavoidable)
}

// TestDecodeChoice: few rows of a key head take scalar_decode on their own and on the scalar tier; what asks for another kernel gets it.
func TestDecodeChoice(t *testing.T) {
	d := decodeDevice(t)
	p := Problem{Batch: 1, Heads: 8, KeyHeads: 2, QueryLen: 2, KeyLen: 600, HeadDim: 16, DType: F32}
	kernel := func(p Problem, opts ...PlanOption) string {
		plan := mustPlan(t, d, p, opts...)
		defer plan.Close()
		return plan.kernel.Name
	}
	require.Equal(t, "scalar_decode", kernel(p))
	require.Equal(t, "scalar_decode", kernel(p, WithTier(TierScalar)))
	require.Equal(t, "scalar_decode", kernel(p, WithTuning(map[string]int{"decode": 1})))
	require.Equal(t, "scalar_forward", kernel(p, WithTier(TierScalar), WithTuning(map[string]int{"decode": 0})))
	require.Equal(t, "scalar_forward", kernel(p, WithTier(TierScalar), WithTuning(map[string]int{"br": 8})))

	long, dropping := p, p
	long.QueryLen, dropping.Dropout = 3, 0.1
	for why, p := range map[string]Problem{"12 rows for each key head: it takes up to 8": long,
		"scalar_decode: it has no dropout": dropping} {
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, "scalar_forward", plan.kernel.Name)
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
}

// TestDecodeTileFitsAnyDevice: on every device with shuffles, and one size of subgroups or a way to require one, few rows have a tile
// within its limits and the shader's rules, and parts take little memory.
func TestDecodeTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		s := &c.Facts.Subgroup
		s.Size, c.Enabled.Storage16 = max(s.Size, 4), true
		s.Min, s.Max = s.Size, s.Size
		s.FullSubgroups = rapid.Bool().Draw(t, "full")
		c.Enabled.ComputeFullSubgroups = s.FullSubgroups
		s.RequiredSizeCompute = rapid.Bool().Draw(t, "required")
		c.Enabled.SubgroupSizeControl = s.RequiredSizeCompute
		if s.RequiredSizeCompute && rapid.Bool().Draw(t, "several sizes") {
			s.Max *= 2
		}
		group := rapid.IntRange(1, scalar.DecodeRows).Draw(t, "group")
		p, err := Problem{Batch: rapid.IntRange(1, 60).Draw(t, "batch"), Heads: group, KeyHeads: 1,
			QueryLen: rapid.IntRange(1, scalar.DecodeRows/group).Draw(t, "queries"),
			KeyLen:   rapid.IntRange(1, 1<<18).Draw(t, "keys"), HeadDim: rapid.IntRange(1, 256).Draw(t, "d"),
			ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType:    DType(rapid.IntRange(0, 2).Draw(t, "dtype")), Causal: Causal(rapid.IntRange(0, 2).Draw(t, "causal"))}.Normalize()
		require.NoError(t, err)
		require.Empty(t, scalar.Decode.Cannot(c, attnOf(p)))
		tile, err := scalar.ChooseDecodeTile(c, attnOf(p), kernel.NewTuning(nil))
		require.NoError(t, err)
		if name, why := tile.Check(attnOf(p), &c.Facts.Limits); why != "" {
			t.Fatalf("%+v: %s %s", tile, name, why)
		}
		require.Equal(t, int(c.Facts.Subgroup.Size), tile.Lanes)
		require.LessOrEqual(t, tile.Threads(), int(c.Facts.Limits.MaxWorkgroupInvocations))
		require.GreaterOrEqual(t, tile.Meet, 1)
		require.LessOrEqual(t, tile.Meet, tile.Rows)
		if tile.Parts > 1 {
			k, row := c.Prediction(), c.First(attnOf(p), c.Lanes(), scalar.DecodeKernel)
			size := kernel.PartsScratch(attnOf(p), tile.Parts)
			require.LessOrEqual(t, size[0]+size[1], uint64(kernel.DecodeMostBytes))
			require.LessOrEqual(t, tile.Groups(attnOf(p))*uint64(tile.Parts), uint64(row.Get("beside")*k.Count))
			require.GreaterOrEqual(t, p.attn().MostKeys()/tile.Parts, row.Get("part_keys"))
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
		require.NoError(t, plan.Forward(bg, f))
		require.False(t, slices.ContainsFunc(s.check(t, plan, f), func(x float32) bool { return x != x }))
	}
}

// TestDecodeNeedsOneSizeOfSubgroups: shuffles that reach a row need to know how far, by the device or by what can be required.
func TestDecodeNeedsOneSizeOfSubgroups(t *testing.T) {
	c := kerneltest.Hopper()
	s := &c.Facts.Subgroup
	s.Compute, s.Ops, s.Min, s.Max = true, vk.SubgroupBasic|vk.SubgroupShuffle, 32, 32
	p, err := Problem{Batch: 1, Heads: 4, QueryLen: 1, KeyLen: 4096, HeadDim: 64}.Normalize()
	require.NoError(t, err)
	require.Empty(t, scalar.Decode.Cannot(c, attnOf(p)), "one size, and nothing that requires it")
	s.Min = 8
	require.Equal(t, "the device lacks the feature subgroupSizeControl", scalar.Decode.Cannot(c, attnOf(p)))
	c.Facts.Features.SubgroupSizeControl, c.Enabled.SubgroupSizeControl = true, true
	require.Equal(t, "subgroups have 8 to 32 lanes, and no size can be required in compute shaders", scalar.Decode.Cannot(c, attnOf(p)))
	s.RequiredSizeCompute = true
	require.Empty(t, scalar.Decode.Cannot(c, attnOf(p)))
}

// TestDecodeWithoutSizeControl: on a device with subgroups of one size, kernels of whole subgroups run without the features that require
// them, and prove that their subgroups are full.
func TestDecodeWithoutSizeControl(t *testing.T) {
	owner := testDevice(t)
	e := owner.External()
	if s := owner.Info().Facts.Subgroup; !s.Single() {
		t.Skip("the device has subgroups of several sizes")
	}
	e.Enabled.SubgroupSizeControl, e.Enabled.ComputeFullSubgroups = false, false
	d, err := Attach(e, WithoutDiskCache())
	require.NoError(t, err)
	defer d.Close()
	p := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 300, HeadDim: 32}
	plan, err := d.Plan(p, WithTier(TierScalar))
	require.NoError(t, err)
	defer plan.Close()
	require.Contains(t, plan.ForwardInfo().Kernel, scalar.DecodeKernel)
	self := 0
	for key := range kernel.Known.Entries {
		if strings.Contains(key, "scalar_decode.f32") {
			self++
		}
	}
	require.Positive(t, self, "what the device does not promise is checked")
}
