package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// TestGridCoversEachGroupOnce plays the shader's indexing over whole dispatches.
func TestGridCoversEachGroupOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.OneOf(rapid.Uint64Range(1, 300), rapid.Uint64Range(60_000, 300_000)).Draw(t, "total")
		limit := rapid.Uint64Range(0, 200_000).Draw(t, "limit")
		if limit > 0 && total/limit > 1000 {
			limit = 0
		}
		g, err := kernel.NewGrid(total, limit)
		require.NoError(t, err)
		seen := make([]int, total)
		n := 0
		for base := uint32(0); base < g.Total; base += g.Step {
			n++
			s := g.Size(base)
			if s[0] < 1 || s[1] < 1 || s[0] > 65535 || s[1] > 65535 || s[2] != 1 {
				t.Fatalf("size %v", s)
			}
			live := uint64(0)
			for y := range s[1] {
				for x := range s[0] {
					if id := base + x + y*s[0]; id < g.Total {
						seen[id]++
						live++
					}
				}
			}
			if limit > 0 && live > limit {
				t.Fatalf("%d workgroups in a dispatch, limit %d", live, limit)
			}
			if spare := uint64(s[0])*uint64(s[1]) - live; spare >= uint64(s[1]) {
				t.Fatalf("%d workgroups of %v for nothing", spare, s)
			}
		}
		require.Equal(t, n, g.Dispatches())
		for i, c := range seen {
			if c != 1 {
				t.Fatalf("workgroup %d runs %d times (total %d, limit %d)", i, c, total, limit)
			}
		}
	})
}

func TestGridTooLarge(t *testing.T) {
	_, err := kernel.NewGrid(1<<32, 0)
	require.ErrorIs(t, err, ErrArgument)
	g, err := kernel.NewGrid(kernel.MaxGroups, 0)
	require.NoError(t, err)
	s := g.Size(0)
	require.Less(t, uint64(s[0])*uint64(s[1]), uint64(1)<<32, "the index must not wrap")
}

// TestDispatchesStayShort: by a slow device's pace no dispatch takes half a second, and a CPU, which has no watchdog, is left
// alone.
func TestDispatchesStayShort(t *testing.T) {
	c := &kernel.Capabilities{Facts: &vk.Facts{Type: vk.DeviceIntegrated}}
	for _, flops := range []float64{1e6, 1e11, 1e13, 1e16} {
		const groups = 4096
		n := c.GroupsPerDispatch(groups, flops, kernel.ScalarPace)
		if n == 0 {
			n = groups
		}
		seconds := flops * float64(n) / groups / kernel.ScalarPace.Other
		require.True(t, seconds <= kernel.SecondsPerDispatch || n == 1, "%v operations: %v s", flops, seconds)
	}
	c.Facts.Type = vk.DeviceCPU
	require.Zero(t, c.GroupsPerDispatch(4096, 1e16, kernel.ScalarPace))
}
