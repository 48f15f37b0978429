package flash

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

// byMemory are the parameters that insist on a backward pass by way of memory, and its kernel.
var byMemory = map[string]string{"slabs": "matrix_backward_slabs", "keep_ds": "matrix_backward_keeping"}

// memoryAsScalar requires that the backward pass by way of memory that this parameter insists on, with scratch full of NaNs before each
// run, gives the gradients of the scalar tier, overwritten and added to. What neither writes stays as it was.
func memoryAsScalar(t *testing.T, d *Device, m packedTensors, p Problem, way string, tuning map[string]int, f Forward, b Backward) {
	t.Helper()
	scalar := mustPlan(t, d, p, WithTier(TierScalar))
	require.NoError(t, scalar.Forward(bg, f))
	tuning = maps.Clone(tuning)
	tuning[way] = 1
	if way == "keep_ds" { // which asks more of fragments
		tuning = inFragments(&d.env.Caps, tuning)
	} else {
		tuning = backwardTile(t, d, Flash, p, tuning)
	}
	slabs := planGradients(t, d, p, TierMatrix, WithBackwardTuning(tuning))
	require.Contains(t, backwardInfo(t, slabs).Kernel, byMemory[way])
	b.Forward = f
	gradients := map[string]*Tensor{"dq": b.DQ, "dk": b.DK, "dv": b.DV}
	if b.DBias != nil {
		gradients["dbias"] = b.DBias
	}
	for _, before := range []float32{float32(math.NaN()), 1} {
		b.Accumulate = before == 1
		var got [2]map[string][]float32
		for i, plan := range []*Plan{scalar, slabs} {
			for _, g := range gradients {
				require.NoError(t, g.Upload(bg, slices.Repeat([]float32{before}, g.Elements())))
			}
			r, err := plan.NewRecording(ForBackward())
			require.NoError(t, err)
			require.NoError(t, r.Backward(b))
			for _, at := range r.writer.Scratch {
				require.NoError(t, d.env.Ctx.Upload(bg, at, bytes.Repeat([]byte{0xff}, int(at.Size))))
			}
			pending, err := r.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			got[i] = map[string][]float32{}
			for name, g := range gradients {
				got[i][name] = m.values(g)
			}
		}
		for name, want := range got[0] {
			seen := 0
			for i, x := range want {
				y := got[1][name][i]
				if math.IsNaN(float64(x)) && math.IsNaN(float64(y)) {
					continue
				}
				near := 2e-2 * max(1, math.Abs(float64(x))) // bf16 has eight bits
				require.InDelta(t, x, y, near, "%s, element %d, with %g before", name, i, before)
				if x != before && x != 0 {
					seen++
				}
			}
			require.Greater(t, seen, len(want)/50, name)
		}
	}
	require.NoError(t, slabs.Close())
	require.NoError(t, scalar.Close())
}

// spoiled has NaN in the rows of each batch entry beyond its length.
func (m packedTensors) spoiled(x *Tensor, shape [4]int, lens []int) *Tensor {
	values := m.values(x)
	for i := range values {
		if row := i / shape[3]; row%shape[2] >= lens[row/shape[2]/shape[1]] {
			values[i] = float32(math.NaN())
		}
	}
	require.NoError(m.t, x.Upload(m.t.Context(), values))
	return x
}

