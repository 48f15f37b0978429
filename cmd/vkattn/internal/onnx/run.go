package onnx

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/onnx"
	"github.com/vkattn/vkattn/internal/ref"
)

// Run computes the outputs of the case by package flash/onnx, in the operator's order of elements. The plan options are attention's.
func (c *Case) Run(ctx context.Context, dev *flash.Device, opts ...flash.PlanOption) (map[string][]float64, error) {
	r := &runner{c: c, ctx: ctx, dev: dev}
	var out map[string]*flash.Tensor
	var err error
	switch c.Op {
	case "Attention":
		out, err = r.attention(opts)
	case "RotaryEmbedding":
		out, err = r.rotary()
	case "TensorScatter":
		out, err = r.scatter()
	default:
		err = fmt.Errorf("onnx: there is no operator %s here", c.Op)
	}
	got := map[string][]float64{}
	for name, t := range out {
		if t == nil || err != nil {
			continue
		}
		r.made = append(r.made, t)
		values := make([]float32, t.Elements())
		err = t.Download(ctx, values)
		got[name] = ref.Widen(values)
	}
	for _, t := range r.made {
		err = errors.Join(err, t.Close())
	}
	return got, err
}

// runner has the tensors of a run.
type runner struct {
	c    *Case
	ctx  context.Context
	dev  *flash.Device
	made []*flash.Tensor
	err  error // the first of put
}

var types = map[string]flash.DType{"F16": flash.F16, "BF16": flash.BF16, "F32": flash.F32, "F64": flash.F32, "BOOL": flash.Bool,
	"I64": flash.Int32, "I32": flash.Int32}

// put uploads an input, nil where the case has none. Its shape is the last of four axes after ones, unless it is given.
func (r *runner) put(name string, shape ...int) *flash.Tensor {
	t, ok := r.c.in[name]
	if !ok || r.err != nil {
		return nil
	}
	if len(shape) == 0 {
		shape = t.Shape
	}
	for len(shape) < 4 {
		shape = append([]int{1}, shape...)
	}
	values := t.Floats
	if t.Ints != nil {
		values = make([]float32, len(t.Ints))
		for i, x := range t.Ints {
			values[i] = float32(x)
		}
	}
	var made *flash.Tensor
	if made, r.err = r.dev.TensorFrom(r.ctx, types[t.Type], values, shape[0], shape[1], shape[2], shape[3]); r.err != nil {
		return nil
	}
	r.made = append(r.made, made)
	return made
}

// putBatch uploads an input whose first axis is the batch, and whose others come after ones.
func (r *runner) putBatch(name string) *flash.Tensor {
	shape := r.c.in[name].Shape
	if len(shape) == 3 {
		shape = []int{shape[0], 1, shape[1], shape[2]}
	}
	return r.put(name, shape...)
}

// whole is an attribute that has been checked, 0 where it is not given.
func (a attributes) whole(name string) int {
	x, _ := a[name].(float64)
	return int(x)
}

func (r *runner) attention(opts []flash.PlanOption) (map[string]*flash.Tensor, error) {
	a, err := r.c.Attention()
	if err != nil {
		return nil, err
	}
	attrs := r.c.attrs
	node := onnx.Attention{IsCausal: attrs.whole("is_causal") == 1, QNumHeads: attrs.whole("q_num_heads"),
		KVNumHeads: attrs.whole("kv_num_heads"), Scale: a.Problem.Scale, Softcap: a.Problem.Softcap,
		SoftmaxPrecision: attrs.whole("softmax_precision"), QKMatmulOutputMode: attrs.whole("qk_matmul_output_mode"),
		QKMatmulOutput: a.Matrix, PlanOptions: opts}
	if w := a.Problem.Window; w != nil {
		node.Window = flash.SlidingWindow(w.Left, w.Right)
	}
	_, key := r.c.out["present_key"]
	_, value := r.c.out["present_value"]
	node.Present = key || value
	in := onnx.AttentionInputs{Q: r.putBatch("Q"), K: r.putBatch("K"), V: r.putBatch("V"), AttnMask: r.put("attn_mask"),
		PastKey: r.put("past_key"), PastValue: r.put("past_value"), NonpadKVSeqlen: r.put("nonpad_kv_seqlen")}
	if r.err != nil {
		return nil, r.err
	}
	out, err := node.Run(r.ctx, r.dev, in)
	return map[string]*flash.Tensor{"Y": out.Y, "present_key": out.PresentKey, "present_value": out.PresentValue,
		"qk_matmul_output": out.QKMatmulOutput}, err
}

func (r *runner) rotary() (map[string]*flash.Tensor, error) {
	if _, err := r.c.Rotary(); err != nil {
		return nil, err
	}
	attrs, x := r.c.attrs, r.c.in["X"]
	node := onnx.RotaryEmbedding{Interleaved: attrs.whole("interleaved") == 1, RotaryEmbeddingDim: attrs.whole("rotary_embedding_dim")}
	if len(x.Shape) == 3 {
		node.NumHeads = attrs.whole("num_heads")
	}
	in := onnx.RotaryEmbeddingInputs{X: r.putBatch("X"), CosCache: r.putBatch("cos_cache"), SinCache: r.putBatch("sin_cache"),
		PositionIDs: r.put("position_ids")}
	if r.err != nil {
		return nil, r.err
	}
	y, err := node.Run(r.ctx, r.dev, in)
	return map[string]*flash.Tensor{"Y": y}, err
}

func (r *runner) scatter() (map[string]*flash.Tensor, error) {
	s, err := r.c.Scatter()
	if err != nil {
		return nil, err
	}
	node, in := onnx.TensorScatter{Circular: s.Circular}, onnx.TensorScatterInputs{WriteIndices: r.put("write_indices")}
	if rank := len(r.c.in["past_cache"].Shape); rank <= 4 {
		front := func(name string) *flash.Tensor {
			shape := []int{r.c.in[name].Shape[0], 1, 1, 1}
			copy(shape[5-rank:], r.c.in[name].Shape[1:])
			return r.put(name, shape...)
		}
		in.PastCache, in.Update = front("past_cache"), front("update")
		if node.Axis = r.c.attrs.whole("axis"); node.Axis > 0 {
			node.Axis += 4 - rank
		}
	} else { // more axes than tensors have: as the oracle has them
		in.PastCache, in.Update = r.put("past_cache", s.Cache.B, s.Cache.H, s.Cache.N, s.Cache.D),
			r.put("update", s.Update.B, s.Update.H, s.Update.N, s.Update.D)
	}
	if r.err != nil {
		return nil, r.err
	}
	present, err := node.Run(r.ctx, r.dev, in)
	return map[string]*flash.Tensor{"present_cache": present}, err
}
