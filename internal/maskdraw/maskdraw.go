// Package maskdraw draws mask functions for tests and soaks.
package maskdraw

import (
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash/score"
)

// Condition is a condition on batch entry, head, query and key that holds in patches of the scores: comparisons of sums of stretched
// indices, joined.
func Condition(r *rand.Rand) score.Bool {
	index := func() score.Int {
		return []score.Int{score.Query(), score.Key(), score.Position(), score.Position().Sub(score.Key()).Abs(), score.Key(),
			score.Query()}[r.IntN(6)]
	}
	small := func(n int) score.Int { return score.ConstInt(r.IntN(n)) }
	compare := func() score.Bool {
		x := index().Add(small(40)).Div(score.ConstInt(1 + r.IntN(70)))
		switch r.IntN(4) {
		case 0:
			x = x.Add(score.Head())
		case 1:
			x = x.Add(score.Batch().Mul(small(5)))
		}
		if r.IntN(2) == 0 {
			return x.Mod(score.ConstInt(2 + r.IntN(3))).Equal(small(2))
		}
		return x.Less(index().Div(score.ConstInt(1 + r.IntN(4))).Add(small(60)))
	}
	b := compare()
	for range r.IntN(3) {
		if r.IntN(2) == 0 {
			b = b.Or(compare())
		} else {
			b = b.And(compare())
		}
	}
	if r.IntN(4) == 0 {
		b = b.Not()
	}
	return b
}
