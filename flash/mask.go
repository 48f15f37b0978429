package flash

import "github.com/vkattn/vkattn/internal/attn"

// mask is which keys each query may attend to, by their positions.
func (p *Problem) mask() attn.Mask {
	m := attn.Every(p.QueryLen, p.KeyLen)
	if p.Causal != CausalNone {
		m.High = p.causalShift()
	}
	return m
}

// causalShift is the c of "key j is allowed for query i iff j ≤ i + c", 0 where there is no such rule.
func (p *Problem) causalShift() int {
	if p.Causal == CausalBottomRight {
		return p.KeyLen - p.QueryLen
	}
	return 0
}

// mostKeys is the number of keys that the last query may attend to, which sees no fewer than any other.
func (p *Problem) mostKeys() int { return p.mask().KeysOf(p.QueryLen - 1).Len() }

// paperPairs is the number of (query, key) pairs of a head as the FlashAttention papers count them: half of all where causal attention
// has as many queries as keys.
func (p *Problem) paperPairs() float64 {
	if p.Causal != CausalNone && p.QueryLen == p.KeyLen {
		return float64(p.QueryLen) * float64(p.KeyLen) / 2
	}
	return p.mask().Pairs()
}

// features are those that the problem has.
func (p *Problem) features() attn.Features { return p.attn().Features() }
