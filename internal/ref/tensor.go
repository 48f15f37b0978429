package ref

import "fmt"

// Tensor is a dense [B, H, N, D] array of input values; float32 holds every f16, bf16 and f32
// value exactly.
type Tensor struct {
	B, H, N, D int
	Data       []float32
}

// NewTensor is a tensor of zeros.
func NewTensor(b, h, n, d int) Tensor {
	return Tensor{b, h, n, d, make([]float32, b*h*n*d)}
}

// Row is the D elements at (b, h, n).
func (t Tensor) Row(b, h, n int) []float32 {
	at := ((b*t.H+h)*t.N + n) * t.D
	return t.Data[at : at+t.D : at+t.D]
}

// broadcastRow is Row with every dimension of length 1 standing for any index.
func (t Tensor) broadcastRow(b, h, n int) []float32 {
	return t.Row(first(b, t.B), first(h, t.H), first(n, t.N))
}

// first is 0 for a broadcast dimension (length 1), else the index.
func first(i, length int) int {
	if length == 1 {
		return 0
	}
	return i
}

func (t Tensor) check(name string) error {
	if t.B < 1 || t.H < 1 || t.N < 1 || t.D < 1 {
		return fmt.Errorf("ref: %s is [%d %d %d %d]: every length must be at least 1", name, t.B, t.H, t.N, t.D)
	}
	if want := t.B * t.H * t.N * t.D; len(t.Data) != want {
		return fmt.Errorf("ref: %s [%d %d %d %d] has %d elements, want %d", name, t.B, t.H, t.N, t.D, len(t.Data), want)
	}
	return nil
}

// Array is a dense [B, H, N, D] array of results.
type Array struct {
	B, H, N, D int
	Data       []float64
}

// NewArray is an array of zeros.
func NewArray(b, h, n, d int) Array {
	return Array{b, h, n, d, make([]float64, b*h*n*d)}
}

// Row is the D elements at (b, h, n).
func (a Array) Row(b, h, n int) []float64 {
	at := ((b*a.H+h)*a.N + n) * a.D
	return a.Data[at : at+a.D : at+a.D]
}
