package onnx

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/ref"
)

// Scatter is a case of the operator TensorScatter: what [ref.Scatter] takes. Dimensions between batch and rows are together its heads,
// those after rows its columns.
type Scatter struct {
	Cache, Update ref.Tensor
	At            []int // the first row that is written, for each batch entry
	Circular      bool
}

// Scatter checks a case of the operator TensorScatter and translates it. axis is the dimension of rows, not the first, which is the batch;
// write_indices [B] are 0 where they are not given.
func (c *Case) Scatter() (*Scatter, error) {
	if err := c.check("TensorScatter", "axis", "mode"); err != nil {
		return nil, err
	}
	s := &Scatter{}
	if mode, given := c.attrs["mode"]; given {
		if mode != "linear" && mode != "circular" {
			return nil, fmt.Errorf("onnx: attribute mode is %v: it must be linear or circular", mode)
		}
		s.Circular = mode == "circular"
	}
	cache, update := c.in["past_cache"], c.in["update"]
	if _, ok := cache.dtype(); !ok || update.Type != cache.Type {
		return nil, fmt.Errorf("onnx: past_cache is of type %s and update of %s: they must be floating-point, and the same", cache.Type,
			update.Type)
	}
	rank := len(cache.Shape)
	axis, err := c.attrs.integer("axis", -2, -rank, rank-1)
	if err != nil {
		return nil, err
	}
	if axis < 0 {
		axis += rank
	}
	if axis < 1 {
		return nil, fmt.Errorf("onnx: axis is dimension %d of past_cache %v: it must be one behind the batch", axis, cache.Shape)
	}
	if s.Cache, err = cache.rows("past_cache", axis); err != nil {
		return nil, err
	}
	if s.Update, err = update.rows("update", axis); err != nil {
		return nil, err
	}
	for i := range cache.Shape {
		if len(update.Shape) != rank || i != axis && update.Shape[i] != cache.Shape[i] {
			return nil, fmt.Errorf("onnx: update %v does not fit past_cache %v: they may differ in dimension %d alone", update.Shape,
				cache.Shape, axis)
		}
	}
	s.At = make([]int, s.Cache.B)
	if at, ok := c.in["write_indices"]; ok {
		if len(at.Shape) != 1 || len(at.Ints) != s.Cache.B {
			return nil, fmt.Errorf("onnx: write_indices is %s%v: it must be integers [%d]", at.Type, at.Shape, s.Cache.B)
		}
		for b, n := range at.Ints {
			if n < 0 || n >= int64(s.Cache.N) {
				return nil, fmt.Errorf("onnx: write_indices[%d] is %d: it must be from 0 to %d", b, n, s.Cache.N-1)
			}
			s.At[b] = int(n)
		}
	}
	if y, ok := c.out["present_cache"]; !ok || !slices.Equal(y.Shape, cache.Shape) {
		return nil, fmt.Errorf("onnx: output present_cache is %v: it must be past_cache's shape, %v", y.Shape, cache.Shape)
	}
	_, err = ref.Scatter(s.Cache, s.Update, s.At, s.Circular)
	return s, err
}

// rows is a tensor [batch, …, rows, …] as batch, what is between them, rows, and what is behind.
func (t Tensor) rows(name string, axis int) (ref.Tensor, error) {
	if !t.real() {
		return ref.Tensor{}, fmt.Errorf("onnx: %s is of type %s: it must be floating-point", name, t.Type)
	}
	if axis >= len(t.Shape) || t.empty() {
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v has no rows in dimension %d", name, t.Shape, axis)
	}
	x := ref.Tensor{B: t.Shape[0], H: 1, N: t.Shape[axis], D: 1, Data: t.Floats}
	for i, n := range t.Shape {
		switch {
		case i > axis:
			x.D *= n
		case i > 0 && i < axis:
			x.H *= n
		}
	}
	return x, nil
}
