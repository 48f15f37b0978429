package ref

import (
	"fmt"
	"math"
)

// Plain attention's own error is a yardstick for outputs of many elements. Of a few elements it is a matter of luck: one program rounds up
// where another rounds down, and where sums cancel either may be off by many times the other's error. Rounding says how far off a program
// may be that makes no mistake but rounds: a running error analysis to first order (Higham, "Accuracy and Stability of Numerical
// Algorithms", 2002, chapters 3 and 4), element by element. It assumes what kernels here do: sums in fp32 in any order; exp as exact as
// Vulkan demands, 3 + 2|x| ulp; P and dS rounded to the storage type before products; outputs rounded to it.
//
// What exceeds both plain attention's measure and this bound is a mistake. What exceeds only the former is badly conditioned.

// Rounding holds a bound for every element of each output. Those of gradients are empty without do.
type Rounding struct {
	O, LSE     Array // [B, Hq, Nq, Dv] and [B, Hq, Nq, 1]
	DQ, DK, DV Array
}

// Rounds says what a program rounds to the storage type besides what all do.
type Rounds struct {
	Scores bool // scores before the softmax, and do·vᵀ: standard attention
}

// unit is the most that rounding to the type is off by, relative to a normal number; least is what is added to that among the subnormal
// ones. Those of the range of fp32 a device may take for 0.
func (t DType) unit() (unit, least float64) {
	switch t {
	case F16:
		return 0x1p-11, 0x1p-24
	case BF16:
		return 0x1p-8, fp32Least
	}
	return fp32Unit, fp32Least
}

// The unit of the arithmetic, and the smallest normal number.
const (
	fp32Unit  = 0x1p-24
	fp32Least = 0x1p-126
)

// RoundingBounds computes the bounds of the outputs, and of the gradients where do is not nil; dlse may be nil. Softcap, ALiBi, bias and
// sinks are not reckoned with, and an error.
func RoundingBounds(p Problem, t DType, rounds Rounds, do *Tensor, dlse []float32) (*Rounding, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Softcap != 0 || p.Slopes != nil || p.biased() || p.Sinks != nil {
		return nil, fmt.Errorf("ref: bounds of rounding are for attention without softcap, ALiBi, bias and sinks")
	}
	a := &analysis{p: &p, rounds: rounds, do: do, dlse: dlse}
	a.unit, a.least = t.unit()
	q, k, v := p.Q, p.K, p.V
	a.out.O, a.out.LSE = NewArray(q.B, q.H, q.N, v.D), NewArray(q.B, q.H, q.N, 1)
	if do != nil {
		if err := p.checkBackward(*do, dlse); err != nil {
			return nil, err
		}
		a.out.DQ, a.out.DK, a.out.DV = NewArray(q.B, q.H, q.N, q.D), NewArray(k.B, k.H, k.N, k.D), NewArray(v.B, v.H, v.N, v.D)
		a.dk, a.dv = NewArray(k.B, k.H, k.N, k.D), NewArray(v.B, v.H, v.N, v.D)
	}
	for _, r := range AllRows(q) {
		a.row(r)
	}
	if do != nil { // sums over rows are rounded when they are complete
		a.settle(a.out.DK.Data, a.dk.Data)
		a.settle(a.out.DV.Data, a.dv.Data)
	}
	return &a.out, nil
}

type analysis struct {
	p           *Problem
	rounds      Rounds
	do          *Tensor
	dlse        []float32
	unit, least float64 // of the storage type
	out         Rounding
	dk, dv      Array // exact sums, to round
}

// settle adds what rounding an output to the storage type costs.
func (a *analysis) settle(bound, exact []float64) {
	for i, x := range exact {
		bound[i] += 2*a.unit*math.Abs(x) + 2*a.least
	}
}

// sum is the relative error of a sum of n terms in fp32, and a few operations around it.
func sum(n int) float64 { return float64(n+16) * fp32Unit }

// row adds what one query contributes.
func (a *analysis) row(r Row) {
	p, n := a.p, a.p.K.N
	if r.I >= p.queries(r.B) {
		return // exactly 0 and −∞
	}
	hk := r.H / p.group()
	s := make([]float64, n)
	p.scores(r, s, nil)
	lse := p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return // exactly 0 and −∞
	}
	top := negInf
	for _, x := range s {
		top = math.Max(top, x)
	}
	// Scores: e is the relative error of exp(s).
	weights, e, spread := make([]float64, n), make([]float64, n), 0.0
	q := p.Q.Row(r.B, r.H, r.I)
	for j, x := range s {
		if x == negInf {
			continue
		}
		size := math.Abs(p.scale()) * dotAbs(q, p.K.Row(r.B, hk, j)) // products of subnormal numbers are beneath notice beside 8 units
		off := sum(p.Q.D)*size + fp32Unit*(8+8*math.Abs(x-top)+4*(math.Abs(x)+math.Abs(top)))
		if a.rounds.Scores {
			off += 2*a.unit*math.Abs(x) + 2*a.least
		}
		e[j], weights[j] = math.Expm1(off), math.Exp(x-lse)
		spread += weights[j] * e[j]
	}
	lseOff := math.Log1p(spread) + sum(n) + 4*fp32Unit*(math.Abs(lse)+math.Abs(top))
	a.out.LSE.Row(r.B, r.H, r.I)[0] = lseOff
	o, oOff := a.output(r, weights, e, spread)
	if a.do != nil {
		a.gradients(r, s, weights, e, lseOff+2*fp32Unit*math.Abs(lse), o, oOff)
	}
}

