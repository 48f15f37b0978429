package rows

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/kernel"
)

// TestBadAppends: what cannot be is refused with the argument's name.
func TestBadAppends(t *testing.T) {
	d := testDevice(t)
	good := AppendProblem{Batch: 2, KeyHeads: 2, Rows: 20, HeadDim: 64, DType: flash.F16, KeyType: flash.F8E4M3,
		Pages:  flash.Pages{Size: 16, Count: 9, PerSequence: 3},
		Counts: true, Rotary: &Rotary{}, Heads: 4}
	for _, c := range []struct {
		argument string
		spoil    func(*AppendProblem)
	}{
		{"AppendProblem.Batch", func(p *AppendProblem) { p.Batch = 0 }},
		{"AppendProblem.KeyHeads", func(p *AppendProblem) { p.KeyHeads = 0 }},
		{"AppendProblem.Rows", func(p *AppendProblem) { p.Rows = 0 }},
		{"AppendProblem.Rows", func(p *AppendProblem) { p.Tokens = 3 }},
		{"AppendProblem.Counts", func(p *AppendProblem) { p.Rows, p.Tokens = 0, 3 }},
		{"AppendProblem.Tokens", func(p *AppendProblem) { p.Rows, p.Tokens, p.Counts = 0, -3, false }},
		{"AppendProblem.CacheRows", func(p *AppendProblem) { p.CacheRows = 48 }},
		{"AppendProblem.CacheRows", func(p *AppendProblem) { p.Pages = flash.Pages{} }},
		{"AppendProblem.Circular", func(p *AppendProblem) { p.Circular = true }},
		{"AppendProblem.Pages.PerSequence", func(p *AppendProblem) { p.Pages.PerSequence = 1 }},
		{"AppendProblem.Pages.PerSequence", func(p *AppendProblem) { p.Pages.PerSequence = -1 }},
		{"AppendProblem.Pages.Indices", func(p *AppendProblem) { p.Pages.Indices = -1 }},
		{"AppendProblem.Pages.Count", func(p *AppendProblem) { p.Pages.Count = 0 }},
		{"AppendProblem.Pages.Size", func(p *AppendProblem) { p.Pages.Size = 12 }},
		{"AppendProblem.Pages", func(p *AppendProblem) { p.Pages.Indices = 4 }},
		{"AppendProblem.Pages", func(p *AppendProblem) { p.Pages.PerSequence = 0 }},
		{"AppendProblem.DType", func(p *AppendProblem) { p.DType = flash.Q8_0 }},
		{"AppendProblem.KeyType", func(p *AppendProblem) { p.KeyType = flash.BF16 }},
		{"AppendProblem.ValueType", func(p *AppendProblem) { p.ValueType = flash.Bit }},
		{"AppendProblem.ValueType", func(p *AppendProblem) { p.ValueType, p.KeysOnly = flash.Q8_0, true }},
		{"AppendProblem.HeadDim", func(p *AppendProblem) { p.HeadDim, p.KeyType = 80, flash.Q8_0 }},
		{"AppendProblem.ValueDim", func(p *AppendProblem) { p.ValueDim, p.ValueType = 16, flash.Q4_0 }},
		{"AppendProblem.Heads", func(p *AppendProblem) { p.Heads = -1 }},
		{"AppendProblem.Heads", func(p *AppendProblem) { p.Rotary = nil }},
		{"Rotary.Columns", func(p *AppendProblem) { p.Rotary = &Rotary{Columns: 66} }},
	} {
		p := good
		c.spoil(&p)
		_, err := PlanAppend(d, p)
		requireRefused(t, c.argument, err)
	}

	plan, err := PlanAppend(d, good)
	require.NoError(t, err)
	defer plan.Close()
	make := plainly(t, d)
	pool, each := [4]int{9, 2, 16, 64}, [4]int{1, 1, 1, 2}
	rows, queries := [4]int{2, 2, 20, 64}, [4]int{2, 4, 20, 64}
	f := Append{K: make(flash.F16, rows), V: make(flash.F16, rows), KeyCache: make(flash.F8E4M3, pool), ValueCache: make(flash.F16, pool),
		At: integers(t, d, each, []int{0, 1}), Counts: integers(t, d, each, []int{20, 1}),
		PageTable: integers(t, d, [4]int{1, 1, 2, 3}, []int{0, 1, 2, 3, 4, 5}), KeyScales: make(flash.F32, [4]int{1, 1, 2, 2}),
		Q: make(flash.F16, queries), RotatedQ: make(flash.F16, queries)}
	require.NoError(t, f.KeyScales.Upload(t.Context(), []float32{1, 1, 1, 1}))
	require.NoError(t, plan.Append(t.Context(), f))
	both := make(flash.F16, [4]int{10, 2, 16, 64})
	upper, err := both.View(0, flash.F16, pool, [4]int{})
	require.NoError(t, err)
	ints, floats := make(flash.Int32, [4]int{1, 1, 2, 2}), make(flash.F32, [4]int{1, 1, 2, 3})
	for argument, spoil := range map[string]func(*Append){
		"Append.K":           func(f *Append) { f.K = f.Q },
		"Append.V":           func(f *Append) { f.V = nil },
		"Append.KeyCache":    func(f *Append) { f.KeyCache = make(flash.Q8_0, pool) },
		"Append.ValueCache":  func(f *Append) { f.ValueCache = make(flash.F16, [4]int{9, 2, 32, 64}) },
		"Append.At":          func(f *Append) { f.At = nil },
		"Append.Counts":      func(f *Append) { f.Counts = ints },
		"Append.TokenBatch":  func(f *Append) { f.TokenBatch = f.At },
		"Append.PageTable":   func(f *Append) { f.PageTable = floats },
		"Append.PageStarts":  func(f *Append) { f.PageStarts = f.At },
		"Append.KeyScales":   func(f *Append) { f.KeyScales = nil },
		"Append.ValueScales": func(f *Append) { f.ValueScales = f.KeyScales },
		"Append.Q":           func(f *Append) { f.Q = nil },
		"Append.RotatedQ":    func(f *Append) { f.RotatedQ = f.Q },
		"Append.Cos":         func(f *Append) { f.Cos = floats },
		"Append.Positions":   func(f *Append) { f.Positions = ints },
	} {
		f := f
		spoil(&f)
		requireRefused(t, argument, plan.Append(t.Context(), f))
	}
	short := f
	short.PageTable = ints // for two pages of each
	requireRefused(t, "Append.PageTable", plan.Append(t.Context(), short))
	inPlace := f
	inPlace.Q, inPlace.RotatedQ = f.K, nil
	requireRefused(t, "Append.Q", plan.Append(t.Context(), inPlace))

	plain, err := PlanAppend(d, AppendProblem{Batch: 2, KeyHeads: 2, Rows: 20, HeadDim: 64, DType: flash.F16, Pages: good.Pages})
	require.NoError(t, err)
	defer plain.Close()
	lower, err := both.View(uint64(2*16*64*2), flash.F16, pool, [4]int{})
	require.NoError(t, err)
	overlapping := Append{K: f.K, V: f.V, KeyCache: upper, ValueCache: lower, At: f.At, PageTable: f.PageTable}
	requireRefused(t, "Append.KeyCache", plain.Append(t.Context(), overlapping))
	overlapping.ValueCache = upper
	requireRefused(t, "Append.KeyCache", plain.Append(t.Context(), overlapping))
	overlapping.ValueCache = f.V
	requireRefused(t, "Append.ValueCache", plain.Append(t.Context(), overlapping))
}

