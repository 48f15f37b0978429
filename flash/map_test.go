package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// mapping is a map with guarded outputs, and the oracle's.
type mapping struct {
	m                      Map
	out, entropy, distance *guarded
	want                   ref.MapResult
}

// span is a range with its zero value filled in.
func span(r Range, most int) [2]int {
	if r == (Range{}) {
		return [2]int{0, most}
	}
	return [2]int{r.Begin, r.End}
}

// newMapping makes a map of h × w cells for a sample whose forward pass has run; out's layout is one of newGuarded's.
func newMapping(t *testing.T, d *Device, rng *rand.Rand, s *sample, f *Forward, m Map, h, w, layout int) *mapping {
	t.Helper()
	of := ref.Map{Batches: span(m.Batches, s.p.Batch), Heads: span(m.Heads, s.p.Heads), Queries: span(m.Queries, s.p.QueryLen),
		Keys: span(m.Keys, s.p.KeyLen),
		Rows: h, Columns: w, Pool: ref.MapPool(m.Pool.kernel())}
	x := &mapping{m: m}
	var err error
	x.want, err = ref.Maps(s.in, of)
	require.NoError(t, err)
	b, heads, n := of.Batches[1]-of.Batches[0], of.Heads[1]-of.Heads[0], of.Queries[1]-of.Queries[0]
	x.out = newGuarded(t, d, rng, F32, [4]int{b, heads, h, w}, layout)
	x.entropy, x.distance = newGuarded(t, d, rng, F32, [4]int{b, heads, n, 1}, 0), newGuarded(t, d, rng, F32, [4]int{b, heads, n, 1}, 0)
	x.m.Forward = *f
	x.m.Out, x.m.Entropy, x.m.Distance = x.out.tensor, x.entropy.tensor, x.distance.tensor
	return x
}

func (x *mapping) guards() []*guarded { return []*guarded{x.out, x.entropy, x.distance} }

func TestMap(t *testing.T) {
	d := testDevice(t)
	rng := rand.New(rand.NewPCG(3, 4))
	whole, ragged := 64, 33
	if testing.Short() { // fewer fragments
		whole, ragged = 16, 17
	}
	for _, p := range []Problem{
		{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: 90, HeadDim: 20, DType: F32},
		{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 131, HeadDim: whole, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: 2, QueryLen: 131, KeyLen: 70, HeadDim: ragged, DType: BF16, Causal: CausalBottomRight,
			Window: SlidingWindow(20, 5)},
	} {
		s := newSample(t, p)
		everyMap(t, d, p, func(t *testing.T, plan *Plan) {
			f := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, f))
			for i, c := range []struct {
				m    Map
				h, w int
			}{
				{Map{Pool: PoolSum}, 1, 1},
				{Map{Pool: PoolMean}, 7, 5},
				{Map{Pool: PoolMax}, p.QueryLen, p.KeyLen},
				{Map{Pool: PoolSum, Heads: Range{1, 2}, Queries: Range{13, 64}, Keys: Range{9, 70}}, 51, 3},
				{Map{Pool: PoolMean, Queries: Range{3, 4}}, 1, 64},
				{Map{Pool: PoolMax, Keys: Range{33, 34}}, 2, 1},
			} {
				t.Run(fmt.Sprintf("%v/%d", p, i), func(t *testing.T) {
					x := newMapping(t, d, rng, s, &f, c.m, c.h, c.w, i%3)
					require.NoError(t, plan.Map(bg, x.m))
					x.check(t, 2e-5)
				})
			}
		})
	}
}

