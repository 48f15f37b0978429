package flash

import "math"

// Within says that a problem is some of the queries and keys of a longer one: query i of the part is query Query + i of Queries, and key j is key Key + j
// of Keys. Causal and Window are those of the whole. The tensors are the part's alone.
//
// So attention can be computed block by block, on one device or on several: parts over disjoint keys are put together by [Device.Merge], and given the
// lse and o of the whole, the gradients of parts add up to those of the whole (Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers",
// 2023, section 3).
type Within struct {
	Queries, Keys int // QueryLen and KeyLen of the whole
	Query, Key    int // its positions at which the part's queries and keys begin
}

// checkWithin says what is wrong with Part beside the other fields.
func (p *Problem) checkWithin() error {
	const most = math.MaxInt32 / 2
	r := p.Within
	switch {
	case r == Within{}:
		return nil
	case r.Queries < 1 || r.Queries > most || r.Keys < 1 || r.Keys > most:
		return badArgument("Problem.Within", r, "Queries and Keys must be from 1 to %d", most)
	case r.Query < 0 || r.Query+p.QueryLen > r.Queries:
		return badArgument("Problem.Within.Query", r.Query, "must leave room for %d queries among %d", p.QueryLen, r.Queries)
	case r.Key < 0 || r.Key+p.KeyLen > r.Keys:
		return badArgument("Problem.Within.Key", r.Key, "must leave room for %d keys among %d", p.KeyLen, r.Keys)
	case p.Packed != Packed{}, p.KeyLengths, p.QueryLengths, p.Pages != Pages{}:
		return badArgument("Problem.Within", r, "must be zero beside Packed, KeyLengths, QueryLengths and Pages, which have positions of their own")
	case p.Blocks != Blocks{}, p.Classes != Blocks{}:
		return badArgument("Problem.Within", r, "must be zero beside Blocks and Classes, which count blocks from the first query and key")
	case p.Dropout != 0, !p.Score.Identity(), !p.Sees.Everything():
		return badArgument("Problem.Within", r, "must be zero beside Dropout, Score and Sees")
	}
	return nil
}
