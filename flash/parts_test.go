package flash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestPartsOnMatrices: keys in parts give what they give in one, whatever the parts: equal, uneven, more than there are tiles.
func TestPartsOnMatrices(t *testing.T) {
	vktest.Long(t, "keys in parts on scalar kernels, and in the conformance suite")
	d := matrixDevice(t)
	f := matrixFragment(d)
	layout, err := d.env.Layout(attn.F16, f)
	require.NoError(t, err)
	step := stepOf(f)
	ragged := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 12, ValueDim: 5, DType: F16,
		Causal: CausalBottomRight}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"causal", ragged, map[string]int{"parts": 3, "bc": 1}},
		{"more parts than tiles", ragged, map[string]int{"parts": 40, "bc": 2, "prefetch": 1}},
		{"one query", narrowed(Problem{Batch: 1, Heads: 6, KeyHeads: 2, QueryLen: 1, KeyLen: 203, HeadDim: 16, DType: F16}),
			map[string]int{"parts": 5, "bc": 1, "prefetch": 3}},
		{"whole tiles, rows that see nothing", narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 4 * step, HeadDim: 16,
			ValueDim: 24, DType: F16, Causal: CausalBottomRight}),
			map[string]int{"parts": 2, "bc": 1, "prefetch": 4, "steps": 1, "whole": 1}},
		{"several dispatches", ragged, map[string]int{"parts": 3, "bc": 1, "max_groups": 2}},
	} {
		for form := layout.Form; form <= kernel.FormShared; form++ {
			if form > layout.Form && test.name != "causal" && slowCompiler(d) {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				if form > layout.Form {
					vktest.Long(t, "parts in the best form")
				}
				tuning := map[string]int{"w": 2, "rm": 1, "ck": 1, "form": form}
				for k, v := range test.tuning {
					tuning[k] = v
				}
				plan := runMatrix(t, d, test.p, forwardTile(t, d, Flash, test.p, tuning))
				require.Contains(t, plan.ForwardInfo().Kernel, ", keys in ")
				require.NotZero(t, plan.ForwardInfo().WorkspaceBytes)
			})
		}
	}
	for _, bad := range []map[string]int{{"parts": 0}, {"parts": kernel.MostParts + 1}} {
		_, err := d.Plan(ragged, WithTier(TierMatrix), WithTuning(bad))
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "WithTuning[parts] is ")
	}
}

// TestPartsInScalarArithmetic does the same for the scalar kernel, with and without subgroups, in every type.
func TestPartsInScalarArithmetic(t *testing.T) {
	d := testDevice(t)
	for name, p := range map[string]Problem{
		"causal": {Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 183, HeadDim: 20, ValueDim: 12, DType: F32,
			Causal: CausalBottomRight},
		"one query": {Batch: 1, Heads: 2, QueryLen: 1, KeyLen: 203, HeadDim: 33, DType: F16},
		"rows that see nothing": {Batch: 1, Heads: 2, QueryLen: 90, KeyLen: 40, HeadDim: 16, ValueDim: 1, DType: BF16,
			Causal: CausalBottomRight},
	} {
		for _, tuning := range []map[string]int{{"parts": 2}, {"parts": 5, "subgroup": 0}, {"parts": 30, "max_groups": 7}} {
			t.Run(fmt.Sprint(name, " ", tuning), func(t *testing.T) {
				if parts := map[string]int{"one query": 2, "rows that see nothing": 5}[name]; parts != 0 && tuning["parts"] != parts {
					vktest.Long(t, "all tunings on one problem, one on each other")
				}
				tuning["decode"] = 0
				s := newSample(t, p)
				plan := mustPlan(t, d, s.p, WithTier(TierScalar), WithTuning(tuning))
				require.Contains(t, plan.ForwardInfo().Kernel, "scalar_forward")
				require.Contains(t, plan.ForwardInfo().Kernel, fmt.Sprintf(", keys in %d parts", tuning["parts"]))
				f := s.tensors(t, d, plainly(t, d))
				require.NoError(t, plan.Forward(bg, f))
				s.check(t, plan, f)
			})
		}
	}
	_, err := d.Plan(Problem{Batch: 1, Heads: 8, QueryLen: 1 << 16, HeadDim: 64, DType: F16}, WithTier(TierScalar),
		WithTuning(map[string]int{"parts": kernel.MostParts}))
	var m *MemoryError
	require.ErrorAs(t, err, &m)
	require.Equal(t, uint64(kernel.MostParts)*8<<16*64*4, m.Needed)
	_, err = d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 8, Blocks: Blocks{Queries: 16, Keys: 16}},
		WithTuning(map[string]int{"parts": 2}))
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "parts = 2 must be from 1 to 1")
}

// TestPartsDrop: the mask of dropout belongs to queries and keys, not to parts.
func TestPartsDrop(t *testing.T) {
	d := matrixDevice(t)
	p := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 19, KeyLen: 150, HeadDim: 16, DType: F16, Dropout: 0.3})
	s := newSample(t, p)
	var o, lse [2][]float32
	for i, parts := range []int{1, 4} {
		plan := mustPlan(t, d, s.p, WithTier(TierMatrix),
			WithTuning(forwardTile(t, d, Flash, p, map[string]int{"w": 2, "rm": 1, "ck": 1, "bc": 2, "prefetch": 5, "parts": parts})))
		f := s.tensors(t, d, plainly(t, d))
		f.Seed = 12
		pending, err := plan.SubmitForward(f)
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		o[i], lse[i] = download(t, f.O), download(t, f.LSE)
	}
	require.InDeltaSlice(t, lse[0], lse[1], 1e-5)
	require.InDeltaSlice(t, o[0], o[1], 2e-3) // fp16 weights round relative to another maximum
	require.Greater(t, slices.Max(o[0]), float32(0.05), "something is kept")
}

// TestPartsSteadyState: two dispatches and the workspace between them cost no allocation either, with keys in parts and decoding.
func TestPartsSteadyState(t *testing.T) {
	d := testDevice(t)
	for _, test := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 100, HeadDim: 16, DType: F16}, map[string]int{"parts": 3}},
		{Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 1, KeyLen: 100, HeadDim: 16, DType: F16}, map[string]int{"parts": 3}},
	} {
		s := newSample(t, test.p)
		plan := mustPlan(t, d, s.p, WithTier(TierScalar), WithTuning(test.tuning))
		require.Contains(t, plan.ForwardInfo().Kernel, ", keys in 3 parts")
		requireSteadyState(t, d, s, plan)
	}
}
