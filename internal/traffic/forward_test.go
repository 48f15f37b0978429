package traffic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// full fills in the defaults of a problem, as models take it.
func full(p attn.Problem) attn.Problem {
	for _, d := range []struct {
		field *int
		value int
	}{{&p.KeyHeads, p.Heads}, {&p.KeyLen, p.QueryLen}, {&p.ValueDim, p.HeadDim}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return p
}

// bytesOf gives the steps of a pass by name, and their total under "total".
func bytesOf(t *testing.T, m Model, p attn.Problem, c Call) map[string]Step {
	t.Helper()
	steps, err := m.Steps(full(p), c)
	require.NoError(t, err)
	out := map[string]Step{"total": Total(steps)}
	for _, s := range steps {
		out[s.Name] = s
	}
	return out
}

// Every number here was counted by hand, in elements; fp16 has two bytes.

func TestFlash2BytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 5, KeyLen: 7, HeadDim: 3, ValueDim: 2, DType: attn.F16}
	// Blocks of 2, 2 and 1 queries; each walks over tiles of 4 and 3 keys.
	w := bytesOf(t, QueriesOutside{Rows: 2, Keys: 4}, p, Call{LSE: true})
	require.Equal(t, float64(5*3+3*7*3)*2, w[StepScores].Read)
	require.Equal(t, float64(3*7*2)*2, w[StepValues].Read)
	require.Equal(t, float64(5*2)*2, w[StepValues].Written)
	require.Equal(t, 5.0*4, w[StepSoftmax].Written)
	require.Equal(t, 2.0*5*7*(3+2), w[StepScores].FLOPs+w[StepValues].FLOPs)

	// Q loaded for both tiles of each block.
	again := bytesOf(t, QueriesOutside{Rows: 2, Keys: 4, QAgain: true}, p, Call{})
	require.Equal(t, float64(2*5*3+3*7*3)*2, again[StepScores].Read)
	require.Zero(t, again[StepSoftmax].Written, "no lse")

	// Causal, 4 queries and 4 keys, blocks of 2 and tiles of 2: the first block sees one tile, the second both.
	c := attn.Problem{Batch: 2, Heads: 3, QueryLen: 4, HeadDim: 8, DType: attn.F32,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}
	w = bytesOf(t, QueriesOutside{Rows: 2, Keys: 2}, c, Call{LSE: true})
	require.Equal(t, float64(6*(4+2+4)*8*4), w[StepScores].Read)
	require.Equal(t, float64(6*(2+4)*8*4), w[StepValues].Read)
	require.Equal(t, full(c).ForwardFLOPs(), w[StepScores].FLOPs+w[StepValues].FLOPs)
	require.Equal(t, 6.0*8, w[StepMask].FLOPs, "half of 16 pairs in each of 6 heads")

	// More queries than keys, bottom-right: the first block sees nothing, and still loads one tile.
	c = attn.Problem{Batch: 1, Heads: 1, QueryLen: 4, KeyLen: 2, HeadDim: 8, DType: attn.F32,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}}
	w = bytesOf(t, QueriesOutside{Rows: 2, Keys: 2}, c, Call{})
	require.Equal(t, float64((4+2+2)*8*4), w[StepScores].Read)

	// Two query heads on one key head, packed: 3 queries × 2 heads are 6 rows in blocks of 4 and 2.
	g := attn.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, DType: attn.F16}
	w = bytesOf(t, QueriesOutside{Rows: 4, Keys: 8, Packed: true}, g, Call{})
	require.Equal(t, float64(6+2*5)*4*2, w[StepScores].Read)
	w = bytesOf(t, QueriesOutside{Rows: 4, Keys: 8}, g, Call{})
	require.Equal(t, float64(6+2*5)*4*2, w[StepScores].Read, "one block for each head")
	w = bytesOf(t, QueriesOutside{Rows: 6, Keys: 8, Packed: true}, g, Call{})
	require.Equal(t, float64(6+5)*4*2, w[StepScores].Read, "K is loaded once for both heads")
}

func TestFlash1BytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 4, KeyLen: 6, HeadDim: 2, DType: attn.F16}
	// Two blocks of 3 keys; each loads all of Q. Between them O, in fp32 and padded to four columns, m and l are stored and read; the
	// second stores O as fp16.
	w := bytesOf(t, KeysOutside{Rows: 2, Keys: 3}, p, Call{LSE: true})
	require.Equal(t, float64(2*4+6)*2*2, w[StepScores].Read)
	require.Equal(t, 6.0*2*2+4*4*4, w[StepValues].Read)
	require.Equal(t, 4.0*4*4+4*2*2, w[StepValues].Written)
	require.Equal(t, 4.0*8, w[StepSoftmax].Read)
	require.Equal(t, 4.0*8+4*4, w[StepSoftmax].Written)
	w = bytesOf(t, KeysOutside{Rows: 2, Keys: 3, VAgain: true}, p, Call{})
	require.Equal(t, 2*6.0*2*2+4*4*4, w[StepValues].Read)
	// Fragments of 8 columns, blocks of 3 queries: O, m and l pass for the 6 rows of two blocks, O with 8 columns, and two
	// invocations read each row's m and l.
	m := bytesOf(t, KeysOutside{Rows: 3, Keys: 3, Fragment: 8, RowReaders: 2}, p, Call{LSE: true})
	require.Equal(t, w[StepScores], m[StepScores])
	require.Equal(t, 6.0*2*2+6*8*4, m[StepValues].Read)
	require.Equal(t, 6.0*8*4+4*2*2, m[StepValues].Written)
	require.Equal(t, 6.0*8*2, m[StepSoftmax].Read)
	require.Equal(t, 6.0*8+4*4, m[StepSoftmax].Written)
	// Causal: the first block of queries sees one block of keys, the second two.
	p.Causal, p.KeyLen = attn.CausalBottomRight, 4
	w = bytesOf(t, KeysOutside{Rows: 2, Keys: 2}, p, Call{LSE: true})
	require.Equal(t, float64((2*1+2*2)+4)*2*2, w[StepScores].Read)
	unseen := p
	unseen.Causal, unseen.KeyLen = attn.CausalTopLeft, 100 // keys that no query sees are not loaded
	require.Equal(t, w["total"].Read, bytesOf(t, KeysOutside{Rows: 2, Keys: 2}, unseen, Call{LSE: true})["total"].Read)
	require.Equal(t, 2.0*8, w[StepSoftmax].Read)
}

func TestStandardBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 10, HeadDim: 2, ValueDim: 4, DType: attn.F16}
	m := Standard{Scores: Product{Rows: 2, Columns: 8}, Product: Product{Rows: 2, Columns: 8}}
	// Blocks of scores: rows 2 and 1, columns 8 and 2 (stored as 4). pitch = 16, pieces of four: 12 of 10 keys.
	w := bytesOf(t, m, p, Call{})
	require.Equal(t, float64((2+8)+(2+2)+(1+8)+(1+2))*2*2, w[StepScores].Read)
	require.Equal(t, float64(3*(8+4))*2, w[StepScores].Written)
	require.Equal(t, float64(3*12)*2, w[StepSoftmax].Read)
	require.Equal(t, float64(3*16)*2, w[StepSoftmax].Written, "with the zeros behind the keys")
	require.Equal(t, float64(3*16+2*10*4)*2, w[StepValues].Read, "two blocks load P to the pitch and V to its last key")
	require.Equal(t, float64(3*4)*2, w[StepValues].Written)

	m.Softmax.ReadTwice = true
	require.Equal(t, 2*w[StepSoftmax].Read, bytesOf(t, m, p, Call{})[StepSoftmax].Read)

	// A slab of one row makes three blocks of every kind.
	m.SlabRows = 1
	w = bytesOf(t, m, p, Call{})
	require.Equal(t, float64(3*((1+8)+(1+2)))*2*2, w[StepScores].Read)
	require.Equal(t, float64(3*16+3*10*4)*2, w[StepValues].Read)
}

// The laws of the papers: standard grows as N·d + N², flash as N²·d²/M, that is with N² over the rows of a block.
func TestLawsOfTraffic(t *testing.T) {
	at := func(m Model, n int) float64 {
		return bytesOf(t, m, attn.Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 64, DType: attn.F16}, Call{})["total"].Bytes()
	}
	queries := func(rows int) Model { return QueriesOutside{Rows: rows, Keys: 64} }
	standard := Standard{Scores: Product{Rows: 128, Columns: 64}, Product: Product{Rows: 128, Columns: 32}}
	require.InDelta(t, 4, at(queries(64), 16384)/at(queries(64), 8192), 0.05)
	require.InDelta(t, 0.5, at(queries(128), 16384)/at(queries(64), 16384), 0.02)
	require.InDelta(t, 4, at(standard, 16384)/at(standard, 8192), 0.05)
	require.Greater(t, at(KeysOutside{Rows: 64, Keys: 64}, 8192), at(queries(64), 8192), "it reads and writes O again and again")
	require.Greater(t, at(standard, 8192), 3*at(queries(128), 8192))
}

func TestLeastBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, ValueDim: 6, DType: attn.F16}
	inputs := float64(2*3*4+5*4+5*6+2*3*6) * 2
	least := inputs + 2*3*4
	require.Equal(t, least, LeastForward(p, false))
	require.Equal(t, least+4*2*3*5*2, LeastForward(p, true))
	require.Equal(t, 2*inputs+2*3*4, LeastBackward(p, false))
	require.Equal(t, 2*inputs+2*3*4+6*2*3*5*2, LeastBackward(p, true))
	// A tile that holds everything moves no more than that.
	w := bytesOf(t, QueriesOutside{Rows: 8, Keys: 8, Packed: true}, p, Call{LSE: true})
	require.Equal(t, least, w["total"].Bytes())
	// Of pools the keys and values of the problem count, as they are stored, and the table does.
	p = attn.Problem{Batch: 3, Heads: 1, KeyHeads: 1, QueryLen: 1, KeyLen: 6, HeadDim: 32, ValueDim: 64, DType: attn.F16,
		KeyType: attn.Q8_0, ValueType: attn.Q4_0,
		Pages: attn.Pages{Size: 4, Count: 64, PerSequence: 2}}
	require.Equal(t, float64(3*(2*32+6*34+6*2*18+2*64+4+2*4)), LeastForward(p, false))
}

// TestPartsBytesByHand: three parts of five keys in tiles of two: the first two have a tile each, so has the last, of one key.
func TestPartsBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 5, HeadDim: 4, ValueDim: 6, DType: attn.F16}
	w := bytesOf(t, QueriesOutside{Label: "f", Combine: "c", Rows: 2, Keys: 2, Parts: 3}, p, Call{LSE: true})
	require.Equal(t, (3*2+5)*rowD, w[StepScores].Read)
	require.Equal(t, 3*2*4.0, w[StepSoftmax].Written, "the logarithm of the sum, of each part")
	require.Equal(t, 3*2*8*4.0, w[StepValues].Written, "fp32, in whole eights")
	require.Equal(t, Step{Name: StepCombine, Kernel: "c", FLOPs: 8 * 2 * 2 * 3, Read: 2 * 2 * 3 * 20, Written: 2*rowDv + 2*4},
		w[StepCombine])
	require.Equal(t, "f", w[StepValues].Kernel)
}
