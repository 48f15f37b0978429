package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardSlabs is the backward pass by way of memory: δ, a kernel whose workgroups own queries and that puts P and dS into memory, slab by
// slab of whole key heads, and the three products of them.
type BackwardSlabs struct {
	Delta   string       `json:"delta"` // label of the dispatches that make δ
	Weights BackwardTile `json:"weights"`
	Behind  int          `json:"behind"`          // columns behind the last key of a block of queries, and before the first, that are zeros
	DBias   bool         `json:"dbias,omitempty"` // that kernel writes the gradient with respect to the bias too, where it is wanted
	Values  Product      `json:"values"`          // dV: rows are keys, columns queries of a step of its loop
	Queries Product      `json:"queries"`         // dQ: rows are queries, columns keys of a step
	Keys    Product      `json:"keys"`            // dK: as dV
}

// Kind is "backward slabs".
func (BackwardSlabs) Kind() string { return "backward slabs" }

// Steps counts a backward pass kernel by kernel.
func (m BackwardSlabs) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "BackwardSlabs"
	if err := m.Weights.check(name+".Weights", p.QueryLen, p); err != nil {
		return nil, err
	}
	products := BackwardStandard{Values: m.Values, Queries: m.Queries, Keys: m.Keys}
	if err := products.checkProducts(name, p); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	size := float64(p.DType.Size())
	heads, queries := p.AllHeads(), p.AllHeads()*float64(p.QueryLen)
	add := one(c.Accumulate)

	steps := deltaOf(p, c, m.Delta)

	w := m.Weights.overKeys(p).times(heads)
	var written float64 // elements of P, and of dS
	mask := p.Mask()
	for first := 0; first < p.QueryLen; first += m.Weights.Rows {
		n := min(m.Weights.Rows, p.QueryLen-first)
		tiles := mask.KeyTiles(first, n, m.Weights.Columns)
		begin, end := tiles.Begin*m.Weights.Columns, tiles.End*m.Weights.Columns
		zeros := attn.CeilDiv(min(mask.KeysOf(first+n-1).End+m.Behind, pitch(p)), 8) * 8
		zerosBefore := max(mask.KeysOf(first).Begin-m.Behind, 0) / 8 * 8
		written += float64(n * (max(min(end, pitch(p)), zeros) - min(begin, zerosBefore)))
	}
	written *= heads * size
	var bias, dbias Step
	if p.Bias.In {
		walked, _ := m.Weights.biased(p)
		bias.Read = walked * float64(p.Bias.DType.Size())
	}
	if m.DBias {
		dbias = m.Weights.dBias(p, c)
	}
	steps = append(steps, gradientsOf(p, m.Weights.Label, 1, map[string]Step{
		StepScoresAgain:  {Read: w.scores * d},
		StepWeightsAgain: {Read: w.statistics*2*fp32 + bias.Read, Written: written},
		StepWeightGrads:  {Read: w.weights * dv},
		StepScoreGrads:   {Read: dbias.Read, Written: written + dbias.Written},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads)...)

	scores, keys := m.Queries.product(p, 0)
	values, keySums := products.sum(p, m.Values, c.Accumulate), products.sum(p, m.Keys, c.Accumulate)
	for _, k := range []struct {
		label, step string
		bytes       Step
	}{
		{m.Values.Label, StepValueGrads, Step{Read: values.matrix*size + (values.rows+values.added)*dv, Written: values.written * dv}},
		{m.Queries.Label, StepQueryGrads, Step{Read: heads*(scores*size+keys*d) + add*queries*d, Written: queries * d}},
		{m.Keys.Label, StepKeyGrads, Step{Read: keySums.matrix*size + (keySums.rows+keySums.added)*d, Written: keySums.written * d}},
	} {
		steps = append(steps, gradientsOf(p, k.label, 1, map[string]Step{k.step: k.bytes}, k.step)...)
	}
	return steps, nil
}
