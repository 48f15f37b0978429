package analysis

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/traffic"
)

// IntensityRow is a line of the lecture's table of arithmetic intensity against the sequence length: operations of the
// products for each byte that workgroups ask for.
type IntensityRow struct {
	N         int                `json:"n"`
	Intensity map[string]float64 `json:"intensity"` // by implementation, backward passes as "flash2 backward"
	Bytes     map[string]float64 `json:"bytes"`
}

// Model is the work of an implementation and pass at any length.
type Model struct {
	Name  string
	Steps func(flash.Problem) ([]tune.Work, error)
	FLOPs func(flash.Problem) float64 // of the products, as the papers count
}

// forwardModel is that of a forward pass, with blocks and the share of them that is nonzero, if it has a block mask.
func forwardModel(impl string, m tune.Model, blocks flash.Blocks, nonzero float64) Model {
	share := 1.0
	if blocks != (flash.Blocks{}) {
		share = nonzero
	}
	return Model{impl, func(p flash.Problem) ([]tune.Work, error) {
		p.Blocks = blocks
		return m.Work(p, tune.Call{LSE: true, Nonzero: nonzero})
	}, func(p flash.Problem) float64 { return p.ForwardFLOPs() * share }}
}

// backwardModel is that of a backward pass.
func backwardModel(impl string, m tune.Model) Model {
	return Model{impl + " backward", func(p flash.Problem) ([]tune.Work, error) {
		p.Blocks = flash.Blocks{}
		return m.Work(p, tune.Call{})
	}, flash.Problem.BackwardFLOPs}
}

// models are those met so far, the last of each implementation and pass, in the order in which they came.
type models struct {
	list   []Model
	flash2 tune.Model
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

// plainProblem is the problem of a row without functions, tensors and masks of its scores: those are of the row's lengths, and the
// tables have others.
func plainProblem(row result.Row) (flash.Problem, error) {
	c, _ := row.Plain()
	c.Window = row.Window
	return c.Problem()
}

// forward and backward add the model of a row that has one.
func (ms *models) forward(row result.Row) (err error) {
	if ms.last, err = plainProblem(row); err != nil || row.Fwd.Model.IsZero() {
		return err
	}
	ms.add(forwardModel(row.Impl, row.Fwd.Model, ms.last.Blocks, row.Density))
	if row.Impl == flash.Flash.String() {
		ms.flash2 = row.Fwd.Model
	}
	return nil
}

func (ms *models) backward(row result.Row) (err error) {
	if ms.last, err = plainProblem(row); err == nil && !row.Bwd.Model.IsZero() {
		ms.add(backwardModel(row.Impl, row.Bwd.Model))
	}
	return err
}

// standIn is an implementation that was not met, on flash2's tile, to compare with.
type standIn struct {
	impl, kernel string
	model        tune.Model
	blocks       flash.Blocks
}

// standIns adds them, and gives them.
func (ms *models) standIns(nonzero float64) (out []standIn, err error) {
	if ms.flash2.IsZero() {
		return nil, nil
	}
	data, err := ms.flash2.MarshalJSON()
	if err != nil {
		return nil, err
	}
	met, err := traffic.Unmarshal(data)
	flash2, ok := met.(traffic.QueriesOutside)
	if err != nil || !ok {
		return nil, err
	}
	rows, keys := flash2.Rows, flash2.Keys
	for _, s := range []struct {
		impl   string
		model  traffic.Model
		blocks flash.Blocks // as large as tiles
	}{
		{flash.Flash1.String(), traffic.KeysOutside{Rows: rows, Keys: keys}, flash.Blocks{}},
		{result.BlockSparse, traffic.QueriesOutside{Rows: rows, Keys: keys}, flash.Blocks{Queries: rows, Keys: keys}},
	} {
		if ms.has(s.impl) {
			continue
		}
		m, err := modelOf(s.model)
		if err != nil {
			return nil, err
		}
		ms.add(forwardModel(s.impl, m, s.blocks, nonzero))
		out = append(out, standIn{s.impl, fmt.Sprintf("model %dx%d", rows, keys), m, s.blocks})
	}
	return out, nil
}

// IntensityTable counts one head of a problem at growing lengths, with the same models.
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
			row.Bytes[m.Name] = tune.Total(steps).Bytes()
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
