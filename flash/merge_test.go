package flash

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// merging is a merge with guarded tensors and what is right of it.
type merging struct {
	p      MergeProblem
	o, lse []*guarded // of the parts
	out    Merge
	result [2]*guarded // o and lse, noise until the merge
}

// newMerging draws parts: with −∞ in some rows of each, where o is NaN, and in all parts of others; lse around far apart for some rows.
func newMerging(t *testing.T, d *Device, r *rand.Rand, p MergeProblem, layout func(tensor int) int, far float64) *merging {
	t.Helper()
	m := &merging{p: p}
	partType, resultType := p.DType, p.DType
	if p.PartsF32 {
		partType = F32
	}
	if p.ResultF32 {
		resultType = F32
	}
	batch := p.Batch
	if p.Stacked {
		batch *= p.Parts
	}
	var err error
	for n := range p.tensors() {
		o := newGuarded(t, d, r, partType, [4]int{batch, p.Heads, p.QueryLen, p.ValueDim}, layout(n))
		lse := newGuarded(t, d, r, F32, [4]int{batch, p.Heads, p.QueryLen, 1}, 0)
		if n%2 == 1 || p.Stacked { // batch entries and heads exchanged, with gaps
			lse.strides = [4]int{p.QueryLen, batch*p.QueryLen + 2, 1, 1}
			lse.values = append(lse.values, make([]float32, 2*p.Heads)...)
			lse.whole, err = d.NewTensor(F32, 1, 1, 1, len(lse.values))
			require.NoError(t, err)
			lse.tensor, err = lse.whole.View(uint64(4*lse.offset), F32, lse.shape, lse.strides)
			require.NoError(t, err)
		}
		for b := range batch {
			for h := range p.Heads {
				for i := range p.QueryLen {
					x := &lse.values[lse.row(b, h, i)]
					shift := (h + i) % 3
					if i%2 == 1 { // other parts of the row elsewhere
						shift = (h + i + n + b/p.Batch) % 3
					}
					*x = float32(3*r.NormFloat64() + far*float64(shift-1))
					if (b%p.Batch+h+i)%5 == 0 || r.IntN(4) == 0 {
						*x = float32(math.Inf(-1))
						for c := range p.ValueDim {
							o.values[o.row(b, h, i)+c] = float32(math.NaN())
						}
					}
				}
			}
		}
		o.send(t)
		lse.send(t)
		m.o, m.lse = append(m.o, o), append(m.lse, lse)
		m.out.Parts = append(m.out.Parts, Part{O: o.tensor, LSE: lse.tensor})
	}
	m.result[0] = newGuarded(t, d, r, resultType, [4]int{p.Batch, p.Heads, p.QueryLen, p.ValueDim}, layout(p.Parts))
	m.result[1] = newGuarded(t, d, r, F32, [4]int{p.Batch, p.Heads, p.QueryLen, 1}, 0)
	m.out.O, m.out.LSE = m.result[0].tensor, m.result[1].tensor
	return m
}

// part gives where part n has its numbers for batch entry b.
func (m *merging) part(n, b int) (o, lse *guarded, entry int) {
	if m.p.Stacked {
		return m.o[0], m.lse[0], n*m.p.Batch + b
	}
	return m.o[n], m.lse[n], b
}

// check compares buffers of the results, every element of them, with float64. Weights are exponentials in fp32 of differences of fp32
// numbers, each off by some 2⁻²³, and so are sums of them, relative to sums of absolute values.
func (m *merging) check(t *testing.T) {
	t.Helper()
	p := &m.p
	want, off := [2][]float64{wide(m.result[0].values), wide(m.result[1].values)}, [2]map[int]float64{{}, {}}
	dtype := p.DType
	if p.ResultF32 {
		dtype = F32
	}
	empty, full := 0, 0
	for b := range p.Batch {
		for h := range p.Heads {
			for i := range p.QueryLen {
				top, sum := math.Inf(-1), 0.0
				of := make([]float64, p.Parts)
				for n := range of {
					_, lse, entry := m.part(n, b)
					of[n] = float64(lse.values[lse.row(entry, h, i)])
					top = max(top, of[n])
				}
				for _, x := range of {
					if top > math.Inf(-1) {
						sum += math.Exp(x - top)
					}
				}
				o, lse := make([]float64, p.ValueDim), math.Inf(-1)
				size := make([]float64, p.ValueDim) // of the terms together
				if sum > 0 {
					full++
					lse = top + math.Log(sum)
					for n, x := range of {
						if math.IsInf(x, -1) {
							continue
						}
						part, _, entry := m.part(n, b)
						for c := range o {
							term := math.Exp(x-lse) * float64(part.values[part.row(entry, h, i)+c])
							o[c] += term
							size[c] += math.Abs(term)
						}
					}
				} else {
					empty++
				}
				for c := range o {
					at := m.result[0].row(b, h, i) + c
					want[0][at] = o[c]
					if off[0][at] = 2e-6 * size[c]; sum > 0 {
						off[0][at] += refTypes[dtype].Ulp(o[c]) / 2
					}
				}
				at := m.result[1].row(b, h, i)
				want[1][at] = lse
				if sum > 0 { // else −∞ exactly
					off[1][at] = 1e-6 + refTypes[F32].Ulp(lse)
				}
			}
		}
	}
	require.NotZero(t, empty)
	require.NotZero(t, full)
	for i, g := range m.result {
		got := make([]float32, len(g.values))
		require.NoError(t, g.whole.Download(t.Context(), got))
		for e, x := range got {
			if float64(x) == want[i][e] {
				continue
			}
			if x != x || math.Abs(float64(x)-want[i][e]) > off[i][e] || math.IsInf(want[i][e], 0) {
				t.Fatalf("element %d of result %d is %v and should be %v, within %g", e, i, x, want[i][e], off[i][e])
			}
		}
	}
	for i := range m.o { // inputs stay
		m.o[i].unchanged(t)
		m.lse[i].unchanged(t)
	}
}

