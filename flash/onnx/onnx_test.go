package onnx

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/ref"
)

var bg = context.Background()

func TestMain(m *testing.M) { os.Exit(flashtest.Main(m)) }

// maker makes tensors, which live as long as the device.
type maker struct {
	t   *testing.T
	dev *flash.Device
	rng *rand.Rand
}

func newMaker(t *testing.T, seed uint64) *maker {
	return &maker{t, flashtest.Device(t), rand.New(rand.NewPCG(seed, 1))}
}

// takes says whether the device's kernels take a type.
func (m *maker) takes(dtype flash.DType) bool {
	return slices.ContainsFunc(m.dev.Info().Tiers, func(t flash.TierInfo) bool { return slices.Contains(t.DTypes, dtype) })
}

// random is a tensor of values that the type holds.
func (m *maker) random(dtype ref.DType, b, h, n, d int) ref.Tensor {
	x := ref.NewTensor(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float32(m.rng.NormFloat64())
	}
	dtype.RoundAll(x.Data)
	return x
}

func (m *maker) put(dtype flash.DType, x ref.Tensor) *flash.Tensor {
	t, err := m.dev.TensorFrom(bg, dtype, x.Data, x.B, x.H, x.N, x.D)
	require.NoError(m.t, err)
	return t
}

// flat puts the heads of x into its columns.
func (m *maker) flat(dtype flash.DType, x ref.Tensor) *flash.Tensor {
	out := ref.NewTensor(x.B, 1, x.N, x.H*x.D)
	for _, r := range ref.AllRows(x) {
		copy(out.Row(r.B, 0, r.I)[r.H*x.D:], x.Row(r.B, r.H, r.I))
	}
	return m.put(dtype, out)
}

func (m *maker) integers(shape [4]int, values ...int) *flash.Tensor {
	x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
	for i, v := range values {
		x.Data[i] = float32(v)
	}
	return m.put(flash.Int32, x)
}

func (m *maker) get(t *flash.Tensor, shape ...int) []float64 {
	m.t.Helper()
	require.NotNil(m.t, t)
	require.Equal(m.t, [4]int(shape), t.Shape())
	data := make([]float32, t.Elements())
	require.NoError(m.t, t.Download(bg, data))
	return ref.Widen(data)
}

// node is an Attention with inputs, and what they mean to the oracle.
type node struct {
	*maker
	Attention
	AttentionInputs
	right                                 ref.Problem
	past                                  int
	batch, heads, keyHeads, queries, keys int
}

// booleans and numbers give a mask of so many columns.
func (n *node) booleans(b, h, q, columns int) {
	x := ref.NewTensor(b, h, q, columns)
	all := n.past + n.keys
	n.right.Mask = &ref.Mask{B: b, H: h, N: q, M: all, Data: make([]bool, b*h*q*all)}
	for i := range x.Data {
		if n.rng.IntN(3) > 0 {
			x.Data[i] = 1
			n.right.Mask.Data[i/columns*all+i%columns] = true
		}
	}
	n.AttnMask = n.put(flash.Bool, x)
}

func (n *node) numbers(dtype ref.DType, of flash.DType, b, h, q, columns int) {
	x := n.random(dtype, b, h, q, columns)
	all := n.past + n.keys
	bias := ref.NewTensor(b, h, q, all)
	for i := range bias.Data {
		bias.Data[i] = float32(math.Inf(-1))
		if i%all < columns {
			bias.Data[i] = x.Data[i/all*columns+i%all]
		}
	}
	n.AttnMask, n.right.Bias = n.put(of, x), &bias
}

