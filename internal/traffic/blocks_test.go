package traffic

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// A head of 8 queries and 7 keys, in blocks of 4 queries and 4 keys. Rows are of D = 4 and Dv = 6, fp16.
func masked(causal attn.Causal) attn.Problem {
	return attn.Problem{Batch: 1, Heads: 1, KeyHeads: 1, QueryLen: 8, KeyLen: 7, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: causal},
		Blocks:     attn.Blocks{Queries: 4, Keys: 4}}
}

func TestBlockMaskBytesByHand(t *testing.T) {
	p := masked(attn.CausalNone)
	m := QueriesOutside{Label: "f", Rows: 2, Keys: 2}
	// The first two blocks of queries see the last three keys, in a tile of two and one of one; the others nothing.
	c := Call{LSE: true, Blocks: []bool{false, true, false, false}}
	w := bytesOf(t, m, p, c)
	require.Equal(t, (8+2*3)*rowD, w[StepScores].Read, "Q stays: it is loaded by those that see nothing too")
	require.Equal(t, 2*3*rowDv, w[StepValues].Read)
	require.Equal(t, 8*rowDv, w[StepValues].Written)
	require.Equal(t, 8*4.0, w[StepSoftmax].Written)
	require.Equal(t, 2*4*3*4.0, w[StepScores].FLOPs, "of the pairs in the block")

	// Q again, for each tile that is walked to, and once where there is none. This was taken for the share of what a dense walk loads.
	again := m
	again.QAgain = true
	require.Equal(t, (2*2*2+2*2+2*3)*rowD, bytesOf(t, again, p, c)[StepScores].Read)
	again.NoneUnseen = true
	require.Equal(t, (2*2*2+2*3)*rowD, bytesOf(t, again, p, c)[StepScores].Read)

	// Two tiles ahead of K and one of V: beyond the last key there is nothing, unless it is the last tile that is fetched again. Who walks
	// to no tile fetches none.
	ahead := m
	ahead.KeysAhead, ahead.ValuesAhead = 2, 1
	require.Equal(t, w[StepScores].Read, bytesOf(t, ahead, p, c)[StepScores].Read)
	ahead.AheadAgain = true
	a := bytesOf(t, ahead, p, c)
	require.Equal(t, w[StepScores].Read+2*2*2*rowD, a[StepScores].Read)
	require.Equal(t, w[StepValues].Read+2*2*rowDv, a[StepValues].Read)

	// Tiles that touch several blocks are walked to for any of them: a block of queries of 6 touches both rows of blocks, the tiles of 3
	// keys 0 to 2, 3 to 5 and 6.
	p.Blocks = attn.Blocks{Queries: 4, Keys: 1}
	bits := make([]bool, 2*7)
	bits[7+5] = true // query 4, key 5
	w = bytesOf(t, QueriesOutside{Rows: 6, Keys: 3}, p, Call{Blocks: bits})
	require.Equal(t, (8+3+3)*rowD, w[StepScores].Read)
	require.Equal(t, 2*4*4.0, w[StepScores].FLOPs, "one key for four queries")
}

func TestCausalBlockMaskBytesByHand(t *testing.T) {
	// Query i sees keys up to i − 1: the first row of blocks 0, 1, 2 and 3 of them, the second 4, 5, 6 and 7.
	p := masked(attn.CausalBottomRight)
	c := Call{Blocks: []bool{true, true, false, true}}
	w := bytesOf(t, QueriesOutside{Rows: 2, Keys: 2, NoneUnseen: true}, p, c)
	// Queries 0 and 1 see a tile, 2 and 3 two; 4 and 5 of the second block one, 6 and 7 both, the last of a single key.
	require.Equal(t, (8+2+4+2-1+1+3)*rowD, w[StepScores].Read, "keys 4, and 4 to 6")
	pairs := 1 + 2 + 3 + (1 + 2 + 3) // block (0, 1) is beyond the diagonal
	require.InDelta(t, 2*4*p.PaperPairs()*float64(pairs)/p.Mask().Pairs(), w[StepScores].FLOPs, 1e-9)
	// Two tiles ahead: the tile behind the last that is seen, twice. Keys 2 and 3 for the first block, 4 and 5 for the second, 6 for the
	// third.
	ahead := bytesOf(t, QueriesOutside{Rows: 2, Keys: 2, NoneUnseen: true, KeysAhead: 2}, p, c)
	require.Equal(t, w[StepScores].Read+2*(2+2+1)*rowD, ahead[StepScores].Read)
}