// TestBackwardBySlabsWithLengths: batch entries of no, one, few and all queries and keys, some of them a tile's, have the scalar tier's
// gradients by way of memory: what no query sees is not read, and gradients beyond the lengths are 0.
func TestBackwardBySlabsWithLengths(t *testing.T) {
	d := testDevice(t)
	small := map[string]int{"weights_w": 1, "weights_rm": 1, "weights_bc": 1, "weights_ck": 1}
	pairs := map[string]int{"weights_w": 2, "weights_rm": 1, "weights_bc": 2, "weights_ck": 1, "weights_prefetch": 1}
	sliced := map[string]int{"weights_w": 1, "weights_rm": 2, "weights_bc": 2, "weights_ck": 2, "weights_slice": 1}
	for i, x := range []struct {
		set    func(p *Problem)
		tuning map[string]int
		long   string
	}{
		{func(p *Problem) { p.Causal = CausalBottomRight }, small, ""},
		// The last query of a block that ends beyond an entry's sees fewer keys than there are, and more than zeros go behind none.
		{func(p *Problem) { p.Causal, p.Batch, p.QueryLen, p.KeyLen = CausalTopLeft, 2, 230, 260 }, small, ""},
		{func(p *Problem) { p.QueryLengths = false }, pairs, "lengths of keys beside those of queries"},
		{func(p *Problem) { p.KeyLengths, p.Causal, p.DType = false, CausalBottomRight, BF16 }, pairs,
			"lengths of queries beside those of keys"},
		{func(p *Problem) { p.Window, p.Sinks = SlidingWindow(9, 2), true }, small, ""},
		{func(p *Problem) { p.Window, p.Causal = SlidingWindow(20, -1), CausalTopLeft }, map[string]int{"form": 2},
			"windows and the form"},
		{func(p *Problem) { p.Causal, p.Dropout, p.ScoreFunction = CausalBottomRight, 0.25, score.Softcap(3) }, small,
			"the options on wide heads"},
		{func(p *Problem) {
			p.Causal, p.HeadDim, p.Bias = CausalBottomRight, 136, PerScore{DType: F16, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen,
				Keys: p.KeyLen}
		}, small, "a bias"},
		{func(p *Problem) { p.HeadDim, p.Causal = 192, CausalBottomRight }, map[string]int{}, "the default tile"},
		{func(p *Problem) { p.HeadDim = 256 }, map[string]int{}, "the default tile"},
		{func(p *Problem) { p.HeadDim, p.ValueDim, p.Causal = 264, 24, CausalBottomRight }, sliced, "wide heads with options"},
		{func(p *Problem) {
			p.HeadDim, p.ValueDim, p.Window, p.Dropout, p.ScoreFunction = 24, 283, SlidingWindow(17, 5), 0.25, score.Softcap(3)
		}, sliced, ""},
	} {
		p := Problem{Batch: 6, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, KeyLengths: true,
			QueryLengths: true}
		if i == 0 { // in slabs
			p.HeadDim = 24
		}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			tuning := maps.Clone(x.tuning)
			if i == 0 {
				tuning["max_slab"] = 2 * p.QueryLen * p.KeyLen * 2
			}
			lengthsAsScalar(t, d, p, "slabs", tuning)
		})
	}
}

// lengthsAsScalar is memoryAsScalar of batch entries of no, one, few and all queries and keys, of six or of two.
func lengthsAsScalar(t *testing.T, d *Device, p Problem, way string, tuning map[string]int) {
	t.Helper()
	m := newPackedTensors(t, d)
	f := m.forward(p)
	b := m.backward(p, f)
	keys, queries := []int{0, 40, 1, 64, 16, 33}, []int{20, 0, 45, 32, 33, 1}
	if p.Batch == 2 {
		keys, queries = []int{260, 240}, []int{195, 163}
	}
	if p.KeyLengths {
		f.KeyLengths = m.ints(keys...)
		m.spoiled(f.K, p.KShape(), keys)
		m.spoiled(f.V, p.VShape(), keys)
	}
	if p.QueryLengths {
		f.QueryLengths = m.ints(queries...)
		m.spoiled(f.Q, p.QShape(), queries)
		m.spoiled(b.DO, p.OShape(), queries)
	}
	if p.Sinks {
		f.Sinks = m.input(F32, [4]int{1, 1, 1, p.Heads})
	}
	if p.Bias.Heads > 0 {
		shape := [4]int{p.Bias.Batch, p.Bias.Heads, p.Bias.Queries, p.Bias.Keys}
		f.Bias, b.DBias = m.input(F16, shape), m.output(F16, shape)
	}
	memoryAsScalar(t, d, m, p, way, tuning, f, b)
}

// kept has NaN in all rows of packed sequences but those that these use.
func (m packedTensors) kept(x *Tensor, shape [4]int, starts, used []int) *Tensor {
	values := m.values(x)
	for i := range values {
		row, uses := i/shape[3]%shape[2], false
		for j, n := range used {
			uses = uses || row >= starts[j] && row < starts[j]+n
		}
		if !uses {
			values[i] = float32(math.NaN())
		}
	}
	require.NoError(m.t, x.Upload(m.t.Context(), values))
	return x
}

