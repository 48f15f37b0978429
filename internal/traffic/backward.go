package traffic

import "github.com/vkattn/vkattn/internal/attn"

// BackwardFused is the backward pass of FlashAttention in three kernels: δ, one whose workgroups own keys and make dK and dV, and one whose
// workgroups own queries and make dQ. Both compute the weights anew.
type BackwardFused struct {
	Delta   string       `json:"delta"` // label of the dispatches that make δ
	Keys    BackwardTile `json:"keys"`
	Queries BackwardTile `json:"queries"`
	DBias   bool         `json:"dbias,omitempty"` // the kernel of queries writes the bias's gradient too, where it is wanted
}

// BackwardTile is how a kernel whose workgroups own keys (or queries) walks over the queries (or keys).
type BackwardTile struct {
	Label   string `json:"label"`
	Rows    int    `json:"rows"`    // keys (queries) of a workgroup
	Columns int    `json:"columns"` // queries (keys) of a tile

	// What kernels load besides, and only they know.
	// scalar tier: the rows' operands are loaded anew for each tile, and the columns' once more for the sums
	Restaged bool `json:"restaged,omitempty"`
	// matrix tier, wide heads: the rows' operands are loaded anew for each tile
	Streamed bool `json:"streamed,omitempty"`
	Masked   bool `json:"masked,omitempty"` // matrix tier: tiles that need masks are a loop of their own
	Ahead    bool `json:"ahead,omitempty"`  // matrix tier: the last tile of all is fetched twice; with a block mask that of each loop
	Apart    bool `json:"apart,omitempty"`  // keys: dK and dV are made by a dispatch each
	// matrix tier: subgroups that each load a workgroup's own rows of the operands of scores and dP; 0: 1
	Sharers int `json:"sharers,omitempty"`
	// invocations that load lse and δ of one query: for each tile (keys), or once (queries); 0: 1
	RowReaders int `json:"row_readers,omitempty"`
}

// Kind is "backward".
func (BackwardFused) Kind() string { return "backward" }