// A mask of each head's own is counted head by head; one for all is the same for each.
func TestBlockMaskPerHeadBytesByHand(t *testing.T) {
	p := masked(attn.CausalNone)
	p.Batch, p.Heads = 3, 2
	m := QueriesOutside{Rows: 4, Keys: 4}
	w := bytesOf(t, m, p, Call{Blocks: []bool{true, false, false, false}})
	require.Equal(t, 6*(8+4)*rowD, w[StepScores].Read)
	p.Blocks.PerHead = true
	w = bytesOf(t, m, p, Call{Blocks: []bool{true, false, false, false, true, true, false, true}})
	require.Equal(t, 3*((8+4)+(8+4+3+3))*rowD, w[StepScores].Read)
	require.Equal(t, 3*2*4*float64(4*4+4*4+4*3+4*3), w[StepScores].FLOPs)
}

// A mask of ones is no mask, for whatever tile.
func TestFullBlockMaskIsNone(t *testing.T) {
	for _, m := range []QueriesOutside{{Rows: 3, Keys: 2}, {Rows: 3, Keys: 2, QAgain: true},
		{Rows: 5, Keys: 3, NoneUnseen: true, KeysAhead: 1, ValuesAhead: 1}} {
		p := masked(attn.CausalTopLeft)
		for _, c := range []Call{{Blocks: []bool{true, true, true, true}}, {Nonzero: 1}} {
			with := bytesOf(t, m, p, c)
			p := p
			p.Blocks = attn.Blocks{}
			require.Equal(t, bytesOf(t, m, p, Call{}), with)
		}
	}
	p := masked(attn.CausalTopLeft)
	for _, tile := range []BackwardTile{{Rows: 3, Columns: 2, Restaged: true, RowReaders: 2}, {Rows: p.Blocks.Queries, Columns: 1},
		{Rows: 1, Columns: 1, Masked: true, Ahead: true, Apart: true}} {
		m := BackwardFused{Delta: "δ", Keys: tile, Queries: tile}
		m.Keys.Label, m.Queries.Label = "keys", "queries"
		m.Queries.Apart = false
		for _, c := range []Call{{Blocks: []bool{true, true, true, true}}, {Nonzero: 1}} {
			with, err := m.Steps(p, c)
			require.NoError(t, err)
			p := p
			p.Blocks = attn.Blocks{}
			without, err := m.Steps(p, Call{})
			require.NoError(t, err)
			require.Equal(t, without, with, "%+v", tile)
		}
	}
}

// What is said of a share of blocks is the mean over masks whose blocks are tossed for.
func TestShareIsTheMeanOfMasks(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, KeyHeads: 1, QueryLen: 30, KeyLen: 41, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight},
		Blocks:     attn.Blocks{Queries: 5, Keys: 7}}
	const share, masks = 0.3, 20000
	for _, m := range []QueriesOutside{{Rows: 5, Keys: 7, QAgain: true}, {Rows: 6, Keys: 4, QAgain: true},
		{Rows: 10, Keys: 3, NoneUnseen: true, KeysAhead: 2, ValuesAhead: 1}} {
		random := rand.New(rand.NewPCG(1, 2))
		shape := p.MaskShape()
		bits := make([]bool, shape[1]*shape[2])
		sums := map[string]Step{}
		for range masks {
			for i := range bits {
				bits[i] = random.Float64() < share
			}
			for name, s := range bytesOf(t, m, p, Call{Blocks: bits}) {
				sum := sums[name]
				sums[name] = Step{FLOPs: sum.FLOPs + s.FLOPs/masks, Read: sum.Read + s.Read/masks, Written: sum.Written + s.Written/masks}
			}
		}
		for name, s := range bytesOf(t, m, p, Call{Nonzero: share}) {
			require.InEpsilon(t, 1+s.Read, 1+sums[name].Read, 0.02, "%+v: %s", m, name)
			require.InEpsilon(t, 1+s.FLOPs, 1+sums[name].FLOPs, 0.02, "%+v: %s", m, name)
			require.InEpsilon(t, 1+s.Written, 1+sums[name].Written, 1e-9, "%+v: %s", m, name)
		}
	}
}

