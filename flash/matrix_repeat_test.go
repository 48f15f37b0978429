package flash

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMatrixRepeats: with repeat=1 the last key stands for those that its tile lacks, and its weights are taken off the sum again. Keys
// end one behind a tile, one before its end, or are fewer than a chunk; scores are all alike, or far below 0, or the last key's are far
// above the others', so that next to nothing is left of the sum, or grow so that the workgroup begins anew. In every way of fetching, with
// growth looked for in all three places.
func TestMatrixRepeats(t *testing.T) {
	d := matrixDevice(t)
	f := matrixFragment(d)
	step := stepOf(f)
	layout, err := d.env.Layout(attn.F16, f)
	require.NoError(t, err)
	for i, test := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{KeyLen: 3*2*step + 1}, map[string]int{"prefetch": 4, "late": 2, "steps": 1}},
		{Problem{KeyLen: 4*2*step - 1}, map[string]int{"prefetch": 5, "late": 1, "pipe": 1, "max_first": 1}},
		{Problem{KeyLen: 1}, map[string]int{"prefetch": 1, "late": 1, "form": kernel.FormRows}},
		{Problem{KeyLen: 5*2*step - 3, HeadDim: 5, ValueDim: 12}, map[string]int{"prefetch": 3, "max_first": 1, "form": kernel.FormRows}},
		{Problem{KeyLen: 2*2*step + 3}, map[string]int{"prefetch": 2}},
		{Problem{KeyLen: 70*2*step + 3}, map[string]int{"prefetch": 0, "late": 2, "max_first": 1}},
		{Problem{KeyLen: step - 1, Heads: 6, KeyHeads: 1, QueryLen: 3}, map[string]int{"prefetch": 3, "late": 2, "pack": 1}},
		{Problem{KeyLen: 7*2*step + 5}, map[string]int{"prefetch": 1, "late": 1, "parts": 3}},
	} {
		p := test.p
		p.Batch, p.DType, p.Scale = 1, F16, math.Ln2
		if p.Heads == 0 {
			p.Heads, p.QueryLen = 2, 2*f.M+3
		}
		if p.HeadDim == 0 {
			p.HeadDim = 8
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if layout.Form > kernel.FormRows {
				t.Skip("nothing is known of who holds which weights")
			}
			if i%2 != 0 {
				vktest.Long(t, "every other way of fetching")
			}
			tuning := map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "repeat": 1, "keep_masks": 0}
			maps.Copy(tuning, test.tuning)
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
			constants := constantsOf(plan)
			require.Equal(t, []int{1, 0}, []int{constants["REPEAT"], constants["MASKS"]})
			testRescaling(t, d, plan, step, 0, 4, 17)
			for _, last := range []float32{0, -300, 300, 11} { // of the last key, in log 2, beside the others'
				for _, others := range []float32{0, -300, 300} {
					testScores(t, d, plan, others, others+last)
				}
			}
			require.NoError(t, plan.Close())
		})
	}
}

// testScores runs a plan, whose scale is ln 2, on scores that are about the same but for the last key's.
func testScores(t *testing.T, d *Device, plan *Plan, others, last float32) {
	t.Helper()
	p := plan.Problem()
	t.Run(fmt.Sprint(others, last), func(t *testing.T) {
		s := newSample(t, p)
		for i := 0; i < len(s.q); i += p.HeadDim {
			clear(s.q[i : i+p.HeadDim])
			s.q[i] = 1
			s.q[i+1] = float32(i%3) / 8
		}
		for j := 0; j < len(s.k); j += p.HeadDim {
			s.k[j] = others
			if j/p.HeadDim%p.KeyLen == p.KeyLen-1 {
				s.k[j] = last
			}
		}
		s.answer(t)
		f := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	})
}

