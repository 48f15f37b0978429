package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/ref"
)

// Tensor is an input or output in row-major order: Floats of F64 (rounded to fp32), F32, F16 and BF16, 0 and 1 of BOOL; Ints of I64 and
// I32.
type Tensor struct {
	Type   string // as safetensors names it
	Shape  []int
	Floats []float32
	Ints   []int64
}

func newTensor(s ref.Stored) (Tensor, error) {
	t := Tensor{Type: s.DType, Shape: s.Shape}
	switch t.Type {
	case "I64", "F64":
		for at := 0; at+8 <= len(s.Data); at += 8 {
			bits := binary.LittleEndian.Uint64(s.Data[at:])
			if t.Type == "I64" {
				t.Ints = append(t.Ints, int64(bits))
			} else {
				t.Floats = append(t.Floats, float32(math.Float64frombits(bits)))
			}
		}
		return t, s.Fits(8)
	case "I32":
		for at := 0; at+4 <= len(s.Data); at += 4 {
			t.Ints = append(t.Ints, int64(int32(binary.LittleEndian.Uint32(s.Data[at:]))))
		}
		return t, s.Fits(4)
	}
	var err error
	t.Floats, err = s.Floats()
	return t, err
}

// real says whether the elements are numbers with fractions.
func (t Tensor) real() bool {
	return t.Type == "F64" || t.Type == "F32" || t.Type == "F16" || t.Type == "BF16"
}

// empty says whether there is no element.
func (t Tensor) empty() bool { return len(t.Floats)+len(t.Ints) == 0 }

// heads is a tensor [B, H, N, D], or [B, N, H·D] of a given number of heads turned into that.
func (t Tensor) heads(name string, heads int) (ref.Tensor, error) {
	if !t.real() {
		return ref.Tensor{}, fmt.Errorf("onnx: %s is of type %s: it must be floating-point", name, t.Type)
	}
	s := t.Shape
	switch {
	case t.empty():
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v is empty", name, s)
	case len(s) == 4:
		if heads != 0 && heads != s[1] {
			return ref.Tensor{}, fmt.Errorf("onnx: %s %v has %d heads, the attribute says %d", name, s, s[1], heads)
		}
		return ref.Tensor{B: s[0], H: s[1], N: s[2], D: s[3], Data: t.Floats}, nil
	case len(s) != 3:
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v: it must have 3 or 4 dimensions", name, s)
	case heads == 0:
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v has 3 dimensions: the number of heads must be given", name, s)
	case s[2]%heads != 0:
		return ref.Tensor{}, fmt.Errorf("onnx: %s %v: %d columns are not divided by %d heads", name, s, s[2], heads)
	}
	out := ref.NewTensor(s[0], heads, s[1], s[2]/heads)
	for _, r := range ref.AllRows(out) {
		at := ((r.B*out.N+r.I)*heads + r.H) * out.D
		copy(out.Row(r.B, r.H, r.I), t.Floats[at:at+out.D])
	}
	return out, nil
}

// flat turns [B, H, N, D] into the order [B, N, H·D].
func flat(a ref.Array) []float64 {
	out := make([]float64, 0, len(a.Data))
	for b := range a.B {
		for n := range a.N {
			for h := range a.H {
				out = append(out, a.Row(b, h, n)...)
			}
		}
	}
	return out
}

// dtype is the storage type, false for one that the library does not have.
func (t Tensor) dtype() (ref.DType, bool) {
	switch t.Type {
	case "F16":
		return ref.F16, true
	case "BF16":
		return ref.BF16, true
	}
	return ref.F32, t.Type == "F32"
}

// behind puts the rows of every head of x behind those of past.
func behind(past, x ref.Tensor) ref.Tensor {
	out := ref.NewTensor(x.B, x.H, past.N+x.N, x.D)
	for b := range x.B {
		for h := range x.H {
			for n := range out.N {
				if n < past.N {
					copy(out.Row(b, h, n), past.Row(b, h, n))
				} else {
					copy(out.Row(b, h, n), x.Row(b, h, n-past.N))
				}
			}
		}
	}
	return out
}
