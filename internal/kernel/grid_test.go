package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGridSize: dispatches are of no more groups in a dimension than every device allows, and give each workgroup below the total one index and no
// other; what they round up to is fewer groups than there are rows, beyond the total.
func TestGridSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.OneOf(rapid.Uint64Range(1, 300), rapid.Uint64Range(1, 1<<20), rapid.Uint64Range(1, MaxGroups)).Draw(t, "total")
		limit := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(total/50+1, total+10)).Draw(t, "limit")
		g, err := NewGrid(total, limit)
		require.NoError(t, err)
		base, n := uint64(0), 0
		for ; base < total; base += uint64(g.Step) {
			size := g.Size(uint32(base))
			x, y := uint64(size[0]), uint64(size[1])
			require.True(t, x > 0 && x <= maxGroupsX && y > 0 && y <= maxGroupsX && size[2] == 1, "%v", size)
			most := uint64(g.Step)
			if last := total - base; last <= most {
				require.GreaterOrEqual(t, x*y, last)
				require.Less(t, x*y, last+y)
				require.Less(t, base+x*y, uint64(1<<32), "indices stay within 32 bits")
			} else {
				require.Equal(t, most, x*y, "a dispatch reaches into the next one's workgroups, or leaves some out")
			}
			n++
		}
		require.Equal(t, g.Dispatches(), n)
		require.GreaterOrEqual(t, base, total)
	})
	_, err := NewGrid(MaxGroups+1, 0)
	require.Error(t, err)
}
