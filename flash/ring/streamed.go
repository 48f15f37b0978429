package ring

import (
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// newStreamed is the schedule of one rank that has all queries, and whose keys come in so many blocks.
func newStreamed(p flash.Problem, blocks int) *schedule {
	s := newSchedule(p, Shard{Order: Plain}, 1)
	s.streamed, s.ranks = true, blocks
	queries, keys := tokens(&p)
	s.keys = newLayout(keys, blocks, Plain, p.Blocks.Keys)
	parts := 1 // sequences say by themselves who sees a block
	if s.packed == nil {
		parts = min(blocks, max(1, queries/max(1, p.Blocks.Queries)))
	}
	s.queries = layout{blocks, make([][]Span, blocks)}
	s.queries.spans[0] = chunks(queries, parts, p.Blocks.Queries)
	if s.entryQueries, s.entryKeys = s.queries, s.keys; s.padded {
		s.pad()
	}
	return s
}

// own are the positions of a rank's queries, or keys. A streamed schedule's are all, however they are cut.
func (s *schedule) own(l *layout, rank int) []Span {
	if !s.streamed {
		return slices.Clone(l.spans[rank])
	}
	end := 0
	for _, spans := range l.spans {
		for _, x := range spans {
			end = max(end, x.End)
		}
	}
	return []Span{{0, end}}
}

// streamedSteps are one for each block that somebody sees.
func (s *schedule) streamedSteps() (out []step) {
	for b := range s.ranks {
		if l := s.launches(0, b); len(l) > 0 {
			out = append(out, step{number: len(out) + 1, owner: b, launches: l})
		}
	}
	return out
}

// neighbours is the launch of those chunks of queries that see a block, which are neighbours; none where nobody does.
func (s *schedule) neighbours(block int) []launch {
	var qs Span
	all := true
	for i, q := range s.queries.spans[0] {
		band := s.band(q, s.keys.spans[block][0])
		if band.kind == none {
			continue
		}
		if qs.Len() == 0 {
			qs.Begin = i
		}
		qs.End = i + 1
		all = all && band.kind == whole
	}
	if qs.Len() == 0 {
		return nil
	}
	l := s.make(0, block, qs, Span{0, 1})
	l.pairs *= s.whole.Part(l.problem.Within.Query, l.queries.Len(), l.problem.Within.Key, l.keys.Len()).Pairs()
	if all {
		unmask(&l.problem)
		if !s.positional {
			l.problem.Within = flash.Within{}
		}
	}
	return []launch{l}
}

// written are the rows of a block that launches compute gradients of, and unseen those besides that are a key's: nobody sees them.
func (s *schedule) written(block int, launches []launch) (written, unseen []Span) {
	written = union(keyRows(launches))
	for _, r := range segmentsOf(s.slots(block, true), written) {
		seen := false
		for _, w := range written {
			seen = seen || meet(r, w).Len() > 0
		}
		if !seen {
			unseen = append(unseen, r)
		}
	}
	return written, unseen
}
