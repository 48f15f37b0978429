package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func bytesOf(t *testing.T, tiling Tiling, p Problem) map[string]Work {
	t.Helper()
	steps, err := tiling.Forward(p)
	require.NoError(t, err)
	out := map[string]Work{"total": Total(steps)}
	for _, s := range steps {
		out[s.Name] = s
	}
	return out
}

// Every number here was counted by hand, in elements; fp16 has two bytes.

func TestFlash2BytesByHand(t *testing.T) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 5, KeyLen: 7, HeadDim: 3, ValueDim: 2, DType: F16}
	// Blocks of 2, 2 and 1 queries; each walks over tiles of 4 and 3 keys.
	w := bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 2, Keys: 4, LSE: true}, p)
	require.Equal(t, float64(5*3+3*7*3)*2, w[StepScores].Read)
	require.Equal(t, float64(3*7*2)*2, w[StepValues].Read)
	require.Equal(t, float64(5*2)*2, w[StepValues].Written)
	require.Equal(t, 5.0*4, w[StepSoftmax].Written)
	require.Equal(t, 2.0*5*7*(3+2), w[StepScores].FLOPs+w[StepValues].FLOPs)

	// Q loaded for both tiles of each block.
	again := bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 2, Keys: 4, QAgain: true}, p)
	require.Equal(t, float64(2*5*3+3*7*3)*2, again[StepScores].Read)
	require.Zero(t, again[StepSoftmax].Written, "no lse")

	// Causal, 4 queries and 4 keys, blocks of 2 and tiles of 2: the first block sees one tile, the second both.
	c := Problem{Batch: 2, Heads: 3, QueryLen: 4, HeadDim: 8, DType: F32, Causal: CausalBottomRight}
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 2, Keys: 2, LSE: true}, c)
	require.Equal(t, float64(6*(4+2+4)*8*4), w[StepScores].Read)
	require.Equal(t, float64(6*(2+4)*8*4), w[StepValues].Read)
	require.Equal(t, c.ForwardFLOPs(), w[StepScores].FLOPs+w[StepValues].FLOPs)
	require.Equal(t, 6.0*8, w[StepMask].FLOPs, "half of 16 pairs in each of 6 heads")

	// More queries than keys, bottom-right: the first block sees nothing, and still loads one tile.
	c = Problem{Batch: 1, Heads: 1, QueryLen: 4, KeyLen: 2, HeadDim: 8, DType: F32, Causal: CausalBottomRight}
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 2, Keys: 2}, c)
	require.Equal(t, float64((4+2+2)*8*4), w[StepScores].Read)

	// Two query heads on one key head, packed: 3 queries × 2 heads are 6 rows in blocks of 4 and 2.
	g := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, DType: F16}
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 4, Keys: 8, Packed: true}, g)
	require.Equal(t, float64(6+2*5)*4*2, w[StepScores].Read)
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 4, Keys: 8}, g)
	require.Equal(t, float64(6+2*5)*4*2, w[StepScores].Read, "one block for each head")
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 6, Keys: 8, Packed: true}, g)
	require.Equal(t, float64(6+5)*4*2, w[StepScores].Read, "K is loaded once for both heads")
}

