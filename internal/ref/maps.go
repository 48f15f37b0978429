package ref

import (
	"fmt"
	"math"
)

// MapPool says what a cell of a map is of its pairs' weights.
type MapPool int

// The sum of the weights; that over the number of pairs, seen or not; the largest.
const (
	PoolSum MapPool = iota
	PoolMean
	PoolMax
)

// Map is a picture of the weights of some queries and keys, for some heads of some batch entries; each pair is first and end. It has Rows ×
// Columns cells: row y holds the queries from ⌊y·n/Rows⌋ up to ⌊(y+1)·n/Rows⌋ of the n there are, columns likewise.
type Map struct {
	Batches, Heads, Queries, Keys [2]int
	Rows, Columns                 int
	Pool                          MapPool
}

// MapResult is a map: cells [b, h, Rows, Columns], and for each query entropy and mean distance [b, h, queries, 1].
type MapResult struct{ Cells, Entropy, Distance Array }

// Maps computes a map of p_ij = exp(s_ij − lse_i), before dropout. With sums over the map's keys, a query's entropy is −Σ_j p_ij log p_ij
// and its mean distance Σ_j p_ij |i + Nk − Nq − j| / Σ_j p_ij, 0 where the sum is.
func Maps(p Problem, m Map) (MapResult, error) {
	if err := p.Check(); err != nil {
		return MapResult{}, err
	}
	for _, x := range []struct {
		name  string
		of    [2]int
		most  int
		cells int
	}{{"batches", m.Batches, p.Q.B, 1}, {"heads", m.Heads, p.Q.H, 1}, {"queries", m.Queries, p.Q.N, m.Rows},
		{"keys", m.Keys, p.K.N, m.Columns}} {
		if x.of[0] < 0 || x.of[1] > x.most || x.of[1]-x.of[0] < max(x.cells, 1) || x.cells < 1 {
			return MapResult{}, fmt.Errorf("ref: a map of %s %v in %d cells, of %d", x.name, x.of, x.cells, x.most)
		}
	}
	nb, nh, nq, nk := m.Batches[1]-m.Batches[0], m.Heads[1]-m.Heads[0], m.Queries[1]-m.Queries[0], m.Keys[1]-m.Keys[0]
	out := MapResult{NewArray(nb, nh, m.Rows, m.Columns), NewArray(nb, nh, nq, 1), NewArray(nb, nh, nq, 1)}
	columnOf := make([]int, nk)
	for x := range m.Columns {
		for j := x * nk / m.Columns; j < (x+1)*nk/m.Columns; j++ {
			columnOf[j] = x
		}
	}
	parallel(nb*nh*m.Rows, func(n int) {
		b, h, y := n/(nh*m.Rows), n/m.Rows%nh, n%m.Rows
		cells, s := out.Cells.Row(b, h, y), make([]float64, p.K.N)
		for i := y * nq / m.Rows; i < (y+1)*nq/m.Rows; i++ {
			r := Row{m.Batches[0] + b, m.Heads[0] + h, m.Queries[0] + i}
			if r.I >= p.queries(r.B) {
				continue
			}
			p.scores(r, s, nil)
			lse := p.logSumExp(r.H, s)
			sum, entropy, distance := 0.0, 0.0, 0.0
			for j, x := range columnOf {
				key := m.Keys[0] + j
				if s[key] == negInf {
					continue
				}
				w := math.Exp(s[key] - lse)
				if m.Pool == PoolMax {
					cells[x] = math.Max(cells[x], w)
				} else {
					cells[x] += w
				}
				sum += w
				entropy += w * (lse - s[key])
				distance += w * math.Abs(float64(r.I+p.keys(r.B)-p.queries(r.B)-key))
			}
			if out.Entropy.Row(b, h, i)[0] = entropy; sum > 0 {
				out.Distance.Row(b, h, i)[0] = distance / sum
			}
		}
		if m.Pool == PoolMean {
			rows := (y+1)*nq/m.Rows - y*nq/m.Rows
			for x := range cells {
				cells[x] /= float64(rows * ((x+1)*nk/m.Columns - x*nk/m.Columns))
			}
		}
	})
	return out, nil
}
