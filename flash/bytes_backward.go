package flash

import (
	"fmt"
	"strings"
)

// BackwardTiling is how the kernels of a backward pass divide a problem, as far as their traffic depends on it: besides δ, one
// whose workgroups own keys and make dK and dV, and one whose workgroups own queries and make dQ. Both compute the weights anew.
type BackwardTiling struct {
	Keys, Queries BackwardTile
	Accumulate    bool // gradients are added to what is there, which is read
	DLSE          bool // the gradient of lse is read

	Standard *StandardBackwardTiling // in place of Keys and Queries: standard attention's
}

// BackwardTile is how a kernel whose workgroups own keys (or queries) walks over the queries (or keys).
type BackwardTile struct {
	Rows, Columns int // keys (queries) of a workgroup, queries (keys) of a tile

	// What kernels load besides, and usually only they know.
	Restaged   bool // scalar tier: the rows' operands are loaded anew for each tile, and the columns' once more for the sums
	Masked     bool // matrix tier: tiles that need masks are a loop of their own
	Ahead      bool // matrix tier: each of those loops fetches its last tile twice
	Apart      bool // keys: dK and dV are made by a dispatch each
	RowReaders int  // invocations that load lse and δ of one query: for each tile (keys), or once (queries); 0: 1
}

// BackwardTiling is how the plan's kernels divide a backward pass that overwrites the gradients, without one of lse. The error
// says why there are no such kernels, or that the byte model does not know them.
func (p *Plan) BackwardTiling() (BackwardTiling, error) {
	if err := p.usable(); err != nil {
		return BackwardTiling{}, err
	}
	c, err := p.backward()
	if err != nil {
		return BackwardTiling{}, err
	}
	switch prog := c.program.(type) {
	case *scalarBackwardProgram:
		kv, q := &prog.kv.tile, &prog.q.tile
		return BackwardTiling{
			Keys:    BackwardTile{Rows: kv.BR, Columns: kv.BC, Restaged: true, RowReaders: kv.BR / kv.MR},
			Queries: BackwardTile{Rows: q.BR, Columns: q.BC, Restaged: true, RowReaders: q.tx()},
		}, nil
	case *matrixBackwardProgram:
		part := func(t *matrixBackwardTile) BackwardTile {
			return BackwardTile{Rows: t.rows(), Columns: t.BC, Masked: t.masks(&prog.problem), Ahead: t.Prefetch != 0, Apart: len(t.pieces()) > 1}
		}
		b := BackwardTiling{Keys: part(&prog.kv.tile), Queries: part(&prog.q.tile)}
		if t := &prog.q.tile; t.Form == formRegisters { // a lane keeps the rows of which it holds elements
			b.Queries.RowReaders = t.fragment.Lanes * max(1, len(prog.layout.RowOfSlot)) / t.fragment.M
		}
		return b, nil
	case *standardBackwardProgram:
		if t, ok := prog.tiling(); ok {
			return BackwardTiling{Standard: &t}, nil
		}
	}
	return BackwardTiling{}, &UnsupportedError{What: "the byte model of " + c.kernel.name, Reasons: []string{"there is none"}}
}

// ParseBackwardTiling reads a tiling from what BackwardInfo.Kernel and result files say, such as "matrix_backward kv 64x32, q
// 64x32 16x16x16 form 1". What a name does not tell is taken as usual: nothing is fetched ahead, and one invocation loads lse
// and δ of a row. The error names the kernel.
func ParseBackwardTiling(kernel string) (BackwardTiling, error) {
	var t BackwardTiling
	words := strings.Fields(kernel)
	for i, word := range words[:max(0, len(words)-1)] {
		var tile *BackwardTile
		switch word {
		case "kv":
			tile = &t.Keys
		case "q":
			tile = &t.Queries
		default:
			continue
		}
		if rows, columns, ok := parseTile(strings.TrimSuffix(words[i+1], ",")); ok {
			*tile = BackwardTile{Rows: rows, Columns: columns, Restaged: strings.HasPrefix(kernel, "scalar_")}
		}
	}
	if t.Keys.Rows == 0 || t.Queries.Rows == 0 {
		return t, fmt.Errorf("flash: the backward kernel %q names no tiles such as kv 64x32, q 64x32", kernel)
	}
	return t, nil
}

// Names of the steps of a backward pass.
const (
	StepDelta        = "δ = Σ dO∘O"
	StepScoresAgain  = "QKᵀ again"
	StepWeightsAgain = "P again"
	StepWeightGrads  = "dP = dO Vᵀ"
	StepScoreGrads   = "dS = P∘(dP − δ)"
	StepValueGrads   = "dV = Pᵀ dO"
	StepQueryGrads   = "dQ = dS K"
	StepKeyGrads     = "dK = dSᵀ Q"
)

