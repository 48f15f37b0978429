package onnx

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/ref"
)

// Rotary is a case of the operator RotaryEmbedding: what [ref.Rotary] takes.
type Rotary struct {
	X           ref.Tensor
	Cos, Sin    ref.Tensor // [B|1, 1, N, R/2], of each row's position
	Interleaved bool
	Flat        bool // X and Y are [batch, length, heads · dimension]
}

// Rotary checks a case of the operator RotaryEmbedding and looks positions up. The caches are [positions, R/2] with position_ids [B, N],
// else [B, N, R/2]; R is rotary_embedding_dim, or the head dimension where that is 0.
func (c *Case) Rotary() (*Rotary, error) {
	if err := c.check("RotaryEmbedding", "interleaved", "num_heads", "rotary_embedding_dim"); err != nil {
		return nil, err
	}
	interleaved, err := c.attrs.integer("interleaved", 0, 0, 1)
	if err != nil {
		return nil, err
	}
	heads, err := c.attrs.integer("num_heads", 0, 0, most)
	if err != nil {
		return nil, err
	}
	columns, err := c.attrs.integer("rotary_embedding_dim", 0, 0, most)
	if err != nil {
		return nil, err
	}
	in := c.in["X"]
	if len(in.Shape) == 4 {
		heads = 0 // which the shape says
	}
	r := &Rotary{Interleaved: interleaved == 1, Flat: len(in.Shape) == 3}
	if r.X, err = in.heads("X", heads); err != nil {
		return nil, err
	}
	if columns == 0 {
		columns = r.X.D
	}
	if columns%2 != 0 || columns > r.X.D {
		return nil, fmt.Errorf("onnx: %d columns are turned: it must be an even number up to the head dimension, %d", columns, r.X.D)
	}
	if _, ok := in.dtype(); !ok {
		return nil, fmt.Errorf("onnx: X is of type %s: it must be floating-point", in.Type)
	}
	if r.Cos, err = c.angles("cos_cache", r.X, columns/2); err != nil {
		return nil, err
	}
	if r.Sin, err = c.angles("sin_cache", r.X, columns/2); err != nil {
		return nil, err
	}
	if y, ok := c.out["Y"]; !ok || !slices.Equal(y.Shape, in.Shape) {
		return nil, fmt.Errorf("onnx: output Y is %v: it must be X's shape, %v", y.Shape, in.Shape)
	}
	return r, nil
}

// angles gives the cosines or sines of every row.
func (c *Case) angles(name string, x ref.Tensor, half int) (ref.Tensor, error) {
	cache := c.in[name]
	ids, looked := c.in["position_ids"]
	if !cache.real() {
		return ref.Tensor{}, fmt.Errorf("onnx: %s is of type %s: it must be floating-point", name, cache.Type)
	}
	if !looked {
		if !slices.Equal(cache.Shape, []int{x.B, x.N, half}) {
			return ref.Tensor{}, fmt.Errorf("onnx: %s %v: without position_ids it must be [%d %d %d]", name, cache.Shape, x.B, x.N, half)
		}
		return ref.Tensor{B: x.B, H: 1, N: x.N, D: half, Data: cache.Floats}, nil
	}
	if len(cache.Shape) != 2 || cache.Shape[1] != half {
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v: with position_ids it must be [positions %d]", name, cache.Shape, half)
	}
	if !slices.Equal(ids.Shape, []int{x.B, x.N}) || len(ids.Ints) != x.B*x.N {
		return ref.Tensor{}, fmt.Errorf("onnx: position_ids is %s%v: it must be integers [%d %d]", ids.Type, ids.Shape, x.B, x.N)
	}
	out := ref.NewTensor(x.B, 1, x.N, half)
	for i, at := range ids.Ints {
		if at < 0 || at >= int64(cache.Shape[0]) {
			return ref.Tensor{}, fmt.Errorf("onnx: position %d: %s has %d", at, name, cache.Shape[0])
		}
		copy(out.Data[i*half:(i+1)*half], cache.Floats[int(at)*half:])
	}
	return out, nil
}
