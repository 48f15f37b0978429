package conformance

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestAnyOrder runs cases whose gradients are made by the kernel that sums dq in any order, in each of its forms: on a CPU, which takes long to
// compile each, some with what it has to get right beside the products, above all keys and queries that do not exist.
func TestAnyOrder(t *testing.T) {
	dev := device(t)
	if !dev.Info().Facts.Features.AtomicAddF32 {
		t.Skip("the device has no atomic additions of fp32")
	}
	o := Options{AnyOrder: true, Families: []string{flash.Flash.String(), BlockSparse}, Seed: 1}
	const short = "scores/table/f16" // one fragment wide, and another kernel's workspace beside the sums
	// One case for each part of the kernel that is its own, or that its sums could break: masks of blocks, draws, and rows that are in no tensor's order.
	names := []string{short, lightGradients, "dropout/p0.100-70x90-d8/f16", "packed/relative/f16", "lengths/blocks-odd/f16"}
	o.Filter = only("^(" + strings.Join(names, "|") + ")$")
	offered := map[string]bool{}
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	targets := Targets(dev, o)
	if required("VKATTN_REQUIRE_MATRIX") {
		require.NotEmpty(t, targets)
	}
	for _, c := range cases {
		for _, target := range targets {
			target.light = false
			if target.skip(c) != "" || target.Tuning["form"] > 1 && c.Name != short {
				continue
			}
			offered[c.Name] = true
			t.Run(c.Name+"/"+target.String(), func(t *testing.T) {
				vktest.Long(t, "one form of the kernel in TestAnyOrder of flash")
				c.Gradients = true
				r := c.Run(context.Background(), dev, target)
				require.Empty(t, takeMessages())
				require.True(t, r.Pass, r.Failure)
				require.True(t, r.Gradients, "%s %s", r.Skipped, r.NoGradients)
			})
		}
		c.release()
	}
	for _, name := range names {
		require.True(t, len(targets) == 0 || offered[name], "no target takes %s", name)
	}
}
