package flash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestBlockSparseSkips: what lies in blocks that no query attends to is not read: NaNs there leave no trace, and a row of blocks without
// any gives o = 0 and lse = −∞.
func TestBlockSparseSkips(t *testing.T) {
	d := testDevice(t)
	for _, tier := range []Tier{TierScalar, TierMatrix} {
		for _, dtype := range []DType{F32, F16} {
			p, err := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 192, KeyLen: 320, HeadDim: 16, DType: dtype,
				Blocks: Blocks{Queries: 64, Keys: 64}}).Normalize()
			require.NoError(t, err)
			plan, err := d.Plan(p, WithTier(tier))
			if tier == TierMatrix && errors.Is(err, ErrUnsupported) {
				t.Log(err)
				continue
			}
			require.NoError(t, err)
			t.Log(plan)
			require.Equal(t, [3]int{1, 3, 5}, p.MaskShape())
			mask, err := d.NewBlockMask(bg, p, []bool{
				false, true, false, false, true,
				false, false, false, false, false,
				false, true, false, false, false,
			})
			require.NoError(t, err)
			n, of := mask.Nonzero()
			require.Equal(t, [2]int{3, 15}, [2]int{n, of})
			s := newSample(t, p)
			for h := range p.Heads {
				for j := range p.KeyLen {
					if c := j / 64; c == 0 || c == 2 || c == 3 {
						for x := range p.HeadDim {
							s.k[(h*p.KeyLen+j)*p.HeadDim+x] = float32(math.NaN())
							s.v[(h*p.KeyLen+j)*p.HeadDim+x] = float32(math.NaN())
						}
					}
				}
			}
			f := s.tensors(t, d, plainly(t, d))
			f.Blocks = mask
			pending, err := plan.SubmitForward(f)
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			o, lse := download(t, f.O), download(t, f.LSE)
			for i, x := range o {
				row := i / p.HeadDim % p.QueryLen
				require.False(t, math.IsNaN(float64(x)), "row %d", row)
				require.Equal(t, row/64 == 1, x == 0, "row %d", row)
			}
			for i, x := range lse {
				require.Equal(t, i%p.QueryLen/64 == 1, math.IsInf(float64(x), -1), "row %d: %v", i%p.QueryLen, x)
			}
			require.NoError(t, mask.Close())
			_, err = plan.SubmitForward(f)
			require.ErrorIs(t, err, ErrClosed)
			require.NoError(t, plan.Close())
		}
	}
}

// TestBlockSparseTile: tiles are cut to lie within blocks of the usual sizes, and stay as they are where that is no use.
func TestBlockSparseTile(t *testing.T) {
	for _, c := range []struct {
		blocks Blocks
		tile   string // rows, keys, subgroups, row fragments
	}{
		{Blocks{Queries: 128, Keys: 128}, "128x64 4 2"},
		{Blocks{Queries: 64, Keys: 64}, "64x64 4 1"},
		{Blocks{Queries: 256, Keys: 32}, "256x32 8 2"},
		{Blocks{Queries: 48, Keys: 48}, "48x48 3 1"},
		{Blocks{Queries: 96, Keys: 80}, "96x80 6 1"},
		{Blocks{Queries: 16, Keys: 64}, "256x128 8 2"}, // too few rows
		{Blocks{Queries: 64, Keys: 24}, "256x128 8 2"}, // no whole fragments
	} {
		p := Problem{Batch: 1, Heads: 16, QueryLen: 8192, HeadDim: 64, ValueDim: 64, DType: F16, Blocks: c.blocks}
		tile := matrix.Tile{Fragment: kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, W: 8, RM: 2, BC: 128, CK: 16,
			Prefetch: 1}.Within(attnOf(p))
		require.Equal(t, c.tile, fmt.Sprintf("%dx%d %d %d", tile.Rows(), tile.BC, tile.W, tile.RM), "%v", c.blocks)
	}
}

