package ring

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// A schedule is what each rank computes, with whose keys and values, in which order; every rank derives the same one. At step s rank r has
// the block of keys and values of rank r−s (modulo the number of ranks W), its own at step 0, so that at each step every block is at one
// rank. Blocks that no query of a rank sees are left out.
//
// Step s is a rotation by s: a block goes to a rank from its owner's memory, where it was read from the device once, and what the rank adds
// to its gradients goes home likewise. That is as many bytes as when blocks are handed on from neighbour to neighbour, and where some see
// no block in between it is fewer.
type schedule struct {
	problem flash.Problem // of all tokens, normalized
	whole   attn.Mask
	packed  *sequences // of packed sequences, or of the entries of a padded batch (padded.go); nil
	padded  bool
	blocks  *blockBits // of the block mask, where there is one and it is known; nil
	ranks   int
	order   Order
	queries layout
	keys    layout
	// Those of one entry of a batch: they differ from queries and keys where entries lie one behind the other, in a padded batch.
	entryQueries, entryKeys layout
	streamed                bool // queries are all rank 0's; blocks are of other "ranks", and come from the host (streamed.go)
	// positional says that what becomes of a pair depends on more than the distance of its positions: launches are of neighbours in the
	// sequence then.
	positional bool
	// Which heads of a longer problem's those of this one are, where it is one of several hosts'; heads 0: it has all.
	head, heads int
}

func newSchedule(p flash.Problem, shard Shard, ranks int) *schedule {
	s := &schedule{problem: p, ranks: ranks, order: shard.order(&p)}
	queries, keys := tokens(&p)
	blocks := p.Blocks
	if shard.Over == Heads { // a rank computes all tokens: no end of a chunk cuts the mask
		blocks = flash.Blocks{}
	}
	s.queries, s.keys = newLayout(queries, ranks, s.order, blocks.Queries), newLayout(keys, ranks, s.order, blocks.Keys)
	s.entryQueries, s.entryKeys = s.queries, s.keys
	s.positional = positional(&p)
	if p.Packed != (flash.Packed{}) {
		s.packed = assumedSequences(&p)
	} else if hasLengths(&p) && shard.Over != Heads {
		s.pad()
	}
	s.whole = byPosition(&p, p.QueryLen, p.KeyLen)
	return s
}

// tokens is the rows of queries and of keys of the whole.
func tokens(p *flash.Problem) (queries, keys int) {
	if p.Packed != (flash.Packed{}) {
		return p.Packed.Queries, p.Packed.Keys
	}
	return p.QueryLen, p.KeyLen
}

// entries is the first length of a rank's own buffers: packed sequences lie in one, and so do entries of a padded batch.
func (s *schedule) entries() int {
	if s.packed != nil {
		return 1
	}
	return s.problem.Batch
}

// pairs are all that are seen, of all heads.
func (s *schedule) pairs() (n float64) {
	if s.packed == nil {
		n = s.whole.Pairs() * float64(s.problem.Batch*s.problem.Heads)
		if s.blocks != nil {
			set, all := s.blocks.count(&s.problem, wholePart(&s.problem, Span{0, s.problem.QueryLen}, Span{0, s.problem.KeyLen}))
			n *= float64(set) / float64(all)
		}
		return n
	}
	for b := range s.problem.Batch {
		n += s.packed.pairs(&s.problem, b)
	}
	return n * float64(s.problem.Heads)
}

// launch is attention of some of a rank's queries to some keys of a block: rows of their tensors, which may be of two chunks.
type launch struct {
	queries, keys       Span // rows of the rank's and the block's tensors
	ownQueries, ownKeys Span // those of them that it computes something of: all, but where packed sequences have some of them
	problem             flash.Problem
	pairs               float64 // of a head
	scores              corner
	blocks              blockPart // where the problem has a block mask

	packed    bool   // it is over packed sequences
	sequences Span   // which
	begins    [2]int // its first query's row of the whole, and its first key's
	startsAt  int    // where their starts stand in a pass's tensor of starts
	pad       int    // copies of the first before the keys, which a mask leaves out
}

// step is what a rank computes with the block of one rank.
type step struct {
	number   int // how far away the owner is
	owner    int
	launches []launch
}

// steps are those of a rank, its own block first.
func (s *schedule) steps(rank int) []step {
	if s.streamed {
		return s.streamedSteps()
	}
	var out []step
	for n := range s.ranks {
		owner := (rank - n + s.ranks) % s.ranks
		if l := s.launches(rank, owner); len(l) > 0 {
			out = append(out, step{n, owner, l})
		}
	}
	return out
}

// sees says whether a rank has queries that see keys of a block.
func (s *schedule) sees(rank, owner int) bool {
	if s.packed != nil {
		return len(s.packedLaunches(rank, owner)) > 0
	}
	for _, q := range s.queries.spans[rank] {
		for _, k := range s.keys.spans[owner] {
			if s.band(q, k).kind != none {
				return true
			}
		}
	}
	return false
}

