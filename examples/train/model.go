package main

import (
	"context"
	"math"
	"math/rand/v2"
)

// param is a matrix that is learned, rows × cols, with the gradient of the loss by it.
type param struct {
	rows, cols int
	x, grad    []float64
}

func newParam(rows, cols int, scale float64, rng *rand.Rand) *param {
	p := &param{rows: rows, cols: cols, x: make([]float64, rows*cols), grad: make([]float64, rows*cols)}
	for i := range p.x {
		p.x[i] = scale * rng.NormFloat64()
	}
	return p
}

// model is the block. It keeps what the forward pass leaves for the backward pass.
type model struct {
	shape
	alphabet                   int
	char, place                *param
	wq, wk, wv, wo             *param
	w1, w2, out                *param
	x, nx, q, k, v, o          []float64 // tokens × width
	y, ny, u, h, z, nz, logits []float64
	invX, invY, invZ           []float64 // 1/rms of the rows that are normalized
	dq, dk, dv, do             []float64
}

func newModel(s shape, alphabet int, rng *rand.Rand) *model {
	e, h := s.width(), s.hidden
	in := func(n int) float64 { return 1 / math.Sqrt(float64(n)) }
	return &model{
		shape: s, alphabet: alphabet,
		char: newParam(alphabet, e, 0.5, rng), place: newParam(s.length, e, 0.5, rng),
		wq: newParam(e, e, in(e), rng), wk: newParam(e, e, in(e), rng), wv: newParam(e, e, in(e), rng), wo: newParam(e, e, 0.5*in(e), rng),
		w1: newParam(e, h, in(e), rng), w2: newParam(h, e, 0.5*in(h), rng), out: newParam(e, alphabet, 0.5*in(e), rng),
	}
}

func (m *model) params() []*param {
	return []*param{m.char, m.place, m.wq, m.wk, m.wv, m.wo, m.w1, m.w2, m.out}
}

// forward computes the logits.
func (m *model) forward(ctx context.Context, a *attention, in []int) error {
	t, e := m.tokens(), m.width()
	m.x = make([]float64, t*e)
	for i, id := range in {
		for c := range e {
			m.x[i*e+c] = m.char.x[id*e+c] + m.place.x[i%m.length*e+c]
		}
	}
	m.nx, m.invX = normalize(m.x, e)
	m.q, m.k, m.v = multiply(m.nx, m.wq), multiply(m.nx, m.wk), multiply(m.nx, m.wv)
	m.o = make([]float64, t*e)
	if err := a.run(ctx, m.q, m.k, m.v, m.o); err != nil {
		return err
	}
	m.y = sum(m.x, multiply(m.o, m.wo))
	m.ny, m.invY = normalize(m.y, e)
	m.u = multiply(m.ny, m.w1)
	m.h = make([]float64, len(m.u))
	for i, x := range m.u {
		m.h[i] = x / (1 + math.Exp(-x))
	}
	m.z = sum(m.y, multiply(m.h, m.w2))
	m.nz, m.invZ = normalize(m.z, e)
	m.logits = multiply(m.nz, m.out)
	return nil
}

// loss is the mean cross-entropy of the characters that follow; its gradient with respect to the logits takes their place.
func (m *model) loss(want []int) float64 {
	n, total := m.alphabet, 0.0
	for i, id := range want {
		row := m.logits[i*n : (i+1)*n]
		top, z := math.Inf(-1), 0.0
		for _, x := range row {
			top = math.Max(top, x)
		}
		for _, x := range row {
			z += math.Exp(x - top)
		}
		total += top + math.Log(z) - row[id]
		for c, x := range row {
			row[c] = math.Exp(x-top) / z / float64(len(want))
		}
		row[id] -= 1 / float64(len(want))
	}
	return total / float64(len(want))
}

// step computes the loss of a batch and its gradients with respect to all parameters.
func (m *model) step(ctx context.Context, a *attention, in, want []int) (float64, error) {
	if err := m.forward(ctx, a, in); err != nil {
		return 0, err
	}
	loss := m.loss(want)
	for _, p := range m.params() {
		clear(p.grad)
	}
	e := m.width()
	dz := normalizeBackward(m.nz, m.invZ, multiplyBackward(m.nz, m.out, m.logits), e)
	dh := multiplyBackward(m.h, m.w2, dz)
	for i, x := range m.u {
		s := 1 / (1 + math.Exp(-x))
		dh[i] *= s * (1 + x*(1-s))
	}
	dy := sum(dz, normalizeBackward(m.ny, m.invY, multiplyBackward(m.ny, m.w1, dh), e))
	m.do = multiplyBackward(m.o, m.wo, dy)
	m.dq, m.dk, m.dv = make([]float64, len(m.q)), make([]float64, len(m.k)), make([]float64, len(m.v))
	if err := a.differentiate(ctx, m.do, m.dq, m.dk, m.dv); err != nil {
		return 0, err
	}
	dn := sum(multiplyBackward(m.nx, m.wq, m.dq), sum(multiplyBackward(m.nx, m.wk, m.dk), multiplyBackward(m.nx, m.wv, m.dv)))
	dx := sum(dy, normalizeBackward(m.nx, m.invX, dn, e))
	for i, id := range in {
		for c := range e {
			m.char.grad[id*e+c] += dx[i*e+c]
			m.place.grad[i%m.length*e+c] += dx[i*e+c]
		}
	}
	return loss, nil
}

