package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestDrawHasEverything: random cases are problems, and every way in which rows lie and keys are stored is among them.
func TestDrawHasEverything(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for range 3000 {
		c := Draw(func(low, high int) int { return low + r.IntN(high-low+1) }, true)
		p, err := c.Problem.Normalize()
		require.NoError(t, err, "%v", c.Problem)
		cached := p.Pages != flash.Pages{} || p.KeyType != p.DType || p.ValueType != p.DType
		for name, has := range map[string]bool{
			"a batch": !p.KeyLengths && !p.QueryLengths && !cached && p.Packed == flash.Packed{}, "lengths of queries": p.QueryLengths,
			"lengths of keys": p.KeyLengths && !cached, "packed": p.Packed.Keys > 0, "packed queries alone": p.Packed.Queries > 0 &&
				p.Packed.Keys == 0,
			"pages": p.Pages.PerSequence > 0, "compressed pages": p.Pages.Indices > 0, "lost pages": c.lost,
			"packed queries over pages": p.Packed.Queries > 0 && p.Pages.Size > 0,
			"quantised values alone":    p.KeyType == p.DType && p.ValueType != p.DType,
			"mask":                      p.Mask != flash.PerScore{},
			"lists":                     p.Lists.Keys > 0 && !p.Lists.PerHead, "lists of heads": p.Lists.PerHead,
			"lists over pages": p.Lists.Keys > 0 && p.Pages.Size > 0,
		} {
			if has {
				seen[name]++
			} else {
				seen[name] += 0
			}
		}
		for _, q := range attn.QuantisedTypes() {
			for what, has := range map[string]flash.DType{"keys ": p.KeyType, "values ": p.ValueType} {
				if seen[what+q.String()] += 0; has == flash.DType(q) {
					seen[what+q.String()]++
				}
			}
		}
		require.False(t, cached && c.Gradients, "caches have none")
	}
	for name, n := range seen {
		require.Greater(t, n, 5, name)
	}
}