// TestPackMask: bits stand where the shader looks for them.
func TestPackMask(t *testing.T) {
	shape := [3]int{2, 3, 70}
	bits := make([]bool, 2*3*70)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range bits {
		bits[i] = random.IntN(2) == 0
	}
	const each = 3*3 + 70 // words of a mask: three rows of 70 bits, then 70 columns of three
	words := make([]uint32, 2*each)
	raw := kernel.PackMask(shape, bits)
	require.Len(t, raw, 4*len(words))
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(raw[4*i:])
	}
	for i, bit := range bits {
		h, r, c := i/210, i/70%3, i%70
		require.Equal(t, bit, words[h*each+r*3+c/32]>>(c%32)&1 == 1, "bit %d", i)
		require.Equal(t, bit, words[h*each+9+c]>>r&1 == 1, "bit %d of a column", i)
	}
	for h := range 2 {
		for row := range 3 {
			require.Zero(t, words[h*each+row*3+2]>>6, "beyond the last column")
		}
		for c := range 70 {
			require.Zero(t, words[h*each+9+c]>>3, "beyond the last row")
		}
	}
}

// TestBadBlockMasks: what does not fit gives an error that names the argument.
func TestBadBlockMasks(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, Blocks: Blocks{Queries: 4, Keys: 4}}
	_, err := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, Blocks: Blocks{Keys: 4}}.Normalize()
	require.ErrorContains(t, err, "Problem.Blocks.Queries is 0")
	for _, impl := range []Implementation{Standard, Flash1} {
		_, err = d.Plan(p, WithImplementation(impl))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "it has no block mask")
	}
	_, err = d.Attention(bg, nil, nil, nil, p)
	require.ErrorContains(t, err, "needs a block mask")
	dense := p
	dense.Blocks = Blocks{}
	require.Zero(t, dense.MaskShape())

	plan := mustPlan(t, d, p)
	require.Equal(t, Flash, plan.Implementation())
	require.NotContains(t, plan.String(), "it has no block mask", "of kernels that have a sibling which has one")
	f := newSample(t, p).tensors(t, d, plainly(t, d))
	require.ErrorContains(t, plan.Forward(bg, Forward{Q: f.Q, K: f.K, V: f.V, O: f.O}),
		"Forward.Blocks is <nil>: must be the mask of the problem's blocks")
	_, err = d.NewBlockMask(bg, p, make([]bool, 3))
	require.ErrorContains(t, err, "len(bits) is 3: must be 4")
	_, err = d.NewBlockMask(bg, dense, nil)
	require.ErrorContains(t, err, "Problem.Blocks")

	heads := p
	heads.Blocks.PerHead = true
	perHead, err := d.NewBlockMask(bg, heads, make([]bool, 8))
	require.NoError(t, err)
	other := testDevice(t)
	foreign, err := other.NewBlockMask(bg, p, make([]bool, 4))
	require.NoError(t, err)
	good, err := d.NewBlockMask(bg, p, make([]bool, 4))
	require.NoError(t, err)
	for _, m := range []*BlockMask{nil, {}, perHead, foreign} {
		f.Blocks = m
		_, err = plan.SubmitForward(f)
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "Forward.Blocks")
	}
	f.Blocks = good
	_, err = mustPlan(t, d, dense).SubmitForward(f)
	require.ErrorContains(t, err, "Forward.Blocks")
	pending, err := plan.SubmitForward(f)
	require.NoError(t, err)
	require.NoError(t, pending.Wait(bg))
	require.NoError(t, good.Close())
	require.NoError(t, good.Close())
	require.NoError(t, (*BlockMask)(nil).Close())
	require.NotEmpty(t, (*BlockMask)(nil).String())

	_, err = d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, DType: F16, Blocks: Blocks{Queries: 4, Keys: 4}},
		WithTier(TierMatrix), WithTuning(map[string]int{"pack": 1}))
	if !errors.Is(err, ErrUnsupported) { // a device without matrices
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "WithTuning[pack]")
	}
}

