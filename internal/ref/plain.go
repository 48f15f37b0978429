package ref

import "math"

// Plain attention is what an unfused program computes in the inputs' own dtype: q·kᵀ, its multiple by
// scale and its softcap are each rounded to the dtype, ALiBi, bias and softmax are fp32, P and o are
// rounded to the dtype; sums are fp32. Its distance from the oracle is the yardstick for everybody
// else's.

// PlainForward computes o and lse in the dtype t, the inputs already rounded to it.
func PlainForward(p Problem, t DType) (o, lse Array, err error) {
	if err := p.Check(); err != nil {
		return Array{}, Array{}, err
	}
	o = NewArray(p.Q.B, p.Q.H, p.Q.N, p.V.D)
	lse = NewArray(p.Q.B, p.Q.H, p.Q.N, 1)
	all := AllRows(p.Q)
	parallel(len(all), func(n int) {
		r := all[n]
		lse.Row(r.B, r.H, r.I)[0] = p.plainRow(r, t, o.Row(r.B, r.H, r.I))
	})
	return o, lse, nil
}

// Nudged is the problem with every sum q·k off by the relative amount eps before plain attention rounds it. A sum may lie so near
// the middle between two numbers of the dtype that the order of its terms decides to which it is rounded; a score of 200 in bf16
// then differs by 1, and its weight by a factor e. Plain attention nudged up and down shows what programs that round their scores
// may make of such ties. The oracle takes no notice.
func (p Problem) Nudged(eps float64) Problem {
	p.nudge = float32(eps)
	return p
}

// RoundedOnce is the problem whose scores plain attention rounds once, after scaling, as a program does that scales within its
// product. The oracle takes no notice.
func (p Problem) RoundedOnce() Problem {
	p.roundOnce = true
	return p
}

// PlainForwardRows is PlainForward for the named rows alone.
func PlainForwardRows(p Problem, t DType, rows []Row) (o [][]float64, lse []float64, err error) {
	if err := p.checkRows(rows); err != nil {
		return nil, nil, err
	}
	o, lse = make([][]float64, len(rows)), make([]float64, len(rows))
	parallel(len(rows), func(n int) {
		o[n] = make([]float64, p.V.D)
		lse[n] = p.plainRow(rows[n], t, o[n])
	})
	return o, lse, nil
}

// PlainMaxLogits is MaxLogits of scores in the dtype t.
func PlainMaxLogits(p Problem, t DType) ([]float64, error) {
	return p.maxLogits(func(p *Problem, r Row) float64 {
		m := negInf
		if r.I >= p.queries(r.B) {
			return m
		}
		s := make([]float32, p.K.N)
		p.plainScores(r, t, s, nil)
		for _, s := range s {
			m = math.Max(m, float64(s))
		}
		return m
	})
}

// plainRow fills one row of o and returns its lse.
func (p *Problem) plainRow(r Row, t DType, o []float64) float64 {
	if r.I >= p.queries(r.B) {
		return negInf
	}
	s := make([]float32, p.K.N)
	p.plainScores(r, t, s, nil)
	lse := p.plainSoftmax(r, t, s)
	sum := make([]float32, len(o))
	for j, w := range s {
		axpy32(t.Round(t.Round(w)*float32(p.weight(r.B, r.H, r.I, j))), p.V.Row(r.B, r.H/p.group(), j), sum)
	}
	for i, x := range sum {
		o[i] = float64(t.Round(x))
	}
	return lse
}

// plainScores is scores in the dtype t.
func (p *Problem) plainScores(r Row, t DType, s, slope []float32) {
	q, hk, scale := p.Q.Row(r.B, r.H, r.I), r.H/p.group(), float32(p.scale())
	diagonal, softcap := p.diagonal(r.B, r.I), float32(p.Softcap)
	for j := range s {
		if !p.Allows(r.B, r.H, r.I, j) {
			s[j] = float32(math.Inf(-1))
			continue
		}
		sum := dot32(q, p.K.Row(r.B, hk, j)) * (1 + p.nudge)
		if !p.roundOnce {
			sum = t.Round(sum)
		}
		s[j] = t.Round(scale * sum)
		if slope != nil {
			slope[j] = 1
		}
		if p.Softcap > 0 {
			y := t.Round(float32(math.Tanh(float64(t.Round(s[j] / softcap)))))
			s[j] = t.Round(softcap * y)
			if slope != nil {
				slope[j] = 1 - y*y
			}
		}
		if p.Slopes != nil {
			s[j] -= p.Slopes[r.H] * float32(math.Abs(float64(diagonal-j)))
		}
		if !p.Score.Identity() {
			value, by := p.score.Slope(p.point(r, j, float64(s[j])))
			s[j] = float32(value)
			if !p.Score.UnitSlope() { // what depends on the score is rounded as the score is
				s[j] = t.Round(s[j])
			}
			if slope != nil {
				slope[j] *= float32(by)
			}
		}
		addBiases(&p.Biases, &s[j], r, j)
	}
}

// plainSoftmax turns scores into P in fp32 and returns lse.
func (p *Problem) plainSoftmax(r Row, t DType, s []float32) (lse float64) {
	m := float32(math.Inf(-1))
	for _, s := range s {
		m = max(m, s)
	}
	if p.Sinks != nil {
		m = max(m, p.Sinks[r.H])
	}
	if math.IsInf(float64(m), -1) {
		clear(s)
		return math.Inf(-1)
	}
	var part [8]float32 // as many partial sums as a vector unit would keep
	for j := range s {
		s[j] = float32(math.Exp(float64(s[j] - m)))
		part[j%8] += s[j]
	}
	l := ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]))
	if p.Sinks != nil {
		l += float32(math.Exp(float64(p.Sinks[r.H] - m)))
	}
	for j := range s {
		s[j] /= l
	}
	return float64(m + float32(math.Log(float64(l))))
}

// dot32 is Σ x·y in fp32, in order, as one thread of a GPU's matrix product sums.
func dot32(x, y []float32) float32 {
	var sum float32
	y = y[:len(x)]
	for i, x := range x {
		sum += x * y[i]
	}
	return sum
}

// axpy32 is y += a·x in fp32.
func axpy32(a float32, x, y []float32) {
	if a == 0 {
		return
	}
	y = y[:len(x)]
	for i, x := range x {
		y[i] += a * x
	}
}