// unchanged compares the buffer with what was sent, NaN by NaN.
func (g *guarded) unchanged(t *testing.T) {
	t.Helper()
	got := make([]float32, len(g.values))
	require.NoError(t, g.whole.Download(t.Context(), got))
	require.True(t, slices.EqualFunc(got, g.values, func(a, b float32) bool { return a == b || a != a && b != b }))
}

// TestMerge: any number of parts, in tensors of their own and stacked, of every type and mixture of types, aligned and not, with head and
// row exchanged, −∞ here and there and everywhere, and lse near and far, are merged as float64 says, and nothing else is touched; again
// with the same bits.
func TestMerge(t *testing.T) {
	d := testDevice(t)
	for i, c := range []struct {
		parts, dim int
		stacked    bool
		far        float64
	}{
		{1, 16, false, 0}, {2, 64, false, 0}, {3, 5, false, 1e4}, {4, 24, false, 80}, {7, 16, false, 1e4}, {33, 8, false, 0},
		{33, 3, false, 20},
		{1, 7, true, 0}, {2, 32, true, 1e4}, {7, 9, true, 0}, {33, 16, true, 10},
	} {
		for k, types := range []MergeProblem{{DType: F32}, {DType: F16}, {DType: BF16}, {DType: F16, PartsF32: true},
			{DType: BF16, ResultF32: true},
			{DType: BF16, PartsF32: true}, {DType: F16, ResultF32: true}} {
			if testing.Short() && (i+k)%4 != 0 {
				continue // each number of parts, and each type
			}
			t.Run(fmt.Sprint(c.parts, "x", c.dim, c.stacked, types.DType, types.PartsF32, types.ResultF32), func(t *testing.T) {
				p := types
				p.Parts, p.Stacked, p.Batch, p.Heads, p.QueryLen, p.ValueDim = c.parts, c.stacked, 2, 3, 5, c.dim
				r := rand.New(rand.NewPCG(uint64(c.parts), uint64(k)))
				plan, err := d.PlanMerge(p)
				require.NoError(t, err)
				defer plan.Close()
				require.Equal(t, c.parts > 4 && !c.stacked, plan.WorkspaceBytes() > 0)
				mixed := func(tensor int) int { return (tensor + k) % 4 }
				units := func(int) int { return inUnits }
				for _, layout := range []func(int) int{mixed, units} {
					m := newMerging(t, d, r, p, layout, c.far)
					var bits [2][]byte
					for i := range bits {
						for _, g := range m.result {
							g.send(t)
						}
						require.NoError(t, plan.Merge(t.Context(), m.out))
						m.check(t)
						bits[i] = make([]byte, m.out.O.Bytes())
						require.NoError(t, m.out.O.DownloadBytes(t.Context(), bits[i]))
					}
					require.Equal(t, bits[0], bits[1])
				}
			})
		}
	}
}