// everyMap runs a test with a plan for each tier whose kernel of maps the device has for a problem.
func everyMap(t *testing.T, d *Device, p Problem, f func(t *testing.T, plan *Plan)) {
	t.Helper()
	whole, err := p.Normalize()
	require.NoError(t, err)
	for _, k := range mapKernels {
		if k.why(&d.env.Caps, attnOf(whole)) != "" {
			continue
		}
		t.Run(string(k.tier), func(t *testing.T) {
			vktest.Budget(t)
			plan := mustPlan(t, d, p, WithTier(TierScalar))
			plan.gradient.tier = Tier(k.tier) // of maps, whatever tier the forward pass is of
			info, err := plan.MapInfo()
			require.NoError(t, err)
			require.Equal(t, Tier(k.tier), info.Tier)
			f(t, plan)
			require.NoError(t, plan.Close())
		})
	}
}

// check compares the buffers of the outputs, every element of them, with the oracle. off is by how much weights may be off, as a part of
// themselves: what errors of scores and lse make of them.
func (x *mapping) check(t *testing.T, off float64) {
	t.Helper()
	for i, g := range x.guards() {
		of := []ref.Array{x.want.Cells, x.want.Entropy, x.want.Distance}[i]
		want, may := wide(g.values), map[int]float64{}
		for r := range ref.AllRows(ref.Tensor{B: of.B, H: of.H, N: of.N, D: of.D}) {
			b, h, n := r/of.N/of.H, r/of.N%of.H, r%of.N
			for c, w := range of.Row(b, h, n) {
				at := g.row(b, h, n) + c
				want[at] = w
				if w != 0 { // 0 is exact
					may[at] = off*math.Abs(w) + 1e-30
				}
				if i == 1 {
					may[at] = off * (1 + math.Abs(w)) // of weights of 1 almost nothing
				}
			}
		}
		g.expect(t, want, may)
	}
}

// TestMapRecording: a recording is submitted again and again, for other tensors and ranges too, allocates nothing then, and its timestamps
// tell.
func TestMapRecording(t *testing.T) {
	d := testDevice(t)
	rng := rand.New(rand.NewPCG(5, 6))
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 50, HeadDim: 16, DType: F16, Causal: CausalBottomRight}
	s := newSample(t, p)
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	r, err := plan.NewMapRecording(WithTimestamps())
	require.NoError(t, err)
	_, err = plan.NewMapRecording(ForBackward())
	requireRefused(t, "ForBackward", err)
	requireRefused(t, "Recording", finish(r.Submit()))
	whole := newMapping(t, d, rng, s, &f, Map{Pool: PoolSum}, 1, 1, 0) // in pieces
	part := newMapping(t, d, rng, s, &f, Map{Keys: Range{10, 30}}, 20, 4, 1)
	for _, x := range []*mapping{whole, part, whole} {
		for _, g := range x.guards() {
			g.send(t)
		}
		require.NoError(t, r.Map(x.m))
		var pending Pending
		for range 3 {
			pending, err = r.Submit()
			require.NoError(t, finish(pending, err))
		}
		done, err := pending.Done()
		require.NoError(t, err)
		require.True(t, done)
		if took, ok := r.GPUTime(); ok {
			require.Positive(t, took)
		}
		x.check(t, 2e-5)
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		n++
		if err := r.Map([]*mapping{whole, part}[n%2].m); err != nil {
			t.Fatal(err)
		}
	}))
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Map(whole.m), ErrClosed)
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Map(bg, whole.m), ErrClosed)
}

// TestGrowingMaps: a recording keeps the workspace of its largest map, and none that it has outgrown.
func TestGrowingMaps(t *testing.T) {
	d := testDevice(t)
	mk := plainly(t, d)
	const widths = 100
	p := Problem{Batch: 1, Heads: 1, QueryLen: 512, KeyLen: widths, HeadDim: 16, DType: F32}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	r, err := plan.NewMapRecording()
	require.NoError(t, err)
	m := Map{Forward: Forward{Q: mk(F32, p.QShape()), K: mk(F32, p.KShape()), LSE: mk(F32, p.LSEShape())}}
	cells := mk(F32, [4]int{1, 1, 1, widths})
	before := d.Usage().ByLabel["workspace"].Buffers
	for w := 1; w <= widths; w++ {
		m.Out, err = cells.View(0, F32, [4]int{1, 1, 1, w}, [4]int{})
		require.NoError(t, err)
		require.NoError(t, r.Map(m))
		require.Equal(t, before+1, d.Usage().ByLabel["workspace"].Buffers, "%d cells, in pieces", w)
		if w%10 == 0 {
			require.NoError(t, finish(r.Submit()))
		}
	}
	require.NoError(t, r.Close())
	require.Equal(t, before, d.Usage().ByLabel["workspace"].Buffers)
	require.NoError(t, plan.Close())
}

