package analysis

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// IntensityRow is a line of the lecture's table of arithmetic intensity against the sequence length: operations of the
// products for each byte that workgroups ask for.
type IntensityRow struct {
	N         int                `json:"n"`
	Intensity map[string]float64 `json:"intensity"` // by implementation, backward passes as "flash2 backward"
	Bytes     map[string]float64 `json:"bytes"`
}

// Model is the work of an implementation and pass.
type Model struct {
	Name  string
	Steps func(flash.Problem) ([]flash.Work, error)
	FLOPs func(flash.Problem) float64 // of the products, as the papers count
}

// forwardModel is the model of a forward pass by its tiling.
func forwardModel(impl string, t flash.Tiling) Model {
	return Model{impl, t.Forward, func(p flash.Problem) float64 {
		if t.Algorithm == flash.AlgorithmBlockSparse {
			return p.ForwardFLOPs() * t.Nonzero
		}
		return p.ForwardFLOPs()
	}}
}

// backwardModel is the same of a backward pass.
func backwardModel(impl string, t flash.BackwardTiling) Model {
	return Model{impl + " backward", t.Backward, flash.Problem.BackwardFLOPs}
}

// models are the tilings met so far, the last of each implementation and pass, in the order in which they came.
type models struct {
	list   []Model
	flash2 *flash.Tiling
	last   flash.Problem
}

func (ms *models) has(name string) bool {
	return slices.ContainsFunc(ms.list, func(m Model) bool { return m.Name == name })
}

func (ms *models) add(m Model) {
	if i := slices.IndexFunc(ms.list, func(o Model) bool { return o.Name == m.Name }); i >= 0 {
		ms.list[i] = m
		return
	}
	ms.list = append(ms.list, m)
}

// forward and backward add the model of a row; nil adds nothing.
func (ms *models) forward(row bench.Row, t *flash.Tiling) {
	if t == nil {
		return
	}
	ms.add(forwardModel(row.Impl, *t))
	if row.Impl == string(flash.AlgorithmFlash2) {
		ms.flash2 = t
	}
	ms.last, _ = row.Problem() // who has a tiling has a problem
}

func (ms *models) backward(row bench.Row, t *flash.BackwardTiling) {
	if t != nil {
		ms.add(backwardModel(row.Impl, *t))
	}
}

// standIns gives the algorithms that were not met, on flash2's tile, to compare with.
func (ms *models) standIns(nonzero float64) []flash.Tiling {
	var out []flash.Tiling
	for _, a := range []flash.Algorithm{flash.AlgorithmFlash1, flash.AlgorithmBlockSparse} {
		if ms.flash2 != nil && !ms.has(string(a)) {
			out = append(out, flash.Tiling{Algorithm: a, Rows: ms.flash2.Rows, Keys: ms.flash2.Keys, LSE: true, Nonzero: nonzero})
		}
	}
	return out
}

// IntensityTable counts one head of a problem at growing lengths, with the same tilings.
func IntensityTable(p flash.Problem, models []Model, lengths []int) ([]IntensityRow, error) {
	var out []IntensityRow
	for _, n := range lengths {
		q := p
		q.Batch, q.Heads, q.KeyHeads, q.QueryLen, q.KeyLen = 1, 1, 1, n, n
		row := IntensityRow{N: n, Intensity: map[string]float64{}, Bytes: map[string]float64{}}
		for _, m := range models {
			steps, err := m.Steps(q)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Name, err)
			}
			row.Bytes[m.Name] = flash.Total(steps).Bytes()
			row.Intensity[m.Name] = m.FLOPs(q) / row.Bytes[m.Name]
		}
		out = append(out, row)
	}
	return out, nil
}

// BlockRow is a line of the lecture's table of the operations of a transformer block, for one sequence: the four projections,
// attention, and an MLP four times as wide as the embedding. Backward takes twice as many.
type BlockRow struct {
	N           int     `json:"n"`
	Projections float64 `json:"projections"`
	Attention   float64 `json:"attention"`
	MLP         float64 `json:"mlp"`
	Forward     float64 `json:"forward"`
	Backward    float64 `json:"backward"`
	Share       float64 `json:"attention_share"` // of attention in all
}

// BlockTable counts a block of embedding width e: projections 8·N·e², attention 4·N²·e (half when causal), MLP 16·N·e².
func BlockTable(e int, causal bool, lengths []int) []BlockRow {
	var out []BlockRow
	for _, n := range lengths {
		nf, ef := float64(n), float64(e)
		r := BlockRow{N: n, Projections: 8 * nf * ef * ef, Attention: 4 * nf * nf * ef, MLP: 16 * nf * ef * ef}
		if causal {
			r.Attention /= 2
		}
		r.Forward = r.Projections + r.Attention + r.MLP
		r.Backward = 2 * r.Forward
		r.Share = r.Attention / r.Forward
		out = append(out, r)
	}
	return out
}

// Lengths are the sequence lengths of the lecture's tables.
var Lengths = []int{256, 512, 1024, 2048, 4096, 8192, 16384, 65536}
