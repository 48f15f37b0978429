package attn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPackedBlocks: no lengths of sequences that fit into the rows make more blocks than are reckoned with, and some make as many.
func TestPackedBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lens := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 40).Draw(t, "lens")
		rows, members := rapid.IntRange(1, 130).Draw(t, "rows"), rapid.IntRange(1, 4).Draw(t, "members")
		p := Problem{Batch: len(lens), QueryLen: 300, KeyLen: 300}
		var queries, keys uint64
		for _, n := range lens {
			p.Packed.Queries += n
			queries += uint64(CeilDiv(n*members, rows))
			keys += uint64(CeilDiv(n, rows))
		}
		p.Packed.Queries = max(1, p.Packed.Queries)
		p.Packed.Keys = p.Packed.Queries
		require.LessOrEqual(t, queries, p.QueryBlocks(rows, members))
		require.LessOrEqual(t, keys, p.KeyBlocks(rows))
	})
	p := Problem{Batch: 3, QueryLen: 65, KeyLen: 100, Packed: Packed{Queries: 3 * 65}}
	require.EqualValues(t, 6, p.QueryBlocks(64, 1))
	require.EqualValues(t, 6, p.KeyBlocks(64), "a batch of keys")
	require.EqualValues(t, 195, p.QueryRows())
	require.EqualValues(t, 300, p.KeyRows())
}

// TestPackedShapes: packed rows are those of one batch entry, and a batch of keys stays one beside packed queries.
func TestPackedShapes(t *testing.T) {
	p := Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 7, KeyLen: 9, HeadDim: 5, ValueDim: 6, Packed: Packed{Queries: 20}}
	require.Equal(t, [4]int{1, 4, 20, 5}, p.QShape())
	require.Equal(t, [4]int{1, 4, 20, 6}, p.OShape())
	require.Equal(t, [4]int{1, 4, 20, 1}, p.LSEShape())
	require.Equal(t, [4]int{3, 2, 9, 5}, p.KShape())
	require.Equal(t, [4]int{1, 1, 1, 4}, p.StartsShape())
	require.True(t, p.Padded())
	require.Equal(t, []string{"packed sequences"}, p.Features().Names())
	require.InDelta(t, 4*20.0/7, p.AllHeads(), 1e-12)
	p.Packed.Keys = 30
	require.Equal(t, [4]int{1, 2, 30, 6}, p.VShape())
	flat, batch := p.Flat(), p.InBatch()
	require.Equal(t, [4]int{1, 4, 20, 5}, flat.QShape())
	require.Equal(t, [4]int{3, 4, 7, 5}, batch.QShape())
	require.True(t, batch.KeyLengths && batch.QueryLengths && batch.Packed.None())
	for _, o := range ForwardOperands {
		if o.Name == "QueryStarts" || o.Name == "KeyStarts" {
			require.True(t, o.In(&p), o.Name)
			require.False(t, o.In(&batch), o.Name)
			require.Equal(t, Int32, o.DType(&p))
		}
	}
}
