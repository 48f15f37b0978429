package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// columnTilings are tiles of the backward kernels in which subgroups divide the columns of gradients, in two and in four: with roles, and with
// two tiles in shared memory.
func columnTilings(dev *flash.Device) (byTwo, byFour map[string]int) {
	whole, both := 8, func(values map[string]int) map[string]int {
		out := map[string]int{}
		for name, v := range values {
			out["kv_"+name], out["q_"+name] = v, v
		}
		return out
	}
	if f := dev.Info().Facts; f != nil && len(f.Matrices) > 0 && f.Matrices[0].M > 8 {
		whole = 16
	}
	return both(map[string]int{"columns": 2, "share": 2, "roles": 2, "w": 4, "bc": 16, "ck": 16}),
		both(map[string]int{"columns": 4, "share": 2, "w": 4, "bc": 2 * whole, "ck": whole, "prefetch": 2})
}

// TestColumns: backward kernels in which subgroups divide columns keep the suite's bounds with all that a problem may have.
func TestColumns(t *testing.T) {
	dev := device(t)
	byTwo, byFour := columnTilings(dev)
	for _, x := range []struct {
		cases  string
		tuning map[string]int
	}{
		{`^core/gqa/f16$`, byTwo},
		{`^scores/softcap-window/f16$`, byTwo},
		{`^packed/bias-heads/f16$`, byTwo}, // whose gradient takes a kernel beside these
		{`^packed/used/f16$`, byTwo},
		{`^lengths/window-causal/f16$`, byFour},
	} {
		t.Run(fmt.Sprintf("%d/%s", x.tuning["kv_columns"], x.cases), func(t *testing.T) {
			vktest.Long(t, "columns in two and in four in TestMatrixBackwardColumns of flash")
			o := Options{Families: []string{"flash2"}, Tiers: []flash.Tier{flash.TierMatrix}, Seed: rand.Uint64(), Filter: regexp.MustCompile(x.cases),
				Tunings: []map[string]int{x.tuning}}
			o.Tunings[0]["form"] = 1
			if len(Targets(dev, o)) == 0 {
				require.False(t, required("VKATTN_REQUIRE_MATRIX"))
				t.Skip("no matrices")
			}
			results, err := Run(context.Background(), dev, o)
			require.NoError(t, err)
			gradients := 0
			for _, r := range results {
				require.True(t, r.Skipped != "" || r.Pass, "%s on %s (%s), seed %d: %s", r.Case, r.Target, r.Kernel, o.Seed, r.Failure)
				if r.Skipped == "" && r.Gradients {
					gradients++
				}
			}
			require.NotZero(t, gradients)
		})
	}
	require.Empty(t, takeMessages())
}

// TestColumnsAddUp: so they do in other forms and without whole fragments, where gradients are added up; the bits are the same in each run.
func TestColumnsAddUp(t *testing.T) {
	dev := device(t)
	targets := Targets(dev, Options{Families: []string{"flash2"}, Tiers: []flash.Tier{flash.TierMatrix}, Tunings: []map[string]int{{"form": 1, "decode": 0}}})
	if len(targets) == 0 {
		require.False(t, required("VKATTN_REQUIRE_MATRIX"))
		t.Skip("no matrices")
	}
	slab, err := NewSlab(dev, 1000)
	require.NoError(t, err)
	defer slab.Close()
	byTwo, byFour := columnTilings(dev)
	for _, x := range []struct {
		name       string
		tuning     map[string]int
		form       int
		p          flash.Problem
		accumulate bool
	}{
		{"two, added", byTwo, 2, flash.Problem{HeadDim: 16, ValueDim: 21, Dropout: 0.2}, true},
		{"four in form 2", byFour, 2, flash.Problem{HeadDim: 12, Window: flash.SlidingWindow(9, 5)}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			vktest.Long(t, "columns in two and in four, and in form 2, in TestMatrixBackwardColumns of flash")
			p := x.p
			p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen, p.DType = 1, 4, 2, 41, 53, flash.F16
			x.tuning["form"] = x.form
			rig, err := NewRig(dev, targets[0], p, nil, x.tuning, slab)
			require.NoError(t, err)
			seed := rand.Uint64()
			c := &Case{Name: x.name, Problem: p, Layouts: all(OddBNHD), Gradients: true, Only: []flash.Implementation{flash.Flash}}
			c.Inputs(seed, Normal(1, 1, 1), 1)
			r := rig.Run(context.Background(), c, How{Times: 3, Accumulate: x.accumulate})
			info, err := rig.Plan.BackwardInfo()
			require.NoError(t, err)
			require.NoError(t, rig.Close())
			require.True(t, r.Pass, "seed %d: %s", seed, r.Failure)
			require.Positive(t, r.GradBound)
			require.Contains(t, info.Kernel, fmt.Sprintf(" in %d", x.tuning["kv_columns"]))
		})
	}
	require.Empty(t, takeMessages())
}
