package ref

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Packed sequences are the sequences one by one, dropout counting them as batch.
func TestPackedIsSequenceBySequence(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	fill := func(t Tensor) Tensor {
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	// Four sequences: the second has no queries, the third no keys.
	startsQ, startsK := []int32{0, 3, 3, 5, 9}, []int32{0, 4, 6, 6, 11}
	p := Problem{Q: fill(NewTensor(1, 4, 9, 3)), K: fill(NewTensor(1, 2, 11, 3)), V: fill(NewTensor(1, 2, 11, 2))}
	p.Causal = BottomRight
	p.Dropout = &Dropout{P: 0.4, Seed: 8}
	do := fill(NewTensor(1, 4, 9, 2))
	o, lse, err := ForwardPacked(p, startsQ, startsK)
	require.NoError(t, err)
	g, err := BackwardPacked(p, startsQ, startsK, do, nil)
	require.NoError(t, err)

	// The last sequence, put where batch entry 3 of a batch of four would be.
	one := Problem{Options: p.Options, Q: NewTensor(4, 4, 4, 3), K: NewTensor(4, 2, 5, 3), V: NewTensor(4, 2, 5, 2)}
	wide := NewTensor(4, 4, 4, 2)
	for h := range 4 {
		for i := range 4 {
			copy(one.Q.Row(3, h, i), p.Q.Row(0, h, 5+i))
			copy(wide.Row(3, h, i), do.Row(0, h, 5+i))
		}
		for j := range 5 {
			copy(one.K.Row(3, h/2, j), p.K.Row(0, h/2, 6+j))
			copy(one.V.Row(3, h/2, j), p.V.Row(0, h/2, 6+j))
		}
	}
	wo, wlse, err := Forward(one)
	require.NoError(t, err)
	wg, err := Backward(one, wide, nil)
	require.NoError(t, err)
	for h := range 4 {
		for i := range 4 {
			require.Equal(t, wo.Row(3, h, i), o.Row(0, h, 5+i))
			require.Equal(t, wlse.Row(3, h, i), lse.Row(0, h, 5+i))
			require.Equal(t, wg.DQ.Row(3, h, i), g.DQ.Row(0, h, 5+i))
		}
		for j := range 5 {
			require.Equal(t, wg.DK.Row(3, h/2, j), g.DK.Row(0, h/2, 6+j))
			require.Equal(t, wg.DV.Row(3, h/2, j), g.DV.Row(0, h/2, 6+j))
		}
		for i := 3; i < 5; i++ { // no keys
			require.True(t, math.IsInf(lse.Row(0, h, i)[0], -1))
			require.Equal(t, []float64{0, 0}, o.Row(0, h, i))
		}
		for j := 4; j < 6; j++ { // no queries
			require.Equal(t, []float64{0, 0}, g.DV.Row(0, h/2, j))
		}
	}
	_, _, err = ForwardPacked(p, startsQ, []int32{0, 4, 6, 6, 10})
	require.ErrorContains(t, err, "go from 0 to 10")
}

// TestPackedIsAPaddedBatch: packed sequences are what a padded batch is whose entries have the sequences' rows and lengths.
func TestPackedIsAPaddedBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	fill := func(t Tensor) Tensor {
		for i := range t.Data {
			t.Data[i] = float32(r.NormFloat64())
		}
		return t
	}
	startsQ, startsK := []int32{0, 3, 3, 5, 9}, []int32{0, 4, 6, 6, 11}
	batch := Problem{Q: fill(NewTensor(4, 4, 5, 3)), K: fill(NewTensor(4, 2, 7, 3)), V: fill(NewTensor(4, 2, 7, 2))}
	batch.Window, batch.Causal = &Window{Left: 3, Right: -1}, BottomRight
	batch.Dropout = &Dropout{P: 0.4, Seed: 8}
	batch.Sinks = []float32{0.5, -1, 0, 2}
	do := fill(NewTensor(4, 4, 5, 2))
	for n := range 4 {
		batch.QueryLens = append(batch.QueryLens, int(startsQ[n+1]-startsQ[n]))
		batch.KeyLens = append(batch.KeyLens, int(startsK[n+1]-startsK[n]))
	}
	gathered := func(x Tensor, starts []int32) Tensor {
		out := NewTensor(1, x.H, int(starts[4]), x.D)
		for b := range 4 {
			for h := range x.H {
				for i := range int(starts[b+1] - starts[b]) {
					copy(out.Row(0, h, int(starts[b])+i), x.Row(b, h, i))
				}
			}
		}
		return out
	}
	p := Problem{Options: batch.Options, Q: gathered(batch.Q, startsQ), K: gathered(batch.K, startsK), V: gathered(batch.V, startsK)}
	p.KeyLens, p.QueryLens = nil, nil
	o, lse, err := ForwardPacked(p, startsQ, startsK)
	require.NoError(t, err)
	g, err := BackwardPacked(p, startsQ, startsK, gathered(do, startsQ), nil)
	require.NoError(t, err)
	wo, wlse, err := Forward(batch)
	require.NoError(t, err)
	wg, err := Backward(batch, do, nil)
	require.NoError(t, err)
	for _, x := range []struct {
		have, want Array
		starts     []int32
	}{{o, wo, startsQ}, {lse, wlse, startsQ}, {g.DQ, wg.DQ, startsQ}, {g.DK, wg.DK, startsK}, {g.DV, wg.DV, startsK}} {
		for b := range 4 {
			for h := range x.want.H {
				for i := range int(x.starts[b+1] - x.starts[b]) {
					require.Equal(t, x.want.Row(b, h, i), x.have.Row(0, h, int(x.starts[b])+i))
				}
			}
		}
	}
	require.InDeltaSlice(t, wg.DSinks, g.DSinks, 1e-12)
}
