//go:build cgo

package main

import "math"

// expected computes on the CPU, in float64, what the program computes on the GPU.
func expected(x []float32) []float64 {
	y := make([]float64, len(x))
	for base := 0; base < len(x); base += length * dim { // one head
		for i := range length {
			at := base + i*dim
			for d, o := range attend(x, base, i) {
				y[at+d] = float64(x[at+d]) + o
			}
		}
	}
	return y
}

// attend gives row i of the head at base: q = 2x, k = x, v = 1 − x, keys 0…i.
func attend(x []float32, base, i int) []float64 {
	scores := make([]float64, i+1)
	largest := math.Inf(-1)
	for j := range scores {
		for d := range dim {
			scores[j] += 2 * float64(x[base+i*dim+d]) * float64(x[base+j*dim+d])
		}
		scores[j] /= math.Sqrt(dim)
		largest = math.Max(largest, scores[j])
	}
	o, sum := make([]float64, dim), 0.0
	for j, s := range scores {
		p := math.Exp(s - largest)
		sum += p
		for d := range o {
			o[d] += p * float64(1-x[base+j*dim+d])
		}
	}
	for d := range o {
		o[d] /= sum
	}
	return o
}

func largestDifference(got []float32, want []float64) float64 {
	worst := 0.0
	for i := range got {
		worst = math.Max(worst, math.Abs(float64(got[i])-want[i])) // NaN stays NaN
	}
	return worst
}
