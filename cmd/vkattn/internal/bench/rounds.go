package bench

import (
	"cmp"
	"slices"
)

// Middle is the one of several rounds' figures that stands for them: their median, and of an even number the lower one of the two in
// the middle. The mean of these two would be a time that nothing took, far from both where they disagree; the lower one was measured,
// and what disturbs a round only ever adds time. It is 0 for no figures.
func Middle(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(figures))[(len(figures)-1)/2]
}

// mergeRounds makes one row of the rounds of a case: the first error if there is one, else the middle round's figures. The first
// round holds the checks and the memory.
func mergeRounds(rounds []Row) Row {
	row := rounds[0]
	for _, r := range rounds {
		if r.Error != "" {
			row = r
			row.Fwd, row.Bwd = Pass{}, Pass{}
			return row
		}
		if r.BwdFailure.Error != "" && row.BwdFailure.Error == "" {
			row.Bwd, row.BwdFailure = Pass{}, r.BwdFailure
		}
	}
	if len(rounds) == 1 {
		return row
	}
	row.Fwd.merge(rounds, func(r *Row) (*Pass, []float64) { return &r.Fwd, r.samples })
	row.Bwd.merge(rounds, func(r *Row) (*Pass, []float64) { return &r.Bwd, r.bwdSamples })
	return row
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
