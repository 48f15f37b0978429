package flash

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

// biasedPass is a backward pass of a problem with a bias, by way of memory if no kernel is named.
type biasedPass struct {
	kernel string
	p      Problem
	own    [3]bool // what the bias has of its own: batch entries, heads, queries
	dtype  DType   // of the bias
	tuning map[string]int
	layout int // of the bias and its gradient: newGuarded's
	adds   bool
	runs   int  // of which each gives the same bits
	direct bool // a kernel of the other gradients writes that by the bias; else a kernel behind makes it
	none   bool // it is not wanted
	counts *counts
}

// allOwned is a bias with an element for each score.
var allOwned = [3]bool{true, true, true}

// run compares all four gradients with float64. Outputs are full of NaNs before, between other numbers that must stay, and so is the
// workspace.
func (c *biasedPass) run(t *testing.T, d *Device) {
	t.Helper()
	p := narrowed(c.p)
	p.Bias = PerScore{DType: c.dtype, Batch: 1, Heads: 1, Queries: 1, Keys: p.KeyLen}
	for i, n := range [3]int{p.Batch, p.Heads, p.QueryLen} {
		if c.own[i] {
			*[...]*int{&p.Bias.Batch, &p.Bias.Heads, &p.Bias.Queries}[i] = n
		}
	}
	plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(backwardTile(t, d, Flash, p, c.tuning)))
	defer func() { require.NoError(t, plan.Close()) }()
	choice, err := plan.backward()
	skipUnsupported(t, err)
	require.Equal(t, cmp.Or(c.kernel, "matrix_backward_slabs"), choice.kernel.Name, choice.reasons)
	_, behind := choice.program.(*scoreGradients)
	require.Equal(t, c.direct, !behind)
	p = plan.Problem()

	name := fnv.New64()
	fmt.Fprint(name, t.Name())
	rng := rand.New(rand.NewPCG(name.Sum64(), 1))
	s := newSample(t, p)
	s.in.Score = p.ScoreFunction
	if p.Dropout > 0 {
		s.in.Dropout = &ref.Dropout{P: p.Dropout, Seed: 1<<40 + 5, Offset: 3}
	}
	shape := [4]int{p.Bias.Batch, p.Bias.Heads, p.Bias.Queries, p.Bias.Keys}
	bias := newGuarded(t, d, rng, c.dtype, shape, c.layout)
	hide := func(b, h, i, j int) { bias.values[bias.row(b, h, i)+j] = float32(math.Inf(-1)) }
	hide(0, 0, 0, 1)
	if last := shape[2] - 1; last > 0 { // and a query that sees nothing at all
		for j := range shape[3] {
			hide(shape[0]-1, shape[1]-1, last-2, j)
		}
	}
	bias.send(t)
	values := bias.elements()
	s.in.Bias = &values
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	copy(do.Data, randomValues(rng, p.DType, p.OShape()))
	o, lse, err := ref.Forward(s.in)
	require.NoError(t, err)
	want, err := ref.Backward(s.in, do, nil)
	require.NoError(t, err)
	plain, err := ref.PlainBackward(s.in, refTypes[p.DType], do, nil)
	require.NoError(t, err)

	filled := func(dtype DType, shape [4]int, values []float32) *Tensor {
		x := plainly(t, d)(dtype, shape)
		require.NoError(t, x.Upload(bg, values))
		return x
	}
	floats := func(x []float64) []float32 {
		out := make([]float32, len(x))
		for i, v := range x {
			out[i] = float32(v)
		}
		return out
	}
	f := Forward{Q: filled(p.DType, p.QShape(), s.q), K: filled(p.DType, p.KShape(), s.k), V: filled(p.DType, p.VShape(), s.v),
		O: filled(p.DType, p.OShape(), floats(o.Data)), LSE: filled(F32, p.LSEShape(), floats(lse.Data)), Bias: bias.tensor}
	b := Backward{Forward: f, DO: filled(p.DType, p.OShape(), do.Data), Accumulate: c.adds}
	if drop := s.in.Dropout; drop != nil {
		b.Seed, b.Offset = drop.Seed, drop.Offset
	}
	outputs := []struct {
		name        string
		to          **Tensor
		dtype       DType
		shape       [4]int
		layout      int
		want, plain *ref.Array
		at          *guarded
		first       []float32
	}{
		{"dq", &b.DQ, p.DType, p.QShape(), 3, &want.DQ, &plain.DQ, nil, nil},
		{"dk", &b.DK, p.DType, p.KShape(), 3, &want.DK, &plain.DK, nil, nil},
		{"dv", &b.DV, p.DType, p.VShape(), 3, &want.DV, &plain.DV, nil, nil},
		{"dbias", &b.DBias, c.dtype, shape, c.layout, &want.DBias, &plain.DBias, nil, nil},
	}
	if c.none {
		outputs = outputs[:3]
	}
	for i := range outputs {
		x := &outputs[i]
		x.at = newGuarded(t, d, rng, x.dtype, x.shape, x.layout)
		*x.to = x.at.tensor
		for _, r := range ref.AllRows(x.at.elements()) {
			row, from := x.want.Row(r.B, r.H, r.I), x.at.row(r.B, r.H, r.I)
			for j := range row {
				if c.adds {
					row[j] += float64(x.at.values[from+j])
					x.plain.Row(r.B, r.H, r.I)[j] += float64(x.at.values[from+j])
				} else {
					x.at.values[from+j] = float32(math.NaN())
				}
			}
		}
	}
	r, err := plan.NewRecording(ForBackward(), WithTimestamps())
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, r.Backward(b))
	for run := range max(c.runs, 1) {
		for i := range outputs {
			outputs[i].at.send(t)
		}
		for _, at := range r.writer.Scratch {
			require.NoError(t, d.env.Ctx.Upload(bg, at, bytes.Repeat([]byte{0xff}, int(at.Size))))
		}
		if run > 0 {
			require.NoError(t, r.Backward(b))
		}
		submit := func() {
			pending, err := r.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			if r.HasTimestamps() {
				made := slices.ContainsFunc(pending.Timings(),
					func(part Timing) bool { return strings.HasSuffix(part.Label, "_backward_bias") })
				require.Equal(t, !c.direct && !c.none, made, "a kernel behind makes the gradient by the bias")
			}
		}
		if c.counts == nil {
			submit()
		} else {
			steps, err := backwardSteps(plan, traffic.Call{Accumulate: c.adds, DBias: !c.none})
			require.NoError(t, err)
			eachDispatch(t, steps, c.counts.during(submit))
		}
		for i := range outputs {
			x := &outputs[i]
			got := download(t, x.at.tensor)
			if run > 0 {
				require.Equal(t, x.first, got, "%s, run %d", x.name, run)
				continue
			}
			x.first = got
			if v := ref.CheckGradient(doubles(got), x.want.Data, x.plain.Data, refTypes[p.DType]); !v.OK {
				t.Fatalf("%s: %v", x.name, v)
			}
			x.at.alone(t, x.name)
		}
	}
}

