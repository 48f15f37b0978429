package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// Maps of weights are made in runs of TestConformance, of the lse that the forward pass wrote there: a cover of the cases that it runs, for
// what maps are compiled with and what they read. Each has one of one cell, one of a cell for each pair, and one of odd sizes, with entropy
// and distance.

// mapCover says of which choices maps are made, by the case's and the target's place in chosen. With -short it takes the scalar tier alone.
func mapCover(cases []*Case, chosen [][]Target) map[[2]int]bool {
	families := map[string][]choice{}
	for at, c := range cases {
		for i, t := range chosen[at] {
			if c.mayMap(t) {
				families[t.family()] = append(families[t.family()], choice{at, i, c.mapOptions(t), c.mapKernels(t)})
			}
		}
	}
	out, compiled, seen := map[[2]int]bool{}, map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, ch := range pick(families[name], nil, cases, compiled) {
			before := len(seen)
			for _, pair := range ch.pairs() {
				seen[name+pair] = true
			}
			if len(seen) > before { // none that only costs no further kernel
				out[[2]int{ch.at, ch.target}] = true
			}
		}
	}
	return out
}

// mayMap leaves out targets of which maps would have nothing of their own: what differs between forms, in a kernel for few rows, and in
// operands that are sums of terms, is not in maps.
func (c *Case) mayMap(t Target) bool {
	if c.NoLSE || c.moves() || len(c.lacks) > 0 || c.operator != nil || c.once || !mayRun(c, t) {
		return false
	}
	return t.Implementation == flash.Flash && t.Tuning["form"] <= 1 && t.Tuning["decode"] != 1 && t.Tuning[terms] == 0 &&
		!(testing.Short() && t.Tier != flash.TierScalar)
}

// mapOptions are those of a case's options that maps know: nothing of values, gradients and dropout. With -short, and where a CPU compiles
// kernels of fragments, they need only occur.
func (c *Case) mapOptions(t Target) []option {
	options := slices.DeleteFunc(c.options(t), func(o option) bool {
		return slices.Contains([]string{"value dimension", "dropout", "lse", "gradients", "accumulates", "type of values", "classes",
			"size"}, o.axis)
	})
	if testing.Short() || t.light {
		for i := range options {
			options[i].concern = 0
		}
	}
	return options
}

// mapKernels guesses what kernels the case's maps need: one of sums, one of maxima, one of statistics of rows.
func (c *Case) mapKernels(t Target) []kernel {
	p, err := c.Problem.Normalize()
	if err != nil {
		return nil
	}
	seconds := 0.5
	if t.Tier == flash.TierMatrix {
		seconds = float64(max(p.HeadDim, 8)) / 6
	}
	aligned := p.HeadDim*p.DType.Size()%16 == 0 && c.Layouts.Q != Odd && c.Layouts.Q != OddBNHD && c.Layouts.K != Odd &&
		c.Layouts.K != OddBNHD
	p.MaskBlocks = flash.Blocks{}
	return []kernel{{fmt.Sprint("maps ", t.Tier, p.HeadDim, p.DType, p.KeyType, p.Pages.Size, boundsOf(&p), blocksOf(&p), lengthsOf(&p),
		scoresOf(&p), aligned), 3 * seconds}}
}

// TestMapCover: maps of a cover of what runs have every option of maps that any case has.
func TestMapCover(t *testing.T) {
	dev := device(t)
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder)}
	targets := Targets(dev, o)
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	chosen := chosenOf(cases, targets)
	picked := mapCover(cases, chosen)
	want, have := map[string]bool{}, map[string]bool{}
	for at, c := range cases {
		for i, target := range chosen[at] {
			if !c.mayMap(target) {
				continue
			}
			for _, o := range c.mapOptions(target) {
				option := target.family() + ": " + o.axis + "=" + o.value
				want[option] = want[option] || !c.drawn()
				have[option] = have[option] || picked[[2]int{at, i}]
			}
		}
	}
	for option, real := range want {
		require.True(t, have[option] || !real, "no maps have %s", option)
	}
	require.Greater(t, len(want), 60)
	require.Greater(t, len(picked), 10) // a GPU of three targets has 20
	t.Logf("%d options, %d maps", len(want), len(picked))
}

