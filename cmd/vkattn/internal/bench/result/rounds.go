package result

// MergeRounds makes one row of the rounds of a case: the first error if there is one, else the middle round's figures. The first
// round holds the checks and the memory.
func MergeRounds(rounds []Row) Row {
	row := rounds[0]
	for _, r := range rounds {
		if r.Error != "" {
			row = r
			row.Fail(r.Failure)
			return row
		}
		if r.BwdFailure.Error != "" && row.BwdFailure.Error == "" {
			row.Bwd, row.BwdFailure = Pass{}, r.BwdFailure
		}
		if r.JVPFailure.Error != "" && row.JVPFailure.Error == "" {
			row.JVP, row.JVPFailure = Pass{}, r.JVPFailure
		}
	}
	if len(rounds) == 1 {
		return row
	}
	row.Fwd.merge(rounds, func(r *Row) *Pass { return &r.Fwd })
	row.Bwd.merge(rounds, func(r *Row) *Pass { return &r.Bwd })
	row.JVP.merge(rounds, func(r *Row) *Pass { return &r.JVP })
	return row
}

// merge makes one pass of those of all rounds, unless it was not measured. Percentiles are over the runs of all rounds, each round
// counting the same, so that the middle round's median lies between them whatever number of runs each round made. Of a peer no single
// runs are known: its percentiles are the middle ones of the rounds', which are in the order of the rounds' own.
func (p *Pass) merge(rounds []Row, of func(*Row) *Pass) {
	if p.Ms == 0 {
		return
	}
	var ms, wall, p20, p80 []float64
	var runs [][]float64
	n := 0
	for i := range rounds {
		one := of(&rounds[i])
		ms, wall, p20, p80 = append(ms, one.Ms), append(wall, one.WallMs), append(p20, one.P20), append(p80, one.P80)
		if n += one.N; len(one.runs) > 0 {
			runs = append(runs, one.runs)
		}
	}
	work := p.TFLOPS * p.Ms // the same in every round
	p.Ms, p.WallMs, p.Rounds, p.N = Middle(ms), Middle(wall), ms, n
	p.TFLOPS = work / p.Ms
	p.P20, p.P80 = Middle(p20), Middle(p80)
	if len(runs) == len(rounds) {
		p.P20, p.P80 = balancedQuantile(runs, 0.2), balancedQuantile(runs, 0.8)
	}
}
