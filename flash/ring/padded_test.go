package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// useLengths gives the oracle the lengths of a padded batch, as kernels take them.
func (s *sample) useLengths() {
	take := func(given []int32, most int) (out []int) {
		for _, n := range given {
			out = append(out, max(0, min(int(n), most)))
		}
		return out
	}
	s.in.QueryLens, s.in.KeyLens = take(s.queryLengths, s.problem.QueryLen), take(s.keyLengths, s.problem.KeyLen)
}

// spoilPadding writes NaN into rows that no entry uses.
func (s *sample) spoilPadding() {
	spoil := func(used []int, all ...ref.Tensor) {
		for b, n := range used {
			for _, t := range all {
				for h := range t.H {
					for i := n; i < t.N; i++ {
						for c := range t.Row(b, h, i) {
							t.Row(b, h, i)[c] = float32(math.NaN())
						}
					}
				}
			}
		}
	}
	p := &s.problem
	spoil(s.in.QueryLens, s.in.Q, s.do, ref.Tensor{B: p.Batch, H: p.Heads, N: p.QueryLen, D: 1, Data: s.dlse})
	spoil(s.in.KeyLens, s.in.K, s.in.V)
}

// paddedCases are padded batches: entries that use all rows, some, none, more than there are and fewer than none.
var paddedCases = []struct {
	name          string
	problem       flash.Problem
	queries, keys []int32
	shard         Shard
}{
	{"causal, keys", flash.Problem{MaxLogit: true, Batch: 4, Heads: 2, QueryLen: 101, KeyLen: 130, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, KeyLengths: true}, nil, []int32{130, 71, 0, 200}, Shard{}},
	{"causal, both, sinks fp16", flash.Problem{MaxLogit: true,
		Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: 90, HeadDim: 16, ValueDim: 8, DType: flash.F16,
		Causal: flash.CausalBottomRight, Sinks: true, QueryLengths: true, KeyLengths: true}, []int32{90, 33, 64, -2, 1},
		[]int32{90, 80, 20, 40, 77}, Shard{}},
	{"not causal, queries", flash.Problem{Batch: 3, Heads: 4, QueryLen: 75, KeyLen: 51, HeadDim: 8, DType: flash.F32, QueryLengths: true},
		[]int32{75, 0, 40}, nil, Shard{Order: Zigzag}},
	{"window, dropout, sinks", flash.Problem{Batch: 3, Heads: 4, QueryLen: 300, KeyLen: 530, HeadDim: 8, DType: flash.F32, Dropout: 0.3,
		Window: flash.SlidingWindow(90, 20), Sinks: true, QueryLengths: true, KeyLengths: true}, []int32{300, 101, 250},
		[]int32{530, 300, 200}, Shard{}},
	{"functions", flash.Problem{Batch: 3, Heads: 2, QueryLen: 70, HeadDim: 16, DType: flash.F32, Causal: flash.CausalTopLeft,
		ScoreFunction: bySequence(), MaskFunction: score.Dilated(3, -1), QueryLengths: true, KeyLengths: true}, []int32{70, 50, 33},
		[]int32{70, 13, 68}, Shard{}},
	{"bias of all entries, mask", flash.Problem{Batch: 3, Heads: 4, QueryLen: 60, KeyLen: 83, HeadDim: 16, DType: flash.F32,
		Causal: flash.CausalBottomRight, KeyLengths: true,
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 4, Queries: 60, Keys: 83},
		Mask: flash.PerScore{DType: flash.Bool, Batch: 3, Heads: 1, Queries: 60, Keys: 83}}, nil, []int32{83, 40, 61}, Shard{}},
	{"bias of each entry, bits fp16", flash.Problem{Batch: 2, Heads: 4, QueryLen: 90, KeyLen: 520, HeadDim: 16, DType: flash.F16,
		QueryLengths: true, KeyLengths: true, Bias: flash.PerScore{DType: flash.F16, Batch: 2, Heads: 1, Queries: 90, Keys: 520},
		Mask: flash.PerScore{DType: flash.Bit, Batch: 1, Heads: 1, Queries: 90, Keys: 520}}, []int32{70, 90}, []int32{300, 520},
		Shard{}},
	{"bias of keys", flash.Problem{Batch: 3, Heads: 2, QueryLen: 50, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		QueryLengths: true, Bias: flash.PerScore{DType: flash.F32, Batch: 3, Heads: 2, Queries: 1, Keys: 50}}, []int32{20, 50, 49}, nil,
		Shard{}},
}

// TestPaddedRanks compares padded batches over ranks with the oracle, and a second run with the first; bytes with the model, and
// heads over devices where they divide.
func TestPaddedRanks(t *testing.T) {
	vktest.Long(t, "padded batches in TestStream")
	for i, c := range paddedCases {
		for ranks := 1; ranks <= 4; ranks++ {
			if !runsOn(ranks, i) {
				continue
			}
			for _, over := range []Over{Keys, Heads} {
				if over == Heads && (c.problem.Heads%ranks != 0 || c.problem.KeyHeads%ranks != 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%v", c.name, ranks, over), func(t *testing.T) {
					devices := sharedDevices(t, ranks)
					groupBytes = i % 2 << 30
					s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), uint64(ranks))), c.problem,
						sequencesOf{queryLengths: c.queries, keyLengths: c.keys})
					shard := c.shard
					shard.Over = over
					s.requireRight(t, devices, shard, ranks)
				})
			}
		}
	}
}

