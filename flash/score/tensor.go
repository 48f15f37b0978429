package score

import (
	"fmt"
	"math"
	"slices"
)

// Type is the type of a captured tensor's elements.
type Type uint8

// The types of elements, of four bytes each.
const (
	Float32 Type = iota + 1
	Int32
)

// String is fp32 or int32.
func (t Type) String() string {
	switch t {
	case Float32:
		return "fp32"
	case Int32:
		return "int32"
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Tensor describes a captured tensor: dense, row-major. A kernel binds it as a storage buffer that it only reads.
type Tensor struct {
	Name   string    // of one that is passed at each call; empty for a table
	Type   Type      //
	Shape  []int     // one to four dimensions
	Floats []float32 // a table's values, where Type is Float32; not to be changed
	Ints   []int32   // a table's values, where Type is Int32; not to be changed
}

// Table says whether the tensor's values are known, and not passed at each call.
func (t Tensor) Table() bool { return t.Floats != nil || t.Ints != nil }

// Elements is the number of elements.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// tensor is a Tensor as expressions share it: the same pointer is the same tensor, and so is the same name.
type tensor struct {
	Tensor
	err error
}

func newTensor(call string, t Tensor, values int) *tensor {
	c := &tensor{Tensor: t}
	fail := func(format string, a ...any) *tensor {
		c.err = fmt.Errorf("score: %s: %s", call, fmt.Sprintf(format, a...))
		return c
	}
	if len(t.Shape) < 1 || len(t.Shape) > 4 {
		return fail("the shape has %d dimensions, must have one to four", len(t.Shape))
	}
	c.Shape = slices.Clone(t.Shape)
	n := int64(1)
	for _, d := range c.Shape {
		if d < 1 || int64(d) > math.MaxInt32 || n > math.MaxInt32/int64(d) {
			return fail("the shape is %v: dimensions must be at least 1, with at most 2³¹−1 elements in all", c.Shape)
		}
		n *= int64(d)
	}
	if t.Table() || t.Name == "" {
		if int64(values) != n {
			return fail("%d values for a shape %v of %d elements", values, c.Shape, n)
		}
	}
	for i, v := range t.Floats {
		if v != v || math.IsInf(float64(v), 1) {
			return fail("value %d is %v: neither NaN nor +∞ may be in a table", i, v)
		}
	}
	return c
}

// FloatTensor is a captured tensor of real numbers. Its zero value is a mistake wherever it is used.
type FloatTensor struct{ t *tensor }

// IntTensor is a captured tensor of integers. Its zero value is a mistake wherever it is used.
type IntTensor struct{ t *tensor }

// Capture declares an fp32 tensor that the caller passes at each call under this name. Two of the same name are one tensor, and must have
// the same shape.
func Capture(name string, shape ...int) FloatTensor {
	return FloatTensor{capture("Capture", name, Float32, shape)}
}

// CaptureInt declares an int32 tensor that the caller passes at each call under this name.
func CaptureInt(name string, shape ...int) IntTensor {
	return IntTensor{capture("CaptureInt", name, Int32, shape)}
}

func capture(call, name string, t Type, shape []int) *tensor {
	call = fmt.Sprintf("%s(%q)", call, name)
	if name == "" {
		return &tensor{err: fmt.Errorf("score: %s: a captured tensor must have a name", call)}
	}
	return newTensor(call, Tensor{Name: name, Type: t, Shape: shape}, 0)
}

// Table is an fp32 tensor of known values, which are copied. −∞ may be among them: a pair whose score becomes −∞ takes no part.
func Table(values []float32, shape ...int) FloatTensor {
	return FloatTensor{newTensor("Table", Tensor{Type: Float32, Shape: shape, Floats: slices.Clone(values)}, len(values))}
}

// TableInt is an int32 tensor of known values, which are copied.
func TableInt(values []int32, shape ...int) IntTensor {
	return IntTensor{newTensor("TableInt", Tensor{Type: Int32, Shape: shape, Ints: slices.Clone(values)}, len(values))}
}

// At is the element at an index for each dimension. An index beyond the shape reads the element at the border.
func (t FloatTensor) At(index ...Int) Float { return Float{load(t.t, kindFloat, index)} }

// At is the element at an index for each dimension. An index beyond the shape reads the element at the border.
func (t IntTensor) At(index ...Int) Int { return Int{load(t.t, kindInt, index)} }

func load(t *tensor, k kind, index []Int) *node {
	if t == nil {
		return bad("At: the tensor is a zero value, made by no function of this package")
	}
	if t.err != nil {
		return &node{err: t.err}
	}
	if len(index) != len(t.Shape) {
		return bad("At: %d indices into %s", len(index), t.describe())
	}
	args := make([]*node, len(index))
	for i, x := range index {
		args[i] = x.n
	}
	n := combine(opLoad, k, args...)
	n.tensor = t
	return n
}

// describe names a tensor in a message.
func (t *tensor) describe() string {
	if t.Name == "" {
		return fmt.Sprintf("a table of shape %v", t.Shape)
	}
	return fmt.Sprintf("%q, a tensor of shape %v", t.Name, t.Shape)
}

// same says whether two tensors are one; an error if they bear one name and differ.
func (t *tensor) same(u *tensor) (bool, error) {
	if t == u {
		return true, nil
	}
	if t.Name == "" || t.Name != u.Name {
		return false, nil
	}
	if t.Type != u.Type || !slices.Equal(t.Shape, u.Shape) {
		return false, fmt.Errorf("score: %q is %v %v and also %v %v", t.Name, t.Type, t.Shape, u.Type, u.Shape)
	}
	return true, nil
}