// TestMergeRecordings: recordings of merges run again and again without allocating, in a command buffer of the caller's too, and end with
// their plan.
func TestMergeRecordings(t *testing.T) {
	d := testDevice(t)
	p := MergeProblem{Parts: 9, Batch: 2, Heads: 2, QueryLen: 5, ValueDim: 16, DType: F16}
	plan, err := d.PlanMerge(p)
	require.NoError(t, err)
	require.Equal(t, uint64(2*2*5*(4*16+16)), plan.WorkspaceBytes())
	r := rand.New(rand.NewPCG(1, 1))
	units := func(int) int { return inUnits }
	sets := [2]*merging{newMerging(t, d, r, p, units, 0), newMerging(t, d, r, p, units, 5)}
	rec, err := plan.NewRecording()
	require.NoError(t, err)
	requireRefused(t, "Recording", finish(rec.Submit()))
	requireRefused(t, "Recording", rec.Record(1))
	i := 0
	again := func() {
		i++
		if rec.Merge(sets[i%2].out) != nil || finish(rec.Submit()) != nil {
			t.Error("a run failed")
		}
	}
	again()
	again()
	require.Zero(t, testing.AllocsPerRun(20, again))
	for _, m := range sets {
		m.check(t)
	}
	require.NoError(t, plan.Merge(t.Context(), sets[0].out))
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if plan.Merge(bg, sets[0].out) != nil {
			t.Error("a run failed")
		}
	}))

	for _, g := range sets[1].result {
		g.send(t)
	}
	require.NoError(t, rec.Merge(sets[1].out))
	requireRefused(t, "cmd", rec.Record(0))
	pool, err := d.dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	fence, err := d.dev.NewFence(false)
	require.NoError(t, err)
	defer fence.Close()
	require.NoError(t, cmd.Begin(true))
	require.NoError(t, rec.Record(cmd.Handle()))
	require.NoError(t, cmd.End())
	require.NoError(t, d.dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}, Fence: fence}))
	require.NoError(t, fence.Wait(time.Minute))
	sets[1].check(t)

	require.NoError(t, rec.Merge(sets[0].out))
	pending, err := rec.Submit()
	require.NoError(t, err)
	require.ErrorIs(t, rec.Merge(sets[0].out), ErrInFlight)
	require.NoError(t, pending.Wait(t.Context()))
	require.NoError(t, sets[0].out.Parts[3].LSE.Close())
	require.ErrorIs(t, finish(rec.Submit()), ErrClosed)
	require.NoError(t, rec.Close())
	require.NoError(t, rec.Close())
	require.ErrorIs(t, rec.Merge(sets[1].out), ErrClosed)
	require.NoError(t, plan.Merge(t.Context(), sets[1].out))
	require.NoError(t, plan.Close())
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Merge(t.Context(), sets[1].out), ErrClosed)
	_, err = plan.NewRecording()
	require.ErrorIs(t, err, ErrClosed)
}

// TestDeviceMerge: the call without a plan takes problem and types from the tensors; lse may be left out, and is right to be left out.
func TestDeviceMerge(t *testing.T) {
	d := testDevice(t)
	units := func(int) int { return inUnits }
	for i, p := range []MergeProblem{{DType: F32, Parts: 2}, {DType: F16, Parts: 5, PartsF32: true},
		{DType: BF16, Parts: 3, ResultF32: true},
		{DType: F16, Parts: 6, Stacked: true}, {DType: BF16, Parts: 1}} {
		p.Batch, p.Heads, p.QueryLen, p.ValueDim = 2, 2, 7, 8
		m := newMerging(t, d, rand.New(rand.NewPCG(5, uint64(i))), p, units, 1)
		require.NoError(t, d.Merge(t.Context(), m.out))
		m.check(t)
		got, err := m.out.problem()
		require.NoError(t, err)
		require.Equal(t, p, got)

		m.result[0].send(t)
		m.out.LSE = nil // and keeps what it has, which is what check wants
		require.NoError(t, d.Merge(t.Context(), m.out))
		m.check(t)
	}
}

