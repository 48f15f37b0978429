package standard

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// TestRefusals: what standard attention cannot compute it refuses by name, in both tiers and passes, and computes the rest.
func TestRefusals(t *testing.T) {
	for _, o := range []*kernel.Offer{&Scalar.Offer, &Matrix.Offer, &ScalarBackward.Offer, &MatrixBackward.Offer} {
		refused := []string{"block mask", "pages of keys and values", "quantised keys or values",
			"packed sequences", "lists of keys"}
		if o == &ScalarBackward.Offer || o == &MatrixBackward.Offer {
			refused = append(refused, "largest score of each head")
		}
		kerneltest.Refuses(t, o, attn.Problem{}, refused...)
	}
	require.Empty(t, Scalar.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{})))
	require.Contains(t, Matrix.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{DType: attn.F16})), "1.3 is needed")
}

// TestSlabs: slabs have every row of every head once, none is larger than it may be, and none is smaller than it need be but the last.
func TestSlabs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads, rows, rowBytes := rapid.IntRange(1, 40).Draw(t, "heads"), rapid.IntRange(1, 60).Draw(t, "rows"),
			uint64(rapid.IntRange(1, 500).Draw(t, "bytes of a row"))
		most := rowBytes + uint64(rapid.IntRange(0, 40000).Draw(t, "more"))
		slabs, err := CutSlabs(heads, rows, rowBytes, most)
		require.NoError(t, err)
		at, least := 0, uint64(heads*rows)*rowBytes/most
		for _, s := range slabs {
			require.Equal(t, at, s.Head0*rows+s.Row0, "one behind the other")
			require.True(t, s.Heads == 1 || s.Rows == rows, "whole heads, or rows of one")
			require.LessOrEqual(t, uint64(s.Heads*s.Rows)*rowBytes, most)
			at += s.Heads * s.Rows
		}
		require.Equal(t, heads*rows, at)
		require.LessOrEqual(t, uint64(len(slabs)), 2*(least+1)*uint64(max(1, heads)), "no more than rows and heads make necessary")
	})
	_, err := CutSlabs(3, 4, 1001, 1000)
	var no *pipeline.MemoryError
	require.ErrorAs(t, err, &no)
	require.Equal(t, uint64(1001), no.Needed)
	_, ok := ScoreBytes(math.MaxInt32, math.MaxInt32, 1<<20)
	require.False(t, ok, "more than 64 bits count")
}

// withMemory is a device with so much memory, of which a binding holds as much.
func withMemory(c *kernel.Capabilities, memory, binding uint64) *kernel.Env {
	c.Facts.Heaps = []vk.Heap{{Size: memory, DeviceLocal: true}}
	c.Facts.Limits.MaxStorageBufferRange = binding
	c.Facts.Limits.MaxWorkgroupCount = [3]uint32{65535, 65535, 65535}
	return &kernel.Env{Caps: *c}
}

// TestWorkspace: the matrix of scores is the workspace, all of it, in as many buffers as bindings ask for; what the device has no memory
// for is refused with what it needs.
func TestWorkspace(t *testing.T) {
	p := kerneltest.Problem(attn.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: 100, KeyLen: 61, DType: attn.F16})
	const all = 3 * 4 * 100 * 64 * 2 // rows of whole eights
	plan := func(memory, binding uint64, given map[string]int) (*Program, error) {
		e, tuning := withMemory(kerneltest.Hopper(), memory, binding), kernel.NewTuning(given)
		tile, err := ChooseScalarTile(&e.Caps, p, tuning)
		require.NoError(t, err)
		return New(e, p, &tile, tuning)
	}
	for _, binding := range []uint64{1 << 30, all / 2, all / 5, 128} {
		s, err := plan(1<<30, binding, nil)
		require.NoError(t, err)
		sum := uint64(0)
		for _, size := range s.Scratch() {
			require.LessOrEqual(t, size, binding)
			sum += size
		}
		require.Equal(t, uint64(all), sum)
		require.Equal(t, s.Scratch(), s.Kept(), "which a backward pass goes on with")
		require.GreaterOrEqual(t, s.Dispatches(), 3*len(s.Scratch()))
	}
	s, err := plan(1<<30, 1<<30, map[string]int{"max_slab": 10000})
	require.NoError(t, err)
	require.Greater(t, len(s.Scratch()), all/10000)
	_, err = plan(1<<30, 1<<30, map[string]int{"max_slab": 100})
	require.ErrorContains(t, err, "must hold a row of scores, 128 bytes")
	_, err = plan(all-1, 1<<30, nil)
	var no *pipeline.MemoryError
	require.ErrorAs(t, err, &no)
	require.Equal(t, [2]uint64{all, all - 1}, [2]uint64{no.Needed, no.Available})
}

