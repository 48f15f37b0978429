package flash

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// smallQueries is a small tile of the kernel of queries, and more on top of it. With -short that of keys is small too, which compiles
// sooner.
func smallQueries(more map[string]int) map[string]int {
	m := map[string]int{"slabs": 0, "q_w": 2, "q_rm": 1, "q_bc": 2, "q_ck": 1, "kv_w": 1, "kv_rm": 1, "kv_bc": 2, "kv_ck": 1}
	maps.Copy(m, more)
	return m
}

// TestBackwardWritesTheBiasGradient compares backward passes whose kernel of queries writes the gradient with respect to the bias on its
// way with float64, and those that cannot or must not, and have a kernel behind: every element is written, by rows and by elements, of both
// types, with rows that see nothing by position or by the bias, with dropout, and before score functions.
func TestBackwardWritesTheBiasGradient(t *testing.T) {
	vktest.Long(t, "biases of the conformance suite, whose gradients are compared")
	d := testDevice(t)
	grouped := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	whole := Problem{Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 48, HeadDim: 16, DType: F16}
	// rows that see nothing
	blind := Problem{Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 40, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	wide := Problem{Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 44, HeadDim: 24, ValueDim: 37, DType: F16}
	window := Problem{Batch: 1, Heads: 2, QueryLen: 67, KeyLen: 72, HeadDim: 16, DType: F16, Window: SlidingWindow(9, 5)}
	one := Problem{Batch: 1, Heads: 1, QueryLen: 45, KeyLen: 40, HeadDim: 16, DType: F16, Causal: CausalTopLeft}
	dropped, capped, both := grouped, whole, window
	dropped.Dropout = 0.3
	capped.ScoreFunction = score.Softcap(2)
	both.Dropout, both.ScoreFunction = 0.25, score.Softcap(3)
	queries := [3]bool{true, true, false}
	for _, c := range []struct {
		name string
		biasedPass
		long string
	}{
		{"whole rows", biasedPass{p: whole, own: allOwned, dtype: F16, tuning: map[string]int{"q_prefetch": 1}, layout: inUnits, runs: 3,
			direct: true}, ""},
		{"ragged, grouped", biasedPass{p: grouped, own: allOwned, dtype: F16, tuning: map[string]int{"q_rm": 2, "q_ck": 2}, layout: 1,
			direct: true}, "by elements with a function; query heads together in TestBackwardBySlabsWithBias"},
		{"ragged, adding", biasedPass{p: grouped, own: allOwned, dtype: F16, layout: 2, adds: true, direct: true},
			"adding to rows of fp32"},
		{"rows of nothing, fp32, adding", biasedPass{p: blind, own: allOwned, dtype: F32, layout: inUnits, adds: true, direct: true}, ""},
		{"rows of nothing", biasedPass{p: blind, own: allOwned, dtype: F16, tuning: map[string]int{"q_prefetch": 2}, layout: inUnits,
			runs: 20, direct: true}, "three runs of whole rows, and rows of nothing in fp32"},
		{"adding to whole rows", biasedPass{p: whole, own: allOwned, dtype: F16, layout: inUnits, adds: true, direct: true},
			"fp32, adding"},
		{"fp32, ragged", biasedPass{p: wide, own: allOwned, dtype: F32, layout: 1, direct: true}, "fp32, adding"},
		{"fp32, 4 keys over", biasedPass{p: wide, own: allOwned, dtype: F32, layout: inUnits, direct: true}, "fp32, adding"},
		{"window", biasedPass{p: window, own: allOwned, dtype: F16, layout: inUnits, direct: true}, "with a function and dropout"},
		{"dropout", biasedPass{p: dropped, own: allOwned, dtype: F16, tuning: map[string]int{"q_ck": 2}, layout: 1, direct: true},
			"with a function and a window"},
		{"a function", biasedPass{p: capped, own: allOwned, dtype: F16, layout: inUnits, direct: true},
			"a function, with dropout and a window"},
		{"a function, dropout and a window", biasedPass{p: both, own: allOwned, dtype: F16, layout: 2, direct: true}, ""},
		{"one head and entry, of which the bias says nothing", biasedPass{p: one, own: [3]bool{false, false, true}, dtype: F16,
			layout: inUnits, direct: true}, "a bias that says everything"},
		{"not wanted", biasedPass{p: whole, own: allOwned, dtype: F16, layout: inUnits, direct: true, none: true}, ""},
		{"turned off", biasedPass{p: blind, own: allOwned, dtype: F16, tuning: map[string]int{"q_dbias": 0}, layout: inUnits}, ""},
		{"for all queries", biasedPass{p: whole, own: queries, dtype: F16, layout: inUnits}, "biases that are broadcast in TestMatrixBias"},
		{"form 2", biasedPass{p: grouped, own: allOwned, dtype: F16, tuning: map[string]int{"form": 2}, layout: 1},
			"form 2 in TestMatrixBias"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			c.kernel, c.tuning = "matrix_backward", smallQueries(c.tuning)
			c.run(t, d)
		})
	}
}

// TestBackwardMovesABiasGradientAsTheModelSays: of such passes, the bytes that builds of the kernels count equal the model's.
func TestBackwardMovesABiasGradientAsTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, counted := countingDevice(t)
	causal := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	window := Problem{Batch: 1, Heads: 2, QueryLen: 67, KeyLen: 72, HeadDim: 16, DType: F16, Window: SlidingWindow(9, 5)}
	for _, c := range []struct {
		name string
		biasedPass
		long string
	}{
		{"causal, ragged, fp32, adding", biasedPass{p: causal, dtype: F32, layout: 1, adds: true}, ""},
		{"window, whole rows", biasedPass{p: window, dtype: F16, layout: inUnits}, "ragged rows; whole ones by slabs"},
		{"causal, ragged", biasedPass{p: causal, dtype: F16, layout: 1}, "adding"},
		{"whole rows of fp32, adding", biasedPass{p: window, dtype: F32, layout: inUnits, adds: true}, "fp16"},
		{"not wanted", biasedPass{p: window, dtype: F16, layout: inUnits, none: true}, "the gradient wanted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			c.kernel, c.tuning, c.own, c.direct, c.counts = "matrix_backward", smallQueries(nil), allOwned, true, counted
			c.run(t, d)
		})
	}
}

// TestBiasGradientOnTheWay: where the kernel of queries writes the gradient with respect to the bias, and what is said where it is asked to
// and cannot. On an H200 it has room for that with every bias of heads up to 64.
func TestBiasGradientOnTheWay(t *testing.T) {
	d := testDevice(t)
	p := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 16, DType: F16})
	p.Bias = PerScore{DType: F16, Batch: 1, Heads: 2, Queries: 20, Keys: 20}
	shared := p
	shared.Bias.Heads = 1
	none := p
	none.Bias = PerScore{}
	for _, c := range []struct {
		p      Problem
		tuning map[string]int
		want   string
	}{
		{none, nil, "there is no bias"},
		{shared, nil, "scores share elements of it"},
		{p, map[string]int{"form": 2}, "form 2 has it in shared memory"},
	} {
		given := smallQueries(c.tuning)
		given["q_dbias"] = 1
		plan := planGradients(t, d, c.p, TierMatrix, WithBackwardTuning(inFragments(&d.env.Caps, given)))
		_, err := plan.backward()
		if errors.Is(err, ErrUnsupported) {
			t.Skip(err)
		}
		require.ErrorContains(t, err, "WithBackwardTuning[q_dbias] is 1: cannot be: "+c.want)
		require.ErrorIs(t, err, ErrArgument)
		require.NoError(t, plan.Close())
	}

}
