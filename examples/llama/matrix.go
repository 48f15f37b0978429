package main

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// matrix is a matrix [rows, cols] as its file stores it. Rows become fp32 when they are used: a model takes no more memory than its file.
type matrix struct {
	rows, cols int
	of         gguf.Type
	raw        []byte
	stride     int // bytes of a row
}

func newMatrix(of gguf.Type, rows, cols int, raw []byte) *matrix {
	block, bytes := of.Block()
	return &matrix{rows, cols, of, raw, cols / block * bytes}
}

// row writes a row to x.
func (w *matrix) row(x []float32, i int) { w.of.Floats(x[:w.cols], w.raw[i*w.stride:][:w.stride]) }

// multiply gives y[t, r] = Σ_c x[t, c] · w[r, c], plus bias[r] where there is one, for all rows x of cols numbers.
//
// Rows of w are dealt out in small portions, so that no goroutine waits long for the slowest. Each is converted once for all rows of x.
func (w *matrix) multiply(x, bias []float32) []float32 {
	const portion = 8
	n := len(x) / w.cols
	y := make([]float32, n*w.rows)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (w.rows+portion-1)/portion) {
		wait.Go(func() {
			weights := make([]float32, w.cols)
			for {
				first := int(next.Add(portion)) - portion
				if first >= w.rows {
					return
				}
				for r := first; r < min(first+portion, w.rows); r++ {
					w.row(weights, r)
					b := float32(0)
					if bias != nil {
						b = bias[r]
					}
					for t := range n {
						y[t*w.rows+r] = dot(weights, x[t*w.cols:][:w.cols]) + b
					}
				}
			}
		})
	}
	wait.Wait()
	return y
}

// dot has four sums, so that no addition waits for the one before.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + s2 + s3
}

// normalize gives RMSNorm of each row of len(weight) numbers: x_c · weight_c / √(mean x² + ε).
func normalize(x, weight []float32, epsilon float64) []float32 {
	n := len(weight)
	y := make([]float32, len(x))
	for at := 0; at < len(x); at += n {
		sum := 0.0
		for _, v := range x[at : at+n] {
			sum += float64(v) * float64(v)
		}
		scale := float32(1 / math.Sqrt(sum/float64(n)+epsilon))
		for c, v := range x[at : at+n] {
			y[at+c] = v * scale * weight[c]
		}
	}
	return y
}

// add adds y to x.
func add(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// gelu is Gaussian error linear units by tanh.
func gelu(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// gated gives f(gate) · up, element by element.
func gated(f func(float64) float64, gate, up []float32) []float32 {
	y := make([]float32, len(up))
	for i, g := range gate {
		y[i] = float32(f(float64(g))) * up[i]
	}
	return y
}
