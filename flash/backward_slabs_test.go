package flash

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"

	"github.com/vkattn/vkattn/internal/vktest"
)

// TestBackwardBySlabs compares the backward pass by way of memory with float64: in one slab and in several, with tiles of weights whose
// blocks are no multiples of those of the products, so that zeros behind a row's last key are read, in every form.
func TestBackwardBySlabs(t *testing.T) {
	d := testDevice(t)
	causal := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 24, ValueDim: 37, DType: F16,
		Causal: CausalBottomRight}
	// rows that see nothing
	blind := Problem{Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 29, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	plain := Problem{Batch: 1, Heads: 3, QueryLen: 35, KeyLen: 48, HeadDim: 40, DType: F16}
	if testing.Short() { // as many ragged columns of fewer fragments
		causal.HeadDim, causal.ValueDim = 8, 13
	}
	options := causal
	options.Dropout, options.Window, options.ScoreFunction = 0.25, SlidingWindow(17, 5), score.Softcap(3)
	wide, wideCausal, wideOptions := plain, causal, options
	wide.HeadDim, wideCausal.HeadDim, wideCausal.ValueDim, wideOptions.HeadDim, wideOptions.ValueDim = 264, 261, 24, 24, 283
	for _, c := range []struct {
		name   string
		p      Problem
		tuning map[string]int
		long   string
	}{
		{"causal, a slab of each key head", causal, map[string]int{"max_slab": 2 * 41 * 56 * 2}, ""},
		{"causal, one slab", causal, map[string]int{"weights_w": 1, "weights_rm": 2, "weights_bc": 4, "weights_ck": 2,
			"weights_prefetch": 1}, "one slab, a prefetch"},
		{"rows of nothing", blind, map[string]int{"weights_w": 1, "weights_rm": 1, "weights_prefetch": 2}, "causal"},
		{"plain", plain, map[string]int{"weights_a_reg": 1, "weights_b_reg": 2}, "no mask"},
		{"form 2", plain, map[string]int{"form": 2, "max_slab": 2 * 35 * 48 * 2}, "the form"},
		{"form 3, causal", causal, map[string]int{"form": 3}, ""},
		{"dropout, window, softcap", options, map[string]int{"weights_ck": 2, "weights_bc": 4}, "the options, on a wide head"},
		{"dropout, window, softcap, form 2", options, map[string]int{"form": 2, "max_slab": 2 * 41 * 56 * 2}, "the form, and the options"},
		{"wide", wide, map[string]int{"weights_ck": 2, "weights_bc": 2, "weights_slice": 2}, "wide, and the options"},
		{"wide, causal, several slabs", wideCausal, map[string]int{"weights_w": 2, "weights_rm": 2, "weights_ck": 1, "weights_bc": 1,
			"weights_slice": 1, "weights_prefetch": 0, "max_slab": 2 * 41 * 56 * 2}, "wide, and the options"},
		{"wide, causal, form 2", wideCausal, map[string]int{"form": 2, "weights_ck": 1, "weights_bc": 1, "weights_prefetch": 1},
			"the form, and wide"},
		{"wide, dropout, window, softcap", wideOptions, map[string]int{"weights_ck": 1, "weights_bc": 1}, ""},
		{"wide, form 3, dropout, window, softcap", wideOptions, map[string]int{"form": 3, "weights_ck": 1, "weights_bc": 1},
			"the form, and the options"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			c.tuning["slabs"] = 1
			compareGradients(t, d, c.p, c.tuning, c.long == "")
		})
	}
}