// alone requires that nothing beside the tensor was written.
func (g *guarded) alone(t *testing.T, name string) {
	t.Helper()
	got := make([]float32, len(g.values))
	require.NoError(t, g.whole.Download(bg, got))
	for _, r := range ref.AllRows(g.elements()) {
		from := g.row(r.B, r.H, r.I)
		copy(got[from:from+g.shape[3]], g.values[from:])
	}
	for i := range got {
		require.Equal(t, math.Float32bits(g.values[i]), math.Float32bits(got[i]), "%s: element %d of the buffer, beside the tensor", name,
			i)
	}
}

// TestBackwardBySlabsWithBias compares the backward pass by way of memory, of problems with a bias, with float64: where the kernel of
// weights writes the gradient with respect to the bias and where a kernel behind makes it; in every form, in one slab and in several,
// biases of both types and of all layouts, with rows that see nothing by position or by the bias.
func TestBackwardBySlabsWithBias(t *testing.T) {
	vktest.Long(t, "TestBackwardBySlabs without a bias")
	d := testDevice(t)
	with := func(more ...any) map[string]int {
		m := map[string]int{"slabs": 1, "weights_w": 1, "weights_rm": 1, "weights_bc": 2, "weights_ck": 1}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1].(int)
		}
		return m
	}
	grouped := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	whole := Problem{Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 48, HeadDim: 16, DType: F16}
	// rows that see nothing
	blind := Problem{Batch: 1, Heads: 2, QueryLen: 61, KeyLen: 40, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	wide := Problem{Batch: 1, Heads: 2, QueryLen: 35, KeyLen: 44, HeadDim: 24, ValueDim: 37, DType: F16}
	heads, batch, queries := [3]bool{true, false, true}, [3]bool{false, true, true}, [3]bool{true, true, false}
	for _, c := range []struct {
		name string
		biasedPass
		long string
	}{
		{"whole rows", biasedPass{p: whole, own: allOwned, dtype: F16, tuning: with("weights_prefetch", 1), layout: 3, runs: 3,
			direct: true}, ""},
		{"ragged, grouped, a slab of each key head", biasedPass{p: grouped, own: allOwned, dtype: F16,
			tuning: with("max_slab", 2*41*56*2, "weights_rm", 2),
			layout: 1, direct: true}, ""},
		{"ragged, adding", biasedPass{p: grouped, own: allOwned, dtype: F16, tuning: with(), layout: 2, adds: true, direct: true},
			"adding to whole rows"},
		{"rows of nothing, fp32, adding", biasedPass{p: blind, own: allOwned, dtype: F32, tuning: with("weights_ck", 2), layout: 3,
			adds: true, direct: true}, ""},
		{"rows of nothing", biasedPass{p: blind, own: allOwned, dtype: F16, tuning: with("weights_prefetch", 2), layout: 3, runs: 50,
			direct: true}, "three runs"},
		{"adding", biasedPass{p: whole, own: allOwned, dtype: F16, tuning: with(), layout: 3, adds: true, direct: true}, "fp32, adding"},
		{"fp32, ragged", biasedPass{p: wide, own: allOwned, dtype: F32, tuning: with("weights_w", 2), layout: 1, direct: true},
			"fp32, whole rows"},
		{"fp32, 4 keys over", biasedPass{p: wide, own: allOwned, dtype: F32, tuning: with(), layout: 3, direct: true}, "fp32, whole rows"},
		{"window", biasedPass{p: Problem{Batch: 1, Heads: 2, QueryLen: 67, KeyLen: 72, HeadDim: 16, DType: F16,
			Window: SlidingWindow(9, 5)},
			own: allOwned, dtype: F16, tuning: with(), layout: 3, direct: true}, "windows in TestSlabsMoveABiasAsTheModelSays"},
		{"not wanted", biasedPass{p: whole, own: allOwned, dtype: F16, tuning: with("weights_prefetch", 1), layout: 3, direct: true,
			none: true}, ""},
		{"one batch entry's, fp32", biasedPass{p: grouped, own: batch, dtype: F32, tuning: with("max_slab", 2*41*56*2), layout: 0},
			"that of heads"},
		{"for all heads", biasedPass{p: grouped, own: heads, dtype: F16, tuning: with(), layout: 0}, ""},
		{"for all queries", biasedPass{p: whole, own: queries, dtype: F16, tuning: with(), layout: 3, adds: true}, "that of heads"},
		{"form 2", biasedPass{p: grouped, own: allOwned, dtype: F16, tuning: with("form", 2), layout: 1}, ""},
		{"form 3, fp32", biasedPass{p: blind, own: queries, dtype: F32, tuning: with("form", 3), layout: 0}, "form 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			c.run(t, d)
		})
	}
}

