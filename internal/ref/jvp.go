package ref

import (
	"fmt"
	"math"
)

// Tangents are directions in which the inputs of attention move; nil: an input stays.
type Tangents struct {
	Q, K, V *Tensor // of the shapes of q, k and v
	Bias    *Tensor // of the shape of the bias
	Sinks   *Tensor // [1, 1, 1, heads]
}

// JVP computes how o and lse move with their inputs, the product of attention's Jacobian and the tangents (forward mode):
//
//	ṡ_ij  = s′(scale·q_i·k_j) · scale · (q̇_i·k_j + q_i·k̇_j) + ḃias_ij    s′ the derivative of softcap and score function
//	lsė_i = Σ_j p_ij ṡ_ij + exp(sink − lse_i)·ṡink                      p with the sink in its sum
//	ȯ_i   = Σ_j z_ij p_ij (ṡ_ij v_j + v̇_j) − lsė_i·o_i                   z the weights of dropout
//
// Rows that see nothing move with their sink alone.
func JVP(p Problem, d Tangents) (o, lse Array, err error) {
	return p.jvp(d, (*Problem).jvpRow)
}

// PlainJVP is JVP in the dtype t, as an unfused program computes it: sums of products, ṡ, p and ṗ = p ∘ (ṡ − lsė) are rounded.
func PlainJVP(p Problem, t DType, d Tangents) (o, lse Array, err error) {
	return p.jvp(d, func(p *Problem, d *Tangents, r Row, o []float64) float64 { return p.plainJVPRow(d, r, t, o) })
}

// JVPPacked is JVP of packed sequences.
func JVPPacked(p Problem, startsQ, startsK []int32, d Tangents) (o, lse Array, err error) {
	if err := p.checkPacked(startsQ, startsK); err != nil {
		return Array{}, Array{}, err
	}
	if err := p.checkTangents(&d); err != nil {
		return Array{}, Array{}, err
	}
	o, lse = NewArray(1, p.Q.H, p.Q.N, p.V.D), NewArray(1, p.Q.H, p.Q.N, 1)
	for n := range len(startsQ) - 1 {
		one, start := p.sequence(startsQ, startsK, n), int(startsQ[n])
		part := func(x *Tensor, starts []int32, n int) *Tensor {
			if x == nil {
				return nil
			}
			of := gather(*x, int(starts[n]), int(starts[n+1]-starts[n]))
			return &of
		}
		of := Tangents{Q: part(d.Q, startsQ, n), K: part(d.K, startsK, n), V: part(d.V, startsK, n), Sinks: d.Sinks}
		parallel(one.Q.H*one.Q.N, func(x int) {
			h, i := x/one.Q.N, x%one.Q.N
			lse.Row(0, h, start+i)[0] = one.jvpRow(&of, Row{0, h, i}, o.Row(0, h, start+i))
		})
	}
	return o, lse, nil
}

func (p *Problem) jvp(d Tangents, row func(*Problem, *Tangents, Row, []float64) float64) (o, lse Array,
	err error) {
	if err := p.Check(); err != nil {
		return Array{}, Array{}, err
	}
	if err := p.checkTangents(&d); err != nil {
		return Array{}, Array{}, err
	}
	o, lse = NewArray(p.Q.B, p.Q.H, p.Q.N, p.V.D), NewArray(p.Q.B, p.Q.H, p.Q.N, 1)
	all := AllRows(p.Q)
	parallel(len(all), func(n int) {
		r := all[n]
		lse.Row(r.B, r.H, r.I)[0] = row(p, &d, r, o.Row(r.B, r.H, r.I))
	})
	return o, lse, nil
}

func (p *Problem) checkTangents(d *Tangents) error {
	for _, x := range []struct {
		name    string
		tangent *Tensor
		of      *Tensor
	}{{"q", d.Q, &p.Q}, {"k", d.K, &p.K}, {"v", d.V, &p.V}, {"bias", d.Bias, p.Bias}} {
		if x.tangent == nil {
			continue
		}
		if err := x.tangent.check("the tangent of " + x.name); err != nil {
			return err
		}
		if a, b := x.tangent, x.of; b == nil || a.B != b.B || a.H != b.H || a.N != b.N || a.D != b.D {
			return fmt.Errorf("ref: the tangent of %s is [%d %d %d %d], which is not the shape of %[1]s", x.name, a.B, a.H, a.N, a.D)
		}
	}
	if d.Sinks != nil && len(d.Sinks.Data) != len(p.Sinks) {
		return fmt.Errorf("ref: %d tangents of %d sinks", len(d.Sinks.Data), len(p.Sinks))
	}
	return nil
}

