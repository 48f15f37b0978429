package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWeights: what standard attention keeps belongs to one forward pass, takes the place of its workspace, and is what a backward
// pass reads.
func TestWeights(t *testing.T) {
	d := testDevice(t)
	p := narrowed(Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 40, KeyLen: 50, HeadDim: 16, DType: F16, Causal: CausalBottomRight})
	const matrix = 2 * 40 * 56 * 2 // bytes: rows are padded to eights
	for _, tuning := range []map[string]int{nil, {"max_slab": 40 * 56 * 2}, {"max_slab": 1000}} {
		plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar), WithTuning(tuning))
		info, err := plan.BackwardInfo()
		require.NoError(t, err)
		require.EqualValues(t, matrix, info.WorkspaceBytes, "dP")
		require.EqualValues(t, matrix, plan.ForwardInfo().WorkspaceBytes)
		before := d.Usage().Asked
		weights, err := plan.NewWeights()
		require.NoError(t, err)
		require.EqualValues(t, matrix, weights.Bytes())
		require.EqualValues(t, matrix, d.Usage().Asked-before)

		_, b := newBackwardSample(t, d, plan, F16)
		f := Forward{Q: b.Q, K: b.K, V: b.V, O: b.O, LSE: b.LSE, Weights: weights}
		before = d.Usage().Asked
		r, err := plan.NewRecording()
		require.NoError(t, err)
		require.NoError(t, r.Forward(f))
		require.Equal(t, before, d.Usage().Asked, "a forward pass that keeps its weights has no workspace")
		pending, err := r.Submit()
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		f.Weights = nil
		require.NoError(t, r.Forward(f))
		require.EqualValues(t, matrix, d.Usage().Asked-before)
		require.NoError(t, r.Close())

		// Weights of another forward pass: none of this one's gradients change.
		require.NoError(t, plan.Backward(bg, b))
		first := download(t, b.DQ)
		q := download(t, b.Q)
		other := append([]float32(nil), q...)
		for i := range other {
			other[i] *= 2
		}
		require.NoError(t, b.Q.Upload(bg, other))
		f.Weights = weights
		pending, err = plan.SubmitForward(f)
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		require.NoError(t, b.Q.Upload(bg, q))
		require.NoError(t, plan.Backward(bg, b))
		require.Equal(t, first, download(t, b.DQ))
		b.Weights = weights
		require.NoError(t, plan.Backward(bg, b))
		require.NotEqual(t, first, download(t, b.DQ))
		require.NoError(t, weights.Close())
		require.NoError(t, plan.Close())
	}
}

// TestBadWeights: weights that do not belong give errors that name the place and the rule.
func TestBadWeights(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 16, DType: F16}
	standard, again, flash2 := mustPlan(t, d, p, WithImplementation(Standard)), mustPlan(t, d, p, WithImplementation(Standard)),
		mustPlan(t, d, p)
	none, err := flash2.NewWeights()
	require.NoError(t, err)
	require.Nil(t, none)
	require.Zero(t, none.Bytes())
	require.NoError(t, none.Close())
	_, b := newBackwardSample(t, d, standard, F16)
	f := Forward{Q: b.Q, K: b.K, V: b.V, O: b.O, LSE: b.LSE, Weights: b.Weights}
	for _, c := range []struct {
		name  string
		plan  *Plan
		w     *Weights
		rule  string
		place string
	}{
		{"missing", standard, nil, "that Forward was given", "Backward.Weights"},
		{"another plan's", again, b.Weights, "this plan's", "Backward.Weights"},
		{"needless", flash2, b.Weights, "must be nil", "Backward.Weights"},
		{"forward, another plan's", again, b.Weights, "this plan's", "Forward.Weights"},
		{"forward, needless", flash2, b.Weights, "must be nil", "Forward.Weights"},
		{"zero", standard, new(Weights), "this plan's", "Forward.Weights"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, b := f, b
			f.Weights, b.Weights = c.w, c.w
			err := c.plan.Backward(bg, b)
			if c.place == "Forward.Weights" {
				_, err = c.plan.SubmitForward(f)
			}
			var arg *ArgumentError
			require.ErrorAs(t, err, &arg)
			require.Equal(t, c.place, arg.Argument)
			require.Contains(t, arg.Rule, c.rule)
		})
	}
	require.NoError(t, b.Weights.Close())
	require.ErrorIs(t, standard.Backward(bg, b), ErrClosed)
	_, err = standard.SubmitForward(f)
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, standard.Close())
	_, err = standard.NewWeights()
	require.ErrorIs(t, err, ErrClosed)
}

func TestWeightsTooLarge(t *testing.T) {
	d := testDevice(t)
	huge := Problem{Batch: 1, Heads: 1, QueryLen: 1 << 18, KeyLen: 1 << 18, HeadDim: 1, DType: F16}
	if memory := d.info.DeviceMemory(); 2<<36 <= memory {
		t.Skipf("%d bytes of memory hold the matrices", memory)
	}
	plan, err := d.Plan(huge, WithImplementation(Standard), WithTier(TierScalar))
	if err == nil { // P fits, dP does not
		_, err = plan.BackwardInfo()
	}
	var m *MemoryError
	require.ErrorAs(t, err, &m)
	require.Greater(t, m.Needed, m.Available)
}
