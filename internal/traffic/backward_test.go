package traffic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// backwardOf gives the steps of a backward pass by kernel and name, and its total under "".
func backwardOf(t *testing.T, m BackwardFused, p attn.Problem, c Call) map[[2]string]Step {
	t.Helper()
	m.Delta, m.Keys.Label, m.Queries.Label = "delta", "kv", "q"
	steps, err := m.Steps(full(p), c)
	require.NoError(t, err)
	out := map[[2]string]Step{{}: Total(steps)}
	for _, s := range steps {
		out[[2]string{s.Kernel, s.Name}] = s
	}
	return out
}

// Every number here was counted by hand, in rows; D = 4, Dv = 6, fp16.
const rowD, rowDv = 4 * 2.0, 6 * 2.0

func TestBackwardBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 5, KeyLen: 7, HeadDim: 4, ValueDim: 6, DType: attn.F16}
	tiling := BackwardFused{Keys: BackwardTile{Rows: 4, Columns: 2}, Queries: BackwardTile{Rows: 4, Columns: 4}}
	w := backwardOf(t, tiling, p, Call{})
	delta := w[[2]string{"delta", StepDelta}]
	require.Equal(t, 2*10*rowDv, delta.Read, "dO and O")
	require.Equal(t, 10*4.0, delta.Written)
	// Blocks of 4 and 3 keys; each walks over 5 queries of both heads.
	kv := func(name string) Step { return w[[2]string{"kv", name}] }
	require.Equal(t, (4+10+3+10)*rowD, kv(StepScoresAgain).Read)
	require.Equal(t, (4+10+3+10)*rowDv, kv(StepWeightGrads).Read)
	require.Equal(t, 2*10*8.0, kv(StepWeightsAgain).Read, "lse and δ")
	require.Equal(t, Step{Name: StepKeyGrads, Kernel: "kv", FLOPs: 2 * 70 * 4, Written: 7 * rowD}, kv(StepKeyGrads))
	require.Equal(t, 7*rowDv, kv(StepValueGrads).Written)
	// Blocks of 4 queries and 1; each walks over 7 keys, for each head.
	q := func(name string) Step { return w[[2]string{"q", name}] }
	require.Equal(t, 2*(4+7+1+7)*rowD, q(StepScoresAgain).Read)
	require.Equal(t, 2*(4+7+1+7)*rowDv, q(StepWeightGrads).Read)
	require.Equal(t, 10*8.0, q(StepWeightsAgain).Read)
	require.Equal(t, Step{Name: StepQueryGrads, Kernel: "q", FLOPs: 2 * 70 * 4, Written: 10 * rowD}, q(StepQueryGrads))

	// A third tile of one query, and a second of three keys, are fetched twice.
	ahead := tiling
	ahead.Keys.Ahead, ahead.Queries.Ahead = true, true
	a := backwardOf(t, ahead, p, Call{})
	require.Equal(t, kv(StepScoresAgain).Read+2*1*rowD, a[[2]string{"kv", StepScoresAgain}].Read)
	require.Equal(t, q(StepWeightGrads).Read+2*2*3*rowDv, a[[2]string{"q", StepWeightGrads}].Read)

	// Apart: everything twice, but V only for dK.
	apart := tiling
	apart.Keys.Apart = true
	a = backwardOf(t, apart, p, Call{})
	require.Equal(t, 2*kv(StepScoresAgain).Read, a[[2]string{"kv", StepScoresAgain}].Read)
	require.Equal(t, 2*kv(StepScoresAgain).FLOPs, a[[2]string{"kv", StepScoresAgain}].FLOPs)
	require.Equal(t, (4+20+3+20)*rowDv, a[[2]string{"kv", StepWeightGrads}].Read)

	// Added to what is there, and with a gradient of lse.
	a = backwardOf(t, tiling, p, Call{Accumulate: true, DLSE: true})
	require.Equal(t, w[[2]string{}].Read+7*(rowD+rowDv)+10*rowD+10*4, a[[2]string{}].Read)

	// The scalar tier: rows anew for each of 3 tiles of 2 heads, columns once more for the sums, lse and δ by 3 invocations.
	scalar := BackwardFused{Keys: BackwardTile{Rows: 4, Columns: 2, Restaged: true, RowReaders: 3},
		Queries: BackwardTile{Rows: 4, Columns: 4, Restaged: true, RowReaders: 5}}
	a = backwardOf(t, scalar, p, Call{})
	require.Equal(t, (6*4+10+6*3+10)*rowD, a[[2]string{"kv", StepScoresAgain}].Read)
	require.Equal(t, 2*10*rowD, a[[2]string{"kv", StepKeyGrads}].Read)
	require.Equal(t, 2*10*rowDv, a[[2]string{"kv", StepValueGrads}].Read)
	require.Equal(t, 2*10*8*3.0, a[[2]string{"kv", StepWeightsAgain}].Read)
	require.Equal(t, 2*(2*4+7+2*1+7)*rowD, a[[2]string{"q", StepScoresAgain}].Read)
	require.Equal(t, 2*2*7*rowD, a[[2]string{"q", StepQueryGrads}].Read)
	require.Equal(t, 10*8*5.0, a[[2]string{"q", StepWeightsAgain}].Read)
}

