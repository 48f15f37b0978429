package ring

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// Order says which tokens a rank has. A sequence is cut into chunks of about equal lengths, in multiples of 64 tokens where it is long
// enough.
type Order uint8

const (
	// Auto is Zigzag where Problem.Causal is set without a window, and Plain otherwise.
	Auto Order = iota
	// Plain gives rank r chunk r of as many as there are ranks: neighbours in the sequence are neighbours in rank, so that with a window
	// few blocks travel.
	Plain
	// Zigzag gives rank r chunks r and 2W−1−r of 2W, W being the number of ranks: with a causal mask every rank then has as much to do, at
	// every step, as every other (the order of github.com/zhuzilin/ring-flash-attention; Brandon et al., "Striped Attention", 2023, have
	// another with that aim).
	Zigzag
	orders
)

// String gives the name.
func (o Order) String() string {
	if o >= orders {
		return fmt.Sprintf("Order(%d)", uint8(o))
	}
	return [...]string{"auto", "plain", "zigzag"}[o]
}

// Shard says how a problem is spread over ranks.
type Shard struct {
	Order Order
	// Over is what goes from rank to rank.
	Over Over
	// PerHost, where Over is Both, is how many ranks a host has: ranks 0 to PerHost−1 are the first's, and so on. It divides the number of
	// ranks. 0 otherwise.
	PerHost int
	// Speeds, where Over is Either: what was measured of this rank's device and of its link. Of several ranks' the slowest count. Zero: not
	// measured.
	Speeds Speeds
}

// Span is the positions from Begin up to, not including, End.
type Span struct{ Begin, End int }

// Len is the number of positions.
func (s Span) Len() int { return s.End - s.Begin }

// behind is the span, counted from the beginning of another, as positions that are counted as the other's are.
func (s Span) behind(of Span) Span { return Span{s.Begin + of.Begin, s.End + of.Begin} }

// from is the span, counted from the beginning of another that has it.
func (s Span) from(of Span) Span { return Span{s.Begin - of.Begin, s.End - of.Begin} }

// granule is what chunks are multiples of in long sequences: dropout's draws, and tiles of kernels, begin there.
const granule = 64

// chunks cuts n tokens into parts that differ by one granule at most, or where there are blocks, of so many, by one of these.
func chunks(n, parts, block int) []Span {
	unit := blocksBetween(n, parts, block)
	units := (n + unit - 1) / unit
	out := make([]Span, parts)
	for i := range out {
		out[i] = Span{min(n, units*i/parts*unit), min(n, units*(i+1)/parts*unit)}
	}
	return out
}

// layout is which tokens each rank has: of queries, or of keys.
type layout struct {
	ranks int
	spans [][]Span // of each rank, in the order in which its tensors have them
}

func newLayout(n, ranks int, order Order, block int) layout {
	l := layout{ranks: ranks, spans: make([][]Span, ranks)}
	switch order {
	case Zigzag:
		all := chunks(n, 2*ranks, block)
		for r := range ranks {
			first, second := all[r], all[2*ranks-1-r]
			if ranks == 1 || first.End == second.Begin { // one behind the other: those of the last rank
				l.spans[r] = []Span{{first.Begin, second.End}}
				continue
			}
			l.spans[r] = []Span{first, second}
		}
	default:
		for r, c := range chunks(n, ranks, block) {
			l.spans[r] = []Span{c}
		}
	}
	return l
}

// rows is the number of rows of a rank.
func (l *layout) rows(rank int) (n int) {
	for _, s := range l.spans[rank] {
		n += s.Len()
	}
	return n
}

// most is the largest number of tokens of a rank.
func (l *layout) most() (n int) {
	for r := range l.ranks {
		n = max(n, l.rows(r))
	}
	return n
}

// least is the smallest.
func (l *layout) least() int {
	n := l.rows(0)
	for r := range l.ranks {
		n = min(n, l.rows(r))
	}
	return n
}

// order is the shard's, with Auto decided.
func (s Shard) order(p *flash.Problem) Order {
	if s.Order != Auto {
		return s.Order
	}
	if growing(p) {
		return Zigzag
	}
	return Plain
}

// check says what is wrong with the shard for a normalized problem and a number of ranks.
func (s Shard) check(p *flash.Problem, ranks int) error {
	if s.Order >= orders {
		return badArgument("Shard.Order", uint8(s.Order), "must be Auto, Plain or Zigzag")
	}
	if err := s.checkOver(p, ranks); err != nil {
		return err
	}
	perHost := 1
	if s.Over == Both {
		if s.Over = s.over(p, ranks); s.Over == Both { // a ring over hosts
			perHost, ranks = s.PerHost, ranks/s.PerHost
		}
	}
	parts := ranks
	if s.order(p) == Zigzag && ranks > 1 {
		parts *= 2
	}
	queries, keys := tokens(p)
	names := [2]string{"QueryLen", "KeyLen"}
	if p.Packed != (flash.Packed{}) {
		names = [2]string{"Packed.Queries", "Packed.Keys"}
	}
	both := []struct {
		name         string
		value, block int
	}{{names[0], queries, p.Blocks.Queries}, {names[1], keys, p.Blocks.Keys}}
	for _, n := range both {
		if n.value < parts {
			return badArgument("Problem."+n.name, n.value, "must be at least %d, a token for each of the chunks of %d ranks in %v order",
				parts, ranks, s.order(p))
		}
	}
	if s.Over != Heads && p.Packed == (flash.Packed{}) && p.Dropout != 0 && p.KeyLen < granule*parts && parts > 1 {
		return badArgument("Problem.KeyLen", p.KeyLen, "must be at least %d with Dropout, whose draws serve %d keys: one lot for each of "+
			"%d chunks", granule*parts, granule, parts)
	}
	if ranks == 1 || s.Over == Heads { // nothing is cut
		return nil
	}
	if err := checkBlocks(p, parts, parts); err != nil {
		return err
	}
	if byBits(p) && p.KeyLen < granule*parts && p.Packed == (flash.Packed{}) {
		return badArgument("Problem.Mask", p.Mask.DType, "must be Bool, or KeyLen at least %d: chunks of keys begin where bytes of bits "+
			"do then", granule*parts)
	}
	for _, n := range both {
		if l := newLayout(n.value, ranks, s.order(p), n.block); perHost > l.least() {
			return badArgument("Problem."+n.name, n.value, "must be such that each of %d hosts has %d tokens, one for each of its ranks",
				ranks, perHost)
		}
	}
	return nil
}