// Kernels of a backward pass (Work.Kernel).
const (
	kernelDelta   = "delta"
	kernelKeys    = "kv"
	kernelQueries = "q"
)

// BackwardOperations counts the steps of the backward pass: scores and weights again, dP = dO·Vᵀ, dS, and the three gradients.
// The products are 2.5 × the forward pass's where HeadDim = ValueDim.
func (p Problem) BackwardOperations() ([]Work, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	return p.gradientSteps(StepDelta, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads, StepQueryGrads, StepKeyGrads), nil
}

// gradientSteps gives the operations of these steps of a backward pass, without dropout's where there is none.
func (p *Problem) gradientSteps(names ...string) []Work {
	const elementwise = 2 // a difference and an exponential, a difference and a product
	pairs, d, dv := p.heads()*p.paperPairs(), float64(p.HeadDim), float64(p.ValueDim)
	flops := map[string]float64{
		StepDelta:       2 * p.heads() * float64(p.QueryLen) * dv,
		StepScoresAgain: 2 * pairs * d, StepWeightsAgain: elementwise * pairs, StepWeightGrads: 2 * pairs * dv, StepDropout: dropoutOps * pairs,
		StepScoreGrads: elementwise * pairs, StepValueGrads: 2 * pairs * dv, StepQueryGrads: 2 * pairs * d, StepKeyGrads: 2 * pairs * d,
	}
	var steps []Work
	for _, name := range names {
		if name != StepDropout || p.Dropout > 0 {
			steps = append(steps, Work{Name: name, FLOPs: flops[name]})
		}
	}
	return steps
}

