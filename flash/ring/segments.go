package ring

import "slices"

// segmentsOf cuts rows wherever one of some spans begins or ends, so that each span is made of whole segments. Sums are kept by segment: a
// launch adds to those that it has, and each segment knows what it was given so far.
func segmentsOf(rows, spans []Span) (out []Span) {
	var ends []int
	for _, s := range spans {
		ends = append(ends, s.Begin, s.End)
	}
	slices.Sort(ends)
	for _, r := range rows {
		for _, at := range ends {
			if r.Begin < at && at < r.End {
				out = append(out, Span{r.Begin, at})
				r.Begin = at
			}
		}
		if r.Len() > 0 {
			out = append(out, r)
		}
	}
	return out
}

// inside calls f with the segments of a span.
func inside(segments []Span, of Span, f func(i int, s Span)) {
	for i, s := range segments {
		if s.Begin >= of.Begin && s.End <= of.End {
			f(i, s)
		}
	}
}

// queryRows and keyRows are what launches compute o and dq of, and dk and dv.
func queryRows(launches []launch) (out []Span) {
	for _, l := range launches {
		out = append(out, l.ownQueries)
	}
	return out
}

func keyRows(launches []launch) (out []Span) {
	for _, l := range launches {
		out = append(out, l.ownKeys)
	}
	return out
}

// union is spans in order, those that meet made one.
func union(spans []Span) (out []Span) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.Begin - b.Begin })
	for _, s := range spans {
		if n := len(out); n > 0 && s.Begin <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, s)
	}
	return out
}

// hull is the rows of a block that launches are given.
func hull(launches []launch) (rows Span) {
	for i, l := range launches {
		if i == 0 {
			rows = l.keys
			continue
		}
		rows = Span{min(rows.Begin, l.keys.Begin), max(rows.End, l.keys.End)}
	}
	return rows
}

// slots are a rank's rows of queries, or of keys, by chunk: of packed sequences those that these have.
func (s *schedule) slots(rank int, keys bool) []Span {
	of, l := s.packed, &s.queries
	if keys {
		l = &s.keys
	}
	switch {
	case of == nil:
		return spansOf(l.spans[rank])
	case keys:
		return l.rowsIn(rank, slotRows(of.keys))
	}
	return l.rowsIn(rank, slotRows(of.queries))
}

// ownQueries are the rows of a rank's queries, of packed sequences those that these have, cut as its steps need it. Rows that a sequence
// does not use are among them: what launches add there is nothing.
func (s *schedule) ownQueries(rank int, steps []step) []Span {
	var at []Span
	for _, st := range steps {
		at = append(at, queryRows(st.launches)...)
	}
	return segmentsOf(s.slots(rank, false), at)
}

// ownKeys are those of its keys, cut as all ranks need it.
func (s *schedule) ownKeys(rank int) []Span {
	at := keyRows(s.launches(rank, rank))
	for _, other := range s.receivers(rank) {
		at = append(at, keyRows(s.launches(other, rank))...)
	}
	return segmentsOf(s.slots(rank, true), at)
}
