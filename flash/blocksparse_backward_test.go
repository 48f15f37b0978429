package flash

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// maskedGradients runs the backward pass of a problem with a block mask on what float64 makes of the forward pass, and gives the gradients
// and those of float64.
func maskedGradients(t *testing.T, d *Device, p Problem, bits []bool, poison func(s *sample), tier Tier,
	options ...PlanOption) (got [3][]float32, want *ref.Gradients, ok bool) {
	plan := planGradients(t, d, p, tier, options...)
	defer plan.Close()
	info, err := plan.BackwardInfo()
	if no := (*UnsupportedError)(nil); errors.As(err, &no) && !no.Denied { // a kernel that fails its self-check is wrong, and not absent
		t.Log(err)
		return got, want, false
	}
	require.NoError(t, err)
	t.Log(info.Kernel)
	mask, err := d.NewBlockMask(bg, p, bits)
	require.NoError(t, err)
	defer mask.Close()
	s := newSample(t, p)
	s.in.Blocks, s.in.Score = kernel.RefBlocks(attnOf(p), bits), p.ScoreFunction
	o, lse, err := ref.Forward(s.in)
	require.NoError(t, err)
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	for i := range do.Data {
		do.Data[i] = float32(i%13-6) / 8
	}
	want, err = ref.Backward(s.in, do, nil)
	require.NoError(t, err)
	if poison != nil {
		poison(s)
	}
	f := s.tensors(t, d, plainly(t, d))
	f.Blocks = mask
	like, made := plainly(t, d), func(x *Tensor, values []float32) *Tensor {
		require.NoError(t, x.Upload(bg, values))
		return x
	}
	require.NoError(t, f.O.Upload(bg, kernel.Float32s(o.Data)))
	require.NoError(t, f.LSE.Upload(bg, kernel.Float32s(lse.Data)))
	b := Backward{Forward: f, DO: made(like(p.DType, p.OShape()), do.Data), DQ: like(p.DType, p.QShape()), DK: like(p.DType, p.KShape()),
		DV: like(p.DType, p.VShape())}
	defer closeAll(t, f.Q, f.K, f.V, f.O, f.LSE, b.DO, b.DQ, b.DK, b.DV)
	require.NoError(t, plan.Backward(bg, b))
	return [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}, want, true
}

func closeTo(t *testing.T, p Problem, got [3][]float32, want *ref.Gradients) {
	t.Helper()
	tolerance := map[DType]float64{F32: 1e-4, F16: 1e-2, BF16: 8e-2}[p.DType]
	for i, right := range [][]float64{want.DQ.Data, want.DK.Data, want.DV.Data} {
		for j, x := range right {
			require.InDelta(t, x, got[i][j], tolerance*math.Max(1, math.Abs(x)), "%s[%d]", [3]string{"dq", "dk", "dv"}[i], j)
		}
	}
}

// TestBlockSparseBackward: whatever the tiles are, and whatever is fetched ahead, gradients are those of float64: masks of whole tiles and
// of others, with empty tiles at the start, in the middle and at the end, wider than a word, of their own for heads and batch entries.
func TestBlockSparseBackward(t *testing.T) {
	d := testDevice(t)
	tiles, odd := Blocks{Queries: 32, Keys: 32, PerHead: true}, Blocks{Queries: 20, Keys: 12, PerHead: true, PerBatch: true}
	problem := func(keys int, dtype DType, causal Causal, b Blocks) Problem {
		return Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: keys, HeadDim: 8, ValueDim: 16, DType: dtype,
			Causal: causal, Blocks: b}
	}
	with := func(p Problem, set func(*Problem)) Problem { set(&p); return p }
	window := func(p *Problem) { p.Window = SlidingWindow(50, 20) }
	capped := func(p *Problem) { p.ScoreFunction = score.Softcap(2) }
	matrix := func(prefetch int, more ...int) map[string]int {
		m := map[string]int{}
		for _, part := range []string{"kv_", "q_"} {
			m[part+"w"], m[part+"rm"], m[part+"bc"], m[part+"ck"], m[part+"prefetch"] = 2, 1, 2, 1, prefetch
		}
		if len(more) > 0 {
			m["form"] = more[0]
		}
		return m
	}
	for _, c := range []struct {
		name string
		p    Problem
		tier Tier
		tune map[string]int
		long bool // -short leaves it out
	}{
		{"as chosen", problem(230, F32, CausalNone, odd), TierScalar, nil, false},
		{"tiles", problem(230, F16, CausalBottomRight, tiles), TierScalar, map[string]int{"kv_br": 32, "kv_bc": 32, "q_br": 32, "q_bc": 32},
			false},
		{"wide", with(problem(90, F32, CausalNone, Blocks{Queries: 2, Keys: 2, PerBatch: true}), window), TierScalar, nil, true},
		{"nothing ahead", problem(230, F16, CausalBottomRight, tiles), TierMatrix, matrix(0), true},
		{"a tile ahead", problem(230, F16, CausalNone, tiles), TierMatrix, matrix(1), true},
		{"a tile ahead, odd", with(problem(230, F16, CausalTopLeft, odd), capped), TierMatrix, matrix(1), true},
		{"two tiles", with(problem(230, F16, CausalNone, tiles), window), TierMatrix, matrix(2), false},
		{"two tiles, odd", with(problem(256, F16, CausalNone, odd), window), TierMatrix, matrix(2), false},
		{"whole", problem(256, F16, CausalNone, tiles), TierMatrix, matrix(2), true},
		{"form 2", problem(230, F16, CausalTopLeft, odd), TierMatrix, matrix(1, 2), true},
		{"form 3", with(problem(230, F16, CausalNone, tiles), capped), TierMatrix, matrix(2, 3), true},
	} {
		t.Run(c.name+"/"+string(c.tier), func(t *testing.T) {
			if c.long {
				vktest.Long(t, "the same ways with other masks")
			}
			vktest.Budget(t)
			p, err := c.p.Normalize()
			require.NoError(t, err)
			if c.tier == TierMatrix {
				c.tune = backwardTile(t, d, Flash, p, c.tune)
			}
			got, want, ok := maskedGradients(t, d, p, countedBits(p.MaskShape()), nil, c.tier, WithBackwardTuning(c.tune))
			if !ok {
				t.Skip("no such kernel here")
			}
			closeTo(t, p, got, want)
		})
	}
}