func TestFlash1BytesByHand(t *testing.T) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 4, KeyLen: 6, HeadDim: 2, DType: F16}
	// Two blocks of 3 keys; each loads all of Q. Between them O, in fp32 and padded to four columns, m and l are stored and read; the
	// second stores O as fp16.
	w := bytesOf(t, Tiling{Algorithm: AlgorithmFlash1, Rows: 2, Keys: 3, LSE: true}, p)
	require.Equal(t, float64(2*4+6)*2*2, w[StepScores].Read)
	require.Equal(t, 6.0*2*2+4*4*4, w[StepValues].Read)
	require.Equal(t, 4.0*4*4+4*2*2, w[StepValues].Written)
	require.Equal(t, 4.0*8, w[StepSoftmax].Read)
	require.Equal(t, 4.0*8+4*4, w[StepSoftmax].Written)
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash1, Rows: 2, Keys: 3, VAgain: true}, p)
	require.Equal(t, 2*6.0*2*2+4*4*4, w[StepValues].Read)
	// Fragments of 8 columns, blocks of 3 queries: O, m and l pass for the 6 rows of two blocks, O with 8 columns, and two
	// invocations read each row's m and l.
	m := bytesOf(t, Tiling{Algorithm: AlgorithmFlash1, Rows: 3, Keys: 3, Fragment: 8, RowReaders: 2, LSE: true}, p)
	require.Equal(t, w[StepScores], m[StepScores])
	require.Equal(t, 6.0*2*2+6*8*4, m[StepValues].Read)
	require.Equal(t, 6.0*8*4+4*2*2, m[StepValues].Written)
	require.Equal(t, 6.0*8*2, m[StepSoftmax].Read)
	require.Equal(t, 6.0*8+4*4, m[StepSoftmax].Written)
	// Causal: the first block of queries sees one block of keys, the second two.
	p.Causal, p.KeyLen = CausalBottomRight, 4
	w = bytesOf(t, Tiling{Algorithm: AlgorithmFlash1, Rows: 2, Keys: 2, LSE: true}, p)
	require.Equal(t, float64((2*1+2*2)+4)*2*2, w[StepScores].Read)
	unseen := p
	unseen.Causal, unseen.KeyLen = CausalTopLeft, 100 // keys that no query sees are not loaded
	require.Equal(t, w["total"].Read, bytesOf(t, Tiling{Algorithm: AlgorithmFlash1, Rows: 2, Keys: 2, LSE: true}, unseen)["total"].Read)
	require.Equal(t, 2.0*8, w[StepSoftmax].Read)
}

func TestStandardBytesByHand(t *testing.T) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 10, HeadDim: 2, ValueDim: 4, DType: F16}
	tiling := Tiling{Algorithm: AlgorithmStandard, Rows: 2, Keys: 8, ProductRows: 2, ProductKeys: 8}
	// Blocks of scores: rows 2 and 1, columns 8 and 2 (stored as 4). pitch = 16, pieces of four: 12 of 10 keys.
	w := bytesOf(t, tiling, p)
	require.Equal(t, float64((2+8)+(2+2)+(1+8)+(1+2))*2*2, w[StepScores].Read)
	require.Equal(t, float64(3*(8+4))*2, w[StepScores].Written)
	require.Equal(t, float64(3*12)*2, w[StepSoftmax].Read)
	require.Equal(t, float64(3*16)*2, w[StepSoftmax].Written, "with the zeros behind the keys")
	require.Equal(t, float64(3*16+2*10*4)*2, w[StepValues].Read, "two blocks load P to the pitch and V to its last key")
	require.Equal(t, float64(3*4)*2, w[StepValues].Written)

	tiling.ReadTwice = true
	require.Equal(t, 2*w[StepSoftmax].Read, bytesOf(t, tiling, p)[StepSoftmax].Read)

	// A slab of one row makes three blocks of every kind.
	tiling.SlabRows = 1
	w = bytesOf(t, tiling, p)
	require.Equal(t, float64(3*((1+8)+(1+2)))*2*2, w[StepScores].Read)
	require.Equal(t, float64(3*16+3*10*4)*2, w[StepValues].Read)
}

func TestBlockSparseIsTheShareOfFlash2(t *testing.T) {
	p := Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 16, DType: F16}
	dense := bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 16, Keys: 16}, p)
	full := bytesOf(t, Tiling{Algorithm: AlgorithmBlockSparse, Rows: 16, Keys: 16, Nonzero: 1}, p)
	require.Equal(t, dense["total"], full["total"])
	quarter := bytesOf(t, Tiling{Algorithm: AlgorithmBlockSparse, Rows: 16, Keys: 16, Nonzero: 0.25}, p)
	require.Equal(t, dense["total"].FLOPs/4, quarter["total"].FLOPs)
	q := float64(2 * 64 * 16 * 2)
	require.Equal(t, q+(dense[StepScores].Read-q)/4, quarter[StepScores].Read, "Q is loaded all the same")
	require.Equal(t, dense[StepValues].Written, quarter[StepValues].Written)
	_, err := Tiling{Algorithm: AlgorithmBlockSparse, Rows: 1, Keys: 1, Nonzero: 2}.Forward(p)
	require.ErrorContains(t, err, "Nonzero")
}

