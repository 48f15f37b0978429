package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardKeeping is the backward pass in which dS alone stands in memory: δ, a kernel whose workgroups own keys, make dK and dV, and leave
// dSᵀ, and dQ as a product of that.
type BackwardKeeping struct {
	Delta   string       `json:"delta"` // label of the dispatches that make δ
	Keys    BackwardTile `json:"keys"`
	Queries Product      `json:"queries"` // dQ: rows are queries, columns keys of a step of its loop

	// dSᵀ stands in memory in operands of so many keys and queries.
	OperandKeys    int `json:"operand_keys"`
	OperandQueries int `json:"operand_queries"`

	// A subgroup's keys, and how many queries it takes at a time: those of which, by the bounds, none sees a key are left out.
	SubgroupKeys int `json:"subgroup_keys"`
	ChunkQueries int `json:"chunk_queries"`
}

// Kind is "backward keeping".
func (BackwardKeeping) Kind() string { return "backward keeping" }

// Steps counts a backward pass kernel by kernel.
func (m BackwardKeeping) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "BackwardKeeping"
	if err := m.Keys.check(name+".Keys", p.KeyLen, p); err != nil {
		return nil, err
	}
	if err := unmasked(name, p); err != nil {
		return nil, err
	}
	if err := block(name+".Queries", m.Queries.Rows, m.Queries.Columns); err != nil {
		return nil, err
	}
	if err := block(name+".Operand", m.OperandKeys, m.OperandQueries); err != nil {
		return nil, err
	}
	if err := block(name+".Subgroup", m.SubgroupKeys, m.ChunkQueries); err != nil {
		return nil, err
	}
	if err := countable(name, p, p.AllHeads()*blocksOf(p.QueryLen, m.Queries.Rows)); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	queries, keys := p.AllHeads()*float64(p.QueryLen), p.AllKeyHeads()*float64(p.KeyLen)
	add := one(c.Accumulate)

	steps := deltaOf(p, c, m.Delta)

	whole := func(n, of int) int { return attn.CeilDiv(n, of) * of }
	allKeys, allQueries := whole(p.KeyLen, m.OperandKeys), whole(p.QueryLen, m.OperandQueries)
	kv := m.Keys.overQueries(p).times(p.AllKeyHeads())
	var written float64 // elements of dS of a head
	mask := p.Mask()
	for first := 0; first < p.KeyLen; first += m.Keys.Rows {
		walk := mask.QueryTiles(first, m.Keys.Rows, m.Keys.Columns)
		for key := first; key < min(first+m.Keys.Rows, allKeys); key += m.SubgroupKeys {
			begin, end := walk.Begin*m.Keys.Columns, walk.End*m.Keys.Columns
			if p.BoolMask.None() { // else nothing is left out
				begin, end = m.seen(mask, key, begin, end)
			}
			written += float64(min(m.SubgroupKeys, allKeys-key) * max(0, min(end, allQueries)-begin))
		}
	}
	size := float64(p.DType.Size())
	steps = append(steps, gradientsOf(p, m.Keys.Label, 1, map[string]Step{
		StepScoresAgain:  {Read: kv.scores * d},
		StepWeightsAgain: {Read: kv.statistics * 2 * fp32},
		StepWeightGrads:  {Read: kv.weights * dv},
		StepScoreGrads:   {Written: p.AllHeads() * written * size},
		StepValueGrads:   {Read: (kv.sums + add*keys) * dv, Written: keys * dv},
		StepKeyGrads:     {Read: (kv.sums + add*keys) * d, Written: keys * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads, StepKeyGrads)...)

	var matrix, rows float64 // elements of dS, and rows of K, that the product reads of a head
	turned := p.Turned().Mask()
	for first := 0; first < p.QueryLen; first += m.Queries.Rows {
		walk := turned.QueryTiles(first, m.Queries.Rows, m.Queries.Columns)
		begin := max(min(walk.Begin, walk.End-1), 0) // one step at least
		end := max(walk.End, begin+1) * m.Queries.Columns
		matrix += float64((min(end, allKeys) - begin*m.Queries.Columns) * min(m.Queries.Rows, allQueries-first))
		rows += float64(min(end, p.KeyLen) - begin*m.Queries.Columns)
	}
	bytes := Step{Read: p.AllHeads()*(matrix*size+rows*d) + add*queries*d, Written: queries * d}
	return append(steps, gradientsOf(p, m.Queries.Label, 1, map[string]Step{StepQueryGrads: bytes}, StepQueryGrads)...), nil
}

// seen is the part of queries begin to end, in whole chunks, of which some may see a key of the subgroup whose first key this is.
func (m *BackwardKeeping) seen(mask attn.Mask, key, begin, end int) (int, int) {
	if mask.High < attn.Unbounded { // the last query of a chunk sees keys up to itself + High
		begin = max(begin, max(key-mask.High, 0)/m.ChunkQueries*m.ChunkQueries)
	}
	if mask.Low > -attn.Unbounded { // and its first none before itself + Low
		end = min(end, attn.CeilDiv(max(key+m.SubgroupKeys-mask.Low, 0), m.ChunkQueries)*m.ChunkQueries)
	}
	return begin, end
}
