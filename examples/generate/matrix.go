package main

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
)

// param is a matrix that is learned, rows × cols, with the gradient of the loss by it while training.
type param struct {
	name       string
	rows, cols int
	x, grad    []float32
}

func newParam(name string, rows, cols int, scale float64, rng *rand.Rand) *param {
	p := &param{name: name, rows: rows, cols: cols, x: make([]float32, rows*cols)}
	for i := range p.x {
		p.x[i] = float32(scale * rng.NormFloat64())
	}
	return p
}

// multiply is x·w for rows x of w.rows numbers. A row of the result depends on that row of x alone, to the bit: a sequence gets the same
// logits whatever else is in its batch.
func multiply(x []float32, w *param) []float32 {
	out := make([]float32, len(x)/w.rows*w.cols)
	parallel(len(x)/w.rows, func(from, to int) {
		for i := from; i < to; i++ {
			row := out[i*w.cols : (i+1)*w.cols]
			for r, v := range x[i*w.rows : (i+1)*w.rows] {
				for c, y := range w.x[r*w.cols : (r+1)*w.cols] {
					row[c] += v * y
				}
			}
		}
	})
	return out
}

// multiplyBackward gives the gradient with respect to x of a loss whose gradient with respect to x·w is d, and adds to that by w.
func multiplyBackward(x []float32, w *param, d []float32) []float32 {
	dx := make([]float32, len(x))
	n := len(x) / w.rows
	parallel(n, func(from, to int) {
		for i := from; i < to; i++ {
			for r := range w.rows {
				s := float32(0)
				for c, g := range d[i*w.cols : (i+1)*w.cols] {
					s += g * w.x[r*w.cols+c]
				}
				dx[i*w.rows+r] = s
			}
		}
	})
	parallel(w.rows, func(from, to int) { // each row of w by one goroutine: sums are the same however many there are
		for i := range n {
			row := d[i*w.cols : (i+1)*w.cols]
			for r := from; r < to; r++ {
				v, grad := x[i*w.rows+r], w.grad[r*w.cols:(r+1)*w.cols]
				for c, g := range row {
					grad[c] += v * g
				}
			}
		}
	})
	return dx
}

// parallel cuts n pieces of work into as many runs as there are processors, where it is worth it.
func parallel(n int, work func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), n/16)
	if workers < 2 {
		work(0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { work(i*n/workers, (i+1)*n/workers) })
	}
	wg.Wait()
}

func sum(a, b []float32) []float32 {
	out := make([]float32, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// normalize divides each row of n numbers by its root mean square (RMSNorm; its gains are left out: the matrix behind it can learn them).
func normalize(x []float32, n int) (y, inv []float32) {
	y = make([]float32, len(x))
	for at := 0; at < len(x); at += n {
		s := 1e-6
		for _, v := range x[at : at+n] {
			s += float64(v) * float64(v) / float64(n)
		}
		r := float32(1 / math.Sqrt(s))
		inv = append(inv, r)
		for i := range n {
			y[at+i] = x[at+i] * r
		}
	}
	return y, inv
}

// normalizeBackward is its derivative: dx = (dy − y·mean(dy·y))/rms.
func normalizeBackward(y, inv, dy []float32, n int) []float32 {
	dx := make([]float32, len(y))
	for at := 0; at < len(y); at += n {
		s := float32(0)
		for i := range n {
			s += dy[at+i] * y[at+i] / float32(n)
		}
		for i := range n {
			dx[at+i] = (dy[at+i] - y[at+i]*s) * inv[at/n]
		}
	}
	return dx
}

// silu is x/(1 + exp(−x)).
func silu(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v * sigmoid(v)
	}
	return y
}

func siluBackward(x, dy []float32) []float32 {
	dx := make([]float32, len(x))
	for i, v := range x {
		s := sigmoid(v)
		dx[i] = dy[i] * s * (1 + v*(1-s))
	}
	return dx
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
