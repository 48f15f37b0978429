package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

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
	of := ref.Map{Batches: span(m.Batches, s.p.Batch), Heads: span(m.Heads, s.p.Heads), Queries: span(m.Queries, s.p.QueryLen), Keys: span(m.Keys, s.p.KeyLen),
		Rows: h, Columns: w, Pool: ref.MapPool(m.Pool.kernel())}
	x := &mapping{m: m}
	var err error
	x.want, err = ref.Maps(s.in, of)
	require.NoError(t, err)
	b, heads, n := of.Batches[1]-of.Batches[0], of.Heads[1]-of.Heads[0], of.Queries[1]-of.Queries[0]
	x.out = newGuarded(t, d, rng, F32, [4]int{b, heads, h, w}, layout)
	x.entropy, x.distance = newGuarded(t, d, rng, F32, [4]int{b, heads, n, 1}, 0), newGuarded(t, d, rng, F32, [4]int{b, heads, n, 1}, 0)
	x.m.Q, x.m.K, x.m.LSE = f.Q, f.K, f.LSE
	x.m.Out, x.m.Entropy, x.m.Distance = x.out.tensor, x.entropy.tensor, x.distance.tensor
	return x
}

func (x *mapping) guards() []*guarded { return []*guarded{x.out, x.entropy, x.distance} }

func TestMap(t *testing.T) {
	d := testDevice(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, p := range []Problem{
		{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: 90, HeadDim: 20, DType: F32},
		{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 131, HeadDim: 64, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: 2, QueryLen: 131, KeyLen: 70, HeadDim: 33, DType: BF16, Causal: CausalBottomRight, Window: SlidingWindow(20, 5)},
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
			plan := mustPlan(t, d, p)
			plan.gradient.tier = Tier(k.tier) // of maps, whatever tier the forward pass is of
			info, err := plan.MapInfo()
			require.NoError(t, err)
			require.Equal(t, Tier(k.tier), info.Tier)
			f(t, plan)
			require.NoError(t, plan.Close())
		})
	}
}

// check compares the buffers of the outputs, every element of them, with the oracle. off is by how much weights may be off, as a part of themselves: what
// errors of scores and lse make of them.
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
