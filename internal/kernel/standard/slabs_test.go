package standard

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/pipeline"
)

func TestSlabsCoverEveryRowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads := rapid.IntRange(1, 40).Draw(t, "heads")
		rows := rapid.IntRange(1, 40).Draw(t, "rows")
		rowBytes := rapid.Uint64Range(1, 50).Draw(t, "rowBytes")
		most := rapid.Uint64Range(rowBytes, 5000).Draw(t, "most")
		cut, err := CutSlabs(heads, rows, rowBytes, most)
		require.NoError(t, err)
		seen := make([]int, heads*rows)
		total := uint64(0)
		for _, s := range cut {
			size := uint64(s.Heads) * uint64(s.Rows) * rowBytes
			if size > most || size == 0 {
				t.Fatalf("%+v has %d bytes of %d", s, size, most)
			}
			total += size
			for h := s.Head0; h < s.Head0+s.Heads; h++ {
				for r := s.Row0; r < s.Row0+s.Rows; r++ {
					seen[h*rows+r]++
				}
			}
		}
		for i, n := range seen {
			if n != 1 {
				t.Fatalf("row %d is in %d slabs of %+v", i, n, cut)
			}
		}
		want, ok := ScoreBytes(heads, rows, rowBytes)
		require.True(t, ok)
		require.Equal(t, want, total)
	})
}

func TestSlabsTooSmall(t *testing.T) {
	_, err := CutSlabs(2, 3, 100, 99)
	var m *pipeline.MemoryError
	require.ErrorAs(t, err, &m)
	require.EqualValues(t, 100, m.Needed)
	_, ok := ScoreBytes(1<<30, 1<<30, 1<<33)
	require.False(t, ok)
}

// TestSlabsOfTheReportsLargestCase: batch 64, 32 heads, sequence 2048 in fp16 needs 17 GB of scores, in bindings below 4 GiB.
func TestSlabsOfTheReportsLargestCase(t *testing.T) {
	cut, err := CutSlabs(64*32, 2048, 2*2048, 1<<32-1)
	require.NoError(t, err)
	require.Len(t, cut, 5)
}