// TestBackwardBySlabsPacked: packed sequences of no, one, few, a tile's and all rows have the scalar tier's gradients by way of memory,
// and rows of no sequence stay as they were.
func TestBackwardBySlabsPacked(t *testing.T) {
	d := testDevice(t)
	small := map[string]int{"weights_w": 1, "weights_rm": 1, "weights_bc": 1, "weights_ck": 1}
	pairs := map[string]int{"weights_w": 2, "weights_rm": 1, "weights_bc": 2, "weights_ck": 1, "weights_prefetch": 1}
	sliced := map[string]int{"weights_w": 1, "weights_rm": 2, "weights_bc": 2, "weights_ck": 2, "weights_slice": 1}
	for i, x := range []struct {
		set    func(p *Problem)
		tuning map[string]int
		long   string
	}{
		{func(p *Problem) { p.Causal = CausalBottomRight }, small, ""},
		{func(p *Problem) { p.KeyLengths, p.QueryLengths, p.Causal = true, true, CausalBottomRight }, pairs, ""},
		{func(p *Problem) { p.DType = BF16 }, pairs, "packed sequences in fp16"},
		{func(p *Problem) { p.Window, p.Sinks = SlidingWindow(9, 2), true }, map[string]int{"max_groups": 3}, "windows of wide heads"},
		{func(p *Problem) { p.Window, p.Causal = SlidingWindow(20, -1), CausalTopLeft }, map[string]int{"form": 2},
			"windows and the form"},
		{func(p *Problem) { p.Causal, p.Dropout, p.ScoreFunction = CausalBottomRight, 0.25, score.Softcap(3) }, small,
			"the options on wide heads"},
		{func(p *Problem) { p.Packed.Keys, p.KeyLengths = 0, true }, small, "queries alone on scalar kernels"},
		{func(p *Problem) { p.Bias = PerScore{DType: F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: 83} }, small, "a bias"},
		{func(p *Problem) { p.HeadDim, p.Causal = 192, CausalBottomRight }, map[string]int{}, "the default tile"},
		{func(p *Problem) { p.HeadDim = 256 }, map[string]int{}, "the default tile"},
		{func(p *Problem) { p.HeadDim, p.ValueDim, p.Causal = 264, 24, CausalBottomRight }, sliced, "wide heads with options"},
		{func(p *Problem) {
			p.HeadDim, p.ValueDim, p.Window, p.Dropout, p.ScoreFunction = 24, 283, SlidingWindow(17, 5), 0.25, score.Softcap(3)
		}, sliced, ""},
	} {
		p := packedProblem
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			tuning := maps.Clone(x.tuning)
			if i < 2 { // in slabs of a key head
				tuning["max_slab"] = 2 * p.Packed.Queries * 88 * 2
			}
			packedAsScalar(t, d, p, "slabs", tuning)
		})
	}
}

// Packed sequences of no, one, few, a tile's and all rows, with rows of no sequence before them and behind.
var (
	packedQueries, packedKeys = []int{70, 1, 0, 33, 64, 5}, []int{50, 83, 9, 64, 1, 0}
	queryStarts, keyStarts    = startsAt(3, packedQueries), startsAt(3, packedKeys)
	packedProblem             = Problem{Batch: 6, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: 8, DType: F16,
		Packed: Packed{queryStarts[6] + 2, keyStarts[6] + 2}}
)

// startsAt is where sequences of these lengths start, behind so many rows, and where the last one ends.
func startsAt(before int, lens []int) []int {
	all := []int{before}
	for _, n := range lens {
		all = append(all, all[len(all)-1]+n)
	}
	return all
}

// packedAsScalar is memoryAsScalar of packedProblem with options. Its keys may be a batch.
func packedAsScalar(t *testing.T, d *Device, p Problem, way string, tuning map[string]int) {
	t.Helper()
	m := newPackedTensors(t, d)
	f := m.forward(p)
	b := m.backward(p, f)
	f.QueryStarts = m.ints(queryStarts...)
	usedQueries, usedKeys := packedQueries, packedKeys
	if p.QueryLengths {
		usedQueries = []int{60, 0, 0, 32, 64, 1}
		f.QueryLengths = m.ints(usedQueries...)
	}
	if p.KeyLengths {
		usedKeys = []int{50, 64, 0, 33, 1, 0}
		f.KeyLengths = m.ints(usedKeys...)
	}
	m.kept(f.Q, p.QShape(), queryStarts, usedQueries)
	m.kept(b.DO, p.OShape(), queryStarts, usedQueries)
	if p.Packed.Keys > 0 {
		f.KeyStarts = m.ints(keyStarts...)
		m.kept(f.K, p.KShape(), keyStarts, usedKeys)
		m.kept(f.V, p.VShape(), keyStarts, usedKeys)
	} else {
		m.spoiled(f.K, p.KShape(), usedKeys)
		m.spoiled(f.V, p.VShape(), usedKeys)
	}
	if p.Sinks {
		f.Sinks = m.input(F32, [4]int{1, 1, 1, p.Heads})
	}
	if p.Bias.Heads > 0 {
		shape := [4]int{1, p.Heads, 1, p.KeyLen}
		f.Bias, b.DBias = m.input(F32, shape), m.output(F32, shape)
	}
	memoryAsScalar(t, d, m, p, way, tuning, f, b)
}

