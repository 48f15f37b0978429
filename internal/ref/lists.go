package ref

import (
	"fmt"
	"slices"
)

// Lists are the keys that queries see: [B, H, Nq, K] with H 1, for all key heads, or theirs. A number that is no key of the batch entry is
// none; a key that is listed twice is seen once.
type Lists struct {
	H, K int
	Data []int32
}

// bindLists checks the lists and sorts each.
func (p *Problem) bindLists() error {
	l := p.Lists
	if l == nil {
		return nil
	}
	if l.K < 1 || !broadcasts(l.H, p.K.H) || len(l.Data) != p.Q.B*l.H*p.Q.N*l.K {
		return fmt.Errorf("ref: lists of %d keys for %d heads with %d numbers do not cover [%d %d %d]", l.K, l.H, len(l.Data), p.Q.B, p.K.H,
			p.Q.N)
	}
	p.listed = slices.Clone(l.Data)
	for at := 0; at < len(p.listed); at += l.K {
		slices.Sort(p.listed[at : at+l.K])
	}
	return nil
}

// lists says whether the list of query i has key j, for query head h.
func (p *Problem) lists(b, h, i, j int) bool {
	l := p.Lists
	if l == nil {
		return true
	}
	at := ((b*l.H+first(h/p.group(), l.H))*p.Q.N + i) * l.K
	_, found := slices.BinarySearch(p.listed[at:at+l.K], int32(j))
	return found
}
