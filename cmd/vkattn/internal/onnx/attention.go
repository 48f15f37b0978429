package onnx

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/ref"
)

// Attention is a case of the operator Attention in the library's terms.
type Attention struct {
	Problem ref.Problem // past keys and values in front of the new ones, masks padded to their number
	Type    ref.DType   // of q, k, v and o
	Flat    bool        // Q, K, V and Y are [batch, length, heads · dimension]
	Past    int         // keys of past_key
	Matrix  bool        // the scores are an output too
	Stage   ref.Stage   // of those
	Lacks   []string    // what no Problem can say
}

// softmaxTypes are the types that softmax_precision can name, by TensorProto's numbers. All kernels take the softmax in fp32; that float64
// was asked for is for the tolerance to tell.
var softmaxTypes = map[int]string{1: "float", 10: "float16", 11: "double", 16: "bfloat16"}

// Attention checks a case of the operator Attention and translates it:
//
//	s = scale·q·kᵀ, softcap, + attn_mask of numbers, −∞ where attn_mask of booleans is false, Y = softmax(s)·v
//
// where query i stands at key p = offset + i, offset being the number of past keys, or nonpad_kv_seqlen[b] − Nq of a cache without past, or
// 0. is_causal allows keys up to p, left_window_size and right_window_size so many beside it; −1 is unbounded. A row without keys gives 0.
func (c *Case) Attention() (*Attention, error) {
	if err := c.check("Attention", "is_causal", "kv_num_heads", "left_window_size", "q_num_heads", "qk_matmul_output_mode",
		"right_window_size",
		"scale", "softcap", "softmax_precision"); err != nil {
		return nil, err
	}
	a := &Attention{}
	p := &a.Problem
	if err := c.operands(a); err != nil {
		return nil, err
	}
	var err error
	if _, given := c.attrs["scale"]; given {
		if p.Scale, err = c.attrs.number("scale", 0, 0); err != nil {
			return nil, err
		}
		if p.Scale == 0 {
			a.Lacks = append(a.Lacks, "a scale of 0")
		}
	}
	if p.Softcap, err = c.attrs.number("softcap", 0, 0); err != nil {
		return nil, err
	}
	causal, err := c.attrs.integer("is_causal", 0, 0, 1)
	if err != nil {
		return nil, err
	}
	var window ref.Window
	if window.Left, err = c.attrs.integer("left_window_size", -1, -1, most); err != nil {
		return nil, err
	}
	if window.Right, err = c.attrs.integer("right_window_size", -1, -1, most); err != nil {
		return nil, err
	}
	precision, err := c.attrs.integer("softmax_precision", 1, 1, 16)
	if err != nil {
		return nil, err
	}
	if _, ok := softmaxTypes[precision]; !ok {
		return nil, fmt.Errorf("onnx: attribute softmax_precision is %d: it must be 1 (float), 10 (float16), 11 (double) or 16 (bfloat16)",
			precision)
	}
	mode, err := c.attrs.integer("qk_matmul_output_mode", 0, 0, 3)
	if err != nil {
		return nil, err
	}
	a.Stage = ref.Stage(mode) // they count alike
	_, a.Matrix = c.out["qk_matmul_output"]
	if err := c.lengths(p); err != nil {
		return nil, err
	}
	if err := c.mask(a); err != nil {
		return nil, err
	}
	_, past := c.in["past_key"]
	place(p, causal == 1, window, a.Past, p.KeyLens != nil && !past)
	if err := p.Check(); err != nil {
		return nil, err
	}
	return a, c.shapes(a)
}

// place says which keys a query at key offset + i sees. own says that offset is that of the last key of each batch entry.
func place(p *ref.Problem, causal bool, window ref.Window, offset int, own bool) {
	if causal {
		p.Causal, window.Right = ref.BottomRight, -1 // keys beyond are not seen anyway
	}
	if window.Left >= 0 || window.Right >= 0 {
		p.Window = &window
	}
	if !own && (p.Causal != ref.NotCausal || p.Window != nil) {
		p.Offset = &offset
	}
}

