package ref

import (
	"fmt"
	"math"
)

// Stage is how far scores have come.
type Stage int

// The stages of the matrix of scores, in order.
const (
	Products Stage = iota // scale · q·kᵀ
	Scores                // after softcap and ALiBi
	Masked                // after bias too, −∞ where a query may not look: what the softmax is taken of
	Weights               // probabilities, before dropout; 0 in a row with nothing to attend to
)

// String names the stage.
func (s Stage) String() string {
	if s < Products || s > Weights {
		return fmt.Sprintf("Stage(%d)", int(s))
	}
	return [...]string{"products", "scores", "masked scores", "weights"}[s]
}

// At is the problem whose masked scores are this one's scores at a stage before that: without what comes later. From Masked on it is the
// problem itself.
func (s Stage) At(p Problem) Problem {
	if s >= Masked {
		return p
	}
	early := Options{Scale: p.Scale}
	if s == Scores { // the diagonal of ALiBi is as it was
		early.Softcap, early.Slopes, early.Offset = p.Softcap, p.Slopes, p.Offset
		if p.Slopes != nil {
			early.KeyLens, early.QueryLens = p.KeyLens, p.QueryLens
		}
	}
	p.Options = early
	return p
}

// PlainMatrix is Matrix of masked scores in the dtype t.
func PlainMatrix(p Problem, t DType) (Array, error) {
	if err := p.Check(); err != nil {
		return Array{}, err
	}
	out := NewArray(p.Q.B, p.Q.H, p.Q.N, p.K.N)
	all := AllRows(p.Q)
	parallel(len(all), func(n int) {
		r, s := all[n], make([]float32, p.K.N)
		p.plainScores(r, t, s, nil)
		row := out.Row(r.B, r.H, r.I)
		for j, x := range s {
			row[j] = float64(x)
		}
	})
	return out, nil
}

// Matrix computes the matrix [B, Hq, Nq, Nk] of a stage.
func Matrix(p Problem, s Stage) (Array, error) {
	if s < Products || s > Weights {
		return Array{}, fmt.Errorf("ref: %v is no stage", s)
	}
	p = s.At(p)
	if err := p.Check(); err != nil {
		return Array{}, err
	}
	out := NewArray(p.Q.B, p.Q.H, p.Q.N, p.K.N)
	all := AllRows(p.Q)
	parallel(len(all), func(n int) {
		r := all[n]
		row := out.Row(r.B, r.H, r.I)
		p.scores(r, row, nil)
		if s < Weights {
			return
		}
		lse := p.logSumExp(r.H, row)
		for j, x := range row {
			row[j] = 0
			if x != negInf {
				row[j] = math.Exp(x - lse)
			}
		}
	})
	return out, nil
}
