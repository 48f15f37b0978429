package attn

import "fmt"

// Within says that a problem is some of the queries and keys of a longer one, and which: flash.Within. The zero value is no part.
type Within struct {
	Queries, Keys int // QueryLen and KeyLen of the whole; 0: the part's mask is its own
	Query, Key    int // its positions at which the part's queries and keys begin
	Head, Heads   int // the part's first query head, and how many the whole has, 0: the part has all
	Batch         int // the part's first batch entry
}

// None says that the problem is the whole.
func (r Within) None() bool { return r == Within{} }

// String gives the two beginnings, and of how many queries and keys.
func (r Within) String() string {
	return fmt.Sprintf("from query %d of %d and key %d of %d", r.Query, r.Queries, r.Key, r.Keys)
}

// mask is the band of diagonals of the whole, as the part's own positions have it. Its bounds lie on, or next to, diagonals that the part
// has, so that they fit wherever those of a whole problem of its size fit.
func (r Within) mask(p Problem) Mask {
	whole := p
	whole.Within, whole.QueryLen, whole.KeyLen = Within{}, r.Queries, r.Keys
	m := whole.Mask().Part(r.Query, p.QueryLen, r.Key, p.KeyLen)
	if m.Low > -Unbounded {
		m.Low = min(max(m.Low, -p.QueryLen), p.KeyLen)
	}
	if m.High < Unbounded {
		m.High = min(max(m.High, -p.QueryLen), p.KeyLen)
	}
	return m
}

// DrawKeys is what Key is a multiple of where there is dropout: a draw serves keys among so many neighbours.
const DrawKeys = 64

// AllHeads is the number of query heads of the whole; own is the part's.
func (r Within) AllHeads(own int) int {
	if r.Heads > 0 {
		return r.Heads
	}
	return own
}

// DrawsWithin says that the problem is part of one with dropout, whose draws are counted by the places of the whole.
func (p Problem) DrawsWithin() bool { return p.DropThreshold() > 0 && !p.Within.None() }
