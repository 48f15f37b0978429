package soak

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
)

func TestIDs(t *testing.T) {
	id, err := ParseID("17:2041:3")
	require.NoError(t, err)
	require.Equal(t, ID{17, 2041, 3}, id)
	for _, bad := range []string{"", "1", "1:2", "1:2:3:4", "a:b:c", "1:-2:3", "1:2:3 "} {
		_, err := ParseID(bad)
		require.ErrorContains(t, err, "FAMILY:PLAN:CASE", bad)
	}
}

// Marks that should be alike say what has grown.
func TestMarksThatGrew(t *testing.T) {
	then := Mark{Plans: 10, Bytes: 1 << 20, Buffers: 4, Heap: 1 << 20, RSS: 100 << 20, Goroutines: 4, Files: 12}
	require.Empty(t, then.grown(then))
	small := then
	small.Heap, small.RSS, small.Files = then.Heap+then.Heap/100, then.RSS+then.RSS/100, 11
	require.Empty(t, small.grown(then))
	for _, grow := range []func(m *Mark){
		func(m *Mark) { m.Bytes++ }, func(m *Mark) { m.Buffers++ }, func(m *Mark) { m.Goroutines++ }, func(m *Mark) { m.Files++ },
		func(m *Mark) { m.Bytes-- }, // what is freed twice
		func(m *Mark) { m.Heap += 200 << 10 }, func(m *Mark) { m.RSS += 2 << 20 },
	} {
		m := then
		grow(&m)
		require.Len(t, m.grown(then), 1)
	}
}

// A few families hold some of everything, problems are valid and not too much work, and the same number gives the same problem again.
func TestDraws(t *testing.T) {
	dev := open(t)
	targets := conformance.Targets(dev, conformance.Options{Tiers: []flash.Tier{flash.TierScalar}})
	all := families(targets, 400, 1, false)
	require.Equal(t, all[37].String(), families(targets, 400, 1, false)[37].String())
	seen := map[string]int{}
	for _, f := range all {
		for name, has := range map[string]bool{
			"causal": f.causal, "aligned": f.aligned, "grouped": f.grouped, "dropout": f.drops, "no lse": !f.lse, "gradients": f.gradients,
			"accumulated": f.accumulate, "blocks": f.blocks != flash.Blocks{}, "classes": !f.sees.Everything(),
			"parts": f.tuning["parts"] > 0, "dispatches": f.tuning["max_groups"] > 0,
			"value dimension": f.dim != f.valueDim, "rare dimension": f.dim%8 != 0, f.target.String() + f.dtype.String(): true,
		} {
			if has {
				seen[name]++
			}
		}
		for n := range 20 {
			id := ID{f.index, n, n % 4}
			p := f.problem(rand.New(rand.NewPCG(2, uint64(n))))
			require.Equal(t, p, f.problem(rand.New(rand.NewPCG(2, uint64(n)))))
			_, err := p.Normalize()
			require.NoError(t, err)
			require.LessOrEqual(t, cost(p), rareWork)
			c, kinds := f.draw(1, id, p)
			again, _ := f.draw(1, id, p)
			require.Equal(t, c.Layouts, again.Layouts)
			require.Equal(t, c.Seed, again.Seed)
			for _, k := range kinds {
				seen[k]++
			}
		}
	}
	for name, n := range seen {
		require.GreaterOrEqual(t, n, 10, name)
	}
	require.GreaterOrEqual(t, len(seen), 12+3*len(targets))
	for _, kind := range []string{"normal", "large", "huge logits", "far from zero", "edges", "growing", "tiny v", "large v", "sparse",
		"equal logits", "small"} {
		require.Positive(t, seen[kind+" inputs"], kind)
	}
}
