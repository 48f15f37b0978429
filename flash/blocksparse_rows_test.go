package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/ref"
)

// TestBlockSparseRowsOfOneTile: a tile of queries that touches several rows of blocks visits what any of them attends to. Each row of
// blocks has one block, far from the others', so that whatever is skipped is missing.
func TestBlockSparseRowsOfOneTile(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 40, KeyLen: 700, HeadDim: 16, DType: F32, Blocks: Blocks{Queries: 5, Keys: 7}}
	shape := p.MaskShape()
	bits := make([]bool, shape[1]*shape[2])
	for row := range shape[1] {
		bits[row*shape[2]+(37*row+90)%shape[2]] = true
	}
	s := newSample(t, p)
	tensor := func(shape [4]int, data []float32) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		copy(x.Data, data)
		return x
	}
	masked := ref.Problem{Q: tensor(p.QShape(), s.q), K: tensor(p.KShape(), s.k), V: tensor(p.VShape(), s.v)}
	masked.Blocks = &ref.BlockMask{B: 1, H: 1, Rows: shape[1], Cols: shape[2], BQ: 5, BK: 7, Data: bits}
	o, lse, err := ref.Forward(masked)
	require.NoError(t, err)
	s.o, s.plain, s.lse = o.Data, o.Data, lse.Data

	mask, err := d.NewBlockMask(bg, p, bits)
	require.NoError(t, err)
	for _, tile := range []map[string]int{nil, {"br": 32, "bc": 32, "mr": 4, "mc": 4}} {
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(tile))
		f := s.tensors(t, d, plainly(t, d))
		f.Blocks = mask
		pending, err := plan.SubmitForward(f)
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		s.check(t, plan, f)
		require.NoError(t, plan.Close())
	}
	require.NoError(t, mask.Close())
}

// TestBlockSparseWideMask: of a mask wider than a word of bits, whose blocks are whole tiles and so are not looked at score by score, no
// block is visited twice and none that is not attended to.
func TestBlockSparseWideMask(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 16, KeyLen: 70 * 16, HeadDim: 8, DType: F32,
		Blocks: Blocks{Queries: 8, Keys: 16, PerHead: true}}
	shape := p.MaskShape()
	bits := make([]bool, shape[0]*shape[1]*shape[2])
	for row := range shape[0] * shape[1] {
		for _, column := range []int{3 + row, 31, 33 + 5*row, 66 + row} {
			bits[row*shape[2]+column] = true
		}
	}
	s := newSample(t, p)
	s.masked(t, bits)
	mask, err := d.NewBlockMask(bg, p, bits)
	require.NoError(t, err)
	plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"br": 8, "bc": 16, "mr": 1, "mc": 4}))
	f := s.tensors(t, d, plainly(t, d))
	f.Blocks = mask
	require.NoError(t, plan.Forward(bg, f))
	s.check(t, plan, f)
	require.NoError(t, plan.Close())
	require.NoError(t, mask.Close())
}
