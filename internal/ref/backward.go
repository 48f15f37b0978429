package ref

import (
	"fmt"
	"math"
	"sync"
)

// Gradients of a scalar loss by the inputs of attention. DSinks has one element per query head and is
// empty where there is none. DCaptured are those by what Score captures by name, row-major, of tensors
// that have one.
type Gradients struct {
	DQ, DK, DV Array
	BiasGradients
	DSinks    []float64
	DCaptured map[string][]float64
}

// Backward computes the gradients from do = ∂loss/∂o [B, Hq, Nq, Dv] and, where not nil,
// dlse = ∂loss/∂lse [B·Hq·Nq]. With z the dropout weights (1 without dropout):
//
//	dv_j = Σ_i z_ij p_ij do_i
//	δ_i  = do_i·o_i − dlse_i
//	ds   = p ∘ (z ∘ do·vᵀ − δ)               after which softcap's derivative applies
//	dq   = scale · ds·k,   dk = scale · dsᵀ·q
//	dbias = Σ ds over broadcast dimensions,  dsink_h = −Σ_i exp(sink_h − lse_i) δ_i
//	dt[index] = Σ ds · ∂s′/∂t[index] for a captured t of which each pair reads one element, s′ the score function's result
func Backward(p Problem, do Tensor, dlse []float32) (*Gradients, error) {
	if err := p.checkBackward(do, dlse); err != nil {
		return nil, err
	}
	return p.backward(do, dlse), nil
}

func (p *Problem) backward(do Tensor, dlse []float32) *Gradients {
	g := p.newGradients()
	var shared sync.Mutex // guards the gradients with respect to biases, DSinks and DCaptured, which several heads may add to
	// A key head belongs to one call, which therefore owns its dk and dv.
	parallel(p.K.B*p.K.H, func(n int) {
		b, hk := n/p.K.H, n%p.K.H
		s, slope := make([]float64, p.K.N), make([]float64, p.K.N)
		for h := hk * p.group(); h < (hk+1)*p.group(); h++ {
			for i := range p.Q.N {
				r := Row{b, h, i}
				var dl float64
				if dlse != nil {
					dl = float64(dlse[(b*p.Q.H+h)*p.Q.N+i])
				}
				p.backwardRow(r, do.Row(b, h, i), dl, s, slope, g, &shared)
			}
		}
	})
	return g
}

func (p *Problem) newGradients() *Gradients {
	g := &Gradients{
		DQ: NewArray(p.Q.B, p.Q.H, p.Q.N, p.Q.D),
		DK: NewArray(p.K.B, p.K.H, p.K.N, p.K.D),
		DV: NewArray(p.V.B, p.V.H, p.V.N, p.V.D),

		BiasGradients: p.newBiasGradients(),
	}
	if p.Sinks != nil {
		g.DSinks = make([]float64, p.Q.H)
	}
	for name, by := range p.captured {
		if g.DCaptured == nil {
			g.DCaptured = map[string][]float64{}
		}
		g.DCaptured[name] = make([]float64, by.elements)
	}
	return g
}

func (p *Problem) checkBackward(do Tensor, dlse []float32) error {
	if err := p.Check(); err != nil {
		return err
	}
	if err := do.check("do"); err != nil {
		return err
	}
	q := p.Q
	if do.B != q.B || do.H != q.H || do.N != q.N || do.D != p.V.D {
		return fmt.Errorf("ref: do is [%d %d %d %d], want o's shape [%d %d %d %d]",
			do.B, do.H, do.N, do.D, q.B, q.H, q.N, p.V.D)
	}
	if dlse != nil && len(dlse) != q.B*q.H*q.N {
		return fmt.Errorf("ref: dlse has %d elements, want B·Hq·Nq = %d", len(dlse), q.B*q.H*q.N)
	}
	return nil
}

// backwardRow adds what one query row contributes to every gradient; s and slope are scratch [Nk].
func (p *Problem) backwardRow(r Row, do []float32, dlse float64, s, slope []float64, g *Gradients, shared *sync.Mutex) {
	if r.I >= p.queries(r.B) {
		return
	}
	hk, scale := r.H/p.group(), p.scale()
	p.scores(r, s, slope)
	lse := p.logSumExp(r.H, s)
	if math.IsInf(lse, -1) {
		return
	}
	// δ = do·o − dlse, with do·o = Σ_j z p (do·v): the same number without o.
	delta := -dlse
	dp := make([]float64, len(s))
	for j := range s {
		if s[j] == negInf {
			continue
		}
		pij, z := math.Exp(s[j]-lse), p.weight(r.B, r.H, r.I, j)
		dp[j] = z * dot(do, p.V.Row(r.B, hk, j))
		delta += pij * dp[j]
		axpy(z*pij, do, g.DV.Row(r.B, hk, j))
	}
	if p.biased() || p.Sinks != nil || p.captured != nil {
		shared.Lock()
		defer shared.Unlock()
	}
	for j := range s {
		if s[j] == negInf {
			continue
		}
		ds := math.Exp(s[j]-lse) * (dp[j] - delta)
		p.addTo(&g.BiasGradients, r, j, ds)
		for name, by := range p.captured {
			before, _ := p.beforeFunctions(r, j)
			coefficient, index := by.At(p.point(r, j, before))
			g.DCaptured[name][index] += ds * coefficient
		}
		ds *= slope[j] * scale
		axpy(ds, p.K.Row(r.B, hk, j), g.DQ.Row(r.B, r.H, r.I))
		axpy(ds, p.Q.Row(r.B, r.H, r.I), g.DK.Row(r.B, hk, j))
	}
	if p.Sinks != nil {
		g.DSinks[r.H] -= math.Exp(float64(p.Sinks[r.H])-lse) * delta
	}
}
