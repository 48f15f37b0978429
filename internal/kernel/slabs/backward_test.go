package slabs

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/vk"
)

// TestPasses: names are those of the modules, whatever the type of elements and the bias; over each slab the kernel of weights goes on
// where it ended before, and stages over further slabs have the pipelines of the first.
func TestPasses(t *testing.T) {
	c := kerneltest.Hopper()
	c.Facts.Limits.MaxStorageBufferRange = 1 << 30
	c.Facts.Heaps = []vk.Heap{{Size: 1 << 34, DeviceLocal: true}}
	f, l := kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, &kernel.FragmentLayout{}
	for _, dtype := range []attn.DType{attn.F16, attn.BF16} {
		for _, bias := range []attn.PerScore{{}, {In: true, DType: dtype, Own: [4]bool{true, true, true, true}}} {
			p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 100, KeyLen: 70, DType: dtype,
				ByScore: attn.ByScore{Bias: bias}})
			row := 2 * 72 // bytes
			s, err := fit(&kernel.Env{Caps: *c}, p, f, l, kernel.FormRegisters,
				kernel.NewBackwardTuning(map[string]int{kernel.SlabsParameter: 1, "max_slab": 2 * 100 * row}))
			require.NoError(t, err)
			for _, v := range []pass.Variant{{}, {Aligned: true, Output: true, LSE: true, Accumulate: true, DBias: s.weights.MakesBias()}} {
				made := s.pass(v)
				require.NoError(t, made.Check())
				require.Len(t, made.Scratch, 3)
				require.Equal(t, uint64(2*100*row), made.Scratch[1].Bytes)
				require.Len(t, made.Stages, 1+4*4)
				next := uint32(0)
				for i := 1; i < len(made.Stages); i += 4 {
					weights := made.Stages[i]
					require.Equal(t, next, weights.Grid.First)
					next = weights.Grid.Total
					require.Equal(t, i > 1, weights.Again == 4)
				}
				require.Equal(t, uint32(s.groups()), next)
				small, err := s.selfCheck(v)
				require.NoError(t, err)
				require.NoError(t, small.Check())
				require.Len(t, small.Stages, 5)
			}
		}
	}
}

// TestPackedPasses: of packed sequences a slab has key heads of all of them, rows are those of the tensor, blocks are numbered slab by
// slab, and rows that are cut alike have one table.
func TestPackedPasses(t *testing.T) {
	c := kerneltest.Hopper()
	c.Facts.Limits.MaxStorageBufferRange = 1 << 30
	c.Facts.Heaps = []vk.Heap{{Size: 1 << 34, DeviceLocal: true}}
	f, l := kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, &kernel.FragmentLayout{}
	for _, x := range []struct {
		packed attn.Packed
		rows   int
	}{{attn.Packed{Queries: 430, Keys: 390}, 430}, {attn.Packed{Keys: 390}, 500}} {
		p := kerneltest.Problem(attn.Problem{Batch: 5, Heads: 6, KeyHeads: 3, QueryLen: 100, KeyLen: 90, HeadDim: 192, DType: attn.F16,
			Packed: x.packed})
		bytes := x.rows * 96 * 2 // of a head
		s, err := fit(&kernel.Env{Caps: *c}, p, f, l, kernel.FormRegisters,
			kernel.NewBackwardTuning(map[string]int{"max_slab": 4*bytes + 2*bytes - 1}))
		require.NoError(t, err)
		require.Equal(t, []standard.Slab{{Head0: 0, Heads: 4, Rows: x.rows}, {Head0: 4, Heads: 2, Rows: x.rows}},
			[]standard.Slab{s.slabs[0].Slab, s.slabs[1].Slab})
		blocks, of := s.tables()
		require.Equal(t, s.weights.Blocks().Rows, blocks[0].Rows)
		for i, b := range s.products.Blocks() {
			at := blocks[of[i]]
			require.Equal(t, [2]any{b.Keys, b.Rows}, [2]any{at.Keys, at.Rows})
		}
		for i, a := range blocks {
			for _, b := range blocks[:i] {
				require.False(t, a.Keys == b.Keys && a.Rows == b.Rows, "%+v twice", a)
			}
		}
		made := s.pass(pass.Variant{Aligned: true})
		require.NoError(t, made.Check())
		require.Len(t, made.Scratch, 3+len(blocks))
		require.Equal(t, uint64(4*bytes), made.Scratch[1].Bytes)
		require.Len(t, made.Stages, len(blocks)+1+2*4)
		for i, heads := range []uint32{4, 2} {
			weights := made.Stages[len(blocks)+1+4*i]
			require.Equal(t, kernel.Grid{Total: heads * uint32(s.weights.Blocks().Most(p)), Step: weights.Grid.Step}, weights.Grid)
		}
		small, err := s.selfCheck(pass.Variant{})
		require.NoError(t, err)
		require.NoError(t, small.Check())
	}
}

// TestPackedSizes: sizes of P beyond 64 bits are too large, not small.
func TestPackedSizes(t *testing.T) {
	p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 1 << 14, KeyHeads: 1, QueryLen: 1 << 30, KeyLen: 1 << 30, HeadDim: 192,
		DType: attn.F16, Packed: attn.Packed{Queries: 1<<31 - 1, Keys: 1<<31 - 1}})
	_, err := cut(kerneltest.Hopper(), p, kernel.NewBackwardTuning(nil))
	require.ErrorContains(t, err, "P of the heads of a key head takes")
}

// TestTakenByDefault: where nobody says otherwise, batch entries with lengths and packed sequences go by way of memory at the head
// dimensions at which plain batches do, and where a bias is no reason to.
func TestTakenByDefault(t *testing.T) {
	f, l := kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}, &kernel.FragmentLayout{}
	bias := attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, true, true, true}}
	for _, x := range []struct {
		dim   int
		set   func(p *attn.Problem)
		taken bool
	}{
		{128, func(p *attn.Problem) {}, false},
		{128, func(p *attn.Problem) { p.Bias = bias }, true},
		{128, func(p *attn.Problem) { p.KeyLengths, p.Bias = true, bias }, false},
		{136, func(p *attn.Problem) { p.KeyLengths, p.Bias = true, bias }, true},
		{192, func(p *attn.Problem) { p.KeyLengths = true }, true},
		{256, func(p *attn.Problem) { p.QueryLengths = true }, true},
		{264, func(p *attn.Problem) { p.KeyLengths, p.QueryLengths = true, true }, true},
		{128, func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 700, Keys: 800} }, false},
		{192, func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 700, Keys: 800} }, true},
		{192, func(p *attn.Problem) { p.Packed, p.Bias = attn.Packed{Queries: 700, Keys: 800}, bias }, false},
		{576, func(p *attn.Problem) { p.Packed = attn.Packed{Queries: 700} }, true},
	} {
		p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 600, KeyLen: 520, HeadDim: x.dim, DType: attn.F16})
		x.set(p)
		c := kerneltest.Hopper()
		c.Facts.Limits.MaxStorageBufferRange, c.Facts.Heaps = 1<<32-1, []vk.Heap{{Size: 80 << 30, DeviceLocal: true}}
		_, err := fit(&kernel.Env{Caps: *c}, p, f, l, kernel.FormRegisters, kernel.NewBackwardTuning(nil))
		var declined *kernel.Declined
		require.Equal(t, !x.taken, errors.As(err, &declined), "%v: %v", p, err)
		if x.taken {
			require.NoError(t, err)
		}
	}
}
