package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardAtomic is the backward pass of FlashAttention-2 with atomic sums: δ, dQ filled with zeros in fp32, one kernel whose workgroups own keys, make
// dK and dV, and add to dQ, and one that brings dQ into its type.
type BackwardAtomic struct {
	Delta      string       `json:"delta"` // labels of the dispatches that make δ,
	Zero       string       `json:"zero"`  // fill dQ,
	Sum        string       `json:"sum"`   // and round it
	Keys       BackwardTile `json:"keys"`
	SumRows    int          `json:"sum_rows"`    // queries are summed by so many
	SumColumns int          `json:"sum_columns"` // numbers of a query's sums
}

// Kind is "backward atomic".
func (BackwardAtomic) Kind() string { return "backward atomic" }

// Steps counts a backward pass kernel by kernel. An atomic addition counts as a number written.
func (m BackwardAtomic) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "BackwardAtomic"
	if err := m.Keys.check(name+".Keys", p.KeyLen, p); err != nil {
		return nil, err
	}
	if err := block(name, m.SumRows, m.SumColumns); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	queries, keys := p.AllHeads()*float64(p.QueryLen), p.AllKeyHeads()*float64(p.KeyLen)
	add := one(c.Accumulate)

	read := 2*queries*dv + one(c.DLSE)*queries*fp32 // dO and O
	steps := gradientsOf(p, m.Delta, 1, map[string]Step{StepDelta: {Read: read, Written: queries * fp32}}, StepDelta)

	fused := BackwardFused{Keys: m.Keys, Queries: m.Keys} // the latter is not asked for
	kv, _, share, err := fused.rows(name, p, c)
	if err != nil {
		return nil, err
	}
	again := 1.0 // times that the weights are computed
	if m.Keys.Apart {
		again = 2
	}
	sums := p.AllHeads() * float64(attn.CeilDiv(p.QueryLen, m.SumRows)*m.SumRows) * float64(m.SumColumns) * fp32
	added, err := m.added(name, p, c)
	if err != nil {
		return nil, err
	}
	steps = append(steps, Step{Name: StepZeroSums, Kernel: m.Zero, Written: sums})
	steps = append(steps, gradientsOf(p, m.Keys.Label, again, map[string]Step{
		StepScoresAgain:  {Read: kv.scores * d},
		StepWeightsAgain: {Read: kv.statistics * 2 * fp32},
		StepWeightGrads:  {Read: kv.weights * dv},
		StepValueGrads:   {Read: (kv.sums + add*keys) * dv, Written: keys * dv},
		StepQueryGrads:   {Read: keys * d, Written: added * float64(m.SumColumns) * fp32},
		StepKeyGrads:     {Read: (kv.sums + add*keys) * d, Written: keys * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads, StepQueryGrads, StepKeyGrads)...)
	for i := range steps {
		if steps[i].Name != StepDelta {
			steps[i].FLOPs *= share
		}
	}
	return append(steps, Step{Name: StepRoundSums, Kernel: m.Sum, Read: sums + add*queries*d, Written: queries * d}), nil
}

// added is the rows of sums that blocks of keys add to, of all heads: those of each tile of queries that they visit, in whole fragments, or with a
// block mask as they are.
func (m BackwardAtomic) added(name string, p attn.Problem, c Call) (rows float64, err error) {
	t := m.Keys
	t.Ahead, t.Apart, t.RowReaders = false, false, 0
	if !p.Blocks.None() {
		kv, _, _, err := BackwardFused{Keys: t, Queries: t}.rows(name, p, c)
		return kv.statistics, err
	}
	most := attn.CeilDiv(p.QueryLen, m.SumRows) * m.SumRows
	for first := 0; first < p.KeyLen; first += t.Rows {
		if walk := p.Mask().QueryTiles(first, t.Rows, t.Columns); walk.Begin < walk.End {
			rows += float64(min(walk.End*t.Columns, most) - walk.Begin*t.Columns)
		}
	}
	return p.AllHeads() * rows, nil
}
