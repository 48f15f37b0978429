package ring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// sequencesOf is where packed sequences lie: starts, and lengths or nil.
type sequencesOf struct{ queryStarts, keyStarts, queryLengths, keyLengths []int32 }

// slotsOf are the slots of rows, and how many rows of each are used.
func slotsOf(starts, lengths []int32, most int) (slots []Span, used []int) {
	for b := range len(starts) - 1 {
		slot := Span{int(starts[b]), int(starts[b+1])}
		n := min(slot.Len(), most)
		if lengths != nil {
			n = max(0, min(n, int(lengths[b])))
		}
		slots, used = append(slots, slot), append(used, n)
	}
	return slots, used
}

// padded is packed rows as a batch of as many rows each.
func padded(x ref.Tensor, slots []Span, used []int, most int) ref.Tensor {
	out := ref.NewTensor(len(slots), x.H, most, x.D)
	for b, slot := range slots {
		for h := range x.H {
			for i := range used[b] {
				copy(out.Row(b, h, i), x.Row(0, h, slot.Begin+i))
			}
		}
	}
	return out
}

// unpadded is the reverse: rows of a slot that are not used hold a number of their own, and those of no slot poison as a type has it.
func unpadded(x ref.Array, slots []Span, used []int, rows int, unused float64, dtype ref.DType) ref.Array {
	out := ref.NewArray(1, x.H, rows, x.D)
	for i := range out.Data {
		out.Data[i] = float64(dtype.Round(poison))
	}
	for b, slot := range slots {
		for h := range x.H {
			for i := range slot.Len() {
				to := out.Row(0, h, slot.Begin+i)
				if i < used[b] {
					copy(to, x.Row(b, h, i))
					continue
				}
				for c := range to {
					to[c] = unused
				}
			}
		}
	}
	return out
}

// packedReference is what is right of packed sequences: a padded batch of as many. Inputs hold NaN wherever they are not used.
func (s *sample) packedReference(t testing.TB) {
	t.Helper()
	p := &s.problem
	dtype := refTypes[p.DType]
	queries, usedQueries := slotsOf(s.queryStarts, s.queryLengths, p.QueryLen)
	keys, usedKeys := slotsOf(s.keyStarts, s.keyLengths, p.KeyLen)
	in := s.in
	in.Q, in.K, in.V = padded(s.in.Q, queries, usedQueries, p.QueryLen), padded(s.in.K, keys, usedKeys, p.KeyLen),
		padded(s.in.V, keys, usedKeys, p.KeyLen)
	in.QueryLens, in.KeyLens = usedQueries, usedKeys
	do := padded(s.do, queries, usedQueries, p.QueryLen)
	dlse := padded(ref.Tensor{B: 1, H: p.Heads, N: p.Packed.Queries, D: 1, Data: s.dlse}, queries, usedQueries, p.QueryLen).Data
	s.findLargest(t, in)
	o, lse, err := ref.Forward(in)
	require.NoError(t, err)
	plainO, _, err := ref.PlainForward(in, dtype)
	require.NoError(t, err)
	s.grad, err = ref.Backward(in, do, dlse)
	require.NoError(t, err)
	s.plainGrad, err = ref.PlainBackward(in, dtype, do, dlse)
	require.NoError(t, err)
	ofQueries := func(x ref.Array, unused float64, dtype ref.DType) ref.Array {
		return unpadded(x, queries, usedQueries, p.Packed.Queries, unused, dtype)
	}
	ofKeys := func(x ref.Array) ref.Array { return unpadded(x, keys, usedKeys, p.Packed.Keys, 0, dtype) }
	s.o, s.plainO, s.lse = ofQueries(o, 0, dtype), ofQueries(plainO, 0, dtype), ofQueries(lse, math.Inf(-1), ref.F32)
	for _, g := range []*ref.Gradients{s.grad, s.plainGrad} {
		g.DQ, g.DK, g.DV = ofQueries(g.DQ, 0, dtype), ofKeys(g.DK), ofKeys(g.DV)
	}
	s.spoil(queries, usedQueries, keys, usedKeys)
}

// spoil writes NaN into rows that nobody uses.
func (s *sample) spoil(queries []Span, usedQueries []int, keys []Span, usedKeys []int) {
	for _, x := range []struct {
		of    []ref.Tensor
		slots []Span
		used  []int
	}{{[]ref.Tensor{s.in.Q, s.do, {B: 1, H: s.problem.Heads, N: s.do.N, D: 1, Data: s.dlse}}, queries, usedQueries},
		{[]ref.Tensor{s.in.K, s.in.V}, keys, usedKeys}} {
		for _, t := range x.of {
			in := make([]bool, t.N)
			for b, slot := range x.slots {
				for i := range x.used[b] {
					in[slot.Begin+i] = true
				}
			}
			for h := range t.H {
				for i := range t.N {
					for c := range t.Row(0, h, i) {
						if !in[i] {
							t.Row(0, h, i)[c] = float32(math.NaN())
						}
					}
				}
			}
		}
	}
}

// ofSequences is what passes of packed sequences write: of rows of no sequence, which stay as they were, the rest is to be judged without.
// Their numbers, large as they are, would set the bound otherwise.
func ofSequences(t *testing.T, name string, got, want, plain []float64) (g, w, p []float64) {
	t.Helper()
	for i, x := range want {
		if math.Abs(x) > poison/2 && !math.IsInf(x, 0) {
			if got[i] != x {
				t.Fatalf("%s[%d], of no sequence, is %g and was %g", name, i, got[i], x)
			}
			continue
		}
		g, w = append(g, got[i]), append(w, x)
		if plain != nil {
			p = append(p, plain[i])
		}
	}
	return g, w, p
}