// TestSlabsReadWhatIsWritten: with P and dS full of NaNs before each run, the gradients are the same bits as the plan's own: what the
// products read behind a row's last key has been written.
func TestSlabsReadWhatIsWritten(t *testing.T) {
	d := testDevice(t)
	for name, p := range map[string]Problem{
		"causal":          {Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 61, KeyLen: 75, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
		"rows of nothing": {Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 29, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
		"plain":           {Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 43, HeadDim: 16, DType: F16},
	} {
		p := narrowed(p)
		t.Run(name, func(t *testing.T) {
			// Blocks of few queries, and products whose blocks are larger: these read far behind the last key of those.
			plan := planGradients(t, d, p, TierMatrix,
				WithBackwardTuning(backwardTile(t, d, Flash, p, map[string]int{"slabs": 1, "weights_w": 1, "weights_rm": 1, "weights_bc": 1,
					"weights_ck": 1})))
			sameOverNaNs(t, d, plan, 3, "delta, P and dS")
			require.NoError(t, plan.Close())
		})
	}
}

// sameOverNaNs requires that a backward pass gives the same bits where its scratch, of so many pieces, is full of NaNs before it.
func sameOverNaNs(t *testing.T, d *Device, plan *Plan, pieces int, which string) {
	t.Helper()
	_, b := newBackwardSample(t, d, plan, F16)
	gradients := []*Tensor{b.DQ, b.DK, b.DV}
	require.NoError(t, plan.Backward(bg, b))
	var want [3][]float32
	for i, g := range gradients {
		want[i] = download(t, g)
	}
	r, err := plan.NewRecording(ForBackward())
	require.NoError(t, err)
	require.NoError(t, r.Backward(b))
	require.Len(t, r.writer.Scratch, pieces, which)
	for _, at := range r.writer.Scratch {
		require.NoError(t, d.env.Ctx.Upload(bg, at, bytes.Repeat([]byte{0xff}, int(at.Size))))
	}
	pending, err := r.Submit()
	require.NoError(t, err)
	require.NoError(t, pending.Wait(bg))
	for i, g := range gradients {
		require.Equal(t, want[i], download(t, g))
	}
}

// TestSlabsAreWholeKeyHeads: where the query heads of a key head are too much for memory, the kernels that keep P to themselves take the
// problem, and who insists is told why.
func TestSlabsAreWholeKeyHeads(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 16, KeyLen: 16, HeadDim: 16, DType: F16}
	head := 16 * 16 * 2
	for slab, kernel := range map[int]string{2 * head: "matrix_backward_slabs", 2*head - 1: "matrix_backward"} {
		plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(map[string]int{"max_slab": slab, "slabs": 1}))
		defer plan.Close()
		if slab == 2*head {
			require.Contains(t, backwardInfo(t, plan).Kernel, kernel)
			continue
		}
		_, err := plan.BackwardInfo()
		require.ErrorContains(t, err, "P of the heads of a key head takes 1024 bytes, and 1023 are left for it")
	}
}

// TestSlabsRefuseWhatIsNotTheirs: a number of the other kernel of weights is refused by name, not ignored.
func TestSlabsRefuseWhatIsNotTheirs(t *testing.T) {
	d := testDevice(t)
	for name, dim := range map[string]int{"weights_slice": 16, "weights_a_reg": 264, "weights_b_reg": 264} {
		p := Problem{Batch: 1, Heads: 1, QueryLen: 16, KeyLen: 16, HeadDim: dim, DType: F16}
		plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(map[string]int{"slabs": 1, name: 16}))
		_, err := plan.BackwardInfo()
		var argument *ArgumentError
		require.ErrorAs(t, err, &argument)
		require.Equal(t, "WithBackwardTuning["+name+"]", argument.Argument)
		require.NoError(t, plan.Close())
	}
}

// TestSlabsInsisted: of a problem that they cannot have, the plan says that they were asked for and why they are not.
func TestSlabsInsisted(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 16, KeyLen: 16, HeadDim: 16, DType: F16, Blocks: Blocks{Queries: 16, Keys: 16}}
	plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(map[string]int{"slabs": 1}))
	defer plan.Close()
	_, err := plan.BackwardInfo()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "matrix_backward_slabs: it has no block mask; ")
	require.ErrorContains(t, err, "; matrix_backward: WithBackwardTuning[slabs] asks for P and dS in memory")
}