// continueText lets the model go on from a start as long as a sequence, always taking the likeliest character.
func (m *model) continueText(ctx context.Context, a *attention, start []int, n int) ([]int, error) {
	said := append([]int(nil), start...)
	for range n {
		in := make([]int, m.tokens())
		copy(in, said[len(said)-m.length:])
		if err := m.forward(ctx, a, in); err != nil {
			return nil, err
		}
		row := m.logits[(m.length-1)*m.alphabet : m.length*m.alphabet]
		best := 0
		for c, x := range row {
			if x > row[best] {
				best = c
			}
		}
		said = append(said, best)
	}
	return said, nil
}

// multiply is x·w for rows x of w.rows numbers.
func multiply(x []float64, w *param) []float64 {
	n := len(x) / w.rows
	out := make([]float64, n*w.cols)
	for i := range n {
		to := out[i*w.cols : (i+1)*w.cols]
		for r, v := range x[i*w.rows : (i+1)*w.rows] {
			for c, y := range w.x[r*w.cols : (r+1)*w.cols] {
				to[c] += v * y
			}
		}
	}
	return out
}

// multiplyBackward gives the gradient with respect to x of a loss whose gradient with respect to x·w is d, and adds to that by w.
func multiplyBackward(x []float64, w *param, d []float64) []float64 {
	n := len(x) / w.rows
	dx := make([]float64, len(x))
	for i := range n {
		from := d[i*w.cols : (i+1)*w.cols]
		for r, v := range x[i*w.rows : (i+1)*w.rows] {
			row, grad, s := w.x[r*w.cols:(r+1)*w.cols], w.grad[r*w.cols:(r+1)*w.cols], 0.0
			for c, g := range from {
				s += g * row[c]
				grad[c] += v * g
			}
			dx[i*w.rows+r] = s
		}
	}
	return dx
}

func sum(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// normalize divides each row of n numbers by its root mean square.
func normalize(x []float64, n int) (y, inv []float64) {
	y = make([]float64, len(x))
	for at := 0; at < len(x); at += n {
		s := 1e-6
		for _, v := range x[at : at+n] {
			s += v * v / float64(n)
		}
		r := 1 / math.Sqrt(s)
		inv = append(inv, r)
		for i := range n {
			y[at+i] = x[at+i] * r
		}
	}
	return y, inv
}

// normalizeBackward is its derivative: dx = (dy − y·mean(dy·y))/rms.
func normalizeBackward(y, inv, dy []float64, n int) []float64 {
	dx := make([]float64, len(y))
	for at := 0; at < len(y); at += n {
		s := 0.0
		for i := range n {
			s += dy[at+i] * y[at+i] / float64(n)
		}
		for i := range n {
			dx[at+i] = (dy[at+i] - y[at+i]*s) * inv[at/n]
		}
	}
	return dx
}

// adam is Kingma and Ba's method, "Adam: A Method for Stochastic Optimization", 2015.
type adam struct {
	steps int
	m, v  [][]float64
}

func newAdam(params []*param) *adam {
	a := &adam{}
	for _, p := range params {
		a.m, a.v = append(a.m, make([]float64, len(p.x))), append(a.v, make([]float64, len(p.x)))
	}
	return a
}

func (a *adam) update(params []*param, rate float64) {
	const b1, b2 = 0.9, 0.99
	a.steps++
	c1, c2 := 1-math.Pow(b1, float64(a.steps)), 1-math.Pow(b2, float64(a.steps))
	for n, p := range params {
		for i, g := range p.grad {
			a.m[n][i] = b1*a.m[n][i] + (1-b1)*g
			a.v[n][i] = b2*a.v[n][i] + (1-b2)*g*g
			p.x[i] -= rate * a.m[n][i] / c1 / (math.Sqrt(a.v[n][i]/c2) + 1e-8)
		}
	}
}
