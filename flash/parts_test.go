package flash

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPartsOnMatrices: keys in parts give what they give in one, whatever the parts: equal, uneven, more than there are tiles.
func TestPartsOnMatrices(t *testing.T) {
	d := matrixDevice(t)
	f := d.caps.fragments(F16)[0]
	layout, err := d.layout(F16, f)
	require.NoError(t, err)
	step := max(f.N, f.K)
	ragged := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 20, ValueDim: 12, DType: F16, Causal: CausalBottomRight}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"causal", ragged, map[string]int{"parts": 3, "bc": step}},
		{"more parts than tiles", ragged, map[string]int{"parts": 40, "bc": 2 * step, "prefetch": 1}},
		{"one query", Problem{Batch: 1, Heads: 6, KeyHeads: 2, QueryLen: 1, KeyLen: 203, HeadDim: 16, DType: F16}, map[string]int{"parts": 5, "bc": step, "prefetch": 3}},
		{"whole tiles, rows that see nothing", Problem{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 4 * step, HeadDim: 16, ValueDim: 24, DType: F16, Causal: CausalBottomRight},
			map[string]int{"parts": 2, "bc": step, "prefetch": 4, "steps": 1, "whole": 1}},
		{"several dispatches", ragged, map[string]int{"parts": 3, "bc": step, "max_groups": 2}},
	} {
		for form := layout.Form; form <= formShared; form++ {
			if form > layout.Form && test.name != "causal" && slowCompiler(d) {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				tuning := map[string]int{"w": 2, "rm": 1, "ck": step, "form": form}
				for k, v := range test.tuning {
					tuning[k] = v
				}
				plan := runMatrix(t, d, test.p, tuning)
				require.Contains(t, plan.Kernel(), ", keys in ")
				require.NotZero(t, plan.WorkspaceBytes())
			})
		}
	}
	for _, bad := range []map[string]int{{"parts": 0}, {"parts": mostParts + 1}} {
		_, err := d.Plan(ragged, WithTier(TierMatrix), WithTuning(bad))
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "parts = ")
	}
}

// TestPartsDrop: the mask of dropout belongs to queries and keys, not to parts.
func TestPartsDrop(t *testing.T) {
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 19, KeyLen: 150, HeadDim: 16, DType: F16, Dropout: 0.3}
	step := max(d.caps.fragments(F16)[0].N, d.caps.fragments(F16)[0].K)
	s := newSample(t, p)
	var o, lse [2][]float32
	for i, parts := range []int{1, 4} {
		plan := mustPlan(t, d, s.p, WithTier(TierMatrix), WithTuning(map[string]int{"w": 2, "rm": 1, "ck": step, "bc": 2 * step, "prefetch": 5, "parts": parts}))
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

// TestNumberOfParts: parts fill the device, hold enough keys each, and take little memory.
func TestNumberOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		p.KeyLen = rapid.IntRange(1, 1<<20).Draw(t, "nk")
		groups := rapid.Uint64Range(1, 300).Draw(t, "groups")
		parts := partsFor(&p, groups)
		require.GreaterOrEqual(t, parts, 1)
		if parts == 1 {
			require.True(t, groups >= fewGroups*9/10 || mostPartsOf(&p) == 1 || groups > fewGroups/2, "%d workgroups", groups)
			return
		}
		require.GreaterOrEqual(t, p.KeyLen/parts, leastPartKeys)
		size := partsScratch(&p, parts)
		require.LessOrEqual(t, size[0]+size[1], uint64(mostPartsBytes))
		require.Less(t, groups, uint64(fewGroups))
		require.Less(t, groups*uint64(parts), 12*uint64(fewGroups))
	})
	p, err := Problem{Batch: 1, Heads: 32, KeyHeads: 8, QueryLen: 1, KeyLen: 1 << 16, HeadDim: 128, DType: F16}.Normalize()
	require.NoError(t, err)
	require.Equal(t, 16, partsFor(&p, 8))
	p.KeyLen = 511
	require.Equal(t, 1, partsFor(&p, 8))
}