// The same of a backward pass, which has several steps of a name.
func TestShareIsTheMeanOfMasksBackward(t *testing.T) {
	const share, masks = 0.3, 5000
	for _, b := range []attn.Blocks{{Queries: 5, Keys: 7}, {Queries: 6, Keys: 6, PerHead: true},
		{Queries: 6, Keys: 12, PerHead: true, PerBatch: true}} {
		p := attn.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 30, KeyLen: 41, HeadDim: 4, ValueDim: 6, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}, Blocks: b}
		for _, m := range []BackwardFused{
			{Keys: BackwardTile{Rows: 6, Columns: 6, Restaged: true}, Queries: BackwardTile{Rows: 4, Columns: 5, Restaged: true}},
			{Keys: BackwardTile{Rows: 6, Columns: 6, Masked: true, Ahead: true}, Queries: BackwardTile{Rows: 6, Columns: 6, Masked: true,
				Ahead: true}},
		} {
			random, shape := rand.New(rand.NewPCG(1, 2)), p.MaskShape()
			bits := make([]bool, shape[0]*shape[1]*shape[2])
			want, err := m.Steps(p, Call{Nonzero: share})
			require.NoError(t, err)
			mean := make([]Step, len(want))
			for range masks {
				for i := range bits {
					bits[i] = random.Float64() < share
				}
				steps, err := m.Steps(p, Call{Blocks: bits})
				require.NoError(t, err)
				for i, s := range steps {
					mean[i].FLOPs, mean[i].Read = mean[i].FLOPs+s.FLOPs/masks, mean[i].Read+s.Read/masks
				}
			}
			for i, s := range want {
				require.InEpsilon(t, 1+s.Read, 1+mean[i].Read, 0.02, "%v %+v: %s", b, m, s.Name)
				require.InEpsilon(t, 1+s.FLOPs, 1+mean[i].FLOPs, 0.02, "%v %+v: %s", b, m, s.Name)
			}
		}
	}
}

func TestBadBlockMasks(t *testing.T) {
	p := masked(attn.CausalNone)
	m := QueriesOutside{Rows: 2, Keys: 2}
	for want, c := range map[string]Call{
		"the number of bits of the block mask is 3: must be 4, for 1 masks of 2 × 2 blocks": {Blocks: make([]bool, 3)},
		"the share of nonzero blocks is 0: must be above 0 and at most 1":                   {},
		"the share of nonzero blocks is 1.5: must be above 0":                               {Nonzero: 1.5},
	} {
		_, err := m.Steps(p, c)
		require.ErrorContains(t, err, want)
		_, err = ForwardOperations{}.Steps(p, c)
		require.ErrorContains(t, err, want)
	}
	some := Call{Nonzero: 0.5}
	for _, m := range []Model{QueriesOutside{Rows: 2, Keys: 2, Packed: true}, QueriesOutside{Rows: 2, Keys: 2, Parts: 2},
		KeysOutside{Rows: 2, Keys: 2}, Standard{}, BackwardStandard{}} {
		_, err := m.Steps(p, some)
		require.ErrorContains(t, err, "block mask", "%T", m)
	}
}
