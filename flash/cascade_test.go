package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// TestCascade: attention of several requests to a prefix that they share, all their queries at once, merged with attention of each to keys
// of its own, in causal order and of its own length, is attention to the prefix and those keys behind it, as closely as a single kernel's.
func TestCascade(t *testing.T) {
	const batch, heads, keyHeads, queries, prefix, room, dim, valueDim = 3, 4, 2, 3, 70, 21, 16, 12
	d := testDevice(t)
	for _, dtype := range []DType{F32, F16, BF16} {
		t.Run(dtype.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(8, uint64(dtype)))
			draw := func(b, h, n, d int) ref.Tensor {
				x := ref.NewTensor(b, h, n, d)
				copy(x.Data, randomValues(r, dtype, [4]int{b, h, n, d}))
				return x
			}
			sent := func(x ref.Tensor, bnhd bool) *Tensor {
				make := d.NewTensor
				if bnhd {
					make = d.NewTensorBNHD
				}
				to, err := make(dtype, x.B, x.H, x.N, x.D)
				require.NoError(t, err)
				require.NoError(t, to.Upload(bg, x.Data))
				return to
			}
			view := func(of *Tensor, dtype DType, shape, strides [4]int) *Tensor {
				x, err := of.View(0, dtype, shape, strides)
				require.NoError(t, err)
				return x
			}
			q := draw(batch, heads, queries, dim)
			prefixK, prefixV := draw(1, keyHeads, prefix, dim), draw(1, keyHeads, prefix, valueDim)
			ownK, ownV := draw(batch, keyHeads, room, dim), draw(batch, keyHeads, room, valueDim)
			lengths := [batch]int{room, queries, queries - 1} // of the last request the first query has no key but the prefix's

			// What is right: each request's keys one behind the other.
			in := ref.Problem{Q: q, K: ref.NewTensor(batch, keyHeads, prefix+room, dim),
				V: ref.NewTensor(batch, keyHeads, prefix+room, valueDim)}
			in.Causal = ref.BottomRight
			for b := range batch {
				in.KeyLens = append(in.KeyLens, prefix+lengths[b])
				for h := range keyHeads {
					for j := range prefix {
						copy(in.K.Row(b, h, j), prefixK.Row(0, h, j))
						copy(in.V.Row(b, h, j), prefixV.Row(0, h, j))
					}
					for j := range room {
						copy(in.K.Row(b, h, prefix+j), ownK.Row(b, h, j))
						copy(in.V.Row(b, h, prefix+j), ownV.Row(b, h, j))
					}
				}
			}
			right, rightLSE, err := ref.Forward(in)
			require.NoError(t, err)
			plain, _, err := ref.PlainForward(in, refTypes[dtype])
			require.NoError(t, err)

			// Queries of all requests are rows of one batch entry where they lie [batch, queries, heads, dim], and so is what they give.
			shared := mustPlan(t, d, Problem{Batch: 1, Heads: heads, KeyHeads: keyHeads, QueryLen: batch * queries, KeyLen: prefix,
				HeadDim: dim, ValueDim: valueDim,
				DType: dtype}, WithTier(TierScalar))
			own := mustPlan(t, d, Problem{Batch: batch, Heads: heads, KeyHeads: keyHeads, QueryLen: queries, KeyLen: room, HeadDim: dim,
				ValueDim: valueDim,
				DType:    dtype, Causal: CausalBottomRight, KeyLengths: true}, WithTier(TierScalar))
			merge, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: batch, Heads: heads, QueryLen: queries, ValueDim: valueDim,
				DType: dtype})
			require.NoError(t, err)

			deviceQ := sent(q, true)
			var parts [2]Part
			for i := range parts {
				parts[i].O, err = d.NewTensorBNHD(dtype, batch, heads, queries, valueDim)
				require.NoError(t, err)
				parts[i].LSE, err = d.NewLSE(batch, heads, queries)
				require.NoError(t, err)
			}
			require.NoError(t, shared.Forward(bg, Forward{
				Q: view(deviceQ, dtype, [4]int{1, heads, batch * queries, dim}, [4]int{0, dim, heads * dim, 1}),
				K: sent(prefixK, false), V: sent(prefixV, false),
				O:   view(parts[0].O, dtype, [4]int{1, heads, batch * queries, valueDim}, [4]int{0, valueDim, heads * valueDim, 1}),
				LSE: view(parts[0].LSE, F32, [4]int{1, heads, batch * queries, 1}, [4]int{}),
			}))
			parts[0].LSE = view(parts[0].LSE, F32, [4]int{batch, heads, queries, 1}, [4]int{queries, batch * queries, 1, 1})
			keyLengths, err := d.NewTensor(Int32, 1, 1, 1, batch)
			require.NoError(t, err)
			require.NoError(t, keyLengths.Upload(bg, []float32{float32(lengths[0]), float32(lengths[1]), float32(lengths[2])}))
			require.NoError(t, own.Forward(bg, Forward{Q: deviceQ, K: sent(ownK, false), V: sent(ownV, false), O: parts[1].O,
				LSE: parts[1].LSE, KeyLengths: keyLengths}))
			require.Contains(t, download(t, parts[1].LSE), float32(math.Inf(-1)))

			o, err := d.NewTensorBNHD(dtype, batch, heads, queries, valueDim)
			require.NoError(t, err)
			lse, err := d.NewLSE(batch, heads, queries)
			require.NoError(t, err)
			require.NoError(t, merge.Merge(bg, Merge{Parts: parts[:], O: o, LSE: lse}))
			v := ref.CheckOutput(doubles(download(t, o)), right.Data, plain.Data, refTypes[dtype])
			require.True(t, v.OK, fmt.Sprint("o: ", v))
			v = ref.CheckLSE(doubles(download(t, lse)), rightLSE.Data, nil, refTypes[dtype])
			require.True(t, v.OK, fmt.Sprint("lse: ", v))
		})
	}
}