// sinkTangent is what the tangent of a row's sink adds to that of its lse.
func (p *Problem) sinkTangent(d *Tangents, r Row) float64 {
	if d.Sinks == nil || r.I >= p.queries(r.B) {
		return 0
	}
	s, slope := make([]float64, p.K.N), make([]float64, p.K.N)
	p.scores(r, s, slope)
	lse := p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return 0
	}
	return math.Exp(float64(p.Sinks[r.H])-lse) * float64(d.Sinks.Data[r.H])
}

// scoreTangent is ṡ before the derivative of functions: scale · (q̇·k + q·k̇).
func (p *Problem) scoreTangent(d *Tangents, r Row, j int) (ds float64) {
	hk := r.H / p.group()
	if d.Q != nil {
		ds += dot(d.Q.Row(r.B, r.H, r.I), p.K.Row(r.B, hk, j))
	}
	if d.K != nil {
		ds += dot(p.Q.Row(r.B, r.H, r.I), d.K.Row(r.B, hk, j))
	}
	return ds * p.scale()
}

// biasTangent is what the tangent of the bias adds to ṡ.
func (d *Tangents) biasTangent(r Row, j int) (x float64) {
	addBiases(&Biases{Bias: d.Bias}, &x, r, j)
	return x
}

// eachWeight calls f with each key that a row sees: its weight, that of dropout, and the slope of its score.
func (p *Problem) eachWeight(r Row, f func(j int, w, z, slope float64)) {
	if r.I >= p.queries(r.B) {
		return
	}
	s, slope := make([]float64, p.K.N), make([]float64, p.K.N)
	p.scores(r, s, slope)
	lse := p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return
	}
	for j := range s {
		if s[j] != negInf {
			f(j, math.Exp(s[j]-lse), p.weight(r.B, r.H, r.I, j), slope[j])
		}
	}
}

func (p *Problem) jvpRow(d *Tangents, r Row, o []float64) (dlse float64) {
	hk, of := r.H/p.group(), make([]float64, len(o))
	dlse = p.sinkTangent(d, r)
	p.eachWeight(r, func(j int, w, z, slope float64) {
		ds := p.scoreTangent(d, r, j)*slope + d.biasTangent(r, j)
		dlse += w * ds
		axpy(z*w*ds, p.V.Row(r.B, hk, j), o)
		axpy(z*w, p.V.Row(r.B, hk, j), of)
		if d.V != nil {
			axpy(z*w, d.V.Row(r.B, hk, j), o)
		}
	})
	for x := range o {
		o[x] -= dlse * of[x]
	}
	return dlse
}

func (p *Problem) plainJVPRow(d *Tangents, r Row, t DType, o []float64) float64 {
	if r.I >= p.queries(r.B) {
		return 0
	}
	s, slope := make([]float32, p.K.N), make([]float32, p.K.N)
	p.plainScores(r, t, s, slope)
	seen := make([]bool, len(s))
	for j := range s {
		seen[j] = !math.IsInf(float64(s[j]), -1)
	}
	if math.IsInf(p.plainSoftmax(r, t, s), -1) {
		return 0
	}
	hk, scale := r.H/p.group(), float32(p.scale())
	ds, dlse := make([]float32, len(s)), float32(p.sinkTangent(d, r))
	for j := range s {
		if !seen[j] {
			continue
		}
		var sum float32
		if d.Q != nil {
			sum += t.Round(dot32(d.Q.Row(r.B, r.H, r.I), p.K.Row(r.B, hk, j)))
		}
		if d.K != nil {
			sum += t.Round(dot32(p.Q.Row(r.B, r.H, r.I), d.K.Row(r.B, hk, j)))
		}
		ds[j] = t.Round(t.Round(scale*sum)*slope[j]) + float32(d.biasTangent(r, j))
		dlse += s[j] * ds[j]
	}
	sum, moved := make([]float32, len(o)), make([]float32, len(o))
	for j, w := range s {
		if !seen[j] {
			continue
		}
		z := float32(p.weight(r.B, r.H, r.I, j))
		axpy32(t.Round(t.Round(w*(ds[j]-dlse))*z), p.V.Row(r.B, hk, j), sum)
		if d.V != nil {
			axpy32(t.Round(t.Round(w)*z), d.V.Row(r.B, hk, j), moved)
		}
	}
	for i := range o {
		o[i] = float64(t.Round(t.Round(sum[i]) + t.Round(moved[i])))
	}
	return float64(dlse)
}