// receivers are the ranks that a rank's block goes to, by step.
func (s *schedule) receivers(owner int) []int {
	var out []int
	for n := 1; n < s.ranks; n++ {
		if rank := (owner + n) % s.ranks; s.sees(rank, owner) {
			out = append(out, rank)
		}
	}
	return out
}

// kind is what queries of a chunk see of the keys of another.
type kind uint8

const (
	none kind = iota
	whole
	edge
)

// band is which diagonals of a pair of chunks are seen: key j by query i, counted from the chunks' first, iff low ≤ j − i ≤ high.
type band struct {
	kind      kind
	low, high int // bounds within the pair, so that equal bands are equal
}

// band gives that of a pair of chunks.
func (s *schedule) band(q, k Span) band {
	if !s.attended(q, k) {
		return band{}
	}
	return bandOf(s.whole.Part(q.Begin, q.Len(), k.Begin, k.Len()))
}

func bandOf(m attn.Mask) band {
	switch {
	case m.Queries == 0 || m.Keys == 0 || m.Pairs() == 0:
		return band{}
	case m.All():
		return band{kind: whole}
	}
	return band{edge, max(m.Low, 1-m.Queries), min(m.High, m.Keys-1)}
}

// launches cuts the pairs of chunks of a rank and of a block into as few launches as there can be: a launch is over neighbours, and has one
// band.
func (s *schedule) launches(rank, owner int) []launch {
	if s.packed != nil {
		return s.packedLaunches(rank, owner)
	}
	if s.streamed {
		return s.neighbours(owner)
	}
	nq, nk := len(s.queries.spans[rank]), len(s.keys.spans[owner])
	var best []launch
	for _, cut := range cutsOf[nq-1][nk-1] {
		if best != nil && len(best) <= 1 {
			break // nothing is fewer
		}
		if out, fits := s.along(rank, owner, cut); fits && (best == nil || len(out) < len(best)) {
			best = out
		}
	}
	return s.withUnseen(rank, owner, best)
}

// finest are those of a rank's own block, a launch for each pair of chunks.
func (s *schedule) finest(rank int) []launch {
	if s.packed != nil {
		return s.packedLaunches(rank, rank)
	}
	all := cutsOf[len(s.queries.spans[rank])-1][len(s.keys.spans[rank])-1]
	out, _ := s.along(rank, rank, all[len(all)-1])
	return s.withUnseen(rank, rank, out)
}

// along are the launches of one way to cut, where each of its rectangles can be one.
func (s *schedule) along(rank, owner int, cut [][2]Span) (out []launch, fits bool) {
	for _, part := range cut {
		l, empty, ok := s.launch(rank, owner, part[0], part[1])
		if !ok {
			return nil, false
		}
		if !empty {
			out = append(out, l)
		}
	}
	return out, true
}

// withUnseen adds launches, with the rank's own block, of queries that see no key at all: they are told so by them.
func (s *schedule) withUnseen(rank, owner int, out []launch) []launch {
	if rank != owner {
		return out
	}
	for i, q := range s.queries.spans[rank] {
		seen := false
		for o := range s.ranks {
			for _, k := range s.keys.spans[o] {
				seen = seen || s.band(q, k).kind != none
			}
		}
		if !seen {
			none := s.make(rank, owner, Span{i, i + 1}, Span{0, 1})
			none.pairs = 0
			out = append(out, none)
		}
	}
	return out
}

// cutsOf are the cuts of one or two chunks of queries and of keys.
var cutsOf = [2][2][][][2]Span{{cuts(1, 1), cuts(1, 2)}, {cuts(2, 1), cuts(2, 2)}}

// cuts lists the ways to cut up to 2 × 2 pairs of chunks into rectangles, the coarsest first: each is chunks of queries and of keys.
func cuts(nq, nk int) [][][2]Span {
	all := func(n int) Span { return Span{0, n} }
	each := func(n int) (out []Span) {
		for i := range n {
			out = append(out, Span{i, i + 1})
		}
		return out
	}
	product := func(a, b []Span) (out [][2]Span) {
		for _, x := range a {
			for _, y := range b {
				out = append(out, [2]Span{x, y})
			}
		}
		return out
	}
	rows, columns := each(nq), each(nk)
	var mixed [][][2]Span
	if nq == 2 && nk == 2 { // one row, or one column, whole
		for i := range 2 {
			mixed = append(mixed, append(product(rows[i:i+1], []Span{all(2)}), product(rows[1-i:2-i], columns)...))
			mixed = append(mixed, append(product([]Span{all(2)}, columns[i:i+1]), product(rows, columns[1-i:2-i])...))
		}
	}
	out := [][][2]Span{product([]Span{all(nq)}, []Span{all(nk)}), product(rows, []Span{all(nk)}), product([]Span{all(nq)}, columns)}
	return append(append(out, mixed...), product(rows, columns))
}