func TestCausalBackwardBytesByHand(t *testing.T) {
	// Two blocks of 2 keys. The first is seen by 4 queries: a tile with masks, one without; the second by the last two.
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}
	tile := BackwardTile{Rows: 2, Columns: 2, Masked: true, Ahead: true}
	w := backwardOf(t, BackwardFused{Keys: tile, Queries: tile}, p, Call{})
	require.Equal(t, ((2+4+2)+(2+2+2))*rowD, w[[2]string{"kv", StepScoresAgain}].Read, "the last tile twice")
	// Of 2 queries, the first block sees a tile with masks, the second one without besides.
	require.Equal(t, ((2+2+2)+(2+4+2))*rowD, w[[2]string{"q", StepScoresAgain}].Read)
	require.Equal(t, 2*8*4.0, w[[2]string{"kv", StepScoresAgain}].FLOPs, "half of 16 pairs")

	// More queries than keys: of the first two blocks no query sees a key. On matrices they load none, in fp32 a tile each.
	p.QueryLen, p.KeyLen = 6, 2
	tile.Ahead = false
	w = backwardOf(t, BackwardFused{Keys: tile, Queries: tile}, p, Call{})
	require.Equal(t, (2+2+(2+2))*rowD, w[[2]string{"q", StepScoresAgain}].Read)
	tile = BackwardTile{Rows: 2, Columns: 2, Restaged: true}
	w = backwardOf(t, BackwardFused{Keys: tile, Queries: tile}, p, Call{})
	require.Equal(t, 3*(2+2)*rowD, w[[2]string{"q", StepScoresAgain}].Read)

	_, err := BackwardFused{Keys: tile}.Steps(full(p), Call{})
	require.ErrorContains(t, err, "BackwardFused.Queries is 0x0")
}

// A tile that holds everything asks for each input once for either kernel, and for each output once.
func TestLeastBackwardBytesAreLess(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, ValueDim: 6, DType: attn.F16}
	tile := BackwardTile{Rows: 8, Columns: 8}
	least := LeastBackward(p, false)
	moved := backwardOf(t, BackwardFused{Keys: tile, Queries: tile}, p, Call{})[[2]string{}].Bytes()
	require.Greater(t, moved, least)
	// Once more: Q and dO, K and V (for each of two heads), lse; dO for δ; δ written once and read twice.
	q, k, lse := 6.0, 5.0, 6*4.0
	require.Equal(t, least+(q+2*k)*(rowD+rowDv)+q*rowDv+lse+3*lse, moved)
}

func TestTilesFetchedAheadBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}
	// The first block uses one tile of keys and fetches the next, of K alone; after the last there is none.
	w := bytesOf(t, QueriesOutside{Rows: 2, Keys: 2, KeysAhead: 1}, p, Call{})
	require.Equal(t, (4+4+4)*rowD, w[StepScores].Read)
	require.Equal(t, (2+4)*rowDv, w[StepValues].Read)
	// Not causal, without masks: the last tile again, and again.
	p.Causal = attn.CausalNone
	w = bytesOf(t, QueriesOutside{Rows: 2, Keys: 2, KeysAhead: 2, ValuesAhead: 1, AheadAgain: true}, p, Call{})
	require.Equal(t, (4+2*(4+4))*rowD, w[StepScores].Read)
	require.Equal(t, 2*(4+2)*rowDv, w[StepValues].Read)
	// Queries that see nothing.
	p.Causal, p.KeyLen = attn.CausalBottomRight, 2
	w = bytesOf(t, QueriesOutside{Rows: 2, Keys: 2, KeysAhead: 1, ValuesAhead: 1, NoneUnseen: true}, p, Call{})
	require.Equal(t, (4+2)*rowD, w[StepScores].Read)

	// Standard attention on matrices: scores in units of eight.
	s := Standard{Scores: Product{Rows: 2, Columns: 8, Unit: 8}, Product: Product{Rows: 2, Columns: 2}}
	p = attn.Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}
	w = bytesOf(t, s, p, Call{})
	require.Equal(t, 4*8*2.0, w[StepScores].Written)
	require.Equal(t, (2*2+2*4)*2+(2+4)*rowDv, w[StepValues].Read, "two blocks use 2 and 4 keys")
	// Two blocks of keys share a load of queries; the last is ragged.
	s.Scores.Run, p.KeyLen, p.Causal = 2, 20, attn.CausalNone
	w = bytesOf(t, s, p, Call{})
	require.Equal(t, 2*((2+16)+(2+4))*rowD, w[StepScores].Read)
	require.Equal(t, 4*24*2.0, w[StepScores].Written)
}