// TestBlockSparseTunings: whatever is fetched ahead, with blocks of whole tiles and of others, causal or not, masks with empty tiles at
// the start, in the middle and at the end give what attention in float64 gives.
func TestBlockSparseTunings(t *testing.T) {
	vktest.Long(t, "block masks of the conformance suite")
	d := testDevice(t)
	problem := func(keys int, causal Causal, b Blocks) Problem {
		return Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 75, KeyLen: keys, HeadDim: 8, DType: F16, Causal: causal, Blocks: b}
	}
	tiles, odd := Blocks{Queries: 16, Keys: 32, PerHead: true}, Blocks{Queries: 20, Keys: 12, PerHead: true}
	for name, c := range map[string]struct {
		p      Problem
		tuning map[string]int
	}{
		"nothing ahead": {problem(230, CausalBottomRight, tiles), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 0}},
		"a tile ahead": {problem(230, CausalNone, tiles), map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 1,
			"pipe": 1}},
		"a tile ahead, whole": {problem(256, CausalNone, tiles), map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 1}},
		"keys ahead": {problem(230, CausalTopLeft, tiles), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 2,
			"max_first": 1}},
		"two tiles ahead":     {problem(256, CausalNone, tiles), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 3}},
		"two ahead, diagonal": {problem(230, CausalBottomRight, tiles), map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 3}},
		"two ahead, odd": {problem(230, CausalBottomRight, odd), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 3,
			"form": 2}},
		"a tile ahead, odd": {problem(256, CausalNone, odd), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 1,
			"form": 3}},
		"at the start, odd": {problem(230, CausalNone, odd), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 4,
			"steps": 1}},
		"at the start, whole": {problem(256, CausalBottomRight, tiles), map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 4,
			"steps": 1, "whole": 1}},
		"under a branch": {problem(256, CausalTopLeft, tiles), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 5,
			"whole": 1}},
		"masks may not be off": {problem(256, CausalNone, odd), map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "keep_masks": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "nothing ahead", "under a branch", "two tiles ahead", "a tile ahead, whole", "two ahead, diagonal", "a tile ahead, odd",
				"at the start, odd", "masks may not be off":
				vktest.Long(t, "the same ways with other masks")
			}
			vktest.Budget(t)
			p, err := c.p.Normalize()
			require.NoError(t, err)
			plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, c.tuning)))
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			shape := p.MaskShape()
			for mask, bit := range map[string]func(h, r, c int) bool{
				"thirds":  kernel.SelfCheckBlock,
				"nothing": func(_, _, _ int) bool { return false },
			} {
				var bits []bool
				for i := range shape[0] * shape[1] * shape[2] {
					bits = append(bits, bit(i/shape[2]/shape[1], i/shape[2]%shape[1], i%shape[2]))
				}
				m, err := d.NewBlockMask(bg, p, bits)
				require.NoError(t, err)
				s := newSample(t, p)
				f := s.tensors(t, d, plainly(t, d))
				f.Blocks = m
				pending, err := plan.SubmitForward(f)
				require.NoError(t, err)
				require.NoError(t, pending.Wait(bg))
				o, lse := download(t, f.O), download(t, f.LSE)
				if mask == "thirds" {
					s.in.Blocks = kernel.SelfCheckInputs(attnOf(p)).Blocks
					wrong, err := kernel.CompareForward(attnOf(p), &s.in, o, lse)
					require.NoError(t, err)
					require.Empty(t, wrong)
				} else {
					for _, x := range o {
						require.Zero(t, x)
					}
					for _, x := range lse {
						require.True(t, math.IsInf(float64(x), -1))
					}
				}
				require.NoError(t, m.Close())
			}
			require.NoError(t, plan.Close())
		})
	}
}