// TestBadMaps: what cannot be gives an error that names the field and the rule.
func TestBadMaps(t *testing.T) {
	b := newMisfits(t)
	q, k, lse := b.tensor(b.dev, F16, 1, 2, 8, 16), b.tensor(b.dev, F16, 1, 2, 8, 16), b.tensor(b.dev, F32, 1, 2, 8, 1)
	out, rows := b.tensor(b.dev, F32, 1, 2, 4, 4), b.tensor(b.dev, F32, 1, 2, 8, 1)
	good := func() Map { return Map{Forward: Forward{Q: q, K: k, LSE: lse}, Out: out} }
	for _, x := range []*Tensor{q, k, lse} {
		require.NoError(t, x.Upload(bg, make([]float32, x.Elements())))
	}
	require.NoError(t, b.plan.Map(bg, good()))
	for i, c := range []struct {
		argument string
		change   func(*Map)
	}{
		{"Map.Out", func(m *Map) { m.Out = nil }},
		{"Map.Out", func(m *Map) { m.Out = b.tensor(b.dev, F32, 1, 2, 9, 4) }},
		{"Map.Out", func(m *Map) { m.Out = b.tensor(b.dev, F32, 1, 2, 4, 9) }},
		{"Map.Out", func(m *Map) { m.Queries = Range{0, 3} }}, // fewer than Out has rows
		{"Map.Out", func(m *Map) { m.Heads = Range{0, 1} }},
		{"Map.Out", func(m *Map) { m.Out = b.tensor(b.dev, F16, 1, 2, 4, 4) }},
		{"Map.Out", func(m *Map) { m.Out = b.tensor(b.other, F32, 1, 2, 4, 4) }},
		{"", func(m *Map) { m.Out = b.closed }},
		{"Map.Heads", func(m *Map) { m.Heads = Range{1, 3} }},
		{"Map.Batches", func(m *Map) { m.Batches = Range{1, 2} }},
		{"Map.Queries", func(m *Map) { m.Queries = Range{5, 5} }},
		{"Map.Keys", func(m *Map) { m.Keys = Range{-1, 5} }},
		{"Map.Keys", func(m *Map) { m.Keys = Range{0, 9} }},
		{"Map.Pool", func(m *Map) { m.Pool = 3 }},
		{"Map.Q", func(m *Map) { m.Q = nil }},
		{"Map.K", func(m *Map) { m.K = b.big }},
		{"Map.LSE", func(m *Map) { m.LSE = nil }},
		{"Map.Entropy", func(m *Map) { m.Entropy = lse }}, // overlaps an input
		{"Map.Distance", func(m *Map) { m.Distance = out }},
		{"Map.Entropy", func(m *Map) { m.Entropy, m.Distance = rows, rows }},
		{"Map.Bias", func(m *Map) { m.Bias = q }},
		{"Map.Blocks", func(m *Map) { m.Blocks = &BlockMask{} }},
	} {
		m := good()
		c.change(&m)
		err := b.plan.Map(bg, m)
		require.Error(t, err, i)
		requireRefused(t, c.argument, err)
	}
	require.NoError(t, b.plan.Map(bg, good()), "the plan goes on")
	want := download(t, out)
	require.NoError(t, out.Upload(bg, make([]float32, out.Elements())))
	m := good()
	m.V, m.O, m.Sinks, m.ValueScales = b.closed, out, &Tensor{}, q
	m.Weights, m.MaskBlocks, m.Seed, m.Offset = new(Weights), new(MaskBlocks), 1, 2
	require.NoError(t, b.plan.Map(bg, m), "what a map does not read is of no account")
	require.Equal(t, want, download(t, out))
	require.ErrorIs(t, (*Plan)(nil).Map(bg, good()), ErrArgument)
}

