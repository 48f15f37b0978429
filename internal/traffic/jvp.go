package traffic

import "github.com/vkattn/vkattn/internal/attn"

// Names of the steps of a pass in forward mode, beside those of a backward pass that it shares.
const (
	StepScoreTangents = "Ṡ = Q̇Kᵀ + QK̇ᵀ"
	StepWeightMoves   = "P∘Ṡ"
	StepValueMoves    = "Ȯ = (P∘Ṡ)V"
	StepValueTangents = "Ȯ + PV̇"
	StepLessOutput    = "Ȯ − lsė·O"
)

// Tangents is a pass in forward mode, of tangents of q, k and v: workgroups own queries and walk over the keys, as the kernel of queries of
// a backward pass does.
type Tangents struct {
	Tile BackwardTile `json:"tile"`
}

// Kind is "forward mode".
func (Tangents) Kind() string { return "forward mode" }

// Steps counts the pass. A kernel that loads the rows of queries anew for each tile loads those of q and of k for two products each.
func (m Tangents) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "Tangents.Tile"
	if err := m.Tile.check(name, p.QueryLen, p); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	heads, queries := p.AllHeads(), p.AllHeads()*float64(p.QueryLen)
	var q backwardRows
	share := 1.0
	if p.Blocks.None() {
		q = m.Tile.overKeys(p).times(heads)
	} else {
		b, err := newBlocks(p, c)
		if err == nil {
			err = b.countable(name, blocksOf(p.QueryLen, m.Tile.Rows), blocksOf(p.KeyLen, m.Tile.Columns))
		}
		if err != nil {
			return nil, err
		}
		q, share = m.Tile.maskedOverKeys(p, &b), b.share()
	}
	keys := q.sums // rows of K and V of tiles
	tangents := 2 * q.scores
	if !m.Tile.Restaged {
		keys, tangents = q.scores-queries*m.Tile.loads(1), q.scores
	}
	pairs := heads * p.PaperPairs() * share
	steps := []Step{
		{Name: StepScoresAgain, FLOPs: 2 * pairs * float64(p.HeadDim), Read: q.scores * d},
		{Name: StepWeightsAgain, FLOPs: 2 * pairs, Read: q.statistics * fp32},
		{Name: StepScoreTangents, FLOPs: 4 * pairs * float64(p.HeadDim), Read: tangents * d},
		{Name: StepWeightMoves, FLOPs: 2 * pairs, Written: one(c.LSE) * queries * fp32},
		{Name: StepValueMoves, FLOPs: 2 * pairs * float64(p.ValueDim), Read: keys * dv, Written: queries * dv},
		{Name: StepValueTangents, FLOPs: 2 * pairs * float64(p.ValueDim), Read: keys * dv},
		{Name: StepLessOutput, FLOPs: 2 * queries * float64(p.ValueDim), Read: queries * dv},
	}
	for i := range steps {
		steps[i].Kernel = m.Tile.Label
	}
	return steps, nil
}

// LeastJVP is LeastForward of a pass in forward mode with tangents of q, k and v: these, q, k, v, o and lse read, the tangents of o and lse
// written.
func LeastJVP(p attn.Problem) (n float64) {
	for i := range attn.JVPOperands {
		if o := &attn.JVPOperands[i]; o.Of != "Bias" && o.Of != "Sinks" {
			n += o.Bytes(&p)
		}
	}
	return n
}