// The laws of the papers: standard grows as N·d + N², flash as N²·d²/M, that is with N² over the rows of a block.
func TestLawsOfTraffic(t *testing.T) {
	at := func(algorithm Algorithm, n, rows int) float64 {
		return bytesOf(t, Tiling{Algorithm: algorithm, Rows: rows, Keys: 64, ProductRows: rows, ProductKeys: 32},
			Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 64, DType: F16})["total"].Bytes()
	}
	require.InDelta(t, 4, at(AlgorithmFlash2, 16384, 64)/at(AlgorithmFlash2, 8192, 64), 0.05)
	require.InDelta(t, 0.5, at(AlgorithmFlash2, 16384, 128)/at(AlgorithmFlash2, 16384, 64), 0.02)
	require.InDelta(t, 4, at(AlgorithmStandard, 16384, 128)/at(AlgorithmStandard, 8192, 128), 0.05)
	require.Greater(t, at(AlgorithmFlash1, 8192, 64), at(AlgorithmFlash2, 8192, 64), "it reads and writes O again and again")
	require.Greater(t, at(AlgorithmStandard, 8192, 128), 3*at(AlgorithmFlash2, 8192, 128))
}

func TestBackwardOperations(t *testing.T) {
	p := Problem{Batch: 2, Heads: 2, QueryLen: 32, HeadDim: 8, DType: F16, Causal: CausalBottomRight}
	steps, err := p.BackwardOperations()
	require.NoError(t, err)
	products := 0.0
	for _, s := range steps {
		switch s.Name {
		case "QKᵀ again", "dP = dO Vᵀ", "dV = Pᵀ dO", "dQ = dS K", "dK = dSᵀ Q":
			products += s.FLOPs
		}
	}
	require.Equal(t, p.BackwardFLOPs(), products)
}

func TestParseTiling(t *testing.T) {
	for kernel, want := range map[string][2]int{"matrix_forward 128x64 16x16x16 form 1": {128, 64}, "scalar_forward 64x32": {64, 32}, "standard_scalar 128x64": {128, 64}} {
		got, err := ParseTiling(AlgorithmFlash2, kernel)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{got.Rows, got.Keys})
	}
	got, err := ParseTiling(AlgorithmFlash2, "matrix_forward 16x64 16x16x16 form 1 packed")
	require.NoError(t, err)
	require.True(t, got.Packed)
	got, err = ParseTiling(AlgorithmFlash2, "scalar_decode 4x16, keys in 33 parts")
	require.NoError(t, err)
	require.Equal(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 4, Keys: 16, Packed: true, Parts: 33, ProductRows: 4, ProductKeys: 32, LSE: true}, got)
	_, err = ParseTiling(AlgorithmFlash2, "cudnn")
	require.EqualError(t, err, `flash: the kernel "cudnn" names no tile such as 64x32`)
}

func TestLeastBytesByHand(t *testing.T) {
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 3, KeyLen: 5, HeadDim: 4, ValueDim: 6, DType: F16}
	inputs := float64(2*3*4+5*4+5*6+2*3*6) * 2
	least, err := p.LeastForwardBytes(AlgorithmFlash2)
	require.NoError(t, err)
	require.Equal(t, inputs+2*3*4, least)
	standard, err := p.LeastForwardBytes(AlgorithmStandard)
	require.NoError(t, err)
	require.Equal(t, least+4*2*3*5*2, standard)
	backward, err := p.LeastBackwardBytes(AlgorithmFlash2)
	require.NoError(t, err)
	require.Equal(t, 2*inputs+2*3*4, backward)
	// A tile that holds everything moves no more than that.
	w := bytesOf(t, Tiling{Algorithm: AlgorithmFlash2, Rows: 8, Keys: 8, Packed: true, LSE: true}, p)
	require.Equal(t, least, w["total"].Bytes())
}
