package ring

import "github.com/vkattn/vkattn/flash"

// Padded batches. A rank has its chunks of every entry, as of any batch. Where a query stands depends on its entry's lengths, which no two
// entries need share, so that launches are of one entry: entries are taken for sequences of which a rank has some rows each, one behind the
// other. Row i of entry b is row b·N + i of the whole then, N being QueryLen or KeyLen, and of a rank's buffers likewise with the numbers
// of rows that it has; tensors of the caller keep their shapes, and rows finds the entry.

// hasLengths says whether a problem is a padded batch, or packed sequences that use some rows of their slots.
func hasLengths(p *flash.Problem) bool { return p.QueryLengths || p.KeyLengths }

// pad makes the schedule that of a padded batch, whose entries use all of their rows until lengths are known.
func (s *schedule) pad() {
	p := &s.problem
	s.padded, s.packed = true, paddedSequences(p)
	s.queries, s.keys = s.entryQueries.repeated(p.Batch, p.QueryLen), s.entryKeys.repeated(p.Batch, p.KeyLen)
}

// repeated is a layout of so many entries of so many rows, one behind the other.
func (l *layout) repeated(entries, rows int) layout {
	out := layout{ranks: l.ranks, spans: make([][]Span, len(l.spans))}
	for rank, spans := range l.spans {
		for b := range entries {
			for _, s := range spans {
				out.spans[rank] = append(out.spans[rank], Span{b*rows + s.Begin, b*rows + s.End})
			}
		}
	}
	return out
}

// paddedSequences are the entries of a batch.
func paddedSequences(p *flash.Problem) *sequences {
	s := &sequences{}
	for b := range p.Batch + 1 {
		s.queries, s.keys = append(s.queries, b*p.QueryLen), append(s.keys, b*p.KeyLen)
		if b < p.Batch {
			s.queryLens, s.keyLens = append(s.queryLens, p.QueryLen), append(s.keyLens, p.KeyLen)
		}
	}
	return s
}

// paddedLaunches are those of a padded batch, for each entry and pair of chunks.
func (s *schedule) paddedLaunches(rank, owner int) (out []launch) {
	queries, keys := spansOf(s.queries.spans[rank]), spansOf(s.keys.spans[owner])
	nq, nk := len(s.entryQueries.spans[rank]), len(s.entryKeys.spans[owner])
	for b := range s.problem.Batch {
		for i := b * nq; i < (b+1)*nq; i++ {
			for j := b * nk; j < (b+1)*nk; j++ {
				c := chunks2{s.queries.spans[rank][i], s.keys.spans[owner][j], queries[i], keys[j]}
				for _, l := range s.cutSequence(&c, b) {
					q, k := l.scores.query, l.scores.key
					if !s.masked(&l, blockPart{Span{b, b + 1}, Span{0, s.problem.Heads}, Span{q, q + l.queries.Len()},
						Span{k, k + l.keys.Len()}}) {
						continue
					}
					l.scores.query = l.queries.Begin - b*s.entryQueries.rows(rank) // a rank's own, as of any batch
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// rows is some rows of a tensor, of the caller's or of the rank's own buffers.
func (w *pass) rows(t *flash.Tensor, of Span) *flash.Tensor {
	shape, strides := t.Shape(), t.Strides()
	at := of.Begin * strides[2]
	switch {
	case w.sched.padded && shape[0] > 1:
		entry := of.Begin / shape[2]
		at = entry*strides[0] + (of.Begin-entry*shape[2])*strides[2]
		shape[0] = 1
	case of == Span{0, shape[2]}:
		return t
	}
	shape[2] = of.Len()
	return w.view(t, t.Offset()+uint64(at*t.DType().Size()), t.DType(), shape, strides)
}

// eachEntry calls f with the rows of each entry that a rank's tensors of so many rows have, or with all rows where entries lie side by
// side.
func (w *pass) eachEntry(rows int, f func(at Span)) {
	n := 1
	if w.sched.padded {
		n = w.problem.Batch
	}
	for b := range n {
		f(Span{b * rows / n, (b + 1) * rows / n})
	}
}
