package onnx

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// node is a case as its file has it, to be spoiled.
type node struct {
	op              string
	attrs           map[string]any
	inputs, outputs []string
	tensors         map[string]ref.Stored
}

func (n *node) parse() (*Case, error) {
	text, err := json.Marshal(map[string]any{"op": n.op, "attrs": n.attrs, "opset": [][2]any{{"", 25}}, "inputs": n.inputs,
		"outputs": n.outputs, "rtol": 1e-3, "atol": 1e-7})
	if err != nil {
		return nil, err
	}
	return New(n.tensors, map[string]string{"case": string(text)})
}

func of(dtype string, shape ...int) ref.Stored {
	size := map[string]int{"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "BOOL": 1}[dtype]
	for _, n := range shape {
		size *= n
	}
	return ref.Stored{DType: dtype, Shape: shape, Data: make([]byte, size)}
}

func ints(x ...int64) ref.Stored {
	s := ref.Stored{DType: "I64", Shape: []int{len(x)}}
	for _, x := range x {
		s.Data = binary.LittleEndian.AppendUint64(s.Data, uint64(x))
	}
	return s
}

// attention is a case of two query heads on one key head: 3 queries, 2 past and 4 new keys.
func attention() *node {
	return &node{"Attention", map[string]any{}, []string{"Q", "K", "V", "attn_mask", "past_key", "past_value"}, []string{"Y"},
		map[string]ref.Stored{
			"in.Q": of("F32", 1, 2, 3, 8), "in.K": of("F32", 1, 1, 4, 8), "in.V": of("F32", 1, 1, 4, 5), "in.attn_mask": of("F32", 3, 6),
			"in.past_key": of("F32", 1, 1, 2, 8), "in.past_value": of("F32", 1, 1, 2, 5), "out.Y": of("F32", 1, 2, 3, 5)}}
}

func rotary() *node {
	return &node{"RotaryEmbedding", map[string]any{"num_heads": 2}, []string{"x", "c", "s", "p"}, []string{"y"}, map[string]ref.Stored{
		"in.x": of("F32", 1, 3, 8), "in.c": of("F32", 9, 2), "in.s": of("F32", 9, 2),
		"in.p":  {DType: "I64", Shape: []int{1, 3}, Data: make([]byte, 24)},
		"out.y": of("F32", 1, 3, 8)}}
}

func scatter() *node {
	return &node{"TensorScatter", map[string]any{"mode": "linear", "axis": 1}, []string{"c", "u", "w"}, []string{"y"},
		map[string]ref.Stored{
			"in.c": of("F32", 2, 4, 3, 2), "in.u": of("F32", 2, 2, 3, 2), "in.w": ints(0, 2), "out.y": of("F32", 2, 4, 3, 2)}}
}

// TestChecks: what the operators do not allow is an error that says what must be.
func TestChecks(t *testing.T) {
	set := func(name string, s ref.Stored) func(*node) { return func(n *node) { n.tensors[name] = s } }
	attr := func(name string, v any) func(*node) { return func(n *node) { n.attrs[name] = v } }
	for _, test := range []struct {
		name  string
		make  func() *node
		spoil func(*node)
		want  string
	}{
		{"attention", attention, nil, ""},
		{"rotary", rotary, nil, ""},
		{"scatter", scatter, nil, ""},
		{"unknown attribute", attention, attr("window", 3.0), "no attribute window: there are is_causal"},
		{"causal", attention, attr("is_causal", 2.0), "is_causal is 2: it must be an integer from 0 to 1"},
		{"causal is text", attention, attr("is_causal", "yes"), "is_causal is yes"},
		{"mode", attention, attr("qk_matmul_output_mode", 4.0), "qk_matmul_output_mode is 4"},
		{"mode between", attention, attr("qk_matmul_output_mode", 0.5), "must be an integer"},
		{"precision", attention, attr("softmax_precision", 7.0), "softmax_precision is 7: it must be 1 (float), 10"},
		{"scale", attention, attr("scale", -1.0), "scale is -1: it must be a number of at least 0"},
		{"softcap", attention, attr("softcap", -1.0), "softcap is -1"},
		{"softcap is huge", attention, attr("softcap", 1e300), "softcap is 1e+300"},
		{"window", attention, attr("left_window_size", -2.0), "left_window_size is -2: it must be an integer from -1"},
		{"right window", attention, attr("right_window_size", -2.0), "right_window_size is -2"},
		{"heads", attention, attr("q_num_heads", 3.0), "has 2 heads, the attribute says 3"},
		{"no heads", attention, func(n *node) {
			n.tensors["in.Q"], n.tensors["in.K"], n.tensors["in.V"] = of("F32", 1, 3, 16), of("F32", 1, 4, 8), of("F32", 1, 4, 5)
		}, "the number of heads must be given"},
		{"heads that do not divide", attention, func(n *node) {
			n.tensors["in.Q"], n.tensors["in.K"], n.tensors["in.V"] = of("F32", 1, 3, 16), of("F32", 1, 4, 8), of("F32", 1, 4, 5)
			n.attrs["q_num_heads"], n.attrs["kv_num_heads"] = 3.0, 1.0
		}, "16 columns are not divided by 3 heads"},
		{"key heads that do not divide", attention, func(n *node) {
			n.inputs = n.inputs[:4]
			n.tensors = map[string]ref.Stored{"in.Q": of("F32", 1, 3, 3, 8), "in.K": of("F32", 1, 2, 6, 8), "in.V": of("F32", 1, 2, 6, 5),
				"in.attn_mask": of("F32", 3, 6), "out.Y": of("F32", 1, 3, 3, 5)}
		}, "heads of q, k, v are 3, 2, 2"},
		{"ranks", attention, set("in.Q", of("F32", 1, 3, 16)), "differ in their number of dimensions"},
		{"rank 2", attention, func(n *node) {
			n.tensors["in.Q"], n.tensors["in.K"], n.tensors["in.V"] = of("F32", 3, 8), of("F32", 4, 8), of("F32", 4, 5)
		}, "must have 3 or 4 dimensions"},
		{"types of Q and K", attention, set("in.Q", of("F16", 1, 2, 3, 8)), "Q is of type F16 and K of F32"},
		{"integers", attention, set("in.Q", of("I64", 1, 2, 3, 8)), "it must be floating-point"},
		{"empty", attention, set("in.Q", of("F32", 1, 2, 0, 8)), "is empty"},
		{"widths", attention, set("in.Q", of("F32", 1, 2, 3, 7)), "head dim of q is 7"},
		{"past alone", attention, func(n *node) { n.inputs[5] = ""; delete(n.tensors, "in.past_value") }, "must be given together"},
		{"past of other heads", attention, set("in.past_key", of("F32", 1, 2, 2, 8)), "past_key [1 2 2 8]: it must be [1 1 past 8]"},
		{"past of another type", attention, set("in.past_key", of("F16", 1, 1, 2, 8)), "past_key is of type F16: it must be F32"},
		{"past lengths", attention, set("in.past_value", of("F32", 1, 1, 3, 5)), "past_value has 3 rows and past_key 2"},
		{"mask rank", attention, set("in.attn_mask", of("F32", 1, 1, 1, 3, 6)), "must have 1 to 4 dimensions"},
		{"mask rank 0", attention, set("in.attn_mask", of("F32")), "must have 1 to 4 dimensions"},
		{"mask rows", attention, set("in.attn_mask", of("F32", 2, 6)), "attn_mask [2 6] does not broadcast to [1 2 3 6]"},
		{"mask columns", attention, set("in.attn_mask", of("BOOL", 3, 7)), "has more columns than there are keys, 6"},
		{"lengths", attention, func(n *node) {
			n.inputs = append(n.inputs, "n")
			n.tensors["in.n"] = ints(7)
		}, "nonpad_kv_seqlen[0] is 7: it must be from 0 to 6"},
		{"lengths below 0", attention, func(n *node) { n.inputs = append(n.inputs, "n"); n.tensors["in.n"] = ints(-1) },
			"nonpad_kv_seqlen[0] is -1"},
		{"lengths of another batch", attention, func(n *node) { n.inputs = append(n.inputs, "n"); n.tensors["in.n"] = ints(1, 2) },
			"it must be integers [1]"},
		{"shape of Y", attention, set("out.Y", of("F32", 1, 3, 10)), "output Y is F32[1 3 10]: it must be floating-point [1 2 3 5]"},
		{"a tensor too many", attention, set("in.extra", of("F32", 1)), "in.extra is neither input nor output"},
		{"a tensor too few", attention, func(n *node) { delete(n.tensors, "in.V") }, "there is no tensor in.V"},
		{"a required input", attention, func(n *node) { n.inputs[2] = ""; delete(n.tensors, "in.V") }, "has no input V"},
		{"inputs", attention, func(n *node) { n.inputs = append(n.inputs, "", "", "") }, "9 inputs: the operator has 7"},
		{"no output", attention, func(n *node) { n.outputs = nil; delete(n.tensors, "out.Y") }, "no output"},
		{"size of a tensor", attention, set("in.Q", ref.Stored{DType: "F32", Shape: []int{1, 2, 3, 8}, Data: make([]byte, 12)}),
			"tensor in.Q: "},
		{"size of integers", rotary, set("in.p", ref.Stored{DType: "I64", Shape: []int{1, 3}, Data: make([]byte, 16)}),
			"tensor in.p: safetensors: 16 bytes"},
		{"type of a tensor", attention, set("in.Q", ref.Stored{DType: "C64", Shape: []int{1}, Data: make([]byte, 8)}), "dtype C64"},
		{"interleaved", rotary, attr("interleaved", 2.0), "interleaved is 2"},
		{"rotary heads", rotary, attr("num_heads", 3.0), "8 columns are not divided by 3"},
		{"rotary columns", rotary, attr("rotary_embedding_dim", 3.0), "must be an even number up to the head dimension, 4"},
		{"rotary columns, too many", rotary, attr("rotary_embedding_dim", 6.0), "must be an even number"},
		{"rotary cache", rotary, set("in.c", of("F32", 9, 3)), "cos_cache [9 3]: with position_ids it must be [positions 2]"},
		{"rotary cache without positions", rotary, func(n *node) { n.inputs = n.inputs[:3]; delete(n.tensors, "in.p") },
			"without position_ids it must be [1 3 2]"},
		{"position", rotary, func(n *node) {
			n.tensors["in.p"] = ref.Stored{DType: "I64", Shape: []int{1, 3}, Data: append(make([]byte, 16), ints(9).Data...)}
		}, "position 9: cos_cache has 9"},
		{"positions", rotary, set("in.p", ints(0, 1, 2)), "it must be integers [1 3]"},
		{"rotary output", rotary, set("out.y", of("F32", 1, 2, 3, 4)), "it must be X's shape"},
		{"scatter mode", scatter, attr("mode", "round"), "mode is round: it must be linear or circular"},
		{"scatter axis", scatter, attr("axis", 4.0), "axis is 4: it must be an integer from -4 to 3"},
		{"scatter axis of the batch", scatter, attr("axis", -4.0), "must be one behind the batch"},
		{"scatter update", scatter, set("in.u", of("F32", 2, 2, 3, 1)), "they may differ in dimension 1 alone"},
		{"scatter too long", scatter, set("in.w", ints(0, 3)), "2 rows from there do not fit a cache of 4"},
		{"scatter position", scatter, set("in.w", ints(0, 4)), "write_indices[1] is 4: it must be from 0 to 3"},
		{"scatter positions", scatter, set("in.w", ints(0)), "it must be integers [2]"},
		{"scatter output", scatter, set("out.y", of("F32", 2, 4, 3, 1)), "it must be past_cache's shape"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := test.make()
			if test.spoil != nil {
				test.spoil(n)
			}
			c, err := n.parse()
			if err == nil {
				_, err = c.Compute()
			}
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
	c, err := (&node{op: "Softmax"}).parse()
	require.NoError(t, err)
	require.False(t, c.Known())
	_, err = c.Compute()
	require.ErrorContains(t, err, "no operator Softmax")
	_, err = New(nil, map[string]string{"case": `{"op": "Attention"}`})
	require.ErrorContains(t, err, "rtol and atol must be given")
	_, err = New(nil, map[string]string{"case": `{`})
	require.ErrorContains(t, err, "metadata case")
}

// TestLacks: what no problem of the library can say is named, and no error.
func TestLacks(t *testing.T) {
	for _, test := range []struct {
		spoil func(*node)
		want  string
	}{
		{func(n *node) { n.attrs["scale"] = 0.0 }, "a scale of 0"},
		{func(n *node) { n.tensors["in.attn_mask"] = of("I64", 3, 6) }, "attn_mask of type I64"},
		{func(n *node) {
			n.tensors["in.V"], n.tensors["in.past_value"] = of("F16", 1, 1, 4, 5), of("F16", 1, 1, 2, 5)
		}, "values of another type than keys"},
		{func(n *node) {
			for _, name := range []string{"in.Q", "in.K", "in.V", "in.past_key", "in.past_value"} {
				n.tensors[name] = of("F64", n.tensors[name].Shape...)
			}
		}, "tensors of type F64"},
	} {
		n := attention()
		test.spoil(n)
		c, err := n.parse()
		require.NoError(t, err)
		a, err := c.Attention()
		require.NoError(t, err)
		require.Equal(t, []string{test.want}, a.Lacks)
	}
}

// TestCompare: an element that is off, that is no number, or that is infinite where it must not be.
func TestCompare(t *testing.T) {
	n := scatter()
	c, err := n.parse()
	require.NoError(t, err)
	inf := math.Inf(-1)
	c.out["present_cache"] = Tensor{Type: "F32", Shape: []int{3}, Floats: []float32{1, 0, float32(inf)}}
	for _, test := range []struct {
		got []float64
		at  int
		ok  bool
	}{
		{[]float64{1, 0, inf}, 0, true}, {[]float64{1.0009, 1e-8, inf}, 0, true}, {[]float64{1.0011, 0, inf}, 0, false},
		{[]float64{1, 2e-7, inf}, 1, false},
		{[]float64{1, math.NaN(), inf}, 1, false}, {[]float64{1, 0, -1e30}, 2, false}, {[]float64{1, inf, inf}, 1, false},
		{[]float64{1, 0, math.Inf(1)}, 2, false},
	} {
		v := c.Compare("present_cache", test.got)
		require.Equal(t, test.ok, v.OK, "%v: %v", test.got, v)
		require.Equal(t, test.at, v.At, "%v: %v", test.got, v)
	}
	require.False(t, c.Compare("present_cache", []float64{1}).OK)
}

// FuzzParse: any metadata and any tensors are a case that can be computed, or an error.
func FuzzParse(f *testing.F) {
	for _, n := range []*node{attention(), rotary(), scatter()} {
		text, err := json.Marshal(map[string]any{"op": n.op, "attrs": n.attrs, "inputs": n.inputs, "outputs": n.outputs, "rtol": 1,
			"atol": 1})
		require.NoError(f, err)
		f.Add(string(text), "in.Q", "F32", 1, 2, 3, 8, 192)
		f.Add(strings.Replace(string(text), "{}", `{"is_causal":1,"left_window_size":1,"kv_num_heads":1,"q_num_heads":2}`, 1), "in.K",
			"F16", 1, 4, -1, 8, 64)
		f.Add(strings.Replace(string(text), "1", "1e99", 1), "in.w", "I64", 2, -1, -1, -1, 16)
	}
	f.Fuzz(func(t *testing.T, text, name, dtype string, a, b, c, d, size int) {
		if size < 0 || size > 1<<12 {
			return
		}
		tensors := map[string]ref.Stored{}
		for _, n := range []*node{attention(), rotary(), scatter()} {
			if strings.Contains(text, n.op) {
				for name, s := range n.tensors {
					tensors[name] = s
				}
			}
		}
		shape := []int{}
		for _, n := range []int{a, b, c, d} {
			if n >= 0 {
				shape = append(shape, n)
			}
		}
		tensors[name] = ref.Stored{DType: dtype, Shape: shape, Data: make([]byte, size)}
		one, err := New(tensors, map[string]string{"case": text})
		if err != nil {
			return
		}
		got, err := one.Compute()
		if err != nil {
			return
		}
		for name, values := range got {
			if len(values) != len(one.out[name].Floats) {
				t.Fatalf("%s has %d elements: %d", name, len(one.out[name].Floats), len(values))
			}
		}
	})
}

// TestJudgeBF16: values of a program that rounds on the way are not held against results that are nearer to what is right, results are held
// to float64, and a file that no rounding explains is found.
func TestJudgeBF16(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(folder, "test_attention_4d_attn_mask_causal_bf16.safetensors"))
	require.NoError(t, err)
	parse := func(change func(theirs []float32, right []float64)) (*Case, []float64) {
		c, err := Parse(data)
		require.NoError(t, err)
		all, err := c.Compute()
		require.NoError(t, err)
		got := make([]float64, len(all["Y"]))
		for i, x := range all["Y"] {
			got[i] = float64(ref.BF16.Round(float32(x)))
		}
		change(c.out["Y"].Floats, all["Y"])
		return c, got
	}
	off := func(ulps float64) func(theirs []float32, right []float64) {
		return func(theirs []float32, right []float64) {
			largest := 0
			for i := range right {
				if math.Abs(right[i]) > math.Abs(right[largest]) {
					largest = i
				}
			}
			theirs[largest] = float32(right[largest] + ulps*ref.BF16.Ulp(right[largest]))
		}
	}
	c, got := parse(off(3)) // as a bf16 reference may be
	require.False(t, c.Compare("Y", got).OK)
	v, theirs, err := c.Judge("Y", got)
	require.NoError(t, err)
	require.True(t, v.OK, v)
	require.Greater(t, theirs, v.Bound)
	got[5] += 0.1
	v, _, err = c.Judge("Y", got)
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Equal(t, 5, v.At)
	c, got = parse(off(20))
	_, _, err = c.Judge("Y", got)
	require.ErrorContains(t, err, "more than roundings to bfloat16 explain")
}
