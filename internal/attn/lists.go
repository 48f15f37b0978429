package attn

import "fmt"

// Lists says that each query sees the keys of a list of its own: flash.Lists. The zero value is no lists.
type Lists struct {
	Keys    int  // entries of a list
	PerHead bool // each key head has lists of its own; else all share them
}

// None says that there are no lists.
func (l Lists) None() bool { return l.Keys == 0 }

// String gives the entries of a list.
func (l Lists) String() string {
	if l.PerHead {
		return fmt.Sprintf("of %d keys, per key head", l.Keys)
	}
	return fmt.Sprintf("of %d keys", l.Keys)
}

// Heads is the number of lists of a query.
func (l Lists) Heads(p *Problem) int {
	if l.PerHead {
		return p.KeyHeads
	}
	return 1
}

// ListsShape is the shape of the lists, [Batch, 1 or KeyHeads, QueryLen, Keys]; zero without any.
func (p *Problem) ListsShape() [4]int {
	if p.Lists.None() {
		return [4]int{}
	}
	return [4]int{p.Batch, p.Lists.Heads(p), p.QueryLen, p.Lists.Keys}
}

func (p *Problem) hasLists() bool { return !p.Lists.None() }
