package matrix

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
)

// TestRowsOfQuantisedKeys: beyond DecodeRows matrix_decode takes keys and values in blocks alone, in blocks of as many rows at most.
func TestRowsOfQuantisedKeys(t *testing.T) {
	for _, queries := range []int{4, 5, 8, 16} {
		p := kerneltest.Problem(attn.Problem{Heads: 32, KeyHeads: 8, QueryLen: queries, KeyLen: 8192, HeadDim: 128, DType: attn.F16})
		rows := queries * p.Group()
		why := decodeUnsupported(kerneltest.Hopper(), p)
		if rows > DecodeRows {
			require.Contains(t, why, "it takes up to 16 of float16 keys and float16 values")
		} else {
			require.NotContains(t, why, "rows")
		}
		for _, x := range []struct {
			keys, values attn.DType
			most         int
		}{{attn.Q8_0, attn.F16, 16}, {attn.F8E4M3, attn.F8E4M3, 16}, {attn.Q8_0, attn.Q5_0, 32}, {attn.Q8_0, attn.Q5_1, 32},
			{attn.Q5_1, attn.Q8_0, 64}} {
			p.KeyType, p.ValueType = x.keys, x.values
			if why := decodeUnsupported(kerneltest.Hopper(), p); rows > x.most {
				require.Contains(t, why, fmt.Sprintf("it takes up to %d of %v keys and %v values", x.most, x.keys, x.values))
			} else {
				require.NotContains(t, why, "rows")
			}
		}
		require.Empty(t, Decode.Refuses(p))
		for _, dim := range []int{32, 128} {
			p.HeadDim, p.ValueDim = dim, dim
			tile, err := ChooseDecodeTile(kerneltest.Hopper(), p, kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32},
				&kernel.FragmentLayout{Form: 1}, kernel.NewTuning(nil))
			require.NoError(t, err)
			require.LessOrEqual(t, tile.Rows, DecodeRows)
			require.Equal(t, rows, tile.Rows*(rows/tile.Rows), "no row of a block is idle")
		}
	}
	p := kerneltest.Problem(attn.Problem{Heads: 32, KeyHeads: 8, QueryLen: 17, KeyLen: 8192, HeadDim: 128, DType: attn.F16,
		KeyType: attn.Q8_0, ValueType: attn.Q8_0})
	require.Contains(t, Decode.Refuses(p), "68 rows for each key head: it takes up to 64")
}
