package slabs

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/vk"
)

// A fragment, and a layout of it in which accumulators are operands by pairs of components.
var (
	inPairs       = kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}
	layoutOfPairs = kernel.FragmentLayout{AOfComp: []int{0, 1, 2, 3, 4, 5, 6, 7}}
)

// TestKeepingPasses: names are those of the modules; slabs begin at multiples of a power of two of key heads, the kernel of keys goes on
// where it ended before, and stages over further slabs have the pipelines of the first.
func TestKeepingPasses(t *testing.T) {
	c := kerneltest.Hopper()
	c.Facts.Limits.MaxStorageBufferRange = 1 << 30
	c.Facts.Heaps = []vk.Heap{{Size: 1 << 34, DeviceLocal: true}}
	for _, dtype := range []attn.DType{attn.F16, attn.BF16} {
		for _, causal := range []attn.Causal{attn.CausalNone, attn.CausalBottomRight} {
			p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 10, KeyHeads: 5, QueryLen: 100, KeyLen: 700, DType: dtype, Scale: 3,
				ByPosition: attn.ByPosition{Causal: causal}})
			head := 704 * 112 * 2 // bytes, in operands of 16 by 16
			s, err := fitKeeping(&kernel.Env{Caps: *c}, p, inPairs, &layoutOfPairs, kernel.FormRegisters,
				kernel.NewBackwardTuning(map[string]int{kernel.KeepDSParameter: 1, "max_slab": 2*8*head - 1, "kv_heads_together": 3}))
			require.NoError(t, err)
			require.Len(t, s.slabs, 3)
			for i, heads := range []int{8, 8, 4} {
				require.Equal(t, standard.Slab{Head0: 8 * i, Heads: heads, Rows: 700}, s.slabs[i].Slab)
			}
			for _, v := range []pass.Variant{{}, {Aligned: true, Output: true, LSE: true, Accumulate: true}} {
				made := s.pass(v)
				require.NoError(t, made.Check())
				require.Len(t, made.Scratch, 2)
				require.Equal(t, uint64(8*head), made.Scratch[1].Bytes)
				require.Len(t, made.Stages, 1+3*2)
				next := uint32(0)
				for i := 1; i < len(made.Stages); i += 2 {
					keys := made.Stages[i]
					require.Equal(t, next, keys.Grid.First)
					require.Equal(t, 8, keys.Args.Slab.Heads, "of the first slab, for where each head's begins")
					next = keys.Grid.Total
					require.Equal(t, i > 1, keys.Again == 2)
				}
				require.Equal(t, uint32(s.keys.Groups(p)), next)
				slabsHaveTheirOwnBlocks(t, made, int(s.keys.Groups(p))/(p.Batch*p.KeyHeads))
				small, err := s.selfCheck(v)
				require.NoError(t, err)
				require.NoError(t, small.Check())
				require.Len(t, small.Stages, 3)
				require.InDelta(t, p.Scale, made.Stages[2].Args.Factor, 0.003*p.Scale, "but for what is cut off")
				require.InDelta(t, small.Problem.Scale, small.Stages[2].Args.Factor, 0.003*small.Problem.Scale, "the self-check's own")
			}
		}
	}
}

// slabsHaveTheirOwnBlocks: every block of keys is made once, by a workgroup of the slab that has its head, as find_block of
// shaders/include/matrix_backward.glsl numbers them.
func slabsHaveTheirOwnBlocks(t *testing.T, made *pass.Pass, blocks int) {
	t.Helper()
	seen := map[[2]int]bool{}
	for _, kv := range made.Stages {
		if _, keeps := kv.Constants["KEEP_DS"]; !keeps {
			continue
		}
		require.Zero(t, kv.Total, "workgroups that are rounded up end at the slab's end")
		together, heads := kv.Constants["HEADS_TOGETHER"], int(kv.Grid.Total)/blocks
		for id := int(kv.Grid.First); id < int(kv.Grid.Total); id++ {
			head, block := id/blocks, id%blocks
			if together > 1 {
				first, rest := id/(together*blocks)*together, id%(together*blocks)
				members := min(together, heads-first)
				head, block = first+rest%members, rest/members
			}
			require.False(t, seen[[2]int{head, block}])
			seen[[2]int{head, block}] = true
			require.GreaterOrEqual(t, head, int(kv.Grid.First)/blocks)
			require.Less(t, head, int(kv.Grid.Total)/blocks)
		}
	}
	require.NotEmpty(t, seen)
}

