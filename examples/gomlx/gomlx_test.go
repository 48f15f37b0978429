package gomlx

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/ref"
)

var bg = context.Background()

func TestMain(m *testing.M) { os.Exit(flashtest.Main(m)) }

const batch, heads, keyHeads, queries, keys, dim = 2, 4, 2, 5, 7, 8

// call has the parameters of the operator, and what they mean to the oracle.
type call struct {
	t       *testing.T
	dev     *flash.Device
	rng     *rand.Rand
	mask    Value
	layout  AxesLayout
	scale   float64
	causal  bool
	options *ScaledDotProductAttentionConfig
	right   ref.Options
}

func random(rng *rand.Rand, x ref.Tensor) ref.Tensor {
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	return x
}

// put uploads [batch, heads, length, dimension] in the order of a layout.
func (c *call) put(dtype flash.DType, x ref.Tensor, layout AxesLayout) Value {
	shape, data := [4]int{x.B, x.H, x.N, x.D}, x.Data
	if layout == AxesLayoutBSHD {
		shape[1], shape[2], data = x.N, x.H, nil
		for b := range x.B {
			for n := range x.N {
				for h := range x.H {
					data = append(data, x.Row(b, h, n)...)
				}
			}
		}
	}
	t, err := c.dev.TensorFrom(bg, dtype, data, shape[0], shape[1], shape[2], shape[3])
	require.NoError(c.t, err)
	return Value{Tensor: t}
}

// get downloads a tensor and puts its elements in the order [batch, heads, length, dimension].
func (c *call) get(v Value) (out []float64) {
	s := v.Tensor.Shape()
	data := make([]float32, v.Tensor.Elements())
	require.NoError(c.t, v.Tensor.Download(bg, data))
	if c.layout == AxesLayoutBHSD {
		return ref.Widen(data)
	}
	for b := range s[0] {
		for h := range s[2] {
			for n := range s[1] {
				at := ((b*s[1]+n)*s[2] + h) * s[3]
				out = append(out, ref.Widen(data[at:at+s[3]])...)
			}
		}
	}
	return out
}

func (c *call) lengths(x ...int) Value {
	data := make([]float32, len(x))
	for i := range x {
		data[i] = float32(x[i])
	}
	t, err := c.dev.TensorFrom(bg, flash.Int32, data, 1, 1, 1, len(x))
	require.NoError(c.t, err)
	return Value{Tensor: t, Rank: 1}
}

// booleans is a mask in which every row has a key that may be seen, as the oracle and the operator have it.
func (c *call) booleans(b, h, n int, layout AxesLayout) (Value, *ref.Mask) {
	m := &ref.Mask{B: b, H: h, N: n, M: keys, Data: make([]bool, b*h*n*keys)}
	x := ref.NewTensor(b, h, n, keys)
	for i := range m.Data {
		if m.Data[i] = i%keys == 0 || c.rng.IntN(3) > 0; m.Data[i] {
			x.Data[i] = 1
		}
	}
	return c.put(flash.Bool, x, layout), m
}

func (c *call) numbers(b, h, n int, layout AxesLayout) (Value, *ref.Tensor) {
	x := random(c.rng, ref.NewTensor(b, h, n, keys))
	return c.put(flash.F32, x, layout), &x
}

