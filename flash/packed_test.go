package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// packedTensors makes tensors of a problem: inputs random, outputs full of NaN.
type packedTensors struct {
	t *testing.T
	d *Device
	r *rand.Rand
}

func newPackedTensors(t *testing.T, d *Device) packedTensors {
	return packedTensors{t, d, rand.New(rand.NewPCG(3, 4))}
}

func (m packedTensors) of(dtype DType, shape [4]int, values []float32) *Tensor {
	x, err := m.d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
	require.NoError(m.t, err)
	require.NoError(m.t, x.Upload(m.t.Context(), values))
	return x
}

func (m packedTensors) input(dtype DType, shape [4]int) *Tensor {
	return m.of(dtype, shape, randomValues(m.r, dtype, shape))
}

func (m packedTensors) output(dtype DType, shape [4]int) *Tensor {
	return m.of(dtype, shape, slices.Repeat([]float32{float32(math.NaN())}, shape[0]*shape[1]*shape[2]*shape[3]))
}

func (m packedTensors) ints(values ...int) *Tensor {
	floats := make([]float32, len(values))
	for i, v := range values {
		floats[i] = float32(v)
	}
	return m.of(Int32, [4]int{1, 1, 1, len(values)}, floats)
}

func (m packedTensors) forward(p Problem) Forward {
	return Forward{Q: m.input(p.DType, p.QShape()), K: m.input(p.DType, p.KShape()), V: m.input(p.DType, p.VShape()),
		O: m.output(p.DType, p.OShape()), LSE: m.output(F32, p.LSEShape())}
}

func (m packedTensors) backward(p Problem, f Forward) Backward {
	return Backward{Forward: f, DO: m.input(p.DType, p.OShape()), DLSE: m.input(F32, p.LSEShape()), DQ: m.output(p.DType, p.QShape()),
		DK: m.output(p.DType, p.KShape()), DV: m.output(p.DType, p.VShape())}
}

func (m packedTensors) values(x *Tensor) []float32 {
	out := make([]float32, x.Elements())
	require.NoError(m.t, x.Download(m.t.Context(), out))
	return out
}

// rows are n rows from one on of each head of a tensor with one batch entry.
func rowsOf(values []float32, shape [4]int, first, n int) (out []float32) {
	for h := range shape[1] {
		at := (h*shape[2] + first) * shape[3]
		out = append(out, values[at:at+n*shape[3]]...)
	}
	return out
}

// part is a tensor of such rows.
func (m packedTensors) part(x *Tensor, dtype DType, shape [4]int, first, n int) *Tensor {
	values := rowsOf(m.values(x), shape, first, n)
	shape[2] = n
	return m.of(dtype, shape, values)
}

