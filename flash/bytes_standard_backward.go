package flash

// StandardBackwardTiling is how the kernels of standard attention's backward pass divide a problem: P stands in memory from the
// forward pass, dP and dS are matrices like it, and dV, dQ and dK are products.
type StandardBackwardTiling struct {
	Weights, Values, Queries, Keys StandardBlock // of dP, dV, dQ and dK

	ScoresUnit int  // dP: elements in which rows are stored; 0: 4
	ReadTwice  bool // dS: a row is too long for registers, and P and dP are read twice
	RowReaders int  // dS: invocations that load dlse of one row; 0: 1
	SlabHeads  int  // heads of a buffer of P, where it holds all of their rows; 0: all
	SlabRows   int  // else rows of one head; 0: all
}

// StandardBlock is the block of a product that a workgroup makes. Rows are queries (dP, dQ) or keys (dV, dK).
type StandardBlock struct {
	Rows, Columns int // Columns: of dP, keys of the block; else queries or keys of a step of its loop
	Run           int // dP: blocks that share one load of their rows; 0: 1
}

// tiling is false for a shape that the model does not know.
func (s *standardBackwardProgram) tiling() (t StandardBackwardTiling, ok bool) {
	for _, b := range s.forward.slabs {
		t.SlabHeads, t.SlabRows = max(t.SlabHeads, b.heads), max(t.SlabRows, b.rows)
	}
	switch shape := s.shape.(type) {
	case *standardBackwardTile:
		t.Weights.Rows, t.Weights.Columns = shape.weights.scoresBlock()
		t.Values.Rows, t.Values.Columns = shape.values.productBlock()
		t.Queries.Rows, t.Queries.Columns = shape.queries.productBlock()
		t.Keys.Rows, t.Keys.Columns = shape.keys.productBlock()
		t.RowReaders, t.ReadTwice = shape.weights.rowThreads, backwardKeeps(shape.weights.rowKeep) == 0
		return t, true
	case *standardMatrixGradients:
		f, scores := &shape.weights.fragment, &shape.weights.scoresTile
		t.Weights = StandardBlock{Rows: scores.rows(f), Columns: scores.tile(f), Run: scores.run}
		t.Values.Rows, t.Values.Columns = shape.values.productBlock()
		t.Queries.Rows, t.Queries.Columns = shape.queries.productBlock()
		t.Keys.Rows, t.Keys.Columns = shape.keys.productBlock()
		t.ScoresUnit, t.RowReaders, t.ReadTwice = 8, shape.weights.rowThreads, backwardKeeps(shape.weights.rowKeep) == 0
		return t, true
	}
	return t, false
}

// Kernels of standard attention's backward pass (Work.Kernel).
const (
	kernelWeightGrads = "dp"
	kernelScoreGrads  = "ds"
	kernelValueGrads  = "dv"
	kernelQueryGrads  = "dq"
	kernelKeyGrads    = "dk"
)

// standard is Backward for standard attention.
func (t BackwardTiling) standard(p *Problem) ([]Work, error) {
	s := t.Standard
	if err := s.check(p); err != nil {
		return nil, err
	}
	size := float64(p.DType.Size())
	d, dv := float64(p.HeadDim)*size, float64(p.ValueDim)*size
	heads, queries := p.heads(), p.heads()*float64(p.QueryLen)
	add := float64(boolInt(t.Accumulate))

	loaded, grads := p.scoresTraffic(s.Weights.Rows, s.Weights.Columns, s.Weights.Run, s.ScoresUnit, s.SlabRows)
	var seen, written float64 // by the kernel of dS
	mask := p.mask()
	for i := range p.QueryLen {
		keys := mask.KeysOf(i).End
		seen += float64(quad(keys))
		written += float64(min(quad(keys+s.Queries.Rows+s.Queries.Columns), p.scoresPitch()))
	}
	scores, keys := p.productTraffic(s.Queries.Rows, s.Queries.Columns, s.SlabRows)
	values, keySums := s.sumTraffic(p, s.Values, t.Accumulate), s.sumTraffic(p, s.Keys, t.Accumulate)

	passes, readers := 1.0, 0.0
	if s.ReadTwice {
		passes = 2
	}
	if t.DLSE {
		readers = float64(max(s.RowReaders, 1))
	}
	var work []Work
	for _, k := range []struct {
		kernel, step string
		bytes        Work
	}{
		{kernelWeightGrads, StepWeightGrads, Work{Read: heads * loaded * dv, Written: heads * grads * size}},
		{kernelScoreGrads, StepScoreGrads, Work{Read: 2*passes*heads*seen*size + queries*fp32*readers, Written: heads * written * size}},
		{kernelValueGrads, StepValueGrads, Work{Read: values.matrix*size + (values.rows+values.added)*dv, Written: values.written * dv}},
		{kernelQueryGrads, StepQueryGrads, Work{Read: heads*(scores*size+keys*d) + add*queries*d, Written: queries * d}},
		{kernelKeyGrads, StepKeyGrads, Work{Read: keySums.matrix*size + (keySums.rows+keySums.added)*d, Written: keySums.written * d}},
	} {
		work = append(work, p.work(k.kernel, 1, map[string]Work{k.step: k.bytes}, k.step)...)
	}
	return work, nil
}

// sumTraffic is what a sum over queries, dV or dK, moves in all: elements of the matrix, rows of what it multiplies, and rows of
// the result that are written, and read to be added to.
type sumTraffic struct{ matrix, rows, written, added float64 }

// sumTraffic: a block of keys walks over the rows of a slab, from the first that sees any of it, of each query head of its key
// head that the slab has. What an earlier slab made of a key head is added to.
func (s *StandardBackwardTiling) sumTraffic(p *Problem, b StandardBlock, accumulate bool) (sum sumTraffic) {
	mask, group, all := p.mask(), p.group(), p.Batch*p.Heads
	each := s.SlabHeads
	if each < 1 {
		each = all
	}
	if s.SlabRows > 0 && s.SlabRows < p.QueryLen {
		each = 1
	}
	p.slabsOf(s.SlabRows, func(row0, end int) {
		for head0 := 0; head0 < all; head0 += each {
			head1 := min(head0+each, all)
			for keyHead := head0 / group; keyHead <= (head1-1)/group; keyHead++ {
				first := max(keyHead*group, head0)
				members := float64(min((keyHead+1)*group, head1) - first)
				for key0 := 0; key0 < p.KeyLen; key0 += b.Rows {
					n := min(b.Rows, p.KeyLen-key0)
					start := min(max(mask.QueriesOf(key0).Begin-row0, 0), end-row0-1) / b.Columns * b.Columns
					rows := members * float64(end-row0-start)
					sum.matrix += rows * float64(min(b.Rows, p.scoresPitch()-key0))
					sum.rows += rows
					sum.written += float64(n)
					if accumulate || row0 > 0 || first > keyHead*group {
						sum.added += float64(n)
					}
				}
			}
		}
	})
	return sum
}