var nodes = []struct {
	name string
	past int
	set  func(*node)
}{
	{"plain", 0, func(*node) {}},
	{"scale", 0, func(n *node) { n.Scale, n.right.Scale = 0.3, 0.3 }},
	{"softcap", 0, func(n *node) { n.Softcap, n.right.Softcap = 0.8, 0.8 }},
	{"causal", 0, func(n *node) { n.IsCausal = true }},
	{"causal, past", 3, func(n *node) { n.IsCausal = true }},
	{"causal, a long past", 9, func(n *node) { n.IsCausal = true }},
	{"window", 0, func(n *node) { n.Window = flash.SlidingWindow(1, 2) }},
	{"window to the left, past", 4, func(n *node) { n.Window = flash.SlidingWindow(2, -1) }},
	{"causal window, past", 2, func(n *node) { n.IsCausal, n.Window = true, flash.SlidingWindow(3, 0) }},
	{"lengths", 0, func(n *node) {
		n.NonpadKVSeqlen, n.right.KeyLens = n.integers([4]int{1, 1, 1, 2}, 2, 6), []int{2, 6}
	}},
	{"lengths, past", 2, func(n *node) {
		n.NonpadKVSeqlen, n.right.KeyLens = n.integers([4]int{1, 1, 1, 2}, 5, 8), []int{5, 8}
	}},
	{"lengths, causal", 0, func(n *node) {
		n.IsCausal = true
		n.NonpadKVSeqlen, n.right.KeyLens = n.integers([4]int{1, 1, 1, 2}, 3, 6), []int{3, 6}
	}},
	{"mask of booleans", 3, func(n *node) { n.booleans(1, 1, n.queries, n.past+n.keys) }},
	{"mask of booleans, short", 3, func(n *node) { n.booleans(n.batch, n.heads, n.queries, 4) }},
	{"mask of numbers", 0, func(n *node) { n.numbers(ref.F32, flash.F32, 1, n.heads, 1, n.keys) }},
	{"mask of numbers, short", 2, func(n *node) { n.numbers(ref.F32, flash.F32, n.batch, 1, n.queries, 5) }},
	{"mask in float16, causal, softcap", 1, func(n *node) {
		if !n.takes(flash.F16) {
			n.t.Skip("the device has no half precision")
		}
		n.numbers(ref.F16, flash.F16, 1, 1, n.queries, n.past+n.keys)
		n.IsCausal, n.Softcap, n.right.Softcap, n.SoftmaxPrecision = true, 2, 2, 16
	}},
}

// TestAttention: whatever the attributes and inputs, outputs are those of the oracle, which has positions by their offset and in no other
// way: Y in fp32 and half precision, of heads on an axis and in columns, present keys and values, and the matrix at each stage.
func TestAttention(t *testing.T) {
	for at, test := range nodes {
		for variant := range 4 {
			flat := variant%2 == 1
			t.Run(fmt.Sprintf("%s, mode %d", test.name, variant), func(t *testing.T) {
				n := &node{maker: newMaker(t, uint64(at)), past: test.past, batch: 2, heads: 4, keyHeads: 2, queries: 5, keys: 6}
				dtype, of, delta := ref.F32, flash.F32, 1e-5
				if variant >= 2 && n.takes(flash.F16) {
					dtype, of, delta = ref.F16, flash.F16, 1e-2
				}
				n.right = ref.Problem{Q: n.random(dtype, n.batch, n.heads, n.queries, 8),
					K: n.random(dtype, n.batch, n.keyHeads, n.keys, 8), V: n.random(dtype, n.batch, n.keyHeads, n.keys, 6)}
				put := n.put
				if flat {
					put, n.QNumHeads, n.KVNumHeads = n.flat, n.heads, n.keyHeads
				}
				n.Q, n.K, n.V = put(of, n.right.Q), put(of, n.right.K), put(of, n.right.V)
				if n.past > 0 {
					for _, x := range []struct {
						of   *ref.Tensor
						past **flash.Tensor
					}{{&n.right.K, &n.PastKey}, {&n.right.V, &n.PastValue}} {
						past := n.random(dtype, n.batch, n.keyHeads, n.past, x.of.D)
						*x.past = n.put(of, past)
						whole := ref.NewTensor(n.batch, n.keyHeads, n.past+n.keys, x.of.D)
						for _, r := range ref.AllRows(whole) {
							if r.I < n.past {
								copy(whole.Row(r.B, r.H, r.I), past.Row(r.B, r.H, r.I))
							} else {
								copy(whole.Row(r.B, r.H, r.I), x.of.Row(r.B, r.H, r.I-n.past))
							}
						}
						*x.of = whole
					}
				}
				test.set(n)
				n.QKMatmulOutputMode, n.QKMatmulOutput, n.Present = variant, true, true
				if n.IsCausal {
					n.right.Causal = ref.BottomRight
				}
				if left, right := n.Window.Reach(); left >= 0 || right >= 0 {
					n.right.Window = &ref.Window{Left: left, Right: right}
				}
				if n.NonpadKVSeqlen == nil {
					n.right.Offset = &n.past
				}
				out, err := n.Run(bg, n.dev, n.AttentionInputs)
				require.NoError(t, err)
				defer func() { require.NoError(t, out.Close()) }()

				right, _, err := ref.Forward(n.right)
				require.NoError(t, err)
				plain, _, err := ref.PlainForward(n.right, dtype)
				require.NoError(t, err)
				if flat {
					y := n.get(out.Y, n.batch, 1, n.queries, n.heads*6)
					got := ref.NewArray(n.batch, n.heads, n.queries, 6)
					for _, r := range ref.AllRows(n.right.Q) {
						copy(got.Row(r.B, r.H, r.I), y[((r.B*n.queries+r.I)*n.heads+r.H)*6:])
					}
					verdict := ref.CheckOutput(got.Data, right.Data, plain.Data, dtype)
					require.True(t, verdict.OK, "Y: %v", verdict)
				} else {
					verdict := ref.CheckOutput(n.get(out.Y, n.batch, n.heads, n.queries, 6), right.Data, plain.Data, dtype)
					require.True(t, verdict.OK, "Y: %v", verdict)
				}
				all := n.past + n.keys
				require.Equal(t, ref.Widen(n.right.K.Data), n.get(out.PresentKey, n.batch, n.keyHeads, all, 8))
				require.Equal(t, ref.Widen(n.right.V.Data), n.get(out.PresentValue, n.batch, n.keyHeads, all, 6))
				matrix, err := ref.Matrix(n.right, ref.Stage(variant))
				require.NoError(t, err)
				got := n.get(out.QKMatmulOutput, n.batch, n.heads, n.queries, all)
				for i, want := range matrix.Data {
					if got[i] != want { // infinities are equal
						require.InDelta(t, want, got[i], delta, "qk_matmul_output[%d]", i)
					}
				}
			})
		}
	}
}