// TestMapTiers: a plan that insists on a tier has maps of that tier, or says why not.
func TestMapTiers(t *testing.T) {
	d := testDevice(t)
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8, DType: F32}, WithTier(TierScalar))
	info, err := plan.MapInfo()
	require.NoError(t, err)
	require.Equal(t, TierScalar, info.Tier)
	require.Contains(t, info.Kernel, "scalar_map")
	require.Equal(t, "maximum", PoolMax.String())
	require.Contains(t, Pool(9).String(), "9")
}

// TestMapsOnMatrices: kernels on matrices make maps of keys in pages, and of wide heads. Their self-checks compare with float64.
func TestMapsOnMatrices(t *testing.T) {
	d := testDevice(t)
	for kernel, set := range map[string]func(*Problem){
		"pages": func(p *Problem) { p.Pages, p.KeyLengths = Pages{Size: 4, Count: 40, PerSequence: 20}, true },
		"compressed pages": func(p *Problem) {
			p.Pages, p.Causal, p.HeadDim = Pages{Size: 16, Count: 40, Indices: 30}, CausalBottomRight, 19
		},
		"pages and blocks": func(p *Problem) {
			p.Pages, p.Blocks = Pages{Size: 16, Count: 40, PerSequence: 5}, Blocks{Queries: 12, Keys: 20, PerHead: true}
		},
		"quantised values": func(p *Problem) { p.ValueType, p.ValueDim = Q8_0, 32 },
		"wide":             func(p *Problem) { p.HeadDim, p.ValueDim = 264, 24 },
		"wide and odd":     func(p *Problem) { p.HeadDim, p.ValueDim, p.Causal = 261, 29, CausalBottomRight },
	} {
		t.Run(kernel, func(t *testing.T) {
			p := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 30, KeyLen: 70, HeadDim: 16, DType: F16}
			set(&p)
			if p.HeadDim > 256 {
				vktest.Long(t, "maps of narrow heads, but for the tile")
			}
			plan, err := d.Plan(p, WithTier(TierMatrix))
			skipUnsupported(t, err)
			info, err := plan.MapInfo()
			require.NoError(t, err)
			require.Equal(t, TierMatrix, info.Tier, "%v", info.WhyNotFaster)
			require.NoError(t, plan.Close())
		})
	}
}

// TestMapAttached: on a device of the caller's kernels prove themselves when the recording is made, and recording leaves the queue alone.
func TestMapAttached(t *testing.T) {
	owner := testDevice(t)
	d, err := Attach(owner.External(), WithoutDiskCache())
	require.NoError(t, err)
	defer d.Close()
	p := Problem{Batch: 1, Heads: 2, QueryLen: 30, HeadDim: 16, DType: F16, ScoreFunction: score.Softcap(2)}
	s := newSample(t, Problem{Batch: 1, Heads: 2, QueryLen: 30, HeadDim: 16, DType: F16})
	s.in.Softcap = 2
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	r, err := plan.NewMapRecording()
	require.NoError(t, err)
	defer r.Close()
	x := newMapping(t, d, rand.New(rand.NewPCG(1, 9)), s, &f, Map{Pool: PoolMax}, 7, 30, 2)
	require.NoError(t, r.Map(x.m))
	require.NoError(t, finish(r.Submit()))
	x.check(t, 1e-4)
	require.NoError(t, plan.Close())
}