var fields = []struct {
	name string
	set  func(*call)
}{
	{"plain", func(c *call) {}},
	{"scale", func(c *call) { c.scale, c.right.Scale = -0.2, -0.2 }},
	{"causal", func(c *call) { c.causal, c.right.Causal = true, ref.TopLeft }},
	{"QuantizedMatmuls", func(c *call) { c.options = &ScaledDotProductAttentionConfig{QuantizedMatmuls: true} }},
	{"mask of booleans, rank 2", func(c *call) {
		c.mask, c.right.Mask = c.booleans(1, 1, queries, AxesLayoutBHSD)
		c.mask.Rank = 2
	}},
	{"mask of booleans, rank 4", func(c *call) { c.mask, c.right.Mask = c.booleans(batch, heads, queries, c.layout) }},
	{"mask of numbers, rank 2", func(c *call) {
		c.mask, c.right.Bias = c.numbers(1, 1, queries, AxesLayoutBHSD)
		c.mask.Rank = 2
	}},
	{"mask of numbers, rank 4", func(c *call) { c.mask, c.right.Bias = c.numbers(batch, 1, queries, c.layout) }},
	{"lengths", func(c *call) {
		c.options = &ScaledDotProductAttentionConfig{QuerySeqLen: c.lengths(3, queries), KeyValueSeqLen: c.lengths(keys, 4)}
		c.right.QueryLens, c.right.KeyLens = []int{3, queries}, []int{keys, 4}
	}},
	{"lengths, causal", func(c *call) {
		c.causal, c.right.Causal = true, ref.TopLeft
		c.options = &ScaledDotProductAttentionConfig{QuerySeqLen: c.lengths(4, queries), KeyValueSeqLen: c.lengths(6, 3)}
		c.right.QueryLens, c.right.KeyLens = []int{4, queries}, []int{6, 3}
	}},
	{"Bias, mask of booleans, causal", func(c *call) {
		c.options = &ScaledDotProductAttentionConfig{}
		c.options.Bias, c.right.Bias = c.numbers(1, heads, queries, c.layout)
		c.mask, c.right.Mask = c.booleans(batch, 1, queries, c.layout)
		c.causal, c.right.Causal = true, ref.TopLeft
	}},
}

// TestFields: whatever a field of the operator is set to, output and gradients are those of the oracle, in either layout.
func TestFields(t *testing.T) {
	dev := flashtest.Device(t)
	for _, layout := range []AxesLayout{AxesLayoutBHSD, AxesLayoutBSHD} {
		for _, field := range fields {
			t.Run(field.name+[]string{" BHSD", " BSHD"}[layout], func(t *testing.T) {
				c := &call{t: t, dev: dev, rng: rand.New(rand.NewPCG(1, 2)), layout: layout, scale: 0.35, right: ref.Options{Scale: 0.35}}
				field.set(c)
				p := ref.Problem{Options: c.right, Q: random(c.rng, ref.NewTensor(batch, heads, queries, dim)),
					K: random(c.rng, ref.NewTensor(batch, keyHeads, keys, dim)),
					V: random(c.rng, ref.NewTensor(batch, keyHeads, keys, dim))}
				do := random(c.rng, ref.NewTensor(batch, heads, queries, dim))
				q, k, v := c.put(flash.F32, p.Q, layout), c.put(flash.F32, p.K, layout), c.put(flash.F32, p.V, layout)
				var ops FusedOps = Backend{dev}
				o, states, err := ops.FusedScaledDotProductAttention(bg, q, k, v, c.mask, heads, keyHeads, layout, c.scale, c.causal,
					c.options)
				require.NoError(t, err)
				require.Equal(t, q.Tensor.Shape(), o.Tensor.Shape(), "output is of query's shape")
				require.Len(t, states, 1)
				right, _, err := ref.Forward(p)
				require.NoError(t, err)
				plain, _, err := ref.PlainForward(p, ref.F32)
				require.NoError(t, err)
				verdict := ref.CheckOutput(c.get(o), right.Data, plain.Data, ref.F32)
				require.True(t, verdict.OK, "output: %v", verdict)

				dq, dk, dv, err := ops.FusedScaledDotProductAttentionVJP(bg, q, k, v, c.mask, heads, keyHeads, layout, c.scale, c.causal,
					c.options, o, states, c.put(flash.F32, do, layout))
				require.NoError(t, err)
				g, err := ref.Backward(p, do, nil)
				require.NoError(t, err)
				of, err := ref.PlainBackward(p, ref.F32, do, nil)
				require.NoError(t, err)
				for _, x := range []struct {
					name         string
					got          Value
					right, plain ref.Array
				}{{"dQuery", dq, g.DQ, of.DQ}, {"dKey", dk, g.DK, of.DK}, {"dValue", dv, g.DV, of.DV}} {
					verdict := ref.CheckGradient(c.get(x.got), x.right.Data, x.plain.Data, ref.F32)
					require.True(t, verdict.OK, "%s: %v", x.name, verdict)
				}
			})
		}
	}
}