// TestKeepingPackedPasses: a slab has heads of all sequences, whose operands lie one sequence behind the other. The kernel of keys goes on
// with each slab where the last one ended, in dispatches of one row, and is told the workgroups of all slabs.
func TestKeepingPackedPasses(t *testing.T) {
	c := kerneltest.Hopper()
	c.Facts.Limits.MaxStorageBufferRange = 1 << 30
	c.Facts.Heaps = []vk.Heap{{Size: 1 << 34, DeviceLocal: true}}
	const blocks = 128 // keys of a block, at the least
	for _, keys := range []int{0, 150, 150_000_000} {
		p := kerneltest.Problem(attn.Problem{Batch: 3, Heads: 10, KeyHeads: 5, QueryLen: 100, KeyLen: 70, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight}, Packed: attn.Packed{Queries: 200, Keys: keys}})
		down := 3 * 80 // rows of keys of a head, in operands of 16 by 16
		if keys > 0 {
			down = (keys + 3*15) / 16 * 16
		}
		head := down * 112 * 2
		tuning := map[string]int{kernel.KeepDSParameter: 1, "max_slab": 2*4*head - 1}
		if keys > 1e6 {
			c.Facts.Limits.MaxStorageBufferRange, c.Facts.Heaps[0].Size, tuning["max_slab"] = 1<<40, 1<<50, 1<<40
		}
		s, err := fitKeeping(&kernel.Env{Caps: *c}, p, inPairs, &layoutOfPairs, kernel.FormRegisters, kernel.NewBackwardTuning(tuning))
		require.NoError(t, err)
		require.Equal(t, uint64(head), s.product.HeadBytes())
		made := s.pass(pass.Variant{})
		require.NoError(t, made.Check())
		require.Len(t, made.Scratch, 4, "delta, dS and two tables")
		require.Len(t, made.Stages, 2+1+2*len(s.slabs))
		next := uint32(0)
		for i, heads := range [][]int{{4, 4, 2}, {10}}[kernel.BoolInt(keys > 1e6)] {
			require.Equal(t, standard.Slab{Head0: 4 * i, Heads: heads, Rows: 70}, s.slabs[i].Slab)
			kv := made.Stages[3+2*i]
			require.Equal(t, next, kv.Grid.First)
			require.Equal(t, uint32(s.keys.Groups(p)), kv.Total)
			for base := kv.Grid.First; base < kv.Grid.Total; base += kv.Grid.Step {
				require.EqualValues(t, 1, kv.Grid.Size(base)[1])
			}
			next = kv.Grid.Total
		}
		require.Equal(t, uint32(s.keys.Groups(p)), next)
		require.GreaterOrEqual(t, int(next), 5*max(keys/blocks, 3))
		small, err := s.selfCheck(pass.Variant{})
		require.NoError(t, err)
		require.NoError(t, small.Check())
	}
}

// TestKeepingTakenByDefault: where nobody says otherwise, it is taken where it was measured to be faster, of problems that it can have.
func TestKeepingTakenByDefault(t *testing.T) {
	bias := attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, true, true, true}}
	apart := kernel.FragmentLayout{AOfComp: []int{0, 2, 1, 3, 4, 6, 5, 7}}
	narrow := func(p *attn.Problem) { p.HeadDim, p.ValueDim = 64, 64 }
	for name, x := range map[string]struct {
		set    func(p *attn.Problem)
		layout *kernel.FragmentLayout
		taken  bool
	}{
		"plain":        {func(p *attn.Problem) {}, &layoutOfPairs, true},
		"few heads":    {func(p *attn.Problem) { p.Batch = 1 }, &layoutOfPairs, false},
		"causal, D 64": {func(p *attn.Problem) { narrow(p); p.Causal, p.Batch = attn.CausalBottomRight, 40 }, &layoutOfPairs, true},
		"packed causal, D 64": {func(p *attn.Problem) {
			narrow(p)
			p.Causal, p.Batch, p.Packed = attn.CausalBottomRight, 40, attn.Packed{Queries: 19000, Keys: 18000}
		}, &layoutOfPairs, false},
		"a window, D 64": {func(p *attn.Problem) { narrow(p); p.Window, p.Batch = attn.NewWindow(100, 0), 40 }, &layoutOfPairs, false},
		"packed":         {func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 9000, Keys: 8000} }, &layoutOfPairs, true},
		"lengths":        {func(p *attn.Problem) { p.KeyLengths = true }, &layoutOfPairs, true},
		"a bias":         {func(p *attn.Problem) { p.Bias = bias }, &layoutOfPairs, false},
		"not by pairs":   {func(p *attn.Problem) {}, &apart, false},
	} {
		p := kerneltest.Problem(attn.Problem{Batch: 20, Heads: 4, KeyHeads: 2, QueryLen: 600, KeyLen: 520, HeadDim: 128, DType: attn.F16})
		x.set(p)
		c := kerneltest.Hopper()
		c.Facts.Limits.MaxStorageBufferRange, c.Facts.Heaps = 1<<32-1, []vk.Heap{{Size: 80 << 30, DeviceLocal: true}}
		_, err := fitKeeping(&kernel.Env{Caps: *c}, p, inPairs, x.layout, kernel.FormRegisters, kernel.NewBackwardTuning(nil))
		var declined *kernel.Declined
		require.Equal(t, !x.taken, errors.As(err, &declined), "%s: %v", name, err)
		if x.taken {
			require.NoError(t, err)
		}
	}
}

