package rows

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// TestDecodingWithACache: steps of decoding, each with a new key and value for every batch entry written where its length says and turned
// by its position, then attention of a turned query over what there is. The lengths stay on the device; what a cache holds beyond them is
// NaN.
func TestDecodingWithACache(t *testing.T) {
	d := testDevice(t)
	const batch, heads, keyHeads, room, dim = 3, 4, 2, 70, 8
	p := flash.Problem{Batch: batch, Heads: heads, KeyHeads: keyHeads, QueryLen: 1, KeyLen: room, HeadDim: dim, DType: flash.F32,
		Causal: flash.CausalBottomRight, KeyLengths: true}
	plan := mustPlan(t, d, p)
	turn := Rotary{Base: 1000}
	appending, err := PlanAppend(d, AppendProblem{Batch: batch, KeyHeads: keyHeads, Rows: 1, CacheRows: room, HeadDim: dim,
		DType: flash.F32, Rotary: &turn})
	require.NoError(t, err)
	defer appending.Close()
	turn.Positions = true
	rotating, err := PlanRotate(d, RotateProblem{Batch: batch, Heads: heads, Rows: 1, HeadDim: dim, DType: flash.F32, Rotary: turn})
	require.NoError(t, err)
	defer rotating.Close()

	tensor := func(dtype flash.DType, shape [4]int) *flash.Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	ints := func(values [batch]int, more int, shape [4]int) *flash.Tensor {
		x, floats := tensor(flash.Int32, shape), make([]float32, batch)
		for b, n := range values {
			floats[b] = float32(n + more)
		}
		require.NoError(t, x.Upload(t.Context(), floats))
		return x
	}
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(shape [4]int) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		for i := range x.Data {
			x.Data[i] = float32(r.NormFloat64())
		}
		return x
	}
	one, row := [4]int{batch, heads, 1, dim}, [4]int{batch, keyHeads, 1, dim}
	q, o, k, v := tensor(flash.F32, one), tensor(flash.F32, one), tensor(flash.F32, row), tensor(flash.F32, row)
	keys, values := tensor(flash.F32, p.KShape()), tensor(flash.F32, p.VShape())
	in := ref.Problem{Q: ref.NewTensor(batch, heads, 1, dim), K: draw(p.KShape()), V: draw(p.VShape())}
	in.Causal = ref.BottomRight
	lengths := [batch]int{0, 31, 68}
	for _, x := range []ref.Tensor{in.K, in.V} {
		for b, n := range lengths {
			for h := range keyHeads {
				for i := n; i < room; i++ {
					for c := range dim {
						x.Row(b, h, i)[c] = float32(math.NaN())
					}
				}
			}
		}
	}
	require.NoError(t, keys.Upload(t.Context(), in.K.Data))
	require.NoError(t, values.Upload(t.Context(), in.V.Data))
	full, err := turn.check(dim)
	require.NoError(t, err)
	for range 2 {
		angle := func(b, _, j int) (float64, float64) {
			a := float64(lengths[b]) * full.Frequencies[j]
			return math.Cos(a), math.Sin(a)
		}
		newQ, newK, newV := draw(one), draw(row), draw(row)
		for x, of := range map[*flash.Tensor]ref.Tensor{q: newQ, k: newK, v: newV} {
			require.NoError(t, x.Upload(t.Context(), of.Data))
		}
		for i, x := range turned(t, newQ, full, false, angle).Data {
			in.Q.Data[i] = float32(x)
		}
		turnedK := turned(t, newK, full, false, angle)
		in.KeyLens = nil
		for b, n := range lengths {
			for h := range keyHeads {
				for c := range dim {
					in.K.Row(b, h, n)[c] = float32(turnedK.Row(b, h, 0)[c])
					in.V.Row(b, h, n)[c] = newV.Row(b, h, 0)[c]
				}
			}
			in.KeyLens = append(in.KeyLens, n+1)
		}
		want, _, err := ref.Forward(in)
		require.NoError(t, err)

		at := ints(lengths, 0, [4]int{1, 1, 1, batch})
		require.NoError(t, appending.Append(t.Context(), Append{K: k, V: v, KeyCache: keys, ValueCache: values, At: at}))
		require.NoError(t, rotating.Rotate(t.Context(), Rotation{X: q, Positions: ints(lengths, 0, [4]int{1, 1, batch, 1})}))
		require.NoError(t, plan.Forward(t.Context(),
			flash.Forward{Q: q, K: keys, V: values, O: o, KeyLengths: ints(lengths, 1, [4]int{1, 1, 1, batch})}))
		got := make([]float32, len(want.Data))
		require.NoError(t, o.Download(t.Context(), got))
		require.InDeltaSlice(t, wide(got), want.Data, 1e-5)
		for b := range lengths {
			lengths[b]++
		}
	}
}
