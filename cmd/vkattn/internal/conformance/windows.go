package conformance

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// windows are sliding windows: of every reach from the own position alone to beyond all keys, wider and narrower than tiles, with causal
// orders beside them, with more and fewer keys than queries, for few queries, and keys in parts.
func windows(s *suite) {
	add := func(i int, p flash.Problem, left, right int) *Case {
		p.HeadDim, p.DType, p.Window = s.dim(16), dtypes[i%3], flash.SlidingWindow(left, right)
		p.Batch = 1
		return s.add(&Case{Name: name(p.DType, "window/%d-%d-%dx%d-%v", left, right, p.QueryLen, p.KeyLen, p.Causal), Problem: p})
	}
	for i, w := range []struct {
		left, right, nq, nk int
		causal              flash.Causal
		core                bool
	}{
		{20, -1, 90, 90, flash.CausalBottomRight, true},
		{20, 0, 90, 130, flash.CausalNone, true},
		{-1, 5, 77, 60, flash.CausalNone, true},
		{13, 9, 130, 93, flash.CausalNone, true},
		{0, 0, 40, 40, flash.CausalNone, false},
		{0, -1, 33, 70, flash.CausalNone, false},
		{64, 64, 200, 200, flash.CausalNone, false},
		{31, -1, 150, 70, flash.CausalTopLeft, false},    // keys fewer than queries
		{10, -1, 40, 150, flash.CausalTopLeft, false},    // windows that begin after the causal order ends: no key at all
		{40, 0, 50, 300, flash.CausalBottomRight, false}, // first keys that no query sees
		{500, 500, 70, 90, flash.CausalNone, false},
		{100, -1, 256, 256, flash.CausalBottomRight, false},
	} {
		for j := range 3 {
			if i > 3 && i%3 != j {
				continue
			}
			c := add(j, flash.Problem{Heads: 4, KeyHeads: 2, QueryLen: w.nq, KeyLen: w.nk, Causal: w.causal}, w.left, w.right)
			c.Core = w.core
			if i%4 == 3 {
				c.Problem.Dropout, c.Seed = 0.25, uint64(i)
			}
			if i%3 == 1 {
				c.Layouts = all(Odd)
			}
		}
	}
	for i, n := range []struct{ nq, nk, left int }{{1, 700, 99}, {3, 333, 40}, {1, 50, 0}} {
		c := add(i, flash.Problem{Heads: 4, KeyHeads: 2, QueryLen: n.nq, KeyLen: n.nk, Causal: flash.CausalBottomRight}, n.left, -1)
		c.Name = fmt.Sprintf("window/few-%d/%v", n.nq, refType(c.Problem.DType))
	}
}