// TestUnitIsThatOfShaders: operands of bf16 are cut off by shaders, which say by how much they are smaller then.
func TestUnitIsThatOfShaders(t *testing.T) {
	source, err := os.ReadFile("../../../shaders/include/matrix_types.glsl")
	require.NoError(t, err)
	require.Contains(t, string(source), "const float CUT = 1.0 + 0.7213475 / 256.0;")
	require.InDelta(t, 1+0.7213475/256, new(matrix.Keys).Unit(attn.BF16), 1e-12)
	require.Equal(t, 1.0, new(matrix.Keys).Unit(attn.F16))
}

// TestSwitches: each kernel knows the other's switch. Off it takes nothing away, and insisted on it leaves the problem to the other.
func TestSwitches(t *testing.T) {
	hopper := func() *kernel.Env {
		c := kerneltest.Hopper()
		c.Facts.Limits.MaxStorageBufferRange, c.Facts.Heaps = 1<<32-1, []vk.Heap{{Size: 80 << 30, DeviceLocal: true}}
		return &kernel.Env{Caps: *c}
	}
	of := func(dim int) *attn.Problem {
		return kerneltest.Problem(attn.Problem{Batch: 20, Heads: 4, KeyHeads: 2, QueryLen: 600, KeyLen: 520, HeadDim: dim, DType: attn.F16})
	}
	wide := func(given map[string]int) error {
		tuning := kernel.NewBackwardTuning(given)
		require.NoError(t, tuning.Fits(&Backward.Offer))
		_, err := fit(hopper(), of(256), inPairs, &layoutOfPairs, kernel.FormRegisters, tuning)
		return err
	}
	keeping := func(given map[string]int) error {
		tuning := kernel.NewBackwardTuning(given)
		require.NoError(t, tuning.Fits(&BackwardKeeping.Offer))
		_, err := fitKeeping(hopper(), of(128), inPairs, &layoutOfPairs, kernel.FormRegisters, tuning)
		return err
	}
	require.NoError(t, wide(map[string]int{kernel.KeepDSParameter: 0}))
	require.ErrorContains(t, wide(map[string]int{kernel.KeepDSParameter: 1}), "WithBackwardTuning[keep_ds] asks for dS in memory")
	require.NoError(t, keeping(map[string]int{kernel.SlabsParameter: 0}))
	require.ErrorContains(t, keeping(map[string]int{kernel.SlabsParameter: 1}), "WithBackwardTuning[slabs] asks for P and dS in memory")
	require.ErrorContains(t, keeping(map[string]int{kernel.KeepDSParameter: 0}), "WithBackwardTuning[keep_ds] is 0")
}

// TestProductDeclines: fragments whose operands lanes cannot hold leave the problem to other kernels, whatever else was asked for, and so
// does a problem that dS in memory is not for, before any rule about the product.
func TestProductDeclines(t *testing.T) {
	c := kerneltest.Hopper()
	narrow := kernel.Fragment{M: 16, N: 8, K: 8, Lanes: 32}
	var declined *kernel.Declined
	for _, x := range []struct {
		fragment kernel.Fragment
		window   attn.Window
	}{{narrow, attn.Window{}}, {inPairs, attn.NewWindow(9, 0)}} {
		p := kerneltest.Problem(attn.Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 24, HeadDim: 64, DType: attn.F16})
		p.Window = x.window
		_, err := fitKeeping(&kernel.Env{Caps: *c}, p, x.fragment, &layoutOfPairs, kernel.FormRegisters,
			kernel.NewBackwardTuning(map[string]int{"fm": 16, "fn": 8, "fk": x.fragment.K, "dq_stage": 24}))
		require.ErrorAs(t, err, &declined, "%v", x)
	}
}
