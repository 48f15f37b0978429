package flash

import (
	"math"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// Within says that a problem is some of the queries, keys and heads of a longer one: query i of the part is query Query + i of Queries, key
// j is key Key + j of Keys, query head h is head Head + h of Heads, and batch entry b is entry Batch + b. Causal and Window are those of
// the whole; Dropout drops what it drops there, and ScoreFunction and MaskFunction see positions of the whole. The tensors hold the part
// alone.
//
// Beside Packed, KeyLengths and QueryLengths, whose entries have positions of their own, a part can only be some of the heads and entries:
// Queries and Keys are then QueryLen and KeyLen, and Query and Key are 0.
//
// A block mask is the part's: its blocks count from the part's first query and key, which so begin blocks of the whole's mask.
//
// So attention can be computed block by block, on one device or on several: parts over disjoint keys are put together by [Device.Merge],
// and given the lse and o of the whole, the gradients of parts add up to those of the whole (Liu, Zaharia and Abbeel, "Ring Attention with
// Blockwise Transformers", 2023, section 3).
type Within struct {
	Queries, Keys int // QueryLen and KeyLen of the whole
	Query, Key    int // its positions at which the part's queries and keys begin; Key is a multiple of 64 where there is Dropout
	Head, Heads   int // the part's first query head, and how many the whole has; 0 of Heads: the part has all
	Batch         int // the part's first batch entry
}

// checkWithin says what is wrong with Within beside the other fields.
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
	case r.Head < 0 || r.Heads < 0 || r.Heads == 0 && r.Head > 0 || r.Heads > 0 && r.Head+p.Heads > r.Heads:
		return badArgument("Problem.Within.Head", r.Head, "must leave room for %d heads among %d", p.Heads, r.Heads)
	case r.Batch < 0 || r.Batch > most/max(p.Heads, r.Heads)-p.Batch:
		return badArgument("Problem.Within.Batch", r.Batch, "must be from 0 to %d, of so many heads and entries",
			most/max(p.Heads, r.Heads)-p.Batch)
	case p.Pages != Pages{}:
		return badArgument("Problem.Within", r, "must be zero beside Pages")
	case (p.Packed != Packed{} || p.KeyLengths || p.QueryLengths) && (r.Query != 0 || r.Key != 0 || r.Queries != p.QueryLen ||
		r.Keys != p.KeyLen):
		return badArgument("Problem.Within", r, "must have all %d queries and %d keys beside Packed, KeyLengths and QueryLengths, which "+
			"have positions of their own", p.QueryLen, p.KeyLen)
	case p.MaskBlocks != Blocks{}:
		return badArgument("Problem.Within", r, "must be zero beside MaskBlocks, which count blocks from the first query and key")
	case p.Dropout != 0 && r.Key%attn.DrawKeys != 0:
		return badArgument("Problem.Within.Key", r.Key, "must be a multiple of %d where there is Dropout: draws serve so many neighbours",
			attn.DrawKeys)
	}
	return nil
}

// moved is a normalized problem whose functions are asked at the places of the whole.
func (p Problem) moved() (_ Problem, err error) {
	r := p.Within
	if r == (Within{}) {
		return p, nil
	}
	to := score.Places{Query: r.Query, Key: r.Key, Head: r.Head, Batch: r.Batch, Position: r.Query + r.Keys - r.Queries -
		(p.KeyLen - p.QueryLen)}
	if p.ScoreFunction, err = p.ScoreFunction.Moved(to); err == nil {
		p.MaskFunction, err = p.MaskFunction.Moved(to)
	}
	if err != nil {
		return p, badArgument("Problem.Within", r, "functions cannot be asked there: %v", err)
	}
	return p, p.checkCaptures() // a table of places may have been added to either
}