// TestBlockSparseBackwardSkips: what lies in blocks that are not attended to is not read: NaNs in keys and values that no query attends to
// leave no trace in dq, their own gradients are 0, and so is dq of a row of blocks without any.
func TestBlockSparseBackwardSkips(t *testing.T) {
	d := testDevice(t)
	for _, tier := range []Tier{TierScalar, TierMatrix} {
		p, err := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 192, KeyLen: 320, HeadDim: 16, DType: F16,
			Blocks: Blocks{Queries: 64, Keys: 64}}).Normalize()
		require.NoError(t, err)
		hidden := func(key int) bool { c := key / 64; return c == 0 || c == 2 || c == 3 }
		got, want, ok := maskedGradients(t, d, p, []bool{
			false, true, false, false, true,
			false, false, false, false, false,
			false, true, false, false, false,
		}, func(s *sample) {
			for i := range s.k {
				if hidden(i / p.HeadDim % p.KeyLen) {
					s.k[i], s.v[i] = float32(math.NaN()), float32(math.NaN())
				}
			}
		}, tier)
		if !ok {
			continue
		}
		for i, x := range got[0] {
			require.InDelta(t, want.DQ.Data[i], x, 1e-2)
			if i/p.HeadDim%p.QueryLen/64 == 1 {
				require.Zero(t, x)
			}
		}
		for i := range got[1] {
			if hidden(i / p.HeadDim % p.KeyLen) {
				require.Equal(t, [2]float32{}, [2]float32{got[1][i], got[2][i]}, "key %d", i/p.HeadDim%p.KeyLen)
			}
		}
	}
}

// TestBadBackwardBlockMasks: a backward pass takes the mask of its problem and no other; standard attention has none.
func TestBadBackwardBlockMasks(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, Blocks: Blocks{Queries: 4, Keys: 4}}
	plan := mustPlan(t, d, p)
	x := func() *Tensor { return plainly(t, d)(F32, [4]int{1, 2, 8, 16}) }
	b := Backward{Forward: Forward{Q: x(), K: x(), V: x(), O: x(), LSE: plainly(t, d)(F32, [4]int{1, 2, 8, 1})}, DO: x(), DQ: x(),
		DK: x(), DV: x()}
	for _, input := range []*Tensor{b.Q, b.K, b.V, b.O, b.DO, b.LSE} {
		require.NoError(t, input.Upload(bg, make([]float32, input.Elements())))
	}
	require.ErrorContains(t, plan.Backward(bg, b), "Backward.Blocks is <nil>: must be the mask of the problem's blocks")
	batched := p
	batched.Blocks.PerBatch = true
	other, err := d.NewBlockMask(bg, batched, make([]bool, 4))
	require.NoError(t, err)
	b.Blocks = other
	require.ErrorContains(t, plan.Backward(bg, b), "Backward.Blocks")
	good, err := d.NewBlockMask(bg, p, make([]bool, 4))
	require.NoError(t, err)
	b.Blocks = good
	require.NoError(t, plan.Backward(bg, b))
	for _, x := range []*Tensor{b.DQ, b.DK, b.DV} {
		for _, y := range download(t, x) {
			require.Zero(t, y, "nothing is attended to")
		}
	}
	dense := p
	dense.Blocks = Blocks{}
	require.ErrorContains(t, mustPlan(t, d, dense).Backward(bg, b), "Backward.Blocks")
	require.NoError(t, good.Close())
	require.ErrorIs(t, plan.Backward(bg, b), ErrClosed)
	require.NoError(t, other.Close())
	require.NoError(t, plan.Close())
}

// TestBlockSparseBackwardTile: tiles of both kernels are cut to lie within blocks, the kernel of keys with its rows along the keys of a
// block, and stay as they are where that is no use.
func TestBlockSparseBackwardTile(t *testing.T) {
	for _, c := range []struct {
		keys   bool
		blocks Blocks
		tile   string // rows, columns, subgroups, row fragments
	}{
		{true, Blocks{Queries: 64, Keys: 128}, "128x64 8 1"},
		{true, Blocks{Queries: 128, Keys: 64}, "64x64 4 1"},
		{false, Blocks{Queries: 128, Keys: 64}, "128x64 8 1"},
		{false, Blocks{Queries: 64, Keys: 48}, "64x48 4 1"},
		{true, Blocks{Queries: 32, Keys: 96}, "96x32 6 1"},
		{true, Blocks{Queries: 64, Keys: 16}, "128x64 8 1"},  // too few rows
		{false, Blocks{Queries: 64, Keys: 24}, "128x64 8 1"}, // no whole chunks
	} {
		tile := matrix.BackwardTile{Fragment: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, W: 8, RM: 1, BC: 64, CK: 16,
			Keys: c.keys}.Within(attn.Blocks{Queries: c.blocks.Queries, Keys: c.blocks.Keys, PerHead: c.blocks.PerHead,
			PerBatch: c.blocks.PerBatch})
		require.Equal(t, c.tile, fmt.Sprintf("%v %d %d", &tile, tile.W, tile.RM), "%v, keys %v", c.blocks, c.keys)
	}
}