// TestRotaryEmbedding compares Y with the oracle.
func TestRotaryEmbedding(t *testing.T) {
	const batch, heads, length, dim, positions = 2, 3, 5, 8, 11
	for variant := range 16 {
		interleaved, flat, looked, columns := variant&1 > 0, variant&2 > 0, variant&4 > 0, 8-4*(variant>>3)
		t.Run(fmt.Sprintf("interleaved %v, flat %v, positions %v, %d columns", interleaved, flat, looked, columns), func(t *testing.T) {
			m := newMaker(t, uint64(variant))
			x := m.random(ref.F32, batch, heads, length, dim)
			cos, sin := m.random(ref.F16, batch, 1, length, columns/2), m.random(ref.F16, batch, 1, length, columns/2)
			r := RotaryEmbedding{Interleaved: interleaved}
			half := flash.F16
			if !m.takes(half) {
				half = flash.F32
			}
			in := RotaryEmbeddingInputs{X: m.put(flash.F32, x), CosCache: m.put(flash.F32, cos), SinCache: m.put(half, sin)}
			if columns != dim {
				r.RotaryEmbeddingDim = columns
			}
			if flat {
				r.NumHeads, in.X = heads, m.flat(flash.F32, x)
			}
			if looked {
				wholeCos, wholeSin := m.random(ref.F32, 1, 1, positions, columns/2), m.random(ref.F32, 1, 1, positions, columns/2)
				var ids []int
				for i := range batch * length {
					at := m.rng.IntN(positions)
					ids = append(ids, at)
					copy(cos.Row(i/length, 0, i%length), wholeCos.Row(0, 0, at))
					copy(sin.Row(i/length, 0, i%length), wholeSin.Row(0, 0, at))
				}
				in.CosCache, in.SinCache = m.put(flash.F32, wholeCos), m.put(flash.F32, wholeSin)
				in.PositionIDs = m.integers([4]int{1, 1, batch, length}, ids...)
			}
			y, err := r.Run(bg, m.dev, in)
			require.NoError(t, err)
			require.Equal(t, in.X.Shape(), y.Shape())
			want, err := ref.Rotary(x, cos, sin, interleaved)
			require.NoError(t, err)
			got := make([]float32, y.Elements())
			require.NoError(t, y.Download(bg, got))
			for _, row := range ref.AllRows(x) {
				at := ((row.B*heads+row.H)*length + row.I) * dim
				if flat {
					at = ((row.B*length+row.I)*heads + row.H) * dim
				}
				for d, want := range want.Row(row.B, row.H, row.I) {
					require.InDelta(t, want, got[at+d], 1e-5, "%+v, column %d", row, d)
				}
			}
			require.NoError(t, y.Close())
		})
	}
}