// output is the row's o and its bound.
func (a *analysis) output(r Row, weights, e []float64, spread float64) (o, off []float64) {
	p := a.p
	hk, keep := r.H/p.group(), p.keepScale()
	o = make([]float64, p.V.D)
	size := make([]float64, p.V.D)
	off = a.out.O.Row(r.B, r.H, r.I)
	for j, w := range weights {
		z := p.weight(r.B, r.H, r.I, j)
		if w == 0 && e[j] == 0 || z == 0 { // not allowed, or dropped
			continue
		}
		for d, x := range p.V.Row(r.B, hk, j) {
			y := z * math.Abs(float64(x))
			o[d] += z * w * float64(x)
			size[d] += w * y
			off[d] += w*e[j]*y + a.least*y + fp32Least*keep // P among the subnormal numbers, and products
		}
	}
	for d := range off {
		off[d] += math.Abs(o[d])*(spread+sum(len(weights))) + (sum(2*len(weights))+a.unit)*size[d]
	}
	a.settle(off, o)
	return o, off
}

// gradients adds the row's part of the bounds of dq, dk and dv. lseOff is how far off the lse is that P is made again from.
func (a *analysis) gradients(r Row, s, weights, e []float64, lseOff float64, o, oOff []float64) {
	p, n := a.p, a.p.K.N
	hk, scale, keep := r.H/p.group(), math.Abs(p.scale()), p.keepScale()
	do, q := a.do.Row(r.B, r.H, r.I), p.Q.Row(r.B, r.H, r.I)
	delta, deltaOff := 0.0, 0.0
	for d, x := range do {
		y := math.Abs(float64(x))
		delta += float64(x) * o[d]
		deltaOff += y*oOff[d] + sum(len(do))*y*math.Abs(o[d])
	}
	if a.dlse != nil {
		x := float64(a.dlse[(r.B*p.Q.H+r.H)*p.Q.N+r.I])
		delta -= x
		deltaOff += 2 * fp32Unit * math.Abs(x)
	}
	dp, dpOff := make([]float64, n), make([]float64, n)
	for j := range s {
		z := p.weight(r.B, r.H, r.I, j)
		if s[j] == negInf {
			continue
		}
		v := p.V.Row(r.B, hk, j)
		dp[j] = z * dot(do, v)
		dpOff[j] = z*sum(len(do))*dotAbs(do, v) + fp32Least*float64(len(do))
		if a.rounds.Scores { // and δ is the sum of P∘dP
			dpOff[j] += 2*a.unit*math.Abs(dp[j]) + 2*a.least
			deltaOff += weights[j]*dpOff[j] + (weights[j]*(e[j]+a.unit)+a.least)*math.Abs(dp[j])
		}
	}
	dq, dqSize := make([]float64, p.Q.D), make([]float64, p.Q.D)
	dqOff := a.out.DQ.Row(r.B, r.H, r.I)
	rows := sum(2 * p.Q.N * p.group()) // of the sums over queries
	for j, w := range weights {
		if s[j] == negInf {
			continue
		}
		z, off := p.weight(r.B, r.H, r.I, j), math.Expm1(math.Log1p(e[j])+lseOff)
		dv, dvOff := a.dv.Row(r.B, hk, j), a.out.DV.Row(r.B, hk, j)
		for d, x := range do {
			y := z * math.Abs(float64(x))
			dv[d] += z * w * float64(x)
			dvOff[d] += (w*(off+2*a.unit+rows)+a.least)*y + fp32Least*keep
		}
		ds := w * (dp[j] - delta)
		dsOff := (w*off+a.least)*math.Abs(dp[j]-delta) + w*(dpOff[j]+deltaOff) + 4*fp32Unit*w*(math.Abs(dp[j])+math.Abs(delta)) +
			3*a.unit*math.Abs(ds) + 2*a.least*keep // dS may be an operand before dropout's factor, and then smaller by it
		k, dk, dkOff := p.K.Row(r.B, hk, j), a.dk.Row(r.B, hk, j), a.out.DK.Row(r.B, hk, j)
		for d, x := range k {
			y := scale * math.Abs(float64(x))
			dq[d] += scale * ds * float64(x)
			dqSize[d] += math.Abs(ds) * y
			dqOff[d] += dsOff*y + fp32Least*(1+scale)*keep
			y = scale * math.Abs(float64(q[d]))
			dk[d] += scale * ds * float64(q[d])
			dkOff[d] += (dsOff+rows*math.Abs(ds))*y + fp32Least*(1+scale)*keep
		}
	}
	for d := range dqOff {
		dqOff[d] += sum(2*n) * dqSize[d]
	}
	a.settle(dqOff, dq)
}

// dotAbs is Σ |x·y|.
func dotAbs(x, y []float32) float64 {
	sum := 0.0
	for i, x := range x {
		sum += math.Abs(float64(x) * float64(y[i]))
	}
	return sum
}

// Exceeds gives the first element that is farther from right than its bound, or no number where right is one; −1 when there is none. An
// infinity is right where the bound reaches beyond the type's largest number.
func Exceeds(got, right, bound []float64, t DType) int {
	largest := map[DType]float64{F32: math.MaxFloat32, F16: 65504, BF16: 0x1.fep127}[t]
	for i, x := range got {
		e := distance(x, right[i])
		if e <= bound[i] || math.IsInf(x, 0) && x*right[i] > 0 && math.Abs(right[i])+bound[i] >= largest {
			continue
		}
		return i
	}
	return -1
}