// operands splits heads and puts the past in front.
func (c *Case) operands(a *Attention) error {
	q, k, v := c.in["Q"], c.in["K"], c.in["V"]
	if len(q.Shape) != len(k.Shape) || len(q.Shape) != len(v.Shape) {
		return fmt.Errorf("onnx: Q %v, K %v and V %v differ in their number of dimensions", q.Shape, k.Shape, v.Shape)
	}
	a.Flat = len(q.Shape) == 3
	queryHeads, err := c.attrs.integer("q_num_heads", 0, 1, most)
	if err != nil {
		return err
	}
	keyHeads, err := c.attrs.integer("kv_num_heads", 0, 1, most)
	if err != nil {
		return err
	}
	p := &a.Problem
	if p.Q, err = q.heads("Q", queryHeads); err != nil {
		return err
	}
	if p.K, err = k.heads("K", keyHeads); err != nil {
		return err
	}
	if p.V, err = v.heads("V", keyHeads); err != nil {
		return err
	}
	var ok bool
	if a.Type, ok = q.dtype(); !ok {
		a.Lacks = append(a.Lacks, "tensors of type "+q.Type)
	}
	if q.Type != k.Type {
		return fmt.Errorf("onnx: Q is of type %s and K of %s: they must be the same", q.Type, k.Type)
	}
	if v.Type != k.Type {
		a.Lacks = append(a.Lacks, "values of another type than keys")
	}
	return c.past(a)
}

// past puts past keys and values in front of those of the case.
func (c *Case) past(a *Attention) error {
	pastKey, keys := c.in["past_key"]
	pastValue, values := c.in["past_value"]
	if keys != values {
		return fmt.Errorf("onnx: past_key and past_value must be given together")
	}
	if !keys {
		return nil
	}
	for _, x := range []struct {
		name string
		past Tensor
		of   *ref.Tensor
		like Tensor
	}{{"past_key", pastKey, &a.Problem.K, c.in["K"]}, {"past_value", pastValue, &a.Problem.V, c.in["V"]}} {
		s := x.past.Shape
		if x.past.Type != x.like.Type {
			return fmt.Errorf("onnx: %s is of type %s: it must be %s, as the new ones are", x.name, x.past.Type, x.like.Type)
		}
		if len(s) != 4 || s[0] != x.of.B || s[1] != x.of.H || s[3] != x.of.D {
			return fmt.Errorf("onnx: %s %v: it must be [%d %d past %d]", x.name, s, x.of.B, x.of.H, x.of.D)
		}
		if s[2] != pastKey.Shape[2] {
			return fmt.Errorf("onnx: past_value has %d rows and past_key %d: they must be as many", s[2], pastKey.Shape[2])
		}
		a.Past = s[2]
		*x.of = behind(ref.Tensor{B: s[0], H: s[1], N: s[2], D: s[3], Data: x.past.Floats}, *x.of)
	}
	return nil
}

// lengths reads nonpad_kv_seqlen.
func (c *Case) lengths(p *ref.Problem) error {
	n, ok := c.in["nonpad_kv_seqlen"]
	if !ok {
		return nil
	}
	if len(n.Shape) != 1 || n.Shape[0] != p.Q.B || len(n.Ints) != p.Q.B {
		return fmt.Errorf("onnx: nonpad_kv_seqlen is %s%v: it must be integers [%d]", n.Type, n.Shape, p.Q.B)
	}
	for b, keys := range n.Ints {
		if keys < 0 || keys > int64(p.K.N) {
			return fmt.Errorf("onnx: nonpad_kv_seqlen[%d] is %d: it must be from 0 to %d", b, keys, p.K.N)
		}
		p.KeyLens = append(p.KeyLens, int(keys))
	}
	return nil
}

// shapes wants the outputs of the case to be what the operator gives.
func (c *Case) shapes(a *Attention) error {
	q, k, v := a.Problem.Q, a.Problem.K, a.Problem.V
	y := []int{q.B, q.H, q.N, v.D}
	if a.Flat {
		y = []int{q.B, q.N, q.H * v.D}
	}
	for name, want := range map[string][]int{"Y": y, "present_key": {k.B, k.H, k.N, k.D}, "present_value": {v.B, v.H, v.N, v.D},
		"qk_matmul_output": {q.B, q.H, q.N, k.N}} {
		if t, ok := c.out[name]; ok && !(slices.Equal(t.Shape, want) && t.real()) {
			return fmt.Errorf("onnx: output %s is %s%v: it must be floating-point %v", name, t.Type, t.Shape, want)
		}
	}
	return nil
}
