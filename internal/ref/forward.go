package ref

import "math"

var negInf = math.Inf(-1)

// Forward computes o [B, Hq, Nq, Dv] and the natural-log lse [B, Hq, Nq, 1].
func Forward(p Problem) (o, lse Array, err error) {
	if err := p.Check(); err != nil {
		return Array{}, Array{}, err
	}
	o = NewArray(p.Q.B, p.Q.H, p.Q.N, p.V.D)
	lse = NewArray(p.Q.B, p.Q.H, p.Q.N, 1)
	all := AllRows(p.Q)
	parallel(len(all), func(n int) {
		r := all[n]
		lse.Row(r.B, r.H, r.I)[0] = p.forwardRow(r, o.Row(r.B, r.H, r.I))
	})
	return o, lse, nil
}

// MaxLogits are the largest scores of each batch entry and query head, [B·Hq]: max_ij s_ij over all pairs that may attend, −∞ where there
// is none. Sinks are no scores. A score that is NaN or +∞, with which no softmax is a number, makes its head's NaN.
func MaxLogits(p Problem) ([]float64, error) { return p.maxLogits((*Problem).rowMaximum) }

// maxLogits takes the largest of what rows have.
func (p *Problem) maxLogits(of func(*Problem, Row) float64) ([]float64, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	all := AllRows(p.Q)
	rows := make([]float64, len(all))
	parallel(len(all), func(n int) { rows[n] = of(p, all[n]) })
	out := make([]float64, p.Q.B*p.Q.H)
	for i := range out {
		out[i] = negInf
		for _, m := range rows[i*p.Q.N : (i+1)*p.Q.N] {
			out[i] = math.Max(out[i], m) // NaN stays
		}
	}
	return out, nil
}

// rowMaximum is the largest score of a row.
func (p *Problem) rowMaximum(r Row) float64 {
	m := negInf
	if r.I >= p.queries(r.B) {
		return m
	}
	s := make([]float64, p.K.N)
	p.scores(r, s, nil)
	for _, s := range s {
		m = math.Max(m, s)
	}
	if math.IsInf(m, 1) {
		return math.NaN()
	}
	return m
}

// Row names one query: batch, query head and position.
type Row struct{ B, H, I int }

// AllRows lists every row of q.
func AllRows(q Tensor) []Row {
	out := make([]Row, 0, q.B*q.H*q.N)
	for b := range q.B {
		for h := range q.H {
			for i := range q.N {
				out = append(out, Row{b, h, i})
			}
		}
	}
	return out
}

// ForwardRows computes o (len(rows) × Dv) and lse (len(rows)) of the named rows alone: what a
// benchmark compares a sample of a large result with.
func ForwardRows(p Problem, rows []Row) (o [][]float64, lse []float64, err error) {
	if err := p.checkRows(rows); err != nil {
		return nil, nil, err
	}
	o, lse = make([][]float64, len(rows)), make([]float64, len(rows))
	parallel(len(rows), func(n int) {
		o[n] = make([]float64, p.V.D)
		lse[n] = p.forwardRow(rows[n], o[n])
	})
	return o, lse, nil
}

// forwardRow fills one row of o, which is zero, and returns its lse.
func (p *Problem) forwardRow(r Row, o []float64) (lse float64) {
	if r.I >= p.queries(r.B) {
		return negInf
	}
	s := make([]float64, p.K.N)
	p.scores(r, s, nil)
	lse = p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return lse
	}
	for j, s := range s {
		if s == negInf {
			continue
		}
		axpy(math.Exp(s-lse)*p.weight(r.B, r.H, r.I, j), p.V.Row(r.B, r.H/p.group(), j), o)
	}
	return lse
}

// scores fills s with the row's scores, −∞ where the row may not attend. Where slope is not nil it
// receives ∂s/∂(scale·q·k), which differs from 1 only with a softcap or functions.
func (p *Problem) scores(r Row, s, slope []float64) {
	for j := range s {
		if !p.Allows(r.B, r.H, r.I, j) {
			s[j] = negInf
			continue
		}
		before, by := p.beforeFunctions(r, j)
		s[j] = before
		if slope != nil {
			slope[j] = by
		}
		if !p.Score.Identity() {
			value, by := p.score.Slope(p.point(r, j, s[j]))
			s[j] = value
			if slope != nil {
				slope[j] *= by
			}
		}
		addBiases(&p.Biases, &s[j], r, j)
	}
}

// beforeFunctions is a score as score functions find it, and its derivative with respect to scale·q·k.
func (p *Problem) beforeFunctions(r Row, j int) (s, slope float64) {
	s, slope = p.scale()*dot(p.Q.Row(r.B, r.H, r.I), p.K.Row(r.B, r.H/p.group(), j)), 1
	if p.Softcap > 0 {
		t := math.Tanh(s / p.Softcap)
		s, slope = p.Softcap*t, 1-t*t
	}
	if p.Slopes != nil {
		s -= float64(p.Slopes[r.H]) * math.Abs(float64(p.diagonal(r.B, r.I)-j))
	}
	return s, slope
}

// logSumExp is log Σ_j exp(s_j), the head's sink included; −∞ for an empty sum.
func (p *Problem) logSumExp(h int, s []float64) float64 {
	m := negInf
	for _, s := range s {
		m = math.Max(m, s)
	}
	if p.Sinks != nil {
		m = math.Max(m, float64(p.Sinks[h]))
	}
	if math.IsInf(m, -1) {
		return m
	}
	sum := 0.0
	for _, s := range s {
		sum += math.Exp(s - m)
	}
	if p.Sinks != nil {
		sum += math.Exp(float64(p.Sinks[h]) - m)
	}
	return m + math.Log(sum)
}

// dot is Σ x·y.
func dot(x, y []float32) float64 {
	var a, b, c, d float64
	y = y[:len(x)]
	n := len(x) &^ 3
	for i := 0; i < n; i += 4 {
		a += float64(x[i]) * float64(y[i])
		b += float64(x[i+1]) * float64(y[i+1])
		c += float64(x[i+2]) * float64(y[i+2])
		d += float64(x[i+3]) * float64(y[i+3])
	}
	for i := n; i < len(x); i++ {
		a += float64(x[i]) * float64(y[i])
	}
	return a + b + c + d
}

// axpy is y += a·x.
func axpy(a float64, x []float32, y []float64) {
	if a == 0 {
		return
	}
	y = y[:len(x)]
	for i, x := range x {
		y[i] += a * float64(x)
	}
}