// TestSlabsMoveABiasAsTheModelSays: with a bias, and with its gradient, the bytes that builds of the kernels count equal the model's.
func TestSlabsMoveABiasAsTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, counted := countingDevice(t)
	causal := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	window := Problem{Batch: 1, Heads: 2, QueryLen: 67, KeyLen: 72, HeadDim: 16, DType: F16, Window: SlidingWindow(9, 5)}
	for _, c := range []struct {
		name string
		biasedPass
		long string
	}{
		{"causal, ragged, a slab of each key head", biasedPass{p: causal, dtype: F16, tuning: map[string]int{"max_slab": 2 * 41 * 56 * 2},
			layout: 1}, "a window; slabs in TestBackwardBySlabsWithBias"},
		{"adding", biasedPass{p: causal, dtype: F32, layout: 1, adds: true}, "whole rows"},
		{"window, whole rows", biasedPass{p: window, dtype: F16, layout: 3}, ""},
		{"whole rows of fp32, adding", biasedPass{p: window, dtype: F32, layout: 3, adds: true}, "fp16"},
		{"not wanted", biasedPass{p: window, dtype: F16, layout: 3, none: true}, "the gradient wanted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vktest.Budget(t)
			if c.long != "" {
				vktest.Long(t, c.long)
			}
			tuning := map[string]int{"slabs": 1, "weights_w": 1, "weights_rm": 1, "weights_bc": 2, "weights_ck": 1}
			for name, v := range c.tuning {
				tuning[name] = v
			}
			c.tuning, c.own, c.direct, c.counts = tuning, allOwned, true, counted
			c.run(t, d)
		})
	}
}
