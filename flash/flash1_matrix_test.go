package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

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
				require.Equal(t, v, plan.ForwardInfo().Tuning[k], k)
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
	require.Equal(t, TierScalar, mustPlan(t, d, p, WithImplementation(Flash1)).ForwardInfo().Tier)
}
