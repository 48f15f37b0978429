package flash

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/ref"
)

// TestDropoutMask: what a kernel keeps is what the definition says, for every implementation and tier, and the share of what it keeps is
// right within four standard deviations.
func TestDropoutMask(t *testing.T) {
	d := testDevice(t)
	for _, p := range []Problem{
		narrowed(Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 37, KeyLen: 150, HeadDim: 8, ValueDim: 16, DType: F16, Dropout: 0.1}),
		{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 64, HeadDim: 8, DType: F16, Dropout: 0.75},
	} {
		if testing.Short() {
			p.QueryLen, p.KeyLen = 37, 150 // other lengths have other kernels on matrices
		}
		want := ref.Dropout{P: p.Dropout, Seed: 0xfedcba9876543210, Offset: 77}
		tiers := 0
		for i := range 4 {
			impl, tier := []Implementation{Flash, Standard}[i/2], []Tier{TierScalar, TierMatrix}[i%2]
			plan, err := d.Plan(p, WithImplementation(impl), WithTier(tier))
			if err != nil {
				require.ErrorIs(t, err, ErrUnsupported)
				continue
			}
			tiers++
			require.Equal(t, want.Probability(), plan.DropoutProbability())
			n := plan.Problem()
			mask, err := plan.DropoutMask(bg, want.Seed, want.Offset)
			require.NoError(t, err)
			require.Equal(t, want.Mask(n.Batch, n.Heads, n.QueryLen, n.KeyLen), mask, "%v, tier %s", impl, tier)
			kept := 0
			for _, k := range mask {
				kept += kernel.BoolInt(k)
			}
			keep := 1 - plan.DropoutProbability()
			sigma := math.Sqrt(float64(len(mask)) * keep * (1 - keep))
			require.InDelta(t, keep*float64(len(mask)), float64(kept), 4*sigma)
			other, err := plan.DropoutMask(bg, want.Seed, want.Offset+1)
			require.NoError(t, err)
			require.NotEqual(t, mask, other, "the offset must matter")
			require.NoError(t, plan.Close())
		}
		require.GreaterOrEqual(t, tiers, 2)
	}
	none := mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, Causal: CausalTopLeft})
	mask, err := none.DropoutMask(bg, 1, 2)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false, false, false, true, true, false, false, false, true, true, true, false, false}, mask)
}

// TestDropoutMaskOfFunctions: by a function weights may vanish, and draws are those of the same problem without; packed sequences are no
// batch.
func TestDropoutMaskOfFunctions(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 600, HeadDim: 16, DType: F16, Dropout: 0.5,
		ScoreFunction: score.ALiBi([]float32{0.5})}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	mask, err := plan.DropoutMask(bg, 5, 6)
	require.NoError(t, err)
	n := plan.Problem()
	want := ref.Dropout{P: p.Dropout, Seed: 5, Offset: 6}
	require.Equal(t, want.Mask(n.Batch, n.Heads, n.QueryLen, n.KeyLen), mask)
	packed := mustPlan(t, d, Problem{Batch: 4, Heads: 1, QueryLen: 64, HeadDim: 8, Dropout: 0.25, Packed: Packed{Queries: 100, Keys: 100}})
	_, err = packed.DropoutMask(bg, 5, 6)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "Problem.Packed")
	pages := mustPlan(t, d, Problem{Batch: 2, Heads: 1, QueryLen: 1, KeyLen: 64, HeadDim: 16, Dropout: 0.5,
		Pages: Pages{Size: 16, Count: 4, PerSequence: 4}})
	_, err = pages.DropoutMask(bg, 5, 6)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "Problem.Pages")
}