// TestMatrixRepeatsOfLengths: entries of a batch, or sequences one behind the other, have no key, one, whole tiles or not, and fewer
// queries than there are rows, which are 0 whatever keys hold. Rows that there are come out as with masks, up to roundings.
func TestMatrixRepeatsOfLengths(t *testing.T) {
	d := matrixDevice(t)
	f := matrixFragment(d)
	step, rows := stepOf(f), 2*f.M
	layout, err := d.env.Layout(attn.F16, f)
	require.NoError(t, err)
	if layout.Form > kernel.FormRows {
		t.Skip("nothing is known of who holds which weights")
	}
	queries, keys := []int{rows + 3, 5, rows + 1, 0, 2 * rows}, []int{4*step - 1, 1, 0, 7, 6 * step}
	const bad = 0 // the sequence that has an infinite key
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprint("packed=", packed), func(t *testing.T) {
			m := newPackedTensors(t, d)
			p := Problem{Batch: len(keys), Heads: 2, QueryLen: 2 * rows, KeyLen: 6 * step, HeadDim: 8, DType: F16}
			slots := 2*rows + 2 // of queries, of which a sequence may use fewer
			if packed {
				p.Packed = Packed{Queries: len(queries) * slots, Keys: len(keys) * p.KeyLen}
				p.QueryLen = slots
			}
			p.KeyLengths, p.QueryLengths = true, true
			in := m.forward(p)
			in.KeyLengths, in.QueryLengths = m.ints(keys...), m.ints(queries...)
			if packed {
				var q, k []int
				for i := range len(keys) + 1 {
					q, k = append(q, i*slots), append(k, i*p.KeyLen)
				}
				in.QueryStarts, in.KeyStarts = m.ints(q...), m.ints(k...)
			}
			values := m.values(in.K)
			values[0] = float32(math.Inf(1))
			require.NoError(t, in.K.Upload(t.Context(), values))
			var out [2][]float32
			for repeat := range out {
				tuning := map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "late": 1, "repeat": repeat, "keep_masks": 0}
				plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
				require.Equal(t, repeat, constantsOf(plan)["REPEAT"])
				in.O, in.LSE = m.output(F16, p.OShape()), m.output(F32, p.LSEShape())
				require.NoError(t, plan.Forward(t.Context(), in))
				out[repeat] = m.values(in.O)
				lse, perHead := m.values(in.LSE), p.LSEShape()[2]
				for at, x := range lse {
					entry, row := at/perHead/p.Heads, at%perHead
					if packed {
						entry, row = row/slots, row%slots
					}
					if row >= queries[entry] {
						require.True(t, math.IsInf(float64(x), -1), "lse of row %d of %d is %v", row, entry, x)
						for _, o := range out[repeat][at*p.HeadDim : (at+1)*p.HeadDim] {
							require.Zero(t, o, "row %d of %d", row, entry)
						}
					} else if entry != bad {
						require.False(t, math.IsNaN(float64(x)), "lse of row %d of %d", row, entry)
					}
				}
			}
			for i, x := range out[0] {
				if !math.IsNaN(float64(x)) {
					require.InDelta(t, x, out[1][i], 2e-3, "element %d", i)
				}
			}
			require.False(t, slices.ContainsFunc(out[0], func(x float32) bool { return math.IsNaN(float64(x)) }) &&
				!slices.ContainsFunc(out[1], func(x float32) bool { return math.IsNaN(float64(x)) }), "NaN goes where it went")
		})
	}
}

// TestRepeatRefused: where single keys are looked at, repeat is a named error if it is asked for, and no row's choice.
func TestRepeatRefused(t *testing.T) {
	d := matrixDevice(t)
	base := Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 61, HeadDim: 8, DType: F16}
	causal, dropout, logits, blocks := base, base, base, base
	causal.Causal = CausalBottomRight
	dropout.Dropout = 0.25
	logits.MaxLogit = true
	blocks.Blocks = Blocks{Queries: 32, Keys: 32}
	for name, x := range map[string]struct {
		p      Problem
		tuning map[string]int
	}{
		"causal":        {causal, nil},
		"dropout":       {dropout, nil},
		"largest score": {logits, nil},
		"blocks":        {blocks, nil},
		"form 3":        {base, map[string]int{"form": kernel.FormShared}},
		"masks kept":    {base, map[string]int{"keep_masks": 1}},
	} {
		opts := []PlanOption{WithImplementation(Flash), WithTier(TierMatrix)}
		plan := mustPlan(t, d, x.p, append(opts, WithTuning(x.tuning))...)
		require.Zero(t, plan.ForwardInfo().Tuning["repeat"], name)
		tuning := map[string]int{"repeat": 1}
		maps.Copy(tuning, x.tuning)
		_, err := d.Plan(x.p, append(opts, WithTuning(tuning))...)
		require.ErrorIs(t, err, ErrArgument, name)
		require.ErrorContains(t, err, "repeat", name)
	}
}
