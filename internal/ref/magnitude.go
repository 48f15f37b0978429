package ref

import "math"

// Magnitudes are, for each row [B, Hq, Nq, 1], the largest of |lse| and of |s| over keys that have weight: what roundings of a weight exp(s
// − lse) are in proportion to. 0 where there is no key; +∞ where a score is no number, or infinite.
func Magnitudes(p Problem) (Array, error) {
	if err := p.Check(); err != nil {
		return Array{}, err
	}
	out, all := NewArray(p.Q.B, p.Q.H, p.Q.N, 1), AllRows(p.Q)
	parallel(len(all), func(n int) {
		r := all[n]
		out.Row(r.B, r.H, r.I)[0] = p.magnitude(r)
	})
	return out, nil
}

func (p *Problem) magnitude(r Row) float64 {
	if r.I >= p.queries(r.B) {
		return 0
	}
	s := make([]float64, p.K.N)
	p.scores(r, s, nil)
	lse := p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return 0
	}
	most := math.Abs(lse)
	for _, x := range s {
		if x-lse > -40 { // below, a weight is nothing beside 1, however it is rounded
			most = max(most, math.Abs(x))
		}
	}
	if math.IsNaN(most) {
		return math.Inf(1)
	}
	return most
}