// TestPaddedLengthsChange: a plan's passes may have other lengths each, and gradients are added to what there is.
func TestPaddedLengthsChange(t *testing.T) {
	p, err := flash.Problem{Batch: 3, Heads: 2, QueryLen: 50, KeyLen: 60, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight,
		Sinks: true, QueryLengths: true, KeyLengths: true,
		Bias: flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 50, Keys: 60}}.Normalize()
	require.NoError(t, err)
	lengths := []sequencesOf{{queryLengths: []int32{50, 20, 7}, keyLengths: []int32{60, 0, 44}},
		{queryLengths: []int32{0, 50, 99}, keyLengths: []int32{33, 60, 17}}}
	s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
	for _, shard := range []Shard{{}, {Over: Heads}} {
		for _, accumulate := range []bool{false, true} {
			one := passesOn(t, sharedDevices(t, 1), s, shard, lengths, accumulate)
			ranks := passesOn(t, sharedDevices(t, 2), s, shard, lengths, accumulate)
			for i := range lengths {
				for name, x := range map[string][2][]float64{"o": {one[i].o.Data, ranks[i].o.Data},
					"lse": {one[i].lse.Data, ranks[i].lse.Data}, "dq": {one[i].dq.Data, ranks[i].dq.Data},
					"dk": {one[i].dk.Data, ranks[i].dk.Data}, "dv": {one[i].dv.Data, ranks[i].dv.Data},
					"dbias": {one[i].dbias.Data, ranks[i].dbias.Data}} {
					near(t, x[1], x[0], "%v, %v, %v: %s", shard, accumulate, lengths[i], name)
				}
				require.InDeltaSlice(t, one[i].dsinks[0], ranks[i].dsinks[1], 4e-3)
			}
		}
	}
}

// TestPaddedScheduleCovers draws padded batches and checks that launches of all ranks, or blocks of a stream, together compute every pair
// that is seen exactly once, at its own places, and no other.
func TestPaddedScheduleCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 7))
	for range 200 {
		p := flash.Problem{Batch: 1 + r.IntN(5), Heads: 1, QueryLen: 8 + r.IntN(60), KeyLen: 8 + r.IntN(60), HeadDim: 8,
			Causal: flash.Causal(r.IntN(3)), QueryLengths: true, KeyLengths: r.IntN(3) > 0}
		if r.IntN(2) == 0 {
			p.Bias = flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}
		if r.IntN(2) == 0 {
			p.Window = flash.SlidingWindow(r.IntN(p.KeyLen)-1, r.IntN(p.KeyLen)-1)
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		ranks := 1 + r.IntN(4)
		s := newSchedule(p, Shard{Order: Order(r.IntN(3))}, ranks)
		if r.IntN(3) == 0 {
			s = newStreamed(p, ranks)
		}
		s.packed = s.packed.using(randomLengths(r, true, p.Batch, p.QueryLen), randomLengths(r, p.KeyLengths, p.Batch, p.KeyLen))
		counts := map[[3]int]int{}
		place := func(whole layout, rank, row, n int) (entry, at int) { // of a row of a rank's buffers
			for i, x := range spansOf(whole.spans[rank]) {
				if x.Begin <= row && row < x.End {
					v := whole.spans[rank][i].Begin + row - x.Begin
					return v / n, v % n
				}
			}
			t.Fatal("a row of no chunk")
			return 0, 0
		}
		pairs := 0.0
		for rank := range ranks {
			if s.streamed && rank > 0 {
				continue
			}
			for _, st := range s.steps(rank) {
				for _, l := range st.launches {
					pairs += l.pairs
					one, err := l.problem.Normalize()
					require.NoError(t, err)
					m := attn.Problem{QueryLen: one.QueryLen, KeyLen: one.KeyLen, ByPosition: within.ByPosition(one),
						Within: attn.Within(one.Within)}.Mask()
					for i := range one.QueryLen {
						for j := m.KeysOf(i).Begin; j < m.KeysOf(i).End; j++ {
							b, q := place(s.queries, rank, l.queries.Begin+i, p.QueryLen)
							other, k := place(s.keys, st.owner, l.keys.Begin+j, p.KeyLen)
							require.Equal(t, b, other)
							if s.positional {
								require.Equal(t, [3]int{b, q, k}, [3]int{one.Within.Batch, one.Within.Query + i, one.Within.Key + j})
								require.Equal(t, k, l.scores.key+j)
							}
							counts[[3]int{b, q, k}]++
						}
					}
				}
			}
		}
		want := 0
		for b := range p.Batch {
			nq, nk := s.packed.queryLens[b], s.packed.keyLens[b]
			if nq == 0 || nk == 0 {
				continue
			}
			m := s.packed.mask(&p, b)
			for i := range nq {
				for j := m.KeysOf(i).Begin; j < m.KeysOf(i).End; j++ {
					want++
					require.Equal(t, 1, counts[[3]int{b, i, j}], "query %d and key %d of entry %d: %v, %d ranks", i, j, b, p, ranks)
				}
			}
		}
		require.Len(t, counts, want, "no other pair")
		require.Equal(t, s.pairs(), pairs)
	}
}
