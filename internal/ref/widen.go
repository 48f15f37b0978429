package ref

// Widen gives numbers of fp32 in float64.
func Widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, x := range x {
		out[i] = float64(x)
	}
	return out
}
