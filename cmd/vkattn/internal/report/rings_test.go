package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestRingColumns: every column of several devices says what it is, those that narrow screens leave out exist, and a table explains those
// that it has, the columns of both passes once.
func TestRingColumns(t *testing.T) {
	for _, c := range ringColumns {
		require.Equal(t, c.name == "", c.legend == "", "%q", c.name)
	}
	for _, name := range leastOfRings {
		require.True(t, slices.ContainsFunc(ringColumns, func(c ringColumn) bool { return c.name == name }), name)
	}
	pass := result.RingPass{One: 10, Ranks: 5, Waited: 1, Speed: 2}
	row := result.RingRow{Tokens: 128, Ranks: 2, Order: "zigzag", Over: result.OverRing, Direct: true, Fwd: pass, Bwd: pass,
		BlockBytes: 3e6,
		MemoryOne:  4e6, MemoryRank: 2e6, Check: result.Check{MaxErr: ptr(1e-3), ErrRows: 12}}
	text := RingText([]result.RingRow{row}, 1000)
	require.Equal(t, 1, strings.Count(text, "speed-up: one ms / ms"))
	require.Contains(t, text, "block MB: ")
	require.NotContains(t, text, "link GB/s", "the row has none")
	row.Over, row.Ranks, row.PerHost, row.BothBytes, row.Fwd.Predicted = result.OverBoth, 4, 2, 5e6, 3.5
	both := RingText([]result.RingRow{row}, 1000)
	require.Contains(t, both, "both, 2 a host")
	require.Contains(t, both, "both MB: ")
	require.Contains(t, both, "fwd model ×")
	require.NotContains(t, both, "bwd model ×", "not predicted")
	narrow := RingText([]result.RingRow{row}, 60)
	require.NotContains(t, narrow, "max err: ")
	require.Contains(t, narrow, "max err")
	s := (&Run{Rings: []result.RingRow{row}}).rings()
	require.Contains(t, s.Fixed, "rank MB: ")
	require.Contains(t, s.Table.Header, "bwd waited ms")
}