// appendOfAll is an append that has all there is: pages, queries, quantised keys and values, twice over different tensors.
func appendOfAll(t testing.TB, d *flash.Device) (*Plan, [2]Append) {
	plan, err := PlanAppend(d, AppendProblem{Batch: 2, KeyHeads: 2, Rows: 2, HeadDim: 32, DType: flash.F16,
		KeyType: flash.F8E4M3, ValueType: flash.Q8_0, Counts: true,
		Pages: flash.Pages{Size: 4, Count: 3, Indices: 2}, Rotary: &Rotary{}, Heads: 4})
	require.NoError(t, err)
	var out [2]Append
	make := plainly(t, d)
	ints := func(shape [4]int, values ...float32) *flash.Tensor {
		x := make(flash.Int32, shape)
		require.NoError(t, x.Upload(bg, values))
		return x
	}
	r := rand.New(rand.NewPCG(1, 1))
	floats := func(shape [4]int) *flash.Tensor {
		x := make(flash.F16, shape)
		require.NoError(t, x.Upload(bg, randomValues(r, flash.F16, shape)))
		return x
	}
	for i := range out {
		out[i] = Append{K: floats([4]int{2, 2, 2, 32}), V: floats([4]int{2, 2, 2, 32}), KeyCache: make(flash.F8E4M3, [4]int{3, 2, 4, 32}),
			ValueCache: make(flash.Q8_0, [4]int{3, 2, 4, 32}), At: ints([4]int{1, 1, 1, 2}, 0, 1), Counts: ints([4]int{1, 1, 1, 2}, 2, 1),
			PageTable: ints([4]int{1, 1, 1, 2}, 2, 0), PageStarts: ints([4]int{1, 1, 1, 3}, 0, 1, 2),
			KeyScales: make(flash.F32, [4]int{1, 1, 2, 2}),
			Q:         floats([4]int{2, 4, 2, 32})}
		require.NoError(t, out[i].KeyScales.Upload(bg, []float32{1, 2, 3, 4}))
	}
	return plan, out
}

// TestAppendAllocatesNothing: recording appends again, with other tensors, leaves the garbage collector alone.
func TestAppendAllocatesNothing(t *testing.T) {
	plan, sets := appendOfAll(t, testDevice(t))
	defer plan.Close()
	rec, err := plan.NewRecording()
	require.NoError(t, err)
	i := 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		i++
		if rec.Append(sets[i%2]) != nil || flashtest.Finish(rec.Submit()) != nil {
			t.Error("a run failed")
		}
	}))
	require.Equal(t, 1, plan.program.Dispatches())
}

// TestRowsNeed: quantised caches need 16-bit storage whatever type their rows come in, plain ones for rows of 16 bits alone; and devices
// must have room for all buffers.
func TestRowsNeed(t *testing.T) {
	d := testDevice(t)
	caps := envOf(t, d).Caps
	caps.Enabled.Storage16 = false
	rows := kernel.Rows{Batch: 1, Heads: 1, Rows: 1, Dim: 32, ValueDim: 32}
	require.Empty(t, caps.LacksRows(&rows))
	rows.DType = attn.BF16
	require.Contains(t, caps.LacksRows(&rows), "storageBuffer16BitAccess")
	rows.DType, rows.ValueType = attn.F32, attn.Q4_0
	require.Contains(t, caps.LacksRows(&rows), "storageBuffer16BitAccess")
	facts := *caps.Facts
	facts.Limits.MaxStorageBuffersPerStage = 12
	caps = envOf(t, d).Caps
	caps.Facts = &facts
	require.Contains(t, caps.LacksRows(&rows), "storage buffers")
}