// Backward counts the steps of the backward pass of a problem, all heads together, kernel by kernel: those that two kernels do
// are there twice.
func (t BackwardTiling) Backward(p Problem) ([]Work, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	if t.Standard != nil {
		return t.standard(&p)
	}
	if err := t.Keys.check("BackwardTiling.Keys", p.KeyLen, &p); err != nil {
		return nil, err
	}
	if err := t.Queries.check("BackwardTiling.Queries", p.QueryLen, &p); err != nil {
		return nil, err
	}
	size := float64(p.DType.Size())
	d, dv := float64(p.HeadDim)*size, float64(p.ValueDim)*size
	heads, keyHeads := p.heads(), float64(p.Batch)*float64(p.KeyHeads)
	queries, keys := heads*float64(p.QueryLen), keyHeads*float64(p.KeyLen)

	add := float64(boolInt(t.Accumulate))
	steps := t.delta(&p)

	kv := t.Keys.keyTraffic(&p)
	again := 1.0 // times that the weights are computed
	if t.Keys.Apart {
		again = 2
	}
	steps = append(steps, p.work(kernelKeys, again, map[string]Work{
		StepScoresAgain:  {Read: keyHeads * kv.scores * d},
		StepWeightsAgain: {Read: keyHeads * kv.statistics * 2 * fp32},
		StepWeightGrads:  {Read: keyHeads * kv.weights * dv},
		StepValueGrads:   {Read: (keyHeads*kv.sums + add*keys) * dv, Written: keys * dv},
		StepKeyGrads:     {Read: (keyHeads*kv.sums + add*keys) * d, Written: keys * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepValueGrads, StepKeyGrads)...)

	q := t.Queries.queryTraffic(&p)
	return append(steps, p.work(kernelQueries, 1, map[string]Work{
		StepScoresAgain:  {Read: heads * q.scores * d},
		StepWeightsAgain: {Read: heads * q.statistics * 2 * fp32},
		StepWeightGrads:  {Read: heads * q.weights * dv},
		StepQueryGrads:   {Read: (heads*q.sums + add*queries) * d, Written: queries * d},
	}, StepScoresAgain, StepWeightsAgain, StepWeightGrads, StepDropout, StepScoreGrads, StepQueryGrads)...), nil
}

const fp32 = 4 // bytes of lse and δ

// delta is the first kernel's work.
func (t BackwardTiling) delta(p *Problem) []Work {
	queries := p.heads() * float64(p.QueryLen)
	read := 2 * queries * float64(p.ValueDim*p.DType.Size())
	if t.DLSE {
		read += fp32 * queries
	}
	return p.work(kernelDelta, 1, map[string]Work{StepDelta: {Read: read, Written: fp32 * queries}}, StepDelta)
}

// work is the named steps as a kernel does them: with these bytes, and with the scores, the weights and dropout computed again times.
func (p *Problem) work(kernel string, again float64, bytes map[string]Work, names ...string) []Work {
	steps := p.gradientSteps(names...)
	for i := range steps {
		s := &steps[i]
		s.Kernel, s.Read, s.Written = kernel, bytes[s.Name].Read, bytes[s.Name].Written
		switch s.Name {
		case StepScoresAgain, StepWeightsAgain, StepDropout:
			s.FLOPs *= again
		}
	}
	return steps
}

// backwardTraffic is the rows that a kernel loads for one head: of Q and K for the scores, of dO and V for dP, of what the sums
// multiply P and dS with, and of lse and δ.
type backwardTraffic struct{ scores, weights, sums, statistics float64 }

// keyTraffic: a block of keys walks over the tiles of queries that see any of it, of each query head in turn.
func (t BackwardTile) keyTraffic(p *Problem) (sum backwardTraffic) {
	tiles, group, readers := ceilDiv(p.QueryLen, t.Columns), float64(p.group()), float64(max(t.RowReaders, 1))
	mask := p.mask()
	for first := 0; first < p.KeyLen; first += t.Rows {
		n := float64(min(t.Rows, p.KeyLen-first))
		walk := mask.QueryTiles(first, t.Rows, t.Columns)
		begin, whole := walk.Begin, walk.WholeBegin
		if t.Restaged {
			begin = min(begin, tiles-1) // one tile at least
			queries := group * float64(p.QueryLen-begin*t.Columns)
			rows := group*float64(tiles-begin)*n + queries
			sum.scores += rows
			sum.weights += rows
			sum.sums += queries
			sum.statistics += queries * readers
			continue
		}
		once, ahead := t.walk(p.QueryLen, begin, whole, tiles)
		queries := group*once + ahead
		dispatches := 1.0
		if t.Apart {
			dispatches = 2
		}
		sum.scores += dispatches * (n + queries)
		sum.weights += n + dispatches*queries // dV's own dispatch needs dO and not V
		sum.statistics += dispatches * queries * readers
	}
	return sum
}

// queryTraffic: a block of queries walks over the tiles of keys that any of its queries may see.
func (t BackwardTile) queryTraffic(p *Problem) (sum backwardTraffic) {
	mask := p.mask()
	for first := 0; first < p.QueryLen; first += t.Rows {
		n := min(t.Rows, p.QueryLen-first)
		sum.statistics += float64(n * max(t.RowReaders, 1))
		walk := mask.KeyTiles(first, n, t.Columns)
		tiles := walk.End
		if t.Restaged {
			tiles = max(tiles, 1)
			keys := float64(min(tiles*t.Columns, p.KeyLen))
			rows := float64(tiles*n) + keys
			sum.scores += rows
			sum.weights += rows
			sum.sums += keys
			continue
		}
		whole := tiles // that all queries see whole
		if t.Masked {
			whole = walk.WholeEnd
		}
		once, ahead := t.walk(p.KeyLen, 0, whole, tiles)
		rows := float64(n) + once + ahead
		sum.scores += rows
		sum.weights += rows
	}
	return sum
}

// walk is the rows, of count, that a walk over the tiles from begin to end loads, whose loop changes at `change`: of each tile
// once, and ahead of a loop's end.
func (t BackwardTile) walk(count, begin, change, end int) (once, ahead float64) {
	rows := func(from, to int) float64 { return float64(max(0, min(to*t.Columns, count)-from*t.Columns)) }
	if !t.Masked {
		change = begin
	}
	for _, loop := range [][2]int{{begin, change}, {change, end}} {
		if loop[0] < loop[1] {
			once += rows(loop[0], loop[1])
			if t.Ahead {
				ahead += rows(loop[1]-1, loop[1])
			}
		}
	}
	return once, ahead
}

// LeastBackwardBytes is the same for the backward pass: q, k, v, o, do and lse read, dq, dk and dv written; in standard
// attention, whose weights stand in memory, the matrices of weights, dP and dS as well: P read twice, dP and dS written and read.
func (p Problem) LeastBackwardBytes(algorithm Algorithm) (float64, error) {
	p, err := p.Normalize()
	if err != nil {
		return 0, err
	}
	size := float64(p.DType.Size())
	var n float64
	for _, s := range []struct {
		shape [4]int
		times float64
	}{{p.QShape(), 2}, {p.KShape(), 2}, {p.VShape(), 2}, {p.OShape(), 2}} { // each with its gradient
		e, _ := elements(s.shape)
		n += s.times * float64(e) * size
	}
	n += p.heads() * float64(p.QueryLen) * 4
	if algorithm == AlgorithmStandard {
		n += 6 * p.heads() * p.paperPairs() * size
	}
	return n, nil
}
