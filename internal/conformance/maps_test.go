package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMaps makes maps of weights of a cover of the cases, of the lse that their forward passes wrote: of one cell, of a cell for each pair, and of odd
// sizes, with entropy and distance. With -short on the scalar tier alone.
func TestMaps(t *testing.T) {
	dev := device(t)
	o := Options{Seed: 1, Families: []string{"flash2", BlockSparse}, Vectors: os.DirFS(goldenFolder)}
	if testing.Short() {
		o.Tiers = []flash.Tier{flash.TierScalar}
	}
	// What a form or a kernel for few rows has of its own is not in maps.
	targets := slices.DeleteFunc(Targets(dev, o), func(t Target) bool { return t.Tuning["form"] > 1 || t.Tuning["decode"] == 1 })
	require.NotEmpty(t, targets)
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	picked := cover(cases, targets)
	ran := 0
	for at, c := range cases {
		chosen := picked[at]
		if len(chosen) == 0 || c.moves() || len(c.lacks) > 0 || c.operator != nil || c.once {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			vktest.Budget(t)
			defer c.release()
			c.NoLSE, c.Gradients = false, false
			for _, target := range chosen {
				t.Run(target.String(), func(t *testing.T) {
					vktest.Budget(t)
					c.after = c.mapped
					r := c.Run(context.Background(), dev, target)
					require.Empty(t, takeMessages())
					if r.Skipped != "" {
						t.Skip(r.Skipped)
					}
					require.Empty(t, r.Failure, "%v", c.Problem)
					ran++
				})
			}
		})
	}
	require.Greater(t, ran, 5)
}

// mapped makes maps and compares them with the oracle's.
func (c *Case) mapped(ctx context.Context, dev *flash.Device, plan *flash.Plan, f *flash.Forward) error {
	p := plan.Problem()
	m := flash.Map{Q: f.Q, K: f.K, LSE: f.LSE, Bias: f.Bias, Mask: f.Mask, KeyLengths: f.KeyLengths, QueryLengths: f.QueryLengths, QueryStarts: f.QueryStarts,
		KeyStarts: f.KeyStarts, PageTable: f.PageTable, PageStarts: f.PageStarts, LastPages: f.LastPages, KeyScales: f.KeyScales, Captured: f.Captured, Blocks: f.Blocks}
	queries, keys := flash.Range{Begin: p.QueryLen / 3, End: p.QueryLen}, flash.Range{End: p.KeyLen - p.KeyLen/4}
	within := func(n, most int) int { return max(1, min(n, most)) }
	for _, x := range []struct {
		pool          flash.Pool
		heads         flash.Range
		queries, keys flash.Range
		h, w          int
	}{
		{flash.PoolSum, flash.Range{}, flash.Range{}, flash.Range{}, 1, 1},
		{flash.PoolMax, flash.Range{Begin: p.Heads - 1, End: p.Heads}, flash.Range{}, flash.Range{}, within(p.QueryLen, 1<<9), within(p.KeyLen, 1<<9)},
		{flash.PoolMean, flash.Range{}, queries, keys, within(7, queries.End-queries.Begin), within(13, keys.End)},
	} {
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
	of := ref.Map{Batches: [2]int{0, p.Batch}, Heads: span(m.Heads, p.Heads), Queries: span(m.Queries, p.QueryLen), Keys: span(m.Keys, p.KeyLen), Rows: h, Columns: w,
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
	// A weight is off, as a part of itself, by what its score and lse are off: sums of fp32 products, functions of them, and lse's own bound.
	off := 3e-5
	for _, l := range c.lse {
		if !math.IsInf(l, 0) {
			off = math.Max(off, 3e-5+2e-6*math.Abs(l))
		}
	}
	if p.Score.Identity() {
		off = math.Min(off, 1e-2)
	}
	outputs := []struct {
		name   string
		to     **flash.Tensor
		layout Layout
		want   ref.Array
		arena  *arena
	}{{name: "map", to: &m.Out, layout: Odd, want: want.Cells}, {name: "entropy", to: &m.Entropy, want: want.Entropy}, {name: "distance", to: &m.Distance, want: want.Distance}}
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
