package bench

import (
	"math"
	"slices"
)

// Quantile returns the q-quantile (0 ≤ q ≤ 1) of values by linear
// interpolation between order statistics: position q·(n−1) in sorted order.
// It is NaN for no values. values is not changed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	pos := q * float64(len(sorted)-1)
	i := int(pos)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	frac := pos - float64(i)
	return sorted[i]*(1-frac) + sorted[i+1]*frac
}

// Median is the 0.5-quantile.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// GeoMean is the geometric mean (Π v)^(1/n), the mean that suits ratios: the
// mean of the inverses is the inverse of the mean. It is NaN for no values and
// for values that are not positive.
func GeoMean(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		if !(v > 0) {
			return math.NaN()
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}
