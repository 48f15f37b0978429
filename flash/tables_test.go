package flash

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// TestPlanCloseBesideRecordings: tables of functions are the plan's. A submission that reads them is waited for, and none begins without
// them.
func TestPlanCloseBesideRecordings(t *testing.T) {
	d := testDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: 9, HeadDim: 8, ScoreFunction: score.ALiBi([]float32{0.5, 0.25})}.Normalize()
	require.NoError(t, err)
	s := newSample(t, p)
	s.in.Score = p.ScoreFunction
	s.answer(t)
	in := s.tensors(t, d, plainly(t, d))
	cells, err := d.NewTensor(F32, 1, 2, 5, 9)
	require.NoError(t, err)
	for name, prepare := range map[string]func(*Plan) (*Recording, error){
		"forward": func(plan *Plan) (*Recording, error) {
			r, err := plan.NewRecording()
			require.NoError(t, err)
			return r, r.Forward(in)
		},
		"map": func(plan *Plan) (*Recording, error) {
			r, err := plan.NewMapRecording()
			require.NoError(t, err)
			return r, r.Map(Map{Forward: Forward{Q: in.Q, K: in.K, LSE: in.LSE}, Pool: PoolSum, Out: cells})
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := mustPlan(t, d, p, WithTier(TierScalar))
			require.NoError(t, plan.Forward(bg, in))
			r, err := prepare(plan)
			require.NoError(t, err)
			pending, err := r.Submit()
			require.NoError(t, err)
			require.NoError(t, plan.Close())
			require.NoError(t, pending.Wait(bg))
			s.check(t, plan, in)
			_, err = r.Submit()
			require.ErrorIs(t, err, ErrClosed)
			require.NoError(t, r.Close())
		})
	}
}

// TestMaskBlocksCloseBesideUpdate: what an update reads and writes stays until it has ended.
func TestMaskBlocksCloseBesideUpdate(t *testing.T) {
	d := testDevice(t)
	const n = 2048
	ids := score.CaptureInt("ids", n)
	p := Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 8, DType: F32, MaskFunction: score.Documents(ids),
		MaskBlocks: Blocks{Queries: 64, Keys: 64}}
	for round := range 6 {
		given, err := d.NewTensor(Int32, 1, 1, 1, n)
		require.NoError(t, err)
		require.NoError(t, given.UploadBytes(bg, make([]byte, 4*n)))
		m, err := d.NewMaskBlocks(bg, p, given)
		require.NoError(t, err)
		var wait sync.WaitGroup
		wait.Go(func() {
			for {
				if err := m.Update(bg, given); err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
			}
		})
		time.Sleep(time.Duration(round) * time.Millisecond)
		if round%2 == 0 {
			require.NoError(t, given.Close())
		}
		require.NoError(t, m.Close())
		wait.Wait()
		require.NoError(t, given.Close())
	}
}

// TestMaskBlocksOfOtherTables: a mask of the same code, whose table has other documents, is another mask.
func TestMaskBlocksOfOtherTables(t *testing.T) {
	d := testDevice(t)
	const n = 128
	documents := func(length int32) Problem {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(i) / length
		}
		return Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 8, MaskFunction: score.Documents(score.TableInt(ids, n)),
			MaskBlocks: Blocks{Queries: 32, Keys: 32}}
	}
	p := documents(64)
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	f := newSample(t, plan.Problem()).tensors(t, d, plainly(t, d))
	for length, fits := range map[int32]bool{64: true, 32: false} {
		m, err := d.NewMaskBlocks(bg, documents(length))
		require.NoError(t, err)
		f.MaskBlocks = m
		if err = plan.Forward(bg, f); fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, "must be of the problem's own mask functions")
		}
		require.NoError(t, m.Close())
	}
}

// TestPlansOfSharedTables: two plans of one function and of masks of the same code, which read another one of the function's tables, are
// two plans.
func TestPlansOfSharedTables(t *testing.T) {
	d := testDevice(t)
	const n = 16
	own := make([]int32, n)
	for i := range own {
		own[i] = int32(i)
	}
	one, each := score.TableInt(make([]int32, n), n), score.TableInt(own, n)
	f, err := score.New(score.S().Add(one.At(score.Key()).Add(each.At(score.Key())).Float().Mul(score.Const(0.01))))
	require.NoError(t, err)
	for _, ids := range []score.IntTensor{one, each} {
		p := Problem{Batch: 1, Heads: 1, QueryLen: n, HeadDim: 8, ScoreFunction: f, MaskFunction: score.Documents(ids)}
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		s := newSample(t, plan.Problem())
		s.in.Score, s.in.Sees = p.ScoreFunction, p.MaskFunction
		s.answer(t)
		in := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, in))
		s.check(t, plan, in)
	}
}

// TestMasksOfOtherHeads: masks of each head of each batch entry are those of as many heads, whatever the product of both is.
func TestMasksOfOtherHeads(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 32, HeadDim: 8, MaskFunction: madeMask(t,
		score.Batch().Add(score.Head()).Equal(score.Key()).Not()),
		MaskBlocks: Blocks{Queries: 16, Keys: 16, PerHead: true, PerBatch: true}}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	f := newSample(t, plan.Problem()).tensors(t, d, plainly(t, d))
	other := p
	other.Batch, other.Heads = 2, 1
	for own, of := range map[bool]Problem{true: p, false: other} {
		m, err := d.NewMaskBlocks(bg, of)
		require.NoError(t, err)
		f.MaskBlocks = m
		if err = plan.Forward(bg, f); own {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, "must be made for 2 query heads")
		}
		require.NoError(t, m.Close())
	}
	p.Blocks, p.MaskFunction, p.MaskBlocks = p.MaskBlocks, Problem{}.MaskFunction, Blocks{}
	other.Blocks, other.MaskFunction, other.MaskBlocks = p.Blocks, p.MaskFunction, Blocks{}
	plan = mustPlan(t, d, p, WithTier(TierScalar))
	f.MaskBlocks = nil
	for own, of := range map[bool]Problem{true: p, false: other} {
		m, err := d.NewBlockMask(bg, of, make([]bool, 2*2*2))
		require.NoError(t, err)
		f.Blocks = m
		if err = plan.Forward(bg, f); own {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, "must be made for 2 query heads")
		}
		require.NoError(t, m.Close())
	}
}
