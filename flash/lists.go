package flash

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
)

// Lists says that each query sees the keys of a list of its own, from Forward.Lists: Int32 [Batch, 1, QueryLen, Keys] for all heads, or
// with PerHead [Batch, KeyHeads, QueryLen, Keys]. With L its numbers for a batch entry, a key head and query i, query heads of that key
// head sum over
//
//	{ L[b, h', i, n] : 0 ≤ n < Keys }
//
// in place of all keys. A number is that of a key of the batch entry, from 0 to KeyLen − 1, through the table of pages where there is
// one. Numbers are in any order, each at most once: what a key that is listed twice counts is not defined. −1 is no key, nor is any other
// number that is none: it is never followed.
//
// Causal, Window, KeyLengths and masks hide keys besides, by the key's number and not by its place in the list; score functions and biases
// see that number too. A query all of whose keys are hidden is one with no key to attend to. Work is that of the listed keys alone, and
// entries without a key cost next to none.
//
// It is the sparse attention of models that choose keys for each query, by an index of their own (DeepSeek-AI, "DeepSeek-V3.2: Pushing the
// Frontier of Open Large Language Models", 2025, section 2.1; Yuan et al., "Native Sparse Attention", 2025). [Flash] takes it, in fp32
// arithmetic, and forward on matrices where head dimensions are above 256 and more than eight query heads share a key head. There are no
// block masks and no packed sequences beside lists.
type Lists struct {
	Keys    int  // entries of a list, K ≥ 1
	PerHead bool // each key head has lists of its own; else they share them
}

// checkLists checks the lists beside the other fields.
func (p *Problem) checkLists() error {
	l := p.Lists
	if l == (Lists{}) {
		return nil
	}
	const most = math.MaxInt32 / 2
	switch {
	case l.Keys < 1 || l.Keys > most:
		return badArgument("Problem.Lists.Keys", l.Keys, "must be from 1 to %d, or Lists zero", most)
	case p.Blocks != Blocks{} || p.MaskBlocks != Blocks{}:
		return badArgument("Problem.Lists", attn.Lists(l), "must be zero beside Problem.Blocks and MaskBlocks")
	case p.Packed != Packed{}:
		return badArgument("Problem.Lists", attn.Lists(l), "must be zero beside Problem.Packed: lists are of batches")
	}
	all := p.attn()
	if n, ok := attn.Elements(all.ListsShape()); !ok || n > math.MaxInt32 {
		return badArgument("Problem.Lists", attn.Lists(l), "lists would have more than 2³¹−1 entries")
	}
	return nil
}
