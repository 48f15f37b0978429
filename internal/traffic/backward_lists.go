package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardLists is the backward pass where queries have lists of keys: δ, the lists turned round, a kernel whose workgroups own a key each
// and walk over the queries that list it, and one whose workgroups own query heads of a query and walk over its list. Entries count as if
// all were keys that the query sees.
type BackwardLists struct {
	Delta   string `json:"delta"`  // label of the dispatches that make δ
	Invert  string `json:"invert"` // of those that turn lists round,
	Keys    string `json:"keys"`   // of the kernel of keys,
	Queries string `json:"queries"`
	Rows    int    `json:"rows"` // query heads of a workgroup of that of queries
}

// StepInvert is the step that finds the queries of each key.
const StepInvert = "queries of keys"

// Kind is "backward lists".
func (BackwardLists) Kind() string { return "backward lists" }

// Steps counts a backward pass kernel by kernel.
func (m BackwardLists) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "BackwardLists"
	if err := block(name, m.Rows, 1); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	queries, keys := p.AllHeads()*float64(p.QueryLen), p.AllKeyHeads()*float64(p.KeyLen)
	pairs := p.AllHeads() * p.PaperPairs()
	visits := p.AllKeyHeads() * p.PaperPairs() * float64(attn.CeilDiv(p.Group(), max(m.Rows, 1))) // of keys by blocks of query heads
	entries := float64(p.Batch) * float64(p.Lists.Heads(&p)) * p.PaperPairs()
	add := one(c.Accumulate)

	steps := deltaOf(p, c, m.Delta)
	steps = append(steps, Step{Name: StepInvert, Kernel: m.Invert, Read: 2 * entries * 4, Written: entries * 4})
	steps = append(steps, gradientsOf(p, m.Keys, 1, map[string]Step{
		StepScoresAgain:  {Read: (keys+pairs)*d + pairs*4},
		StepWeightsAgain: {Read: pairs * 2 * fp32},
		StepWeightGrads:  {Read: (keys + pairs) * dv},
		StepValueGrads:   {Read: add * keys * dv, Written: keys * dv},
		StepKeyGrads:     {Read: add * keys * d, Written: keys * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepScoreGrads, StepValueGrads, StepKeyGrads)...)
	return append(steps, gradientsOf(p, m.Queries, 1, map[string]Step{
		StepScoresAgain:  {Read: queries*d + visits*(d+4)},
		StepWeightsAgain: {Read: queries * 2 * fp32},
		StepWeightGrads:  {Read: (queries + visits) * dv},
		StepQueryGrads:   {Read: add * queries * d, Written: queries * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepScoreGrads, StepQueryGrads)...), nil
}