// TestPlainEdges: dV and dK that take P and dS as they are where queries see some keys of a block alone read what has been written, and
// zeros where a key is not seen.
func TestPlainEdges(t *testing.T) {
	d := testDevice(t)
	small := map[string]int{"weights_w": 1, "weights_rm": 1, "weights_bc": 1, "weights_ck": 1}
	for i, x := range []struct {
		queries, keys int
		set           func(p *Problem)
		long          string
	}{
		{230, 260, func(p *Problem) { p.Causal = CausalBottomRight }, "windows"},
		{130, 400, func(p *Problem) { p.Window = SlidingWindow(9, 2) }, ""},
		{400, 130, func(p *Problem) { p.Window, p.Causal = SlidingWindow(60, -1), CausalTopLeft }, "windows"},
		{261, 129, func(p *Problem) { p.Causal, p.Dropout = CausalBottomRight, 0.25 }, "windows"},
		{230, 260, func(p *Problem) { p.Causal, p.KeyLengths, p.QueryLengths = CausalTopLeft, true, true }, "packed sequences"},
		{230, 260, func(p *Problem) { p.Window, p.Packed = SlidingWindow(70, 5), Packed{400, 500} }, ""},
	} {
		p := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: x.queries, KeyLen: x.keys, HeadDim: 8, DType: F16}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			m := newPackedTensors(t, d)
			f := m.forward(p)
			if p.KeyLengths {
				f.KeyLengths, f.QueryLengths = m.ints(260, 240), m.ints(195, 163)
			}
			if p.Packed.Queries > 0 {
				f.QueryStarts, f.KeyStarts = m.ints(3, 233, 398), m.ints(1, 240, 499)
			}
			tuning := maps.Clone(small)
			for plain := range 2 {
				tuning["plain_edges"] = plain
				memoryAsScalar(t, d, m, p, "slabs", tuning, f, m.backward(p, f))
			}
		})
	}
}

// filled gives a problem lengths of all that there is, and packed sequences that are the longest, all of them.
func filled(t *testing.T, d *Device, p Problem, f *Forward) {
	t.Helper()
	m := newPackedTensors(t, d)
	if p.KeyLengths {
		f.KeyLengths = m.ints(slices.Repeat([]int{p.KeyLen}, p.Batch)...)
	}
	if p.QueryLengths {
		f.QueryLengths = m.ints(slices.Repeat([]int{p.QueryLen}, p.Batch)...)
	}
	starts := func(n int) (all []int) {
		for i := range p.Batch + 1 {
			all = append(all, i*n)
		}
		return all
	}
	if p.Packed.Queries > 0 {
		f.QueryStarts = m.ints(starts(p.QueryLen)...)
	}
	if p.Packed.Keys > 0 {
		f.KeyStarts = m.ints(starts(p.KeyLen)...)
	}
}

// TestSlabsWithLengthsMoveAsTheModelSays: where batch entries, or packed sequences, have all that there is, the bytes that builds of the
// kernels by way of memory count equal the model's.
func TestSlabsWithLengthsMoveAsTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	lengths := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 41, KeyLen: 53, HeadDim: 24, ValueDim: 16, DType: F16,
		Causal: CausalBottomRight, KeyLengths: true, QueryLengths: true}
	packed := lengths
	packed.KeyLengths, packed.QueryLengths, packed.Packed, packed.Window = false, false, Packed{2 * 41, 2 * 53}, SlidingWindow(19, -1)
	for i, p := range []Problem{lengths, packed} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			vktest.Budget(t)
			tile := backwardTile(t, d, Flash, p, map[string]int{"slabs": 1, "weights_w": 1, "weights_rm": 2, "weights_bc": 2,
				"weights_ck": 1, "max_slab": 2 * max(41, p.Packed.Queries) * 56 * 2, "plain_edges": i})
			plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(tile))
			defer plan.Close()
			backwardMoves(t, c, plan, traffic.Call{Accumulate: i == 0, DLSE: i == 0}, nil)
		})
	}
}
