package ref

import (
	"fmt"
	"math"

	"github.com/x448/float16"
)

// DType is the storage type of a tensor's elements.
type DType int

// The storage types.
const (
	F32 DType = iota
	F16
	BF16
)

// String is the type's short name: f32, f16, bf16.
func (t DType) String() string {
	switch t {
	case F32:
		return "f32"
	case F16:
		return "f16"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("DType(%d)", int(t))
}

// ParseDType is the inverse of String.
func ParseDType(name string) (DType, error) {
	for _, t := range []DType{F32, F16, BF16} {
		if t.String() == name {
			return t, nil
		}
	}
	return 0, fmt.Errorf("ref: dtype %q: want f32, f16 or bf16", name)
}

// Size is the number of bytes of an element.
func (t DType) Size() int {
	if t == F32 {
		return 4
	}
	return 2
}

// Round is x rounded to the nearest value of the type, ties to even.
func (t DType) Round(x float32) float32 {
	switch t {
	case F16:
		return float16.Fromfloat32(x).Float32()
	case BF16:
		return bf16ToFloat32(bf16FromFloat32(x))
	}
	return x
}

// RoundAll rounds every element in place and returns the slice.
func (t DType) RoundAll(x []float32) []float32 {
	if t != F32 {
		for i := range x {
			x[i] = t.Round(x[i])
		}
	}
	return x
}

// Ulp is the distance between neighbouring values of the type at |x|: 2^(e − p) with x in
// [2^e, 2^(e+1)) and p explicit mantissa bits, and never less than the smallest subnormal.
func (t DType) Ulp(x float64) float64 {
	mantissa, lowest := 23, -149
	switch t {
	case F16:
		mantissa, lowest = 10, -24
	case BF16:
		mantissa, lowest = 7, -133
	}
	x = math.Abs(x)
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return math.Ldexp(1, lowest)
	}
	_, e := math.Frexp(x) // x = f · 2^e, f in [½, 1)
	return math.Ldexp(1, max(e-1-mantissa, lowest))
}

// Encode writes the elements, rounded to the type, little-endian.
func (t DType) Encode(x []float32) []byte {
	out := make([]byte, len(x)*t.Size())
	t.EncodeTo(out, x)
	return out
}

// EncodeTo is Encode into dst, which holds at least len(x) elements.
func (t DType) EncodeTo(dst []byte, x []float32) {
	for i, v := range x {
		switch t {
		case F16:
			put16(dst[2*i:], float16.Fromfloat32(v).Bits())
		case BF16:
			put16(dst[2*i:], bf16FromFloat32(v))
		default:
			put32(dst[4*i:], math.Float32bits(v))
		}
	}
}

// Decode is the inverse of Encode; float32 holds every value of every type.
func (t DType) Decode(b []byte) []float32 {
	out := make([]float32, len(b)/t.Size())
	for i := range out {
		switch t {
		case F16:
			out[i] = float16.Frombits(get16(b[2*i:])).Float32()
		case BF16:
			out[i] = bf16ToFloat32(get16(b[2*i:]))
		default:
			out[i] = math.Float32frombits(get32(b[4*i:]))
		}
	}
	return out
}

func put16(b []byte, v uint16) { b[0], b[1] = byte(v), byte(v>>8) }
func get16(b []byte) uint16    { return uint16(b[0]) | uint16(b[1])<<8 }
func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}
func get32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
