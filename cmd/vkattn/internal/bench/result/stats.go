package result

import (
	"cmp"
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

// Middle is the one of several rounds' figures that stands for them: their median, and of an even number the lower one of the two in
// the middle. The mean of these two would be a time that nothing took, far from both where they disagree; the lower one was measured,
// and what disturbs a round only ever adds time. It is 0 for no figures.
func Middle(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(figures))[(len(figures)-1)/2]
}

// balancedQuantile is the q-quantile of the runs of all rounds, where each round weighs the same: the shortest run up to which the
// weights of runs sum to q.
func balancedQuantile(rounds [][]float64, q float64) float64 {
	type run struct{ ms, weight float64 }
	var all []run
	for _, round := range rounds {
		for _, ms := range round {
			all = append(all, run{ms, 1 / float64(len(round)*len(rounds))})
		}
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.ms, b.ms) })
	sum := 0.0
	for _, r := range all {
		if sum += r.weight; sum >= q {
			return r.ms
		}
	}
	return all[len(all)-1].ms
}
