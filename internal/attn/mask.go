package attn

import (
	"fmt"
	"math"
)

// ByPosition is the masks by position of a problem, as callers ask for them. Band is what they come to; kernels know that alone.
type ByPosition struct {
	Causal Causal
	Window Window
}

// Masked says that positions may hide keys from queries: kernels then look at those of each tile.
func (b ByPosition) Masked() bool { return b != ByPosition{} }

// Local says that queries see keys near their own position alone: rows of tiles and of the tuning file call that a window, whatever the
// mask is.
func (b ByPosition) Local() bool { return !b.Window.None() }

// Band is which of so many keys each of so many queries may attend to.
func (b ByPosition) Band(queries, keys int) Mask {
	m := Every(queries, keys)
	diagonal := keys - queries
	switch b.Causal {
	case CausalBottomRight:
		m.High = diagonal
	case CausalTopLeft:
		m.High = 0
	}
	left, right := b.Window.Reach()
	if left >= 0 {
		m.Low = diagonal - left
	}
	if right >= 0 {
		m.High = min(m.High, diagonal+right)
	}
	m.High = max(m.High, m.Low-1) // a band that is empty ends before it begins by no more than one
	return m
}

// besideCausal describes the masks but for the causal order, for lines that name it first.
func (b ByPosition) besideCausal() string {
	if b.Window.None() {
		return ""
	}
	return fmt.Sprintf(" window %v", b.Window)
}

// Mask says which keys a query may attend to, as far as their positions decide: those of a band of diagonals. Key j is allowed for query i
// iff Low ≤ j − i ≤ High. The keys of a query are a span then, and so are the queries of a key.
type Mask struct {
	Queries, Keys int // Nq and Nk
	Low, High     int // −Unbounded and Unbounded where there is no such bound
}

// Unbounded is beyond every diagonal.
const Unbounded = math.MaxInt32

// Every allows every key for every query.
func Every(queries, keys int) Mask {
	return Mask{Queries: queries, Keys: keys, Low: -Unbounded, High: Unbounded}
}

// All says whether every key is allowed for every query.
func (m Mask) All() bool { return m.KeysOf(0).Len() == m.Keys && m.KeysOf(m.Queries-1).Len() == m.Keys }

// Span is the positions from Begin up to, not including, End; none where End = Begin.
type Span struct{ Begin, End int }

// Len is the number of positions.
func (s Span) Len() int { return s.End - s.Begin }

// Has says whether position i is one of them.
func (s Span) Has(i int) bool { return s.Begin <= i && i < s.End }

// Allows says whether query i may attend to key j.
func (m Mask) Allows(i, j int) bool { return m.KeysOf(i).Has(j) }

// KeysOf is the keys that query i may attend to.
func (m Mask) KeysOf(i int) Span { return span(i+m.Low, i+m.High, m.Keys) }

// QueriesOf is the queries that may attend to key j. Beyond the last key it goes on as before: blocks of keys are whole.
func (m Mask) QueriesOf(j int) Span { return span(j-m.High, j-m.Low, m.Queries) }

// span is first to last, both included, as far as they are among count positions.
func span(first, last, count int) Span {
	if last < first {
		return Span{} // an empty band
	}
	begin := min(max(first, 0), count)
	return Span{begin, max(begin, min(last+1, count))}
}

// Walk is the tiles of a walk: those from Begin up to End have something that some row of the block sees, and those from WholeBegin up to
// WholeEnd nothing that any row of it does not see, so that they need no mask. Tiles before Begin and from End on are left out.
type Walk struct{ Begin, WholeBegin, WholeEnd, End int }

// KeyTiles is the walk of a block of queries over tiles of size keys; rows is the number of its queries that exist.
func (m Mask) KeyTiles(first, rows, size int) Walk {
	return walk(m.KeysOf(first), m.KeysOf(first+rows-1), size)
}

// QueryTiles is the walk of a block of keys over tiles of size queries.
func (m Mask) QueryTiles(first, keys, size int) Walk {
	return walk(m.QueriesOf(first), m.QueriesOf(first+keys-1), size)
}

// walk cuts what the first and the last row of a block see into tiles. Both ends of a row's span move on from row to row.
func walk(first, last Span, size int) Walk {
	if last.End <= first.Begin {
		none := CeilDiv(first.Begin, size)
		return Walk{none, none, none, none}
	}
	w := Walk{Begin: first.Begin / size, WholeBegin: CeilDiv(last.Begin, size), WholeEnd: first.End / size, End: CeilDiv(last.End, size)}
	w.WholeBegin = min(w.WholeBegin, w.End)
	w.WholeEnd = max(w.WholeEnd, w.WholeBegin)
	return w
}

// ReadBehind is how many keys behind its last one, at most, are read of a query's row by who reads tiles of this many rows and keys: whole
// tiles, up to the last key of the last of these rows.
func (m Mask) ReadBehind(rows, keys int) int { return rows + keys }

// Part is the mask of some of the queries and keys by themselves: queries from row on and keys from column on.
func (m Mask) Part(row, queries, column, keys int) Mask {
	part := m
	part.Queries, part.Keys = queries, keys
	if m.Low > -Unbounded {
		part.Low += row - column
	}
	if m.High < Unbounded {
		part.High += row - column
	}
	return part
}

// Pairs is the number of (query, key) pairs of one head.
func (m Mask) Pairs() float64 { return m.below(m.High+1) - m.below(m.Low) }

// below is Σ_i min(max(i + c, 0), Nk): an arithmetic series between its two bounds.
func (m Mask) below(c int) float64 {
	nq, nk, from := float64(m.Queries), float64(m.Keys), float64(c)
	none := min(max(-from, 0), nq)      // queries below which there is nothing
	full := min(max(nk-from, none), nq) // the first query below which there is everything
	ramp := full - none
	return ramp*(none+from) + ramp*(ramp-1)/2 + (nq-full)*nk
}

// MostKeys is the largest number of keys of a query. It is that of the first query which sees as far as any key, or as early as the first,
// or of the last query: the two ends of a span move alike from row to row, but for where the keys begin and end.
func (m Mask) MostKeys() int {
	most := 0
	for _, i := range []int{0, -m.Low, m.Keys - 1 - m.High, m.Queries - 1} {
		most = max(most, m.KeysOf(min(max(i, 0), m.Queries-1)).Len())
	}
	return most
}

// MeanKeys is the mean number of keys of a query.
func (m Mask) MeanKeys() float64 { return m.Pairs() / float64(m.Queries) }