// TestBadMerges: what cannot be is refused with the argument's name, before anything is done.
func TestBadMerges(t *testing.T) {
	d := testDevice(t)
	good := MergeProblem{Parts: 2, Batch: 2, Heads: 2, QueryLen: 6, ValueDim: 8, DType: F16}
	for _, c := range []struct {
		argument string
		spoil    func(*MergeProblem)
	}{
		{"MergeProblem.Parts", func(p *MergeProblem) { p.Parts = 0 }},
		{"MergeProblem.Parts", func(p *MergeProblem) { p.Parts = 4097 }},
		{"MergeProblem.Batch", func(p *MergeProblem) { p.Batch = -1 }},
		{"MergeProblem.Heads", func(p *MergeProblem) { p.Heads = 0 }},
		{"MergeProblem.QueryLen", func(p *MergeProblem) { p.QueryLen = math.MaxInt32 }},
		{"MergeProblem.ValueDim", func(p *MergeProblem) { p.ValueDim = 1<<16 + 1 }},
		{"MergeProblem.DType", func(p *MergeProblem) { p.DType = Int32 }},
		{"MergeProblem", func(p *MergeProblem) { p.Batch, p.Heads = 1<<20, 1<<20 }},
		{"MergeProblem", func(p *MergeProblem) {
			p.Batch, p.Heads, p.QueryLen, p.ValueDim, p.Stacked = 1<<11, 1<<10, 1<<10, 1, true
		}},
	} {
		p := good
		c.spoil(&p)
		_, err := d.PlanMerge(p)
		requireRefused(t, c.argument, err)
	}
	var memory *MemoryError
	_, err := d.PlanMerge(MergeProblem{Parts: 5, Batch: 1 << 10, Heads: 1 << 10, QueryLen: 1 << 10, ValueDim: 1, DType: F16})
	require.ErrorAs(t, err, &memory)
	require.Equal(t, uint64(4<<30), memory.Needed)

	plan, err := d.PlanMerge(good)
	require.NoError(t, err)
	defer plan.Close()
	r := rand.New(rand.NewPCG(1, 1))
	m := newMerging(t, d, r, good, func(int) int { return 0 }, 0)
	other := newMerging(t, d, r, MergeProblem{Parts: 1, Batch: 2, Heads: 2, QueryLen: 6, ValueDim: 7, DType: F16},
		func(int) int { return 0 }, 0)
	elsewhere := testDevice(t)
	foreign := newMerging(t, elsewhere, r, good, func(int) int { return 0 }, 0)
	closed := newMerging(t, d, r, good, func(int) int { return 0 }, 0)
	require.NoError(t, closed.out.O.Close())
	strided := newGuarded(t, d, r, F32, [4]int{2, 2, 6, 1}, 1)
	folded, err := m.result[0].whole.View(0, F16, [4]int{2, 2, 6, 8}, [4]int{0, 48, 8, 1})
	require.NoError(t, err)
	behind, err := m.o[1].whole.View(16, F16, [4]int{2, 2, 6, 8}, [4]int{})
	require.NoError(t, err)
	require.NoError(t, plan.Merge(t.Context(), m.out))
	for argument, spoils := range map[string][]func(*Merge){
		"len(Merge.Parts)": {func(f *Merge) { f.Parts = f.Parts[:1] }, func(f *Merge) { f.Parts = append(f.Parts, f.Parts[0]) },
			func(f *Merge) { f.Parts = nil }},
		"Merge.Parts[0].O": {func(f *Merge) { f.Parts[0].O = nil }, func(f *Merge) { f.Parts[0].O = &Tensor{} },
			func(f *Merge) { f.Parts[0].O = other.o[0].tensor },
			func(f *Merge) { f.Parts[0].O = foreign.o[0].tensor }},
		"Merge.Parts[1].O": {func(f *Merge) { f.Parts[1].O = m.lse[0].tensor }},
		"Merge.Parts[1].LSE": {func(f *Merge) { f.Parts[1].LSE = nil }, func(f *Merge) { f.Parts[1].LSE = m.o[0].tensor },
			func(f *Merge) { f.Parts[1].LSE = strided.tensor }},
		"Merge.O": {func(f *Merge) { f.O = nil }, func(f *Merge) { f.O = f.Parts[1].O }, func(f *Merge) { f.O = behind },
			func(f *Merge) { f.O = folded },
			func(f *Merge) { f.O = other.out.O }},
		"Merge.LSE": {func(f *Merge) { f.LSE = f.Parts[0].LSE }, func(f *Merge) { f.LSE = m.out.O },
			func(f *Merge) { f.LSE = strided.tensor }},
		"": {func(f *Merge) { f.O = closed.out.O }},
	} {
		for _, spoil := range spoils {
			f := m.out
			f.Parts = slices.Clone(f.Parts)
			spoil(&f)
			requireRefused(t, argument, plan.Merge(t.Context(), f))
		}
	}
	f := m.out
	f.Parts = []Part{f.Parts[0], {O: other.o[0].tensor, LSE: other.lse[0].tensor}}
	requireRefused(t, "Merge.Parts[1].O", d.Merge(t.Context(), f))
	f.Parts = []Part{{LSE: f.Parts[0].LSE}}
	requireRefused(t, "Merge.Parts[0].O", d.Merge(t.Context(), f))
	f.Parts = nil
	requireRefused(t, "len(Merge.Parts)", d.Merge(t.Context(), f))
	f.O = nil
	requireRefused(t, "Merge.O", d.Merge(t.Context(), f))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, plan.Merge(cancelled, m.out), context.Canceled)
	var none *MergePlan
	requireRefused(t, "MergePlan", none.Merge(t.Context(), m.out))
	var nothing *Recording
	requireRefused(t, "Recording", nothing.Merge(m.out))
}