// JVPRounding bounds what roundings may make of the tangents of o and lse in programs that take P of an lse in fp32 and round P and P ∘ ṡ
// to the dtype t: each term of a sum is off by a few units of t, and by what a rounding of its score or of lse makes of its weight. Terms
// count by their size, products of q̇·k and q·k̇ among them, so that what cancels is bounded too.
func JVPRounding(p Problem, t DType, d Tangents) (o, lse Array, err error) {
	if err := p.Check(); err != nil {
		return Array{}, Array{}, err
	}
	if err := p.checkTangents(&d); err != nil {
		return Array{}, Array{}, err
	}
	large, err := Magnitudes(p)
	if err != nil {
		return Array{}, Array{}, err
	}
	return p.jvp(d, func(p *Problem, d *Tangents, r Row, o []float64) float64 {
		const (
			f32   = 1.0 / (1 << 22) // a few roundings, relative
			times = 4
		)
		unit := t.Ulp(1) / 2
		off := times * (unit + f32*(1+large.Row(r.B, r.H, r.I)[0]))
		lse := p.jvpSize(d, r, o)
		for x := range o {
			o[x] *= off
		}
		return lse * times * f32 * (1 + large.Row(r.B, r.H, r.I)[0])
	})
}

// jvpSize fills in the sums of sizes of the terms of a row of ȯ, and gives that of lsė.
func (p *Problem) jvpSize(d *Tangents, r Row, o []float64) (dlse float64) {
	size := func(x, y []float32) (sum float64) {
		for i := range x {
			sum += math.Abs(float64(x[i]) * float64(y[i]))
		}
		return sum * math.Abs(p.scale())
	}
	hk, of := r.H/p.group(), make([]float64, len(o))
	dlse = math.Abs(p.sinkTangent(d, r))
	p.eachWeight(r, func(j int, w, z, slope float64) {
		ds := 0.0
		if d.Q != nil {
			ds += size(d.Q.Row(r.B, r.H, r.I), p.K.Row(r.B, hk, j))
		}
		if d.K != nil {
			ds += size(p.Q.Row(r.B, r.H, r.I), d.K.Row(r.B, hk, j))
		}
		ds = ds*math.Abs(slope) + math.Abs(d.biasTangent(r, j))
		dlse += w * ds
		for x, v := range p.V.Row(r.B, hk, j) {
			o[x] += z * w * ds * math.Abs(float64(v))
			of[x] += z * w * math.Abs(float64(v))
		}
		if d.V != nil {
			for x, v := range d.V.Row(r.B, hk, j) {
				o[x] += z * w * math.Abs(float64(v))
			}
		}
	})
	for x := range o {
		o[x] += dlse * of[x]
	}
	return dlse
}

// JVPRows is JVP for the named rows alone.
func JVPRows(p Problem, rows []Row, d Tangents) (o [][]float64, lse []float64, err error) {
	return p.jvpRows(rows, d, (*Problem).jvpRow)
}

// PlainJVPRows is PlainJVP for the named rows alone.
func PlainJVPRows(p Problem, t DType, rows []Row, d Tangents) (o [][]float64, lse []float64, err error) {
	return p.jvpRows(rows, d, func(p *Problem, d *Tangents, r Row, o []float64) float64 { return p.plainJVPRow(d, r, t, o) })
}

func (p *Problem) jvpRows(rows []Row, d Tangents, row func(*Problem, *Tangents, Row, []float64) float64) (o [][]float64, lse []float64,
	err error) {
	if err := p.checkRows(rows); err != nil {
		return nil, nil, err
	}
	if err := p.checkTangents(&d); err != nil {
		return nil, nil, err
	}
	o, lse = make([][]float64, len(rows)), make([]float64, len(rows))
	parallel(len(rows), func(n int) {
		o[n] = make([]float64, p.V.D)
		lse[n] = row(p, &d, rows[n], o[n])
	})
	return o, lse, nil
}