// Steps counts a backward pass kernel by kernel: steps that two kernels do are there twice.
func (m BackwardFused) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "BackwardFused"
	if err := m.Keys.check(name+".Keys", p.KeyLen, p); err != nil {
		return nil, err
	}
	if err := m.Queries.check(name+".Queries", p.QueryLen, p); err != nil {
		return nil, err
	}
	d, dv := rowBytes(p)
	queries, keys := p.AllHeads()*float64(p.QueryLen), p.AllKeyHeads()*float64(p.KeyLen)
	add := one(c.Accumulate)

	steps := deltaOf(p, c, m.Delta)

	kv, q, share, err := m.rows(name, p, c)
	if err != nil {
		return nil, err
	}
	again := 1.0 // times that the weights are computed
	if m.Keys.Apart {
		again = 2
	}
	steps = append(steps, gradientsOf(p, m.Keys.Label, again, map[string]Step{
		StepScoresAgain:  {Read: kv.scores * d},
		StepWeightsAgain: {Read: kv.statistics * 2 * fp32},
		StepWeightGrads:  {Read: kv.weights * dv},
		StepValueGrads:   {Read: (kv.sums + add*keys) * dv, Written: keys * dv},
		StepKeyGrads:     {Read: (kv.sums + add*keys) * d, Written: keys * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads, StepKeyGrads)...)

	var dbias Step
	if m.DBias {
		dbias = m.Queries.dBias(p, c)
	}
	steps = append(steps, gradientsOf(p, m.Queries.Label, 1, map[string]Step{
		StepScoresAgain:  {Read: q.scores * d},
		StepWeightsAgain: {Read: q.statistics * 2 * fp32},
		StepWeightGrads:  {Read: q.weights * dv},
		StepScoreGrads:   dbias,
		StepQueryGrads:   {Read: (q.sums + add*queries) * d, Written: queries * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepQueryGrads)...)
	for i := range steps {
		if steps[i].Name != StepDelta {
			steps[i].FLOPs *= share
		}
	}
	return steps, nil
}

// deltaOf is the step that makes δ of dO and O, in dispatches of this label.
func deltaOf(p attn.Problem, c Call, label string) []Step {
	_, dv := rowBytes(p)
	queries := p.AllHeads() * float64(p.QueryLen)
	read := 2*queries*dv + one(c.DLSE)*queries*fp32
	return gradientsOf(p, label, 1, map[string]Step{StepDelta: {Read: read, Written: queries * fp32}}, StepDelta)
}

// rows is what the kernel of keys and that of queries load, all heads together, and the share of pairs that are in nonzero blocks.
func (m BackwardFused) rows(name string, p attn.Problem, c Call) (kv, q backwardRows, share float64, err error) {
	if p.Blocks.None() {
		return m.Keys.overQueries(p).times(p.AllKeyHeads()), m.Queries.overKeys(p).times(p.AllHeads()), 1, nil
	}
	b, err := newBlocks(p, c)
	if err == nil {
		err = b.countable(name+".Queries", blocksOf(p.QueryLen, m.Queries.Rows), blocksOf(p.KeyLen, m.Queries.Columns))
	}
	var by blocks
	if err == nil {
		by = b.byColumns()
		err = by.countable(name+".Keys", blocksOf(p.KeyLen, m.Keys.Rows), blocksOf(p.QueryLen, m.Keys.Columns))
	}
	if err != nil {
		return kv, q, 0, err
	}
	return m.Keys.maskedOverQueries(p, &by), m.Queries.maskedOverKeys(p, &b), b.share(), nil
}

func (t *BackwardTile) check(name string, rows int, p attn.Problem) error {
	if err := block(name, t.Rows, t.Columns); err != nil {
		return err
	}
	if err := numbers(name, t.RowReaders); err != nil {
		return err
	}
	if err := numbers(name, t.Sharers); err != nil {
		return err
	}
	return countable(name, p, blocksOf(rows, t.Rows))
}

// loads is how often n rows of a workgroup's own are loaded for scores, or for dP.
func (t *BackwardTile) loads(n int) float64 { return float64(n * max(t.Sharers, 1)) }

// backwardRows is the rows that a kernel loads for one head: of Q and K for the scores, of dO and V for dP, of what the sums
// multiply P and dS with, and of lse and δ.
type backwardRows struct{ scores, weights, sums, statistics float64 }

func (r backwardRows) times(n float64) backwardRows {
	return backwardRows{n * r.scores, n * r.weights, n * r.sums, n * r.statistics}
}

// overQueries: a block of keys walks over the tiles of queries that see any of it, of each query head in turn.
func (t *BackwardTile) overQueries(p attn.Problem) (sum backwardRows) {
	group, readers := float64(p.Group()), float64(max(t.RowReaders, 1))
	mask := p.Mask()
	for first := 0; first < p.KeyLen; first += t.Rows {
		n := float64(min(t.Rows, p.KeyLen-first))
		own := t.loads(min(t.Rows, p.KeyLen-first))
		walk := mask.QueryTiles(first, t.Rows, t.Columns)
		if t.Restaged {
			begin := max(min(walk.Begin, walk.End-1), 0) // one tile at least
			end := max(walk.End, begin+1)
			queries := group * float64(min(end*t.Columns, p.QueryLen)-begin*t.Columns)
			rows := group*float64(end-begin)*n + queries
			sum.scores += rows
			sum.weights += rows
			sum.sums += queries
			sum.statistics += queries * readers
			continue
		}
		whole, end := walk.Begin, walk.End
		if t.Masked {
			whole = walk.WholeBegin
		}
		if mask.Low > -attn.Unbounded { // queries beyond the last are in no mask, those beyond a window are
			end = walk.WholeEnd
		}
		once, ahead := t.walk(p.QueryLen, walk.Begin, whole, end, walk.End)
		queries := group*once + ahead
		dispatches := 1.0
		if t.Apart {
			dispatches = 2
		}
		sum.scores += dispatches * (own + queries)
		sum.weights += own + dispatches*queries // dV's own dispatch needs dO and not V
		sum.statistics += dispatches * queries * readers
	}
	return sum
}

// overKeys: a block of queries walks over the tiles of keys that any of its queries may see.
func (t *BackwardTile) overKeys(p attn.Problem) (sum backwardRows) {
	mask := p.Mask()
	for first := 0; first < p.QueryLen; first += t.Rows {
		n := min(t.Rows, p.QueryLen-first)
		sum.statistics += float64(n * max(t.RowReaders, 1))
		walk := mask.KeyTiles(first, n, t.Columns)
		if t.Restaged {
			end := max(walk.End, walk.Begin+1)
			keys := float64(min(end*t.Columns, p.KeyLen) - min(walk.Begin*t.Columns, p.KeyLen))
			rows := float64((end-walk.Begin)*n) + keys
			sum.scores += rows
			sum.weights += rows
			sum.sums += keys
			continue
		}
		if t.Streamed {
			rows := float64(max(walk.End-walk.Begin, 0)*n + max(min(walk.End*t.Columns, p.KeyLen)-walk.Begin*t.Columns, 0))
			sum.scores += rows
			sum.weights += rows
			continue
		}
		whole := walk.End // that all queries see whole
		if t.Masked {
			whole = walk.WholeEnd
		}
		once, ahead := t.walk(p.KeyLen, walk.Begin, walk.WholeBegin, whole, walk.End)
		rows := t.loads(n) + once + ahead
		sum.scores += rows
		sum.weights += rows
	}
	return sum
}

// biased is the elements of a bias, of all heads, that go with the scores of tiles that blocks of queries walk over, and those of other
// tiles.
func (t *BackwardTile) biased(p attn.Problem) (walked, beside float64) {
	mask := p.Mask()
	for first := 0; first < p.QueryLen; first += t.Rows {
		n := min(t.Rows, p.QueryLen-first)
		tiles := mask.KeyTiles(first, n, t.Columns)
		keys := max(min(tiles.End*t.Columns, p.KeyLen)-tiles.Begin*t.Columns, 0)
		walked += float64(n * keys)
		beside += float64(n * (p.KeyLen - keys))
	}
	return p.AllHeads() * walked, p.AllHeads() * beside
}

// dBias is what writing its gradient on the way moves, if a call wants it: what no query sees has a gradient of 0, which is not added.
func (t *BackwardTile) dBias(p attn.Problem, c Call) Step {
	if !p.Bias.In || !c.DBias {
		return Step{}
	}
	size, add := float64(p.Bias.DType.Size()), one(c.Accumulate)
	walked, beside := t.biased(p)
	return Step{Read: add * walked * size, Written: (walked + (1-add)*beside) * size}
}

// walk is the rows, of count, that loops over tiles load, one after the other, each from one of these tiles up to the next: of each tile
// once, and ahead of the end, where there is no next loop whose first tile is fetched.
func (t *BackwardTile) walk(count int, loops ...int) (once, ahead float64) {
	rows := func(from, to int) float64 { return float64(max(0, min(to*t.Columns, count)-from*t.Columns)) }
	for i, to := range loops[1:] {
		if from := loops[i]; from < to {
			once += rows(from, to)
			if t.Ahead {
				ahead = rows(to-1, to)
			}
		}
	}
	return once, ahead
}