// TestPackedIsSequenceBySequence: packed sequences give what each gives by itself with the same tiles, in both passes, and leave rows of no
// sequence alone. Both add in one order, so on a CPU, whose compiler turns neither's products and sums into one operation, they give the
// same bits. Compilers of GPUs do, as they see fit in either's module: there they are as close as roundings of single operations.
func TestPackedIsSequenceBySequence(t *testing.T) {
	d := testDevice(t)
	m := newPackedTensors(t, d)
	queries, keys := []int{70, 1, 0, 33, 64, 5}, []int{50, 83, 9, 64, 1, 5}
	for _, p := range []Problem{
		{Heads: 4, KeyHeads: 2, HeadDim: 8, DType: F16, Causal: CausalBottomRight},
		{Heads: 2, KeyHeads: 2, HeadDim: 8, DType: F32, Window: SlidingWindow(20, 3)},
	} {
		const before, behind = 3, 2
		starts := func(lens []int) (all []int) {
			at := before
			for _, n := range lens {
				all, at = append(all, at), at+n
			}
			return append(all, at)
		}
		qs, ks := starts(queries), starts(keys)
		p.Batch, p.QueryLen, p.KeyLen = len(queries), slices.Max(queries), slices.Max(keys)
		p.Packed = Packed{qs[p.Batch] + behind, ks[p.Batch] + behind}
		f := m.forward(p)
		f.QueryStarts, f.KeyStarts = m.ints(qs...), m.ints(ks...)
		b := m.backward(p, f)
		// In several dispatches each, as where a watchdog may look.
		tile := []PlanOption{WithTier(TierScalar), WithTuning(map[string]int{"decode": 0, "br": 32, "bc": 32, "parts": 1, "max_groups": 7}),
			WithBackwardTuning(map[string]int{"kv_br": 32, "kv_bc": 32, "q_br": 32, "q_bc": 32, "max_groups": 7})}
		run := func(p Problem, f Forward, b Backward) {
			plan := mustPlan(t, d, p, tile...)
			require.NoError(t, plan.Forward(t.Context(), f))
			require.NoError(t, plan.Backward(t.Context(), b))
			require.NoError(t, plan.Close())
		}
		run(p, f, b)
		whole := []struct {
			name  string
			x     *Tensor
			shape [4]int
			keys  bool
		}{{"o", f.O, p.OShape(), false}, {"lse", f.LSE, p.LSEShape(), false}, {"dq", b.DQ, p.QShape(), false},
			{"dk", b.DK, p.KShape(), true}, {"dv", b.DV, p.VShape(), true}}
		for i := range queries {
			if queries[i] == 0 {
				continue // as a problem it has none; its keys have gradient 0
			}
			one := p
			one.Batch, one.QueryLen, one.KeyLen, one.Packed = 1, queries[i], keys[i], Packed{}
			g := Forward{Q: m.part(f.Q, p.DType, p.QShape(), qs[i], queries[i]), K: m.part(f.K, p.DType, p.KShape(), ks[i], keys[i]),
				V: m.part(f.V, p.DType, p.VShape(), ks[i], keys[i]), O: m.output(p.DType, one.OShape()), LSE: m.output(F32, one.LSEShape())}
			h := m.backward(one, g)
			h.DO = m.part(b.DO, p.DType, p.OShape(), qs[i], queries[i])
			h.DLSE = m.part(b.DLSE, F32, p.LSEShape(), qs[i], queries[i])
			run(one, g, h)
			for j, x := range []*Tensor{g.O, g.LSE, h.DQ, h.DK, h.DV} {
				w, first, n := whole[j], qs[i], queries[i]
				if w.keys {
					first, n = ks[i], keys[i]
				}
				alone, packed := m.values(x), rowsOf(m.values(w.x), w.shape, first, n)
				if isCPU(d) {
					require.Equal(t, alone, packed, "%s of sequence %d of %v", w.name, i, p)
					continue
				}
				most := 1.0
				for _, y := range alone {
					most = max(most, math.Abs(float64(y)))
				}
				require.InDeltaSlice(t, alone, packed, 4e-6*most+refTypes[x.DType()].Ulp(most), "%s of sequence %d of %v", w.name, i, p)
			}
		}
		for _, w := range whole {
			all, of := m.values(w.x), qs
			if w.keys {
				of = ks
			}
			end := of[len(of)-1]
			for _, x := range append(rowsOf(all, w.shape, 0, before), rowsOf(all, w.shape, end, w.shape[2]-end)...) {
				require.True(t, math.IsNaN(float64(x)), "%s of no sequence was written", w.name)
			}
			if w.keys { // of the sequence without queries
				require.Equal(t, make([]float32, w.shape[1]*keys[2]*w.shape[3]), rowsOf(all, w.shape, ks[2], keys[2]), w.name)
			}
		}
	}
}

