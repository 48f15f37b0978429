package conformance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// sixteenBits says whether the device holds tensors of 16 bits.
func sixteenBits(dev *flash.Device) bool { return dev.Info().Facts.Features.Storage16 }

// A rig finds what a plan for another problem computes wrong, and nothing in what the right one computes.
func TestRigNoticesMistakes(t *testing.T) {
	dev := device(t)
	slab, err := NewSlab(dev, 1000)
	require.NoError(t, err)
	defer slab.Close()
	targets := Targets(dev, Options{Families: []string{"flash2", "standard"}, Tiers: []flash.Tier{flash.TierScalar}})
	p := flash.Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 20, KeyLen: 30, HeadDim: 8, DType: flash.F16, Dropout: 0.2}
	if !sixteenBits(dev) {
		p.DType = flash.F32
	}
	for _, target := range targets {
		if target.Tuning["decode"] == 1 {
			continue
		}
		for _, m := range []struct {
			name  string
			make  func(p *flash.Problem, c *Case)
			finds string
		}{
			{"none", func(*flash.Problem, *Case) {}, ""},
			{"scale", func(p *flash.Problem, _ *Case) { p.Scale = 0.2 }, "o: "},
			{"dropout", func(p *flash.Problem, _ *Case) { p.Dropout = 0.25 }, "o: "},
			{"no lse", func(_ *flash.Problem, c *Case) { c.NoLSE, c.Gradients = true, false }, ""},
		} {
			hows := []How{{Times: 2}}
			if m.name == "none" {
				hows = append(hows, How{Accumulate: true})
			}
			for _, how := range hows {
				c := &Case{Name: m.name, Problem: p, Layouts: all(OddBNHD), Gradients: true,
					Only: []flash.Implementation{target.Implementation}}
				c.Inputs(7, Normal(1, 1, 1), 1)
				other := p
				m.make(&other, c)
				rig, err := NewRig(dev, target, other, nil, nil, slab)
				require.NoError(t, err)
				r := rig.Run(context.Background(), c, how)
				require.NoError(t, rig.Close())
				if m.finds == "" {
					require.True(t, r.Pass, "%v, %s: %s", target, m.name, r.Failure)
					require.Equal(t, c.Gradients, r.GradBound > 0)
					continue
				}
				require.Contains(t, r.Failure, m.finds, "%v, %s", target, m.name)
				require.Contains(t, r.Failure, "beyond what rounding explains", "%v, %s", target, m.name)
			}
		}
	}
	require.Empty(t, takeMessages())
}

// A slab notices what was not written, and what was beside it.
func TestSlabNoticesStrayWrites(t *testing.T) {
	dev := device(t)
	ctx := context.Background()
	slab, err := NewSlab(dev, 16)
	require.NoError(t, err)
	defer slab.Close()
	in, out := place(Dense, flash.F32, [4]int{1, 1, 2, 3}), place(Odd, flash.F16, [4]int{1, 2, 3, 5})
	parts, err := slab.lay([]placement{in}, []placement{out, in})
	require.NoError(t, err)
	o := &parts[1]
	o.poison(slab.bytes(o), 0)
	require.NoError(t, slab.send(ctx))
	require.NoError(t, slab.fetch(ctx))
	_, err = slab.collect(o, "o", 0)
	require.ErrorContains(t, err, "was not written")

	values := make([]float32, o.elements())
	require.NoError(t, o.tensor.Upload(ctx, values))
	require.NoError(t, slab.fetch(ctx))
	got, err := slab.collect(o, "o", 0)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 2*len(values)), got)

	require.NoError(t, slab.fetch(ctx))
	slab.back[o.at+2*(o.offset-1)] ^= 1
	_, err = slab.collect(o, "o", 0)
	require.ErrorContains(t, err, "outside the tensor")
	require.Empty(t, takeMessages())
}