// TestTensorScatter compares present_cache with a loop over indices, whatever the axis of rows is.
func TestTensorScatter(t *testing.T) {
	m := newMaker(t, 1)
	shape := [4]int{2, 3, 5, 4}
	for _, axis := range []int{0, 1, 2, 3, -1, -2, -3} {
		at := map[bool]int{true: axis, false: axis + 4}[axis > 0]
		if axis == 0 {
			at = 2
		}
		for _, circular := range []bool{false, true} {
			for _, given := range []bool{false, true} {
				narrow := shape
				narrow[at] = 2
				past := m.random(ref.F32, shape[0], shape[1], shape[2], shape[3])
				update := m.random(ref.F32, narrow[0], narrow[1], narrow[2], narrow[3])
				in, first := TensorScatterInputs{PastCache: m.put(flash.F32, past), Update: m.put(flash.F32, update)}, []int{0, 0}
				if given {
					first = []int{1, 0}
					if circular {
						first[1] = shape[at] - 1
					}
					in.WriteIndices = m.integers([4]int{1, 1, 1, 2}, first...)
				}
				want := ref.Widen(past.Data)
				for i, x := range update.Data {
					var index [4]int
					for axis, rest := 3, i; axis >= 0; axis-- {
						index[axis], rest = rest%narrow[axis], rest/narrow[axis]
					}
					index[at] = (index[at] + first[index[0]]) % shape[at]
					want[((index[0]*shape[1]+index[1])*shape[2]+index[2])*shape[3]+index[3]] = float64(x)
				}
				present, err := TensorScatter{Axis: axis, Circular: circular}.Run(bg, m.dev, in)
				require.NoError(t, err)
				require.Equal(t, want, m.get(present, shape[:]...), "axis %d, circular %v, indices %v", axis, circular, first)
				require.Equal(t, ref.Widen(past.Data), m.get(in.PastCache, shape[:]...), "past_cache is as it was")
				require.NoError(t, present.Close())
			}
		}
	}
}