// launch is one over these chunks, where one band serves all pairs among them; empty where none of them sees anything.
func (s *schedule) launch(rank, owner int, qs, ks Span) (_ launch, empty, ok bool) {
	l := s.make(rank, owner, qs, ks)
	empty, all := true, true
	pairs := func(f func(q, k int) bool) bool { // of chunks, until one is false
		for i := qs.Begin; i < qs.End; i++ {
			for j := ks.Begin; j < ks.End; j++ {
				if !f(i, j) {
					return false
				}
			}
		}
		return true
	}
	pairs(func(i, j int) bool {
		b := s.band(s.queries.spans[rank][i], s.keys.spans[owner][j])
		empty, all = empty && b.kind == none, all && b.kind == whole
		return true
	})
	switch {
	case empty:
		return l, true, true
	case s.positional && !(qs.Len() == 1 && ks.Len() == 1):
		return l, false, false
	case all:
		unmask(&l.problem)
		if !s.positional {
			l.problem.Within = flash.Within{}
		}
		l.pairs *= float64(l.queries.Len()) * float64(l.keys.Len())
		return l, false, true
	case qs.Len() == 1 && ks.Len() == 1:
		l.pairs *= s.whole.Part(l.problem.Within.Query, l.queries.Len(), l.problem.Within.Key, l.keys.Len()).Pairs()
		return l, false, true
	}
	ok = !pairs(func(i, j int) bool { // the diagonals of one pair, taken for all of them
		shift := s.queries.spans[rank][i].Begin - s.row(&s.queries, rank, i, qs) -
			(s.keys.spans[owner][j].Begin - s.row(&s.keys, owner, j, ks))
		m := s.whole.Part(shift, l.queries.Len(), 0, l.keys.Len())
		within, fits := s.within(shift, l.queries.Len(), l.keys.Len())
		if fits = fits && pairs(func(i, j int) bool {
			q, k := s.queries.spans[rank][i], s.keys.spans[owner][j]
			return bandOf(m.Part(s.row(&s.queries, rank, i, qs), q.Len(), s.row(&s.keys, owner, j, ks), k.Len())) == s.band(q, k)
		}); fits {
			l.problem.Within, l.pairs = within, m.Pairs()
		}
		return !fits
	})
	return l, false, ok
}

// within gives positions, within the whole, of so many queries and keys whose first query is as far ahead of the first key as shift says:
// where a launch is over chunks that are not neighbours in the sequence, only that distance counts.
func (s *schedule) within(shift, queries, keys int) (flash.Within, bool) {
	w := flash.Within{Queries: s.problem.QueryLen, Keys: s.problem.KeyLen, Query: max(shift, 0), Key: max(-shift, 0)}
	return w, w.Query+queries <= w.Queries && w.Key+keys <= w.Keys
}

// row is the row at which a chunk begins, counted from the first of some.
func (s *schedule) row(l *layout, rank, chunk int, of Span) (n int) {
	for _, c := range l.spans[rank][of.Begin:chunk] {
		n += c.Len()
	}
	return n
}

// make is a launch over chunks, at their own positions in the whole.
func (s *schedule) make(rank, owner int, qs, ks Span) launch {
	rows := func(l *layout, rank int, of Span) Span {
		begin := s.row(l, rank, of.Begin, Span{0, of.Begin})
		return Span{begin, begin + s.row(l, rank, of.End, of)}
	}
	l := launch{queries: rows(&s.queries, rank, qs), keys: rows(&s.keys, owner, ks), problem: s.problem}
	// a launch with a bias or a mask is over one chunk of keys
	l.scores = corner{query: l.queries.Begin, key: s.keys.spans[owner][ks.Begin].Begin}
	l.ownQueries, l.ownKeys = l.queries, l.keys
	l.problem.Sinks = false // the sums' own
	l.problem.Bias, l.problem.Mask = partOf(s.problem.Bias, l.queries.Len(), l.keys.Len()),
		partOf(s.problem.Mask, l.queries.Len(), l.keys.Len())
	l.problem.QueryLen, l.problem.KeyLen = l.queries.Len(), l.keys.Len()
	l.problem.Within = flash.Within{Queries: s.problem.QueryLen, Keys: s.problem.KeyLen,
		Query: s.queries.spans[rank][qs.Begin].Begin, Key: s.keys.spans[owner][ks.Begin].Begin, Head: s.head, Heads: s.heads}
	l.pairs = 1 // of those that the band has, the share that blocks leave
	if w := l.problem.Within; s.problem.Blocks != (flash.Blocks{}) {
		s.masked(&l, wholePart(&s.problem, Span{w.Query, w.Query + l.queries.Len()}, Span{w.Key, w.Key + l.keys.Len()}))
	}
	return l
}
