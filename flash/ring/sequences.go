package ring

import (
	"sort"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// sequences are packed sequences of the whole, as kernels take the starts and lengths that they are given: sequence b has the slot of rows
// from queries[b] up to, not including, queries[b+1], and keys likewise; of these it uses the first queryLens[b] and keyLens[b].
//
// Ranks cut the rows of the whole without a look at sequences. Of two chunks, of queries and of keys, at most the first and the last
// sequence that have rows of both are cut by an end of a chunk: each is a launch of its own, part of a longer problem (flash.Within). All
// between are whole, and one launch of packed sequences.
type sequences struct {
	queries, keys      []int
	queryLens, keyLens []int
}

// newSequences takes starts as kernels do: to the nearest of 0 to the rows that there are, and never below the one before. Sequences use
// all rows of their slots, up to as many as one can have.
func newSequences(p *flash.Problem, queryStarts, keyStarts []int32) *sequences {
	starts := func(given []int32, rows int) []int {
		out, reached := make([]int, len(given)), 0
		for i, x := range given {
			reached = max(reached, min(int(x), rows))
			out[i] = reached
		}
		return out
	}
	lens := func(starts []int, most int) []int {
		out := make([]int, len(starts)-1)
		for b := range out {
			out[b] = min(starts[b+1]-starts[b], most)
		}
		return out
	}
	s := &sequences{queries: starts(queryStarts, p.Packed.Queries), keys: starts(keyStarts, p.Packed.Keys)}
	s.queryLens, s.keyLens = lens(s.queries, p.QueryLen), lens(s.keys, p.KeyLen)
	return s
}

// using is the same sequences that use so many of their rows, as kernels take lengths: none for a negative one. Nil: all.
func (q *sequences) using(queryLengths, keyLengths []int32) *sequences {
	most := func(lens []int, given []int32) []int {
		if given == nil {
			return lens
		}
		out := make([]int, len(lens))
		for b, n := range lens {
			out[b] = min(n, max(0, int(given[b])))
		}
		return out
	}
	out := *q
	out.queryLens, out.keyLens = most(q.queryLens, queryLengths), most(q.keyLens, keyLengths)
	return &out
}

// assumedSequences are those of a plan until it has seen starts: one behind the other, each as long as one can be while there are rows.
func assumedSequences(p *flash.Problem) *sequences {
	starts := func(most, rows int) []int32 {
		out := make([]int32, p.Batch+1)
		for i := range out {
			out[i] = int32(min(i*most, rows))
		}
		return out
	}
	return newSequences(p, starts(p.QueryLen, p.Packed.Queries), starts(p.KeyLen, p.Packed.Keys))
}

// usedQueries are the rows that a sequence uses.
func (q *sequences) usedQueries(b int) Span {
	return Span{q.queries[b], q.queries[b] + q.queryLens[b]}
}

func (q *sequences) usedKeys(b int) Span {
	return Span{q.keys[b], q.keys[b] + q.keyLens[b]}
}

// mask is which keys of a sequence its queries see.
func (q *sequences) mask(p *flash.Problem, b int) attn.Mask {
	return byPosition(p, q.usedQueries(b).Len(), q.usedKeys(b).Len())
}

// pairs of a sequence that are seen, of a head.
func (q *sequences) pairs(p *flash.Problem, b int) float64 {
	if q.usedQueries(b).Len() == 0 || q.usedKeys(b).Len() == 0 {
		return 0
	}
	return q.mask(p, b).Pairs()
}

// touching are the sequences from the first to the last, exclusive, that have rows of a span.
func touching(starts []int, of Span) Span {
	n := len(starts) - 1
	first := sort.Search(n, func(b int) bool { return starts[b+1] > of.Begin })
	end := sort.Search(n, func(b int) bool { return starts[b] >= of.End })
	return Span{first, max(first, end)}
}

// meet is what two spans have in common; of length 0 where that is nothing.
func meet(a, b Span) Span {
	begin := max(a.Begin, b.Begin)
	return Span{begin, max(begin, min(a.End, b.End))}
}

// packedLaunches are those of packed sequences, for each pair of chunks.
func (s *schedule) packedLaunches(rank, owner int) (out []launch) {
	if s.padded {
		return s.paddedLaunches(rank, owner)
	}
	for i, q := range spansOf(s.queries.spans[rank]) {
		for j, k := range spansOf(s.keys.spans[owner]) {
			c := chunks2{s.queries.spans[rank][i], s.keys.spans[owner][j], q, k}
			out = append(out, s.packedPair(&c)...)
		}
	}
	return out
}

// chunks2 is a chunk of queries and one of keys: rows of the whole, and of the tensors that have them.
type chunks2 struct{ q, k, qRows, kRows Span }

func (c *chunks2) queries(of Span) Span { return of.from(c.q).behind(c.qRows) }
func (c *chunks2) keys(of Span) Span    { return of.from(c.k).behind(c.kRows) }

// packedPair are the launches of a pair of chunks.
func (s *schedule) packedPair(c *chunks2) (out []launch) {
	of := s.packed
	all := meet(touching(of.queries, c.q), touching(of.keys, c.k))
	inside := func(b int) bool {
		return of.queries[b] >= c.q.Begin && of.queries[b+1] <= c.q.End && of.keys[b] >= c.k.Begin && of.keys[b+1] <= c.k.End
	}
	middle := all
	if middle.Len() > 0 && !inside(middle.Begin) {
		out = append(out, s.cutSequence(c, middle.Begin)...)
		middle.Begin++
	}
	last := middle.Len() > 0 && !inside(middle.End-1)
	if last {
		middle.End--
	}
	if l, some := s.wholeSequences(c, middle); some {
		out = append(out, l)
	}
	if last {
		out = append(out, s.cutSequence(c, middle.End)...)
	}
	return out
}

// wholeSequences is a launch over sequences that lie in a pair of chunks from their first row to their last.
func (s *schedule) wholeSequences(c *chunks2, which Span) (l launch, some bool) {
	of := s.packed
	for b := which.Begin; b < which.End; b++ {
		l.pairs += of.pairs(&s.problem, b)
	}
	if l.pairs == 0 {
		return l, false
	}
	l.queries, l.keys = c.qRows, c.kRows
	l.ownQueries = c.queries(Span{of.queries[which.Begin], of.queries[which.End]})
	l.ownKeys = c.keys(Span{of.keys[which.Begin], of.keys[which.End]})
	l.problem = s.problem
	l.problem.Sinks = false
	l.problem.Packed = flash.Packed{Queries: c.q.Len(), Keys: c.k.Len()}
	l.packed, l.sequences, l.begins = true, which, [2]int{c.q.Begin, c.k.Begin}
	return l, true
}

// startsOf are the starts of a launch's sequences, of queries and then of keys, counted from its own first rows. Numbers of sequences stay
// those of the whole: others have no rows here.
func (q *sequences) startsOf(l *launch) (out []int32) {
	for i, starts := range [2][]int{q.queries, q.keys} {
		for b := range starts {
			out = append(out, int32(starts[min(max(b, l.sequences.Begin), l.sequences.End)]-l.begins[i]))
		}
	}
	return out
}

// cutSequence are the launches, of a pair of chunks, of a sequence that an end of a chunk cuts. Dropout's draws serve keys among so many
// neighbours, counted from the sequence's first, and a byte of bits has eight: where the chunk's begin among some, these are a launch of
// their own, with copies of the first in place of the neighbours before, which a mask leaves out, or a bias where the launch has a mask.
func (s *schedule) cutSequence(c *chunks2, b int) (out []launch) {
	used, keys := meet(s.packed.usedQueries(b), c.q), meet(s.packed.usedKeys(b), c.k)
	if used.Len() == 0 || keys.Len() == 0 {
		return nil
	}
	if at := keys.Begin - s.packed.keys[b]; (s.problem.Dropout != 0 || byBits(&s.problem)) && at%granule != 0 {
		first := Span{keys.Begin, min(keys.End, keys.Begin+granule-at%granule)}
		if l, some := s.pieceOf(c, b, used, first, at%granule); some {
			out = append(out, l)
		}
		keys.Begin = first.End
	}
	if keys.Len() > 0 {
		if l, some := s.pieceOf(c, b, used, keys, 0); some {
			out = append(out, l)
		}
	}
	return out
}

// byBits says whether a problem has a mask of which eight keys have a byte.
func byBits(p *flash.Problem) bool { return p.Mask.DType == flash.Bit && p.Mask.Keys > 1 }

// pieceOf is a launch over some queries and keys of a sequence, with so many rows before the keys that nobody sees.
func (s *schedule) pieceOf(c *chunks2, b int, queries, keys Span, pad int) (l launch, some bool) {
	of := s.packed
	query, key := queries.Begin-of.queries[b], keys.Begin-of.keys[b]
	m := of.mask(&s.problem, b).Part(query, queries.Len(), key, keys.Len())
	band := bandOf(m)
	if band.kind == none {
		return l, false
	}
	l.queries, l.keys, l.pad, l.pairs = c.queries(queries), c.keys(keys), pad, m.Pairs()
	l.ownQueries, l.ownKeys = l.queries, l.keys
	l.problem = s.problem
	p := &l.problem
	p.Batch, p.Packed, p.KeyLengths, p.QueryLengths, p.Sinks = 1, flash.Packed{}, false, false, false
	p.QueryLen, p.KeyLen = queries.Len(), pad+keys.Len()
	for _, x := range []*flash.PerScore{&p.Bias, &p.Mask} {
		*x = partOf(*x, p.QueryLen, p.KeyLen)
		x.Batch = min(x.Batch, 1)
	}
	l.scores = corner{b, query, key - pad}
	switch {
	case pad == 0:
	case p.Mask != flash.PerScore{}:
		if p.Bias == (flash.PerScore{}) {
			p.Bias = flash.PerScore{DType: flash.F32, Batch: 1, Heads: 1, Queries: 1, Keys: p.KeyLen}
		}
	default:
		p.Mask = flash.PerScore{DType: flash.Bool, Batch: 1, Heads: 1, Queries: 1, Keys: p.KeyLen}
	}
	if band.kind == whole {
		unmask(p)
	}
	if band.kind != whole || s.positional {
		p.Within = flash.Within{Queries: of.usedQueries(b).Len(), Keys: of.usedKeys(b).Len(), Query: query, Key: key - pad, Batch: b,
			Head: s.head, Heads: s.heads}
	}
	return l, true
}

// slotRows are the rows of the whole that sequences have, used or not: between them there are none.
func slotRows(starts []int) Span { return Span{starts[0], starts[len(starts)-1]} }

// rowsIn are the rows of a rank's tensors that lie in a span of the whole, by chunk.
func (l *layout) rowsIn(rank int, of Span) (out []Span) {
	for i, at := range spansOf(l.spans[rank]) {
		chunk := l.spans[rank][i]
		if x := meet(of, chunk); x.Len() > 0 {
			out = append(out, x.from(chunk).behind(at))
		}
	}
	return out
}
