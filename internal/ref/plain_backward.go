package ref

import (
	"math"

	"github.com/vkattn/vkattn/flash/score"
)

// PlainBackward is Backward in the dtype t, as automatic differentiation of the plain forward does
// it: back through the softmax in fp32 with P as it was before rounding; do·vᵀ, ds, and each gradient
// rounded to the dtype; sums are fp32.
func PlainBackward(p Problem, t DType, do Tensor, dlse []float32) (*Gradients, error) {
	if err := p.checkBackward(do, dlse); err != nil {
		return nil, err
	}
	return p.plainBackward(t, do, dlse), nil
}

func (p *Problem) plainBackward(t DType, do Tensor, dlse []float32) *Gradients {
	g := p.newGradients()
	for b := range p.K.B {
		heads := make([]plainHead, p.K.H)
		parallel(p.K.H, func(hk int) { heads[hk] = p.plainHeads(b, hk, t, do, dlse, g) })
		// What several heads add to is added up here, in order.
		for hk, part := range heads {
			for n, ds := range part.ds {
				h, i := hk*p.group()+n/p.Q.N, n%p.Q.N
				if p.biased() {
					for j, x := range ds {
						p.addTo(&g.BiasGradients, Row{b, h, i}, j, float64(x))
					}
				}
				if p.Sinks != nil {
					g.DSinks[h] += float64(part.dsink[n])
				}
				for name, by := range p.captured {
					for j, x := range ds {
						coefficient, index := by.At(p.point(Row{b, h, i}, j, float64(part.before[n][j])))
						g.DCaptured[name][index] += float64(t.Round(x * float32(coefficient)))
					}
				}
			}
		}
	}
	for _, x := range g.AllBiases() {
		roundArray(*x, t)
	}
	return g
}

// plainHead is what the query heads of one key head contribute to shared gradients, by row.
type plainHead struct {
	ds     [][]float32
	before [][]float32 // scores as functions find them; nil where none captures anything
	dsink  []float32
}

// plainHeads computes the rows of all query heads that read key head hk; only it writes dk and dv
// there.
func (p *Problem) plainHeads(b, hk int, t DType, do Tensor, dlse []float32, g *Gradients) (out plainHead) {
	dk, dv := NewTensor(1, 1, p.K.N, p.K.D), NewTensor(1, 1, p.V.N, p.V.D)
	scale := float32(p.scale())
	for h := hk * p.group(); h < (hk+1)*p.group(); h++ {
		// The unfused program writes each query head's dk and dv before it sums over the group.
		hdk, hdv := NewTensor(1, 1, p.K.N, p.K.D), NewTensor(1, 1, p.V.N, p.V.D)
		for i := range p.Q.N {
			if i >= p.queries(b) { // padding has gradients of 0
				out.ds, out.before, out.dsink = append(out.ds, make([]float32, p.K.N)), append(out.before, make([]float32, p.K.N)),
					append(out.dsink, 0)
				continue
			}
			r := Row{b, h, i}
			s, slope := make([]float32, p.K.N), make([]float32, p.K.N)
			p.plainScores(r, t, s, slope)
			lse := p.plainSoftmax(r, t, s)
			dp, delta := make([]float32, p.K.N), float32(0)
			for j, w := range s {
				if w == 0 {
					continue
				}
				z := float32(p.weight(b, h, i, j))
				dp[j] = t.Round(z * t.Round(dot32(do.Row(b, h, i), p.V.Row(b, hk, j))))
				delta += w * dp[j]
				axpy32(t.Round(z*t.Round(w)), do.Row(b, h, i), hdv.Row(0, 0, j))
			}
			if dlse != nil {
				delta -= dlse[(b*p.Q.H+h)*p.Q.N+i]
			}
			dq := make([]float32, p.Q.D)
			for j, w := range s {
				dp[j] = t.Round(w * (dp[j] - delta)) // ds from here on
				ds := t.Round(t.Round(dp[j]*slope[j]) * scale)
				axpy32(ds, p.K.Row(b, hk, j), dq)
				axpy32(ds, p.Q.Row(b, h, i), hdk.Row(0, 0, j))
			}
			for d, x := range dq {
				g.DQ.Row(b, h, i)[d] = float64(t.Round(x))
			}
			if p.biased() || p.Sinks != nil || p.captured != nil {
				out.ds = append(out.ds, dp)
			}
			if p.captured != nil {
				out.before = append(out.before, p.plainBefore(r, t))
			}
			if p.Sinks != nil {
				out.dsink = append(out.dsink, -exp32(float64(p.Sinks[h])-lse)*delta)
			}
		}
		axpy32(1, t.RoundAll(hdk.Data), dk.Data)
		axpy32(1, t.RoundAll(hdv.Data), dv.Data)
	}
	for j := range p.K.N {
		for d, x := range dk.Row(0, 0, j) {
			g.DK.Row(b, hk, j)[d] = float64(t.Round(x))
		}
		for d, x := range dv.Row(0, 0, j) {
			g.DV.Row(b, hk, j)[d] = float64(t.Round(x))
		}
	}
	return out
}

// plainBefore is a row of scores as score functions find them, in the dtype t.
func (p Problem) plainBefore(r Row, t DType) []float32 {
	p.Score, p.Biases = score.Function{}, Biases{}
	s := make([]float32, p.K.N)
	p.plainScores(r, t, s, nil)
	for j, x := range s {
		if math.IsInf(float64(x), -1) { // unseen: without weight, whatever the score
			s[j] = 0
		}
	}
	return s
}

func roundArray(a Array, t DType) {
	for i, x := range a.Data {
		a.Data[i] = float64(t.Round(float32(x)))
	}
}

// exp32 is exp in fp32; of −∞ − (−∞), a row with nothing in it, it is 0.
func exp32(x float64) float32 {
	if math.IsNaN(x) || math.IsInf(x, 1) {
		return 0
	}
	return float32(math.Exp(x))
}
