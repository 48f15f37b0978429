package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/tiles"
)

type fieldsTile struct {
	rows, depth int
	early       bool
}

var fieldsOfTile = Fields[fieldsTile]{
	{Name: "rows", Constant: "ROWS", Of: func(t *fieldsTile) any { return &t.rows }},
	{Name: "depth", Of: func(t *fieldsTile) any { return &t.depth }, Open: true},
	{Name: "early", Constant: "EARLY", Of: func(t *fieldsTile) any { return &t.early }},
}

// TestFields: rows, the caller's numbers, constants and candidates follow from the table of a tile's fields.
func TestFields(t *testing.T) {
	tile := fieldsTile{depth: 9, early: true}
	fieldsOfTile.Read(&tile, &tiles.Row{Values: map[string]int{"rows": 16}})
	require.Equal(t, fieldsTile{rows: 16}, tile, "what a row does not name is 0")
	require.Equal(t, Constants{"ROWS": 16, "EARLY": 0}, fieldsOfTile.Constants(&tile))
	require.Equal(t, map[string]int{"rows": 16, "early": 0}, fieldsOfTile.Values(&tile), "the kernel chooses the depth")

	given := NewTuning(map[string]int{"q_rows": 32, "q_early": 1, "q_depth": 4})
	fieldsOfTile.Take(&tile, given, "q_", "rows", "early")
	require.Equal(t, fieldsTile{rows: 32, early: true}, tile, "of these names")
	require.Equal(t, map[string]int{"q_rows": 32, "q_early": 1}, given.Effect)
	fieldsOfTile.Take(&tile, given, "q_")
	require.Equal(t, 4, tile.depth)
	require.Equal(t, map[string]int{"rows": 32, "depth": 4, "early": 1}, fieldsOfTile.Values(&tile))

	require.Equal(t, Between(1, 64), RowRanges("matrix_forward")["w"])
	require.Empty(t, RowRanges("no such kernel"))
}