// TestRefused: what does not fit is an error by the operator's name for it, and what is not computed one that says so.
func TestRefused(t *testing.T) {
	m := newMaker(t, 1)
	x := func(b, h, n, d int) *flash.Tensor { return m.put(flash.F32, ref.NewTensor(b, h, n, d)) }
	inputs := func() AttentionInputs { return AttentionInputs{Q: x(2, 4, 5, 8), K: x(2, 2, 6, 8), V: x(2, 2, 6, 8)} }
	for _, test := range []struct {
		name, want string
		a          Attention
		set        func(*AttentionInputs)
	}{
		{"no Q", "Q", Attention{}, func(in *AttentionInputs) { in.Q = nil }},
		{"heads", "3 heads of q_num_heads", Attention{QNumHeads: 3}, nil},
		{"negative heads", "kv_num_heads", Attention{KVNumHeads: -1}, nil},
		{"columns", "q_num_heads, 3, divides", Attention{QNumHeads: 3}, func(in *AttentionInputs) { in.Q = x(2, 1, 5, 8) }},
		{"K is not flat", "K is [2 2 6 8]", Attention{QNumHeads: 4, KVNumHeads: 2}, func(in *AttentionInputs) { in.Q = x(2, 1, 5, 32) }},
		{"softmax_precision", "softmax_precision is 2", Attention{SoftmaxPrecision: 2}, nil},
		{"mode", "qk_matmul_output_mode is 4", Attention{QKMatmulOutputMode: 4}, nil},
		{"softcap", "softcap is -1", Attention{Softcap: -1}, nil},
		{"past alone", "past_key", Attention{}, func(in *AttentionInputs) { in.PastKey = x(2, 2, 1, 8) }},
		{"past of other heads", "past_value", Attention{}, func(in *AttentionInputs) {
			in.PastKey, in.PastValue = x(2, 2, 1, 8), x(2, 1, 1, 8)
		}},
		{"lengths", "nonpad_kv_seqlen", Attention{}, func(in *AttentionInputs) { in.NonpadKVSeqlen = m.integers([4]int{1, 1, 1, 3}) }},
		{"type of lengths", "nonpad_kv_seqlen", Attention{}, func(in *AttentionInputs) { in.NonpadKVSeqlen = x(1, 1, 1, 2) }},
		{"mask", "attn_mask is [1 3 5 6]", Attention{}, func(in *AttentionInputs) { in.AttnMask = x(1, 3, 5, 6) }},
		{"mask is wide", "attn_mask is [1 1 5 7]", Attention{}, func(in *AttentionInputs) { in.AttnMask = x(1, 1, 5, 7) }},
	} {
		in := inputs()
		if test.set != nil {
			test.set(&in)
		}
		out, err := test.a.Run(bg, m.dev, in)
		require.ErrorIs(t, err, flash.ErrArgument, test.name)
		require.ErrorContains(t, err, test.want, test.name)
		require.Zero(t, out, test.name)
	}
	// What was made before the mistake was found is freed, and so is what a right call made.
	short := inputs()
	short.PastKey, short.PastValue, short.AttnMask = x(2, 2, 1, 8), x(2, 2, 1, 8), x(1, 1, 5, 9)
	before := m.dev.Usage().ByLabel["tensor"].Buffers
	_, err := Attention{Present: true}.Run(bg, m.dev, short)
	require.ErrorContains(t, err, "attn_mask")
	require.Equal(t, before, m.dev.Usage().ByLabel["tensor"].Buffers)
	short.AttnMask = nil
	out, err := Attention{Present: true, QKMatmulOutput: true}.Run(bg, m.dev, short)
	require.NoError(t, err)
	require.NotEqual(t, before, m.dev.Usage().ByLabel["tensor"].Buffers)
	require.NoError(t, out.Close())
	require.Equal(t, before, m.dev.Usage().ByLabel["tensor"].Buffers)

	in := inputs()
	in.PastKey, in.PastValue, in.NonpadKVSeqlen = x(2, 2, 1, 8), x(2, 2, 1, 8), m.integers([4]int{1, 1, 1, 2}, 1, 2)
	_, err = Attention{IsCausal: true}.Run(bg, m.dev, in)
	require.ErrorIs(t, err, ErrUnsupported)
	in = inputs()
	in.AttnMask = m.integers([4]int{1, 1, 5, 6})
	_, err = Attention{}.Run(bg, m.dev, in)
	require.ErrorIs(t, err, ErrUnsupported)

	rotary := RotaryEmbeddingInputs{X: x(2, 3, 5, 8), CosCache: x(2, 1, 5, 4), SinCache: x(2, 1, 5, 3)}
	_, err = RotaryEmbedding{}.Run(bg, m.dev, rotary)
	require.ErrorContains(t, err, "sin_cache is [2 1 5 3]")
	_, err = RotaryEmbedding{RotaryEmbeddingDim: 5}.Run(bg, m.dev, rotary)
	require.ErrorContains(t, err, "rotary_embedding_dim is 5")
	_, err = RotaryEmbedding{}.Run(bg, m.dev, RotaryEmbeddingInputs{X: rotary.X})
	require.ErrorContains(t, err, "cos_cache")

	_, err = RotaryEmbedding{}.Run(bg, m.dev, RotaryEmbeddingInputs{X: rotary.X, PositionIDs: x(1, 1, 2, 5)})
	require.ErrorContains(t, err, "position_ids")

	scatter := TensorScatterInputs{PastCache: x(2, 3, 5, 8), Update: x(2, 3, 2, 8)}
	for _, axis := range []int{4, -4, 1} {
		_, err = TensorScatter{Axis: axis}.Run(bg, m.dev, scatter)
		require.ErrorIs(t, err, flash.ErrArgument)
	}
	for _, in := range []*flash.Tensor{x(1, 2, 256, 257), m.integers([4]int{1, 1, 4, 8})} {
		_, err = TensorScatter{Axis: 1}.Run(bg, m.dev, TensorScatterInputs{PastCache: in, Update: in})
		require.ErrorIs(t, err, ErrUnsupported)
	}
	_, err = TensorScatter{}.Run(bg, m.dev, TensorScatterInputs{PastCache: scatter.PastCache})
	require.ErrorIs(t, err, flash.ErrArgument)
	scatter.WriteIndices = m.integers([4]int{1, 1, 1, 3})
	_, err = TensorScatter{}.Run(bg, m.dev, scatter)
	require.ErrorContains(t, err, "write_indices")
}
