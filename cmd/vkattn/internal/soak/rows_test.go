package soak

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestFamiliesHaveRows: half of the families are batches of dense tensors, the others have every other way in which rows lie; all their
// problems are problems.
func TestFamiliesHaveRows(t *testing.T) {
	seen, plain := map[string]int{}, 0
	const n = 2000
	for i := range n {
		r := rand.New(rand.NewPCG(7, uint64(i)))
		f := &family{target: conformance.Target{Implementation: flash.Flash, Tier: flash.TierScalar},
			dtype: []flash.DType{flash.F32, flash.F16, flash.BF16}[i%3],
			dim:   dims[r.IntN(len(dims))], valueDim: dims[r.IntN(len(dims))], causal: r.IntN(2) == 0, gradients: true,
			tuning: map[string]int{}}
		f.drawRows(r)
		if f.rows == (rows{}) {
			plain++
		}
		for _, name := range f.rows.names() {
			seen[name]++
		}
		require.False(t, f.rows.cached() && f.gradients, "%v: caches have none", f)
		for range 3 {
			p := f.problem(r)
			if f.rows.packed { // as a case says when it knows where sequences start
				p.Packed = flash.Packed{Queries: 100, Keys: 100}
			}
			_, err := p.Normalize()
			require.NoError(t, err, "%v: %v", f, p)
		}
	}
	require.InDelta(t, n/2, plain, n/10)
	for _, name := range []string{"lengths of keys", "lengths of queries", "packed sequences", "pages of 1", "pages of 16", "pages of 128",
		"compressed tables"} {
		require.Positive(t, seen[name], name)
	}
	for _, q := range attn.QuantisedTypes() {
		require.Positive(t, seen[q.String()+" keys"], "%v", q)
		require.Positive(t, seen[q.String()+" values"], "%v", q)
	}
}