// TestRefused: what has no words in flash is an error by which the caller falls back, and what does not fit together one that says so.
func TestRefused(t *testing.T) {
	c := &call{t: t, dev: flashtest.Device(t), rng: rand.New(rand.NewPCG(1, 2))}
	x := func(heads, n int) Value { return c.put(flash.F32, ref.NewTensor(batch, heads, n, dim), AxesLayoutBHSD) }
	q, k, v := x(heads, queries), x(keyHeads, keys), x(keyHeads, keys)
	bias, _ := c.numbers(1, 1, queries, AxesLayoutBHSD)
	third, _ := c.numbers(1, batch, queries, AxesLayoutBHSD)
	third.Rank = 3
	one := c.put(flash.F32, ref.NewTensor(1, 1, queries, 1), AxesLayoutBHSD)
	half := c.put(flash.F16, ref.NewTensor(1, 1, queries, keys), AxesLayoutBHSD)
	for _, test := range []struct {
		name            string
		query, mask     Value
		heads, keyHeads int
		layout          AxesLayout
		scale           float64
		options         *ScaledDotProductAttentionConfig
		fallBack        bool
		want            string
	}{
		{"layout", q, Value{}, heads, keyHeads, 2, 1, nil, true, "axesLayout 2"},
		{"scale", q, Value{}, heads, keyHeads, 0, 0, nil, true, "a scale of 0"},
		{"two biases", q, bias, heads, keyHeads, 0, 1, &ScaledDotProductAttentionConfig{Bias: bias}, true, "additive mask beside Bias"},
		{"rank 3", q, third, heads, keyHeads, 0, 1, nil, true, "mask of rank 3"},
		{"rank 1", q, Value{bias.Tensor, 1}, heads, keyHeads, 0, 1, nil, false, "mask is of rank 1"},
		{"bias of rank 3", q, Value{}, heads, keyHeads, 0, 1, &ScaledDotProductAttentionConfig{Bias: third}, true, "Bias of rank 3"},
		{"type of a mask", q, half, heads, keyHeads, 0, 1, nil, true, "numbers of type float16"},
		{"type of Bias", q, Value{}, heads, keyHeads, 0, 1, &ScaledDotProductAttentionConfig{Bias: half}, true, "numbers of type float16"},
		{"one for all keys", q, one, heads, keyHeads, 0, 1, nil, true, "one number, of [1 1 5 1]"},
		{"Bias that is one for all keys", q, Value{}, heads, keyHeads, 0, 1, &ScaledDotProductAttentionConfig{Bias: one}, true,
			"one number, of [1 1 5 1]"},
		{"numHeads", q, Value{}, 8, keyHeads, 0, 1, nil, false, "query [2 4 5 8] has 4 heads, the operator says 8"},
		{"numKVHeads", q, Value{}, heads, 1, 0, 1, nil, false, "key [2 2 7 8] has 2 heads, the operator says 1"},
		{"no query", Value{}, Value{}, heads, keyHeads, 0, 1, nil, false, "there is no query"},
		{"rank of query", Value{q.Tensor, 3}, Value{}, heads, keyHeads, 0, 1, nil, false, "query is of rank 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := Backend{c.dev}
			_, _, err := b.FusedScaledDotProductAttention(bg, test.query, k, v, test.mask, test.heads, test.keyHeads, test.layout,
				test.scale, false, test.options)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, test.fallBack, errors.Is(err, ErrNotImplemented), "%v", err)
			_, _, _, err = b.FusedScaledDotProductAttentionVJP(bg, test.query, k, v, test.mask, test.heads, test.keyHeads, test.layout,
				test.scale, false, test.options, q, []Value{{}}, q)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, _, _, err := Backend{c.dev}.FusedScaledDotProductAttentionVJP(bg, q, k, v, Value{}, heads, keyHeads, 0, 1, false, nil, q, nil, q)
	require.ErrorContains(t, err, "there are 0 states")
	require.ErrorIs(t, fallBack(flash.ErrUnsupported), ErrNotImplemented, "what no kernel takes")
	require.ErrorIs(t, fallBack(flash.ErrUnsupported), flash.ErrUnsupported)
	require.NotErrorIs(t, fallBack(flash.ErrArgument), ErrNotImplemented)
}