// TestTiles: every device gets tiles that keep to its limits, and kernels are specialized with their numbers.
func TestTiles(t *testing.T) {
	for name, c := range kerneltest.Devices() {
		for _, dim := range []int{1, 20, 64, 128, 256} {
			for _, queries := range []int{1, 40, 3000} {
				p := kerneltest.Problem(attn.Problem{QueryLen: queries, KeyLen: 77, HeadDim: dim, DType: attn.F16})
				what := fmt.Sprintf("%s: %d, %d queries", name, dim, queries)
				tile, err := ChooseScalarTile(c, p, kernel.NewTuning(nil))
				require.NoError(t, err, what)
				require.Empty(t, tile.Check(p, &c.Facts.Limits), what)
				rows, columns := tile.scoresBlock()
				scores := tile.Scores(p, true).Constants
				require.Equal(t, [4]int{tile.scoresThreads(), rows, columns, 1}, [4]int{scores["WG"], scores["BR"], scores["BC"],
					scores["ALIGNED"]}, what)
				require.LessOrEqual(t, 16*tile.scoresShared(), int(c.Facts.Limits.MaxSharedMemory), what)
				require.LessOrEqual(t, 16*tile.productShared(p.ValueDim), int(c.Facts.Limits.MaxSharedMemory), what)
			}
		}
	}
	p := kerneltest.Problem(attn.Problem{QueryLen: 100})
	for rule, given := range map[string]map[string]int{
		"br = 30 must be a multiple of mr = 4":     {"br": 30, "mr": 4},
		"bc = 24 must be an even multiple of mc":   {"bc": 24, "mc": 8},
		"mr and product_mr must be at least 1, mc": {"mc": 6},
	} {
		_, err := ChooseScalarTile(kerneltest.Hopper(), p, kernel.NewTuning(given))
		require.ErrorContains(t, err, rule)
	}
}

// TestPasses: whatever a problem has, the names in its passes are those of the modules, in both tiers; stages over further slabs have the
// pipelines of the first.
func TestPasses(t *testing.T) {
	c := kerneltest.Hopper()
	env, fragment := withMemory(c, 1<<30, 1<<30), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	check := func(what string, made *pass.Pass, each int, slabs int) {
		t.Helper()
		require.NoError(t, made.Check(), what)
		require.Len(t, made.Stages, each*slabs, what)
		for i, s := range made.Stages {
			require.Equal(t, kernel.BoolInt(i >= each)*each, s.Again, what)
		}
	}
	for what, with := range kerneltest.Features() {
		with.DType = attn.F16
		p := kerneltest.Problem(with)
		if Scalar.Refuses(p) != "" {
			continue
		}
		slopes, ofScores := kernel.BoolInt(p.Features()&attn.WithSlopes != 0), kernel.BoolInt(p.Features()&attn.OfScores != 0 || p.Padded())
		tile, err := ChooseScalarTile(c, p, kernel.NewTuning(nil))
		require.NoError(t, err)
		onMatrices, err := ChooseMatrixTile(c, p, fragment, kernel.NewTuning(nil))
		require.NoError(t, err)
		gradients, err := chooseStandardBackwardTile(c, p)
		require.NoError(t, err)
		gradientsOnMatrices, err := ChooseMatrixGradients(c, p, fragment, kernel.NewTuning(nil))
		require.NoError(t, err)
		for shape, backward := range map[standardShape]standardBackwardShape{&tile: &gradients, &onMatrices: gradientsOnMatrices} {
			s, err := New(env, p, shape, kernel.NewTuning(map[string]int{"max_slab": p.QueryLen * PitchOf(p) * p.DType.Size()}))
			require.NoError(t, err)
			b, err := fitGradients(env, p, s, backward, kernel.NewBackwardTuning(nil))
			require.NoError(t, err)
			slabs := p.Batch * p.Heads
			for i := range 16 {
				v := pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0, Accumulate: i&8 > 0}
				forward := s.pass(v)
				if p.MaxLogit { // which are -inf before any slab
					require.Equal(t, kernel.MaxLogitLabel, forward.Stages[0].Label)
					forward.Stages = forward.Stages[1:]
				}
				check(what, forward, 3, slabs)
				check(what, s.passOfScores(v), 1+ofScores, slabs)
				made := b.pass(v)
				check(what, made, 5+slopes, slabs)
				require.Len(t, made.Scratch, (1+slopes)*slabs, what)
				sum := made.Stages[slopes+int(gradKeys)].Bind[2]
				require.Equal(t, pass.Bind{Name: sum.Name, To: "DK", Mode: v.Written()}, sum, what)
				require.Equal(t, pipeline.ReadWrite, made.Stages[len(made.Stages)-1].Bind[2].Mode, "%s: every slab may add to dK", what)
			}
		}
	}
}