// mapped makes maps and compares them with the oracle's.
func (c *Case) mapped(ctx context.Context, dev *flash.Device, plan *flash.Plan, f *flash.Forward) error {
	p := plan.Problem()
	m := flash.Map{Forward: *f}
	queries, keys := flash.Range{Begin: p.QueryLen / 3, End: p.QueryLen}, flash.Range{End: p.KeyLen - p.KeyLen/4}
	within := func(n, most int) int { return max(1, min(n, most)) }
	for _, x := range []struct {
		pool          flash.Pool
		heads         flash.Range
		queries, keys flash.Range
		h, w          int
	}{
		{flash.PoolSum, flash.Range{}, flash.Range{}, flash.Range{}, 1, 1},
		{flash.PoolMax, flash.Range{Begin: p.Heads - 1, End: p.Heads}, flash.Range{}, flash.Range{}, within(p.QueryLen, 1<<9),
			within(p.KeyLen, 1<<9)},
		{flash.PoolMean, flash.Range{}, queries, keys, within(7, queries.End-queries.Begin), within(13, keys.End)},
	} {
		// Another kernel, which a CPU compiles for as long: there each case has one of the two.
		if max := x.pool == flash.PoolMax; onCPU(dev.Info()) && max != (hash(c.Name)%3 == 0) {
			continue
		}
		m.Pool, m.Heads, m.Queries, m.Keys = x.pool, x.heads, x.queries, x.keys
		if err := c.mapOnce(ctx, dev, plan, m, x.h, x.w); err != nil {
			return fmt.Errorf("map of %d × %d, %v: %w", x.h, x.w, x.pool, err)
		}
	}
	return nil
}

func (c *Case) mapOnce(ctx context.Context, dev *flash.Device, plan *flash.Plan, m flash.Map, h, w int) (err error) {
	p := plan.Problem()
	span := func(r flash.Range, most int) [2]int {
		if r == (flash.Range{}) {
			return [2]int{0, most}
		}
		return [2]int{r.Begin, r.End}
	}
	of := ref.Map{Batches: [2]int{0, p.Batch}, Heads: span(m.Heads, p.Heads), Queries: span(m.Queries, p.QueryLen),
		Keys: span(m.Keys, p.KeyLen), Rows: h, Columns: w,
		Pool: map[flash.Pool]ref.MapPool{flash.PoolMean: ref.PoolMean, flash.PoolSum: ref.PoolSum, flash.PoolMax: ref.PoolMax}[m.Pool]}
	want, err := ref.Maps(c.inputs, of)
	if err != nil {
		return err
	}
	heads := of.Heads[1] - of.Heads[0]
	rows := of // what the weights of each query add up to, over the keys of the range
	rows.Rows, rows.Columns, rows.Pool = of.Queries[1]-of.Queries[0], 1, ref.PoolSum
	sums, err := ref.Maps(c.inputs, rows)
	if err != nil {
		return err
	}
	// A weight is off, as a part of itself, by what its score and lse are off: sums of fp32 products, functions of them, and lse's own
	// bound.
	off := 3e-5
	for _, l := range c.lse {
		if !math.IsInf(l, 0) {
			off = math.Max(off, 3e-5+2e-6*math.Abs(l))
		}
	}
	if p.ScoreFunction.Identity() {
		off = math.Min(off, 1e-2)
	}
	outputs := []struct {
		name   string
		to     **flash.Tensor
		layout Layout
		want   ref.Array
		arena  *arena
	}{{name: "map", to: &m.Out, layout: Odd, want: want.Cells}, {name: "entropy", to: &m.Entropy, want: want.Entropy},
		{name: "distance", to: &m.Distance, want: want.Distance}}
	for i := range outputs {
		x := &outputs[i]
		if x.arena, err = newArena(dev, place(x.layout, flash.F32, [4]int{p.Batch, heads, x.want.N, x.want.D})); err != nil {
			return err
		}
		defer x.arena.close()
		*x.to = x.arena.tensor
	}
	var first [3][]byte
	for run := range 2 {
		for _, x := range outputs {
			if err := x.arena.poison(ctx, run); err != nil {
				return err
			}
		}
		if err := plan.Map(ctx, m); err != nil {
			return err
		}
		for i, x := range outputs {
			raw, err := x.arena.output(ctx, x.name, run)
			if err != nil {
				return err
			}
			if run > 0 {
				if !bytes.Equal(raw, first[i]) {
					return fmt.Errorf("%s: another run gives other bits", x.name)
				}
				continue
			}
			first[i] = raw
			for j, have := range refType(flash.F32).Decode(raw) {
				should := x.want.Data[j]
				may := off*math.Abs(should) + 1e-37 // what a device may flush to 0
				if x.name == "entropy" {
					may += off // of a weight of 1 it is almost nothing
				}
				if x.name == "distance" {
					may += off * float64(p.KeyLen+p.QueryLen)
					if sums.Cells.Data[j] < 1e-30 && have == 0 { // weights that fp32 has as 0, of a query whose others are out of range
						continue
					}
				}
				if !(math.Abs(float64(have)-should) <= may) && !math.IsNaN(should) {
					return fmt.Errorf("%s: element %d is %g and should be %g, within %g (%v)", x.name, j, have, should, may, p)
				}
			}
		}
	}
	return nil
}