// TestPackedOnMatrices: kernels on matrices prove themselves on packed sequences, both passes and the gradient with respect to a bias, in
// all forms: their self-checks compare with float64 what comes of sequences of no, one, few and all rows.
func TestPackedOnMatrices(t *testing.T) {
	d := testDevice(t)
	for i, x := range []struct {
		set  func(p *Problem)
		more map[string]int
		long string
	}{
		{func(p *Problem) { p.Causal = CausalBottomRight }, map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 2, "kv_ck": 1,
			"q_bc": 2, "q_ck": 1}, "packed sequences in form 2, and in TestPackedGradientsOnMatrices"},
		{func(p *Problem) { p.KeyLengths, p.QueryLengths, p.Sinks = true, true, true }, map[string]int{"form": 2, "kv_w": 1, "q_w": 1}, ""},
		{func(p *Problem) { p.Causal, p.Packed.Keys = CausalTopLeft, 0 }, map[string]int{"kv_prefetch": 1, "q_prefetch": 1},
			"queries alone on scalar kernels"},
		{func(p *Problem) { p.Window = SlidingWindow(20, 3) }, map[string]int{"form": 3, "kv_w": 1, "q_w": 1},
			"this form without a window"},
		{func(p *Problem) {
			p.Bias = PerScore{DType: F16, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, nil, "biases in TestPackedGradientsOnMatrices"},
		{func(p *Problem) { p.Bias = PerScore{DType: F32, Batch: 1, Heads: p.Heads, Queries: 1, Keys: p.KeyLen} },
			map[string]int{"form": 2}, "the other bias"},
		{func(p *Problem) { p.Dropout, p.Causal = 0.25, CausalBottomRight }, nil, "dropout of scalar kernels"},
		{func(p *Problem) {
			p.Causal, p.Blocks = CausalBottomRight, Blocks{Queries: 16, Keys: 32, PerBatch: true}
		},
			map[string]int{"kv_w": 1, "q_w": 1}, ""},
		{func(p *Problem) { p.Blocks = Blocks{Queries: 7, Keys: 12, PerHead: true} }, map[string]int{"form": 2, "kv_w": 1, "q_w": 1},
			"blocks of parts of tiles on scalar kernels"},
		{func(p *Problem) {
			p.Causal, p.MaskBlocks = CausalBottomRight, Blocks{Queries: 16, Keys: 16}
			p.MaskFunction = score.DocumentsOf(score.CaptureInt("queries", p.QueryLen), score.CaptureInt("keys", p.KeyLen))
		}, map[string]int{"kv_w": 1, "q_w": 1}, "classes of packed sequences on scalar kernels"},
		{func(p *Problem) { p.QueryLen, p.KeyHeads = 5, 1 }, nil, "query heads in one tile on scalar kernels"},
	} {
		p := Problem{Batch: 3, Heads: 2, KeyHeads: 1, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, Packed: Packed{100, 130}}
		x.set(&p)
		t.Run(fmt.Sprint(i, p), func(t *testing.T) {
			vktest.Budget(t)
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			requireOnMatrices(t, planBoth(t, d, p, x.more), "packed")
		})
	}
}

// TestPackedRepeats: the table's order of blocks of one cost may differ from run to run, what is computed may not; nor is anything
// allocated again.
func TestPackedRepeats(t *testing.T) {
	d := testDevice(t)
	m := newPackedTensors(t, d)
	p := Problem{Batch: 40, Heads: 2, KeyHeads: 1, QueryLen: 70, KeyLen: 70, HeadDim: 8, DType: F16, Causal: CausalBottomRight,
		ScoreFunction: score.RelativeBias(score.Capture("buckets", 8, 2), score.T5Bucket(true, 8, 40))}
	starts := []int{0}
	for range p.Batch {
		starts = append(starts, starts[len(starts)-1]+m.r.IntN(71))
	}
	p.Packed = Packed{starts[p.Batch], starts[p.Batch]}
	f := m.forward(p)
	f.QueryStarts, f.KeyStarts = m.ints(starts...), m.ints(starts...)
	f.Captured[0] = m.input(F32, [4]int{1, 1, 8, 2})
	b := m.backward(p, f)
	b.DCaptured[0] = m.output(F32, [4]int{1, 1, 8, 2})
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	outputs := []*Tensor{f.O, f.LSE, b.DQ, b.DK, b.DV, b.DCaptured[0]}
	var first [][]float32
	for run := range 50 {
		require.NoError(t, plan.Forward(t.Context(), f))
		require.NoError(t, plan.Backward(t.Context(), b))
		for i, x := range outputs {
			if got := m.values(x); run == 0 {
				first = append(first, got)
			} else {
				require.Equal(t, first[i], got, "output %d of run %d", i, run)
			}
		}
	}

	// Recording one pass after the other anew allocates nothing, tables and all.
	forward, err := plan.NewRecording()
	require.NoError(t, err)
	backward, err := plan.NewRecording(ForBackward())
	require.NoError(t, err)
	fs, bs := [2]Forward{f, f}, [2]Backward{b, b}
	fs[1].LSE, bs[1].DQ = nil, m.output(F16, p.QShape())
	bs[0].DCaptured, bs[1].DCaptured = Captured{}, Captured{}
	record := func(i int) {
		if err := errors.Join(forward.Forward(fs[i%2]), backward.Backward(bs[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	record(0)
	record(1)
	i := 1
	require.Zero(t, testing.AllocsPerRun(20, func() { i++; record(i) }))
}

// TestBadStarts: starts that are none, in no order or far outside, are taken to what there is: slots begin at the largest start so far, and
// only rows of slots are written.
func TestBadStarts(t *testing.T) {
	d := testDevice(t)
	m := newPackedTensors(t, d)
	p := Problem{Batch: 3, Heads: 2, KeyHeads: 1, QueryLen: 40, KeyLen: 40, HeadDim: 8, DType: F32, Packed: Packed{60, 50}}
	p.KeyLengths, p.QueryLengths = true, true
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	for _, x := range [][2][]int{
		{{-1 << 31, 1<<31 - 128, -7, 1 << 30}, {0, 10, 20, 50}},
		{{50, 20, 10, 0}, {40, 30, 20, 10}},
		{{10, 5, 30, 20}, {-1, 5, 45, 20}},
		{{1 << 30, 1 << 30, 1 << 30, 1 << 30}, {-9, -8, -7, -6}},
		{{0, 60, 60, 60}, {10, 10, 20, 50}},
	} {
		f := m.forward(p)
		f.QueryStarts, f.KeyStarts, f.QueryLengths, f.KeyLengths = m.ints(x[0]...), m.ints(x[1]...), m.ints(1<<30, 15, -5),
			m.ints(40, 1<<30, -1<<30)
		b := m.backward(p, f)
		require.NoError(t, plan.Forward(t.Context(), f))
		require.NoError(t, plan.Backward(t.Context(), b))
		slots := func(starts []int, rows int) (at []int) {
			for i, s := range starts {
				if at = append(at, min(max(s, 0), rows)); i > 0 {
					at[i] = max(at[i], at[i-1])
				}
			}
			return at
		}
		qs, ks := slots(x[0], p.Packed.Queries), slots(x[1], p.Packed.Keys)
		used := [][2]int{{40, 40}, {15, 40}, {0, 0}} // queries and keys as lengths allow
		want := slices.Repeat([]string{"untouched"}, p.Packed.Queries)
		for i, u := range used {
			for row := qs[i]; row < qs[i+1]; row++ {
				if want[row] = "nothing"; row-qs[i] < u[0] && min(u[1], ks[i+1]-ks[i]) > 0 {
					want[row] = "seen"
				}
			}
		}
		for i, v := range m.values(f.LSE) {
			have := "seen"
			switch v := float64(v); {
			case math.IsNaN(v):
				have = "untouched"
			case math.IsInf(v, -1):
				have = "nothing"
			}
			require.Equal(t, want[i%p.Packed.Queries], have, "row %d of %v", i%p.Packed.Queries, x)
		}
	}
}

// TestBadPacked: packed problems and their tensors are checked before any work, each with an error that names what is wrong.
func TestBadPacked(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 2, Heads: 1, QueryLen: 4, HeadDim: 8, DType: F32, Packed: Packed{6, 7}}
	for _, x := range []struct {
		name string
		set  func(p *Problem)
	}{
		{"Problem.Packed", func(p *Problem) { p.Packed.Queries = -1 }},
		{"Problem.Packed", func(p *Problem) { p.Packed.Keys = -1 }},
		{"Problem.Packed", func(p *Problem) { p.Packed.Queries = 0 }},
		{"Problem.Packed", func(p *Problem) { p.Packed.Keys = 1 << 31 }},
		{"Problem.MaskBlocks", func(p *Problem) { p.MaskBlocks, p.MaskFunction = Blocks{Queries: 4, Keys: 4}, score.PrefixLM(2) }},
		{"Problem.Packed.Keys", func(p *Problem) { p.Pages = Pages{Size: 4, Count: 2, PerSequence: 1} }},
		{"Problem.Packed.Queries", func(p *Problem) { p.Packed.Keys, p.Pages = 0, Pages{Size: 4, Count: 2, Indices: 9} }},
	} {
		bad := p
		x.set(&bad)
		_, err := bad.Normalize()
		requireRefused(t, x.name, err)
	}
	require.Equal(t, [4]int{1, 1, 6, 8}, p.QShape())
	require.Equal(t, [4]int{1, 1, 7, 8}, p.KShape())
	require.Equal(t, [4]int{1, 1, 6, 1}, p.LSEShape())
	for _, i := range []Implementation{Flash1, Standard} {
		_, err := d.Plan(p, WithImplementation(i))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "it has no packed sequences")
	}

	plan, m := mustPlan(t, d, p, WithTier(TierScalar)), newPackedTensors(t, d)
	f := m.forward(p)
	f.KeyStarts = m.ints(0, 3, 7)
	requireRefused(t, "Forward.QueryStarts", plan.Forward(t.Context(), f))
	for _, bad := range []*Tensor{m.ints(0, 6), m.ints(0, 2, 4, 6), m.output(F32, [4]int{1, 1, 1, 3})} {
		f.QueryStarts = bad
		requireRefused(t, "Forward.QueryStarts", plan.Forward(t.Context(), f))
	}
	f.QueryStarts = m.ints(0, 2, 6)
	good := f
	var err error
	f.LSE, err = d.NewTensor(F32, 1, 1, 1, 6)
	require.NoError(t, err)
	requireRefused(t, "Forward.LSE", plan.Forward(t.Context(), f))
	f.LSE = good.LSE
	f.KeyLengths = m.ints(1, 1)
	requireRefused(t, "Forward.KeyLengths", plan.Forward(t.Context(), f))
	f.KeyLengths = nil
	memory, err := d.NewTensor(F32, 1, 1, 1, 6)
	require.NoError(t, err)
	if f.LSE, err = memory.View(0, F32, p.LSEShape(), [4]int{}); err == nil {
		f.QueryStarts, err = memory.View(0, Int32, [4]int{1, 1, 1, 3}, [4]int{})
	}
	require.NoError(t, err)
	requireRefused(t, "Forward.LSE", plan.Forward(t.Context(), f))
	require.NoError(t, plan.Forward(t.Context(), good))
	b := m.backward(p, good)
	b.QueryStarts = nil
	requireRefused(t, "Backward.QueryStarts", plan.Backward(t.Context(), b))

	q := p
	q.Packed.Keys = 0
	alone := mustPlan(t, d, q, WithTier(TierScalar))
	g := m.forward(q)
	g.QueryStarts, g.KeyStarts = good.QueryStarts, good.KeyStarts
	requireRefused(t, "Forward.KeyStarts", alone.Forward(t.Context(), g))
	g.KeyStarts = nil
	require.NoError(t, alone.Forward(t.Context(), g))
}

// TestPackedGradientsOnMatrices: gradients of kernels on matrices are those of scalar ones on packed sequences, those by a bias for all
// sequences and of each among them.
func TestPackedGradientsOnMatrices(t *testing.T) {
	vktest.Long(t, "packed sequences of the conformance suite")
	d := testDevice(t)
	m := newPackedTensors(t, d)
	for _, causal := range []Causal{CausalNone, CausalBottomRight} {
		if causal == CausalNone && testing.Short() { // TestMatrixBias has a bias that is broadcast
			continue
		}
		p := Problem{Batch: 6, Heads: 2, KeyHeads: 1, QueryLen: 45, KeyLen: 64, HeadDim: 8, DType: F16, Causal: causal,
			Packed: Packed{160, 180}}
		p.QueryLengths = true
		p.Bias = PerScore{DType: F32, Batch: p.Batch, Heads: 2, Queries: p.QueryLen, Keys: p.KeyLen}
		if causal == CausalNone {
			p.Bias.Batch, p.Bias.Heads, p.Bias.Queries = 1, 1, 1
		}
		bias := [4]int{p.Bias.Batch, p.Bias.Heads, p.Bias.Queries, p.KeyLen}
		f := m.forward(p)
		f.QueryStarts, f.QueryLengths = m.ints(0, 20, 20, 65, 110, 143, 144), m.ints(20, 9, 44, 45, 30, 1)
		f.KeyStarts = m.ints(5, 5, 45, 46, 110, 127, 160)
		f.Bias = m.input(F32, bias)
		b := m.backward(p, f)
		var got [2][][]float32
		for i, tier := range []Tier{TierScalar, TierMatrix} {
			plan := planGradients(t, d, p, tier)
			require.Equal(t, tier, backwardInfo(t, plan).Tier)
			b.DQ, b.DK, b.DV, b.DBias = m.output(F16, p.QShape()), m.output(F16, p.KShape()), m.output(F16, p.VShape()), m.output(F32, bias)
			require.NoError(t, plan.Forward(t.Context(), f))
			require.NoError(t, plan.Backward(t.Context(), b))
			for _, x := range []struct {
				x          *Tensor
				shape      [4]int
				first, end int
			}{{b.DQ, p.QShape(), 0, 144}, {b.DK, p.KShape(), 5, 160}, {b.DV, p.VShape(), 5, 160}} {
				got[i] = append(got[i], rowsOf(m.values(x.x), x.shape, x.first, x.end-x.first))
			}
			got[i] = append(got[i], m.values(b.DBias))
		}
		for j, name := range []string{"dq", "dk", "dv", "dbias"} {
			require.InDeltaSlice(t, wide(got[0][j]), wide(got[1][j]), 2e-2, name)
			nonzero := 0
			for _, x := range got[1][j] {
				if x != 0 {
					nonzero++
				}
			}
			require.Greater(t, nonzero, 60, name)
		}
	}
}
