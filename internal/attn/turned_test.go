package attn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A query sees a key of a problem if and only if, turned over, the key sees the query: of parts of longer problems too.
func TestTurned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.IntRange(1, 9)
		p := Problem{QueryLen: few.Draw(t, "queries"), KeyLen: few.Draw(t, "keys")}
		p.Causal = rapid.SampledFrom([]Causal{CausalNone, CausalBottomRight, CausalTopLeft}).Draw(t, "causal")
		if rapid.Bool().Draw(t, "windowed") {
			reach := rapid.IntRange(-1, 5)
			p.Window = NewWindow(reach.Draw(t, "left"), reach.Draw(t, "right"))
		}
		if rapid.Bool().Draw(t, "part") {
			before, behind := rapid.IntRange(0, 9), rapid.IntRange(0, 9)
			p.Within = Within{Query: before.Draw(t, "query"), Key: before.Draw(t, "key")}
			p.Within.Queries = p.Within.Query + p.QueryLen + behind.Draw(t, "queries behind")
			p.Within.Keys = p.Within.Key + p.KeyLen + behind.Draw(t, "keys behind")
		}
		turned := p.Turned()
		require.Equal(t, []int{p.KeyLen, p.QueryLen}, []int{turned.Mask().Queries, turned.Mask().Keys})
		for q := range p.QueryLen {
			for k := range p.KeyLen {
				require.Equal(t, p.Mask().Allows(q, k), turned.Mask().Allows(k, q), "query %d, key %d", q, k)
			}
		}
		require.Equal(t, p.Mask(), turned.Turned().Mask())
	})
}
