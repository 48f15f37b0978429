package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"

	"github.com/vkattn/vkattn/internal/vktest"
)

// TestBackwardKeeping compares the backward pass with dS in memory with the scalar tier's: in one slab and in several, with blocks of the
// product that are no multiples of those of keys.
func TestBackwardKeeping(t *testing.T) {
	d := testDevice(t)
	causal := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 24, ValueDim: 37, DType: F16,
		Causal: CausalBottomRight}
	// rows that see nothing
	blind := Problem{Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 29, HeadDim: 16, DType: F16, Causal: CausalBottomRight, Scale: 0.6}
	topLeft := Problem{Batch: 1, Heads: 3, KeyHeads: 1, QueryLen: 43, KeyLen: 70, HeadDim: 16, DType: F16, Causal: CausalTopLeft}
	many := Problem{Batch: 1, Heads: 5, QueryLen: 31, KeyLen: 45, HeadDim: 8, DType: F16, Causal: CausalBottomRight}
	plain := Problem{Batch: 1, Heads: 3, QueryLen: 35, KeyLen: 48, HeadDim: 40, DType: F16}
	if testing.Short() { // as many ragged columns of fewer fragments
		causal.HeadDim, causal.ValueDim = 8, 13
	}
	part := Problem{Batch: 1, Heads: 2, QueryLen: 33, KeyLen: 48, HeadDim: 8, DType: F16, Causal: CausalBottomRight,
		Within: Within{Queries: 120, Keys: 100, Query: 61, Key: 20}}
	window := part
	window.Causal, window.Window, window.Within = CausalNone, SlidingWindow(21, 2), Within{Queries: 90, Keys: 96, Query: 33, Key: 0}
	options := causal
	options.Dropout, options.Window, options.ScoreFunction = 0.25, SlidingWindow(17, 5), score.Softcap(3)
	for _, c := range []struct {
		name   string
		p      Problem
		tuning map[string]int
		long   string
	}{
		{"causal, a slab of each key head", causal, map[string]int{"max_slab": 2 * 64 * 48 * 2}, ""},
		{"causal, slabs of two key heads, three side by side", many, map[string]int{"max_slab": 2 * 32 * 48 * 2, "kv_w": 1, "kv_rm": 1,
			"kv_heads_together": 3}, ""},
		{"causal, one slab", causal, map[string]int{"kv_w": 1, "kv_rm": 2, "kv_bc": 2, "kv_ck": 1, "kv_prefetch": 1},
			"one slab, a prefetch"},
		{"rows of nothing", blind, map[string]int{"kv_w": 1, "kv_rm": 1, "kv_prefetch": 2}, ""},
		{"top left", topLeft, map[string]int{"kv_w": 1, "kv_bc": 2, "kv_ck": 1}, "causal"},
		{"plain", plain, map[string]int{"kv_a_reg": 1, "kv_b_reg": 2}, "no mask"},
		{"slabs of two heads", plain, map[string]int{"max_slab": 2 * 48 * 48 * 2}, "no mask"},
		{"a part of a longer problem", part, map[string]int{"kv_w": 1, "kv_rm": 1, "kv_bc": 1, "kv_ck": 1}, ""},
		{"a window's part", window, map[string]int{"kv_w": 1, "kv_rm": 1, "kv_bc": 1, "kv_ck": 1}, ""},
		{"dropout, window, softcap", options, map[string]int{"kv_ck": 1, "kv_bc": 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			c.tuning["keep_ds"] = 1
			compareTuned(t, d, c.p, inFragments(&d.env.Caps, c.tuning), c.long == "")
		})
	}
}

// TestKeepingReadsWhatIsWritten: with dS full of NaNs before each run, the gradients are the same bits as the plan's own: what the product
// reads has been written, or counts for nothing.
func TestKeepingReadsWhatIsWritten(t *testing.T) {
	d := testDevice(t)
	for name, p := range map[string]Problem{
		"causal":          {Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 61, KeyLen: 75, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
		"rows of nothing": {Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 29, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
		"window":          {Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 75, HeadDim: 16, DType: F16, Window: SlidingWindow(9, 4)},
		"plain":           {Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 43, HeadDim: 16, DType: F16},
		"a part": {Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 75, HeadDim: 16, DType: F16, Causal: CausalTopLeft,
			Within: Within{Queries: 150, Keys: 150, Query: 61, Key: 30}},
	} {
		p := narrowed(p)
		t.Run(name, func(t *testing.T) {
			plan := planGradients(t, d, p, TierMatrix,
				WithBackwardTuning(inFragments(&d.env.Caps, map[string]int{"keep_ds": 1, "kv_w": 1, "kv_rm": 1, "kv_bc": 1, "kv_ck": 1})))
			require.Contains(t, backwardInfo(t, plan).Kernel, "matrix_backward_keeping")
			sameOverNaNs(t, d, plan, 2, "delta and dS")
			require.NoError(t, plan.Close())
		})
	}
}

// TestKeepingInsisted: of a problem that it cannot have, the plan says that dS in memory was asked for and why it is not.
func TestKeepingInsisted(t *testing.T) {
	d := testDevice(t)
	for _, x := range []struct {
		change func(*Problem)
		tuning map[string]int
		why    string
	}{
		{func(p *Problem) { p.Blocks = Blocks{Queries: 16, Keys: 16} }, map[string]int{}, "matrix_backward_keeping: it has no block mask" +
			"; matrix_backward: WithBackwardTuning[keep_ds] asks for dS in memory"},
		{func(p *Problem) { p.HeadDim = 136 }, map[string]int{}, "matrix_backward_keeping: "},
		{func(p *Problem) { p.Bias = PerScore{DType: F16, Batch: 1, Heads: 1, Queries: 16, Keys: 16} }, map[string]int{},
			"of a bias the gradient is made by other kernels"},
		{func(p *Problem) { p.Heads = 4 }, map[string]int{"max_slab": 4*16*16*2 - 1},
			"dS of the heads of a key head takes 2048 bytes, and 2047 are left for it"},
		{func(p *Problem) {}, map[string]int{"form": 2}, "which is known of form 1 alone"},
	} {
		p := Problem{Batch: 1, Heads: 1, KeyHeads: 1, QueryLen: 16, KeyLen: 16, HeadDim: 16, DType: F16}
		x.change(&p)
		x.tuning["keep_ds"] = 1
		plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(x.tuning))
		_, err := plan.BackwardInfo()
		require.ErrorContains(t, err, x.why)
		require.NoError(t, plan.Close())
	}
}
