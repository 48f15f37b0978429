package analysis

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// IntensityRow is a line of the lecture's table of arithmetic intensity against the sequence length: operations of the
// products for each byte that workgroups ask for.
type IntensityRow struct {
	N         int                `json:"n"`
	Intensity map[string]float64 `json:"intensity"` // by implementation
	Bytes     map[string]float64 `json:"bytes"`
}

// IntensityTable counts one head of a problem at growing lengths, with the same tilings.
func IntensityTable(p flash.Problem, tilings map[string]flash.Tiling, lengths []int) ([]IntensityRow, error) {
	var out []IntensityRow
	for _, n := range lengths {
		q := p
		q.Batch, q.Heads, q.KeyHeads, q.QueryLen, q.KeyLen = 1, 1, 1, n, n
		row := IntensityRow{N: n, Intensity: map[string]float64{}, Bytes: map[string]float64{}}
		for impl, tiling := range tilings {
			steps, err := tiling.Forward(q)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", impl, err)
			}
			flops := q.ForwardFLOPs()
			if tiling.Algorithm == flash.AlgorithmBlockSparse {
				flops *= tiling.Nonzero
			}
			row.Bytes[impl] = flash.Total(steps).Bytes()
			row.Intensity[impl] = flops / row.Bytes[impl]
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
