package flash

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestWideForms runs matrix_forward_wide in every form with every fragment that the device has.
func TestWideForms(t *testing.T) {
	d := matrixDevice(t)
	for _, dtype := range matrixTypes(d) {
		p := Problem{Batch: 1, Heads: 2, QueryLen: 21, KeyLen: 37, HeadDim: 264, ValueDim: 24, DType: dtype, Causal: CausalBottomRight}
		for _, f := range d.env.Caps.Fragments(attn.DType(dtype)) {
			layout, err := d.env.Layout(attn.DType(dtype), f)
			require.NoError(t, err)
			for form := layout.Form; form <= kernel.FormShared; form++ {
				t.Run(fmt.Sprintf("%v-%v-form%d", dtype, f, form), func(t *testing.T) {
					plan := runMatrix(t, d, p, map[string]int{"fm": f.M, "fn": f.N, "fk": f.K, "form": form})
					require.Contains(t, plan.ForwardInfo().Kernel, "matrix_forward_wide")
					require.Contains(t, plan.ForwardInfo().Kernel, fmt.Sprintf("%v form %d", f, form))
				})
			}
		}
	}
}

// TestWideTiles forces what tiles of matrix_forward_wide are made of: teams, steps, columns beyond the last fragment, rows of several
// heads.
func TestWideTiles(t *testing.T) {
	vktest.Long(t, "wide heads of the conformance suite")
	d := matrixDevice(t)
	step := stepOf(matrixFragment(d))
	odd := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 19, KeyLen: 75, HeadDim: 261, ValueDim: 29, DType: F16,
		Causal: CausalBottomRight}
	whole := Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 9, KeyLen: 4 * step, HeadDim: 16, ValueDim: 272, DType: F16}
	for name, c := range map[string]struct {
		p      Problem
		tuning map[string]int
	}{
		"two teams of two": {odd, map[string]int{"w": 4, "split": 2, "rm": 1, "ck": 1, "slice": 2, "v_keys": 1, "prefetch": 1}},
		"two steps":        {odd, map[string]int{"w": 2, "split": 2, "rm": 2, "ck": 2, "slice": 3, "v_keys": 2, "prefetch": 3}},
		"no prefetch, form 3": {odd, map[string]int{"w": 4, "split": 2, "rm": 1, "ck": 1, "slice": 4, "v_keys": 2, "prefetch": 0,
			"form": 3}},
		"alone, form 2": {odd, map[string]int{"w": 2, "split": 1, "rm": 1, "ck": 2, "slice": 1, "v_keys": 1, "prefetch": 1,
			"form": 2}},
		"packed, no masks":      {whole, map[string]int{"w": 3, "split": 3, "rm": 1, "ck": 1, "slice": 1, "v_keys": 1, "prefetch": 3}},
		"parts":                 {whole, map[string]int{"w": 2, "split": 2, "rm": 1, "ck": 1, "parts": 2}},
		"parts, form 3":         {odd, map[string]int{"w": 2, "split": 2, "rm": 1, "ck": 1, "parts": 3, "form": 3}},
		"in several dispatches": {odd, map[string]int{"w": 2, "split": 2, "heads_together": 3, "max_groups": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "two steps", "no prefetch, form 3", "parts, form 3", "in several dispatches":
				vktest.Long(t, "these one at a time; TestWideForms has every form")
			}
			vktest.Budget(t)
			tile := forwardTile(t, d, Flash, c.p, c.tuning)
			plan := runMatrix(t, d, c.p, tile)
			require.Contains(t, plan.ForwardInfo().Kernel, "matrix_forward_wide")
			for k, v := range tile {
				require.Equal(t, v, plan.ForwardInfo().Tuning[k], k)
			}
		})
	}
}

// TestLatentAttention: V may be the first columns of K, as multi-head latent attention has it, for many queries and for one.
func TestLatentAttention(t *testing.T) {
	d := testDevice(t)
	for _, p := range []Problem{
		{Batch: 2, Heads: 4, KeyHeads: 1, QueryLen: 13, KeyLen: 37, HeadDim: 288, ValueDim: 256, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: 6, KeyHeads: 1, QueryLen: 1, KeyLen: 90, HeadDim: 288, ValueDim: 256, DType: F16},
	} {
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			if p.QueryLen == 1 {
				vktest.Long(t, "many queries")
			}
			s := newSample(t, p)
			for row := range s.p.Batch * s.p.KeyHeads * s.p.KeyLen {
				copy(s.v[row*s.p.ValueDim:(row+1)*s.p.ValueDim], s.k[row*s.p.HeadDim:])
			}
			s.answer(t)
			plan := mustPlan(t, d, s.p, opts...)
			f := s.tensors(t, d, plainly(t, d))
			var err error
			k := s.p.KShape()
			f.V, err = f.K.View(0, F16, s.p.VShape(), [4]int{k[1] * k[2] * k[3], k[2] * k[3], k[3], 1})
			require.NoError(t, err)
			require.NoError(t, plan.Forward(bg, f))
			s.check(t, plan, f)
		})
	}
}

// TestWideHeadsHaveLimits: kernels say themselves up to which head dimensions they compute.
func TestWideHeadsHaveLimits(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 9, HeadDim: kernel.PlainDims + 1, ValueDim: 8, DType: F16}
	for _, i := range []Implementation{Standard, Flash1} {
		_, err := d.Plan(p, WithImplementation(i))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "head dimensions 257 and 8: it takes up to 256")
	}
	for _, k := range catalogue.Forward {
		require.Positive(t, k.MostDim, k.Name)
		require.LessOrEqual(t, k.MostDim, MaxHeadDim, k.Name)
	}
	for _, k := range catalogue.Backward {
		require.Positive(t, k.MostDim, k.Name)
		require.LessOrEqual(t, k.MostDim, MaxHeadDim, k.Name)
	}
}
