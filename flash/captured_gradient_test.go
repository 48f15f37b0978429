package flash

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// capturedSample is a pass of a problem whose functions capture one tensor.
type capturedSample struct {
	plan *Plan
	f    Forward
	b    Backward
	do   []float32
}

func newCapturedSample(t *testing.T, d *Device, p Problem, table []float32) *capturedSample {
	t.Helper()
	s := &capturedSample{plan: planGradients(t, d, p, TierScalar)}
	p = s.plan.Problem()
	r, mk := rand.New(rand.NewPCG(8, 9)), plainly(t, d)
	filled := func(shape [4]int) *Tensor {
		x := mk(p.DType, shape)
		require.NoError(t, x.Upload(bg, randomValues(r, p.DType, shape)))
		return x
	}
	shape := [4]int{1, 1, 1, 1}
	declared := p.Captures()[0].Shape
	copy(shape[4-len(declared):], declared)
	s.f = Forward{Q: filled(p.QShape()), K: filled(p.KShape()), V: filled(p.VShape()), O: mk(p.DType, p.OShape()),
		LSE: mk(F32, p.LSEShape()), Seed: 3}
	if p.Sinks {
		sinks := [4]int{1, 1, 1, p.Heads}
		s.f.Sinks = mk(F32, sinks)
		require.NoError(t, s.f.Sinks.Upload(bg, randomValues(r, F32, sinks)))
	}
	s.f.Captured[0] = mk(F32, shape)
	require.NoError(t, s.f.Captured[0].Upload(bg, table))
	s.do = randomValues(r, p.DType, p.OShape())
	s.b = Backward{Forward: s.f, DO: mk(p.DType, p.OShape()), DQ: mk(p.DType, p.QShape()), DK: mk(p.DType, p.KShape()),
		DV: mk(p.DType, p.VShape())}
	if p.Sinks {
		s.b.DSinks = mk(F32, s.f.Sinks.Shape())
	}
	s.b.DCaptured[0] = mk(F32, shape)
	require.NoError(t, s.b.DO.Upload(bg, s.do))
	require.NoError(t, s.plan.Forward(bg, s.f))
	t.Cleanup(func() { require.NoError(t, s.plan.Close()) })
	return s
}

// TestCapturedFiniteDifferences compares gradients with respect to captured tensors with differences of the plan's own forward pass, and
// adds them up.
func TestCapturedFiniteDifferences(t *testing.T) {
	d := testDevice(t)
	table := score.Capture("table", 9, 2)
	distance := score.Key().Sub(score.Position()).Add(score.ConstInt(4))
	capped, err := score.Compose(score.RelativeBias(table, distance), score.Softcap(2))
	require.NoError(t, err)
	for _, p := range []Problem{
		{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 19, KeyLen: 23, HeadDim: 8, Causal: CausalBottomRight,
			ScoreFunction: score.RelativeBias(table, distance)},
		{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 37, HeadDim: 5, Dropout: 0.3, ScoreFunction: capped},
	} {
		p.DType = F32
		t.Run(p.String(), func(t *testing.T) {
			vktest.Budget(t)
			values := randomValues(rand.New(rand.NewPCG(1, 2)), F32, [4]int{1, 1, 9, 2})
			s := newCapturedSample(t, d, p, values)
			require.NoError(t, s.plan.Backward(bg, s.b))
			got := download(t, s.b.DCaptured[0])
			loss := func(at int, h float32) (sum float64) {
				v := append([]float32(nil), values...)
				v[at] += h
				require.NoError(t, s.f.Captured[0].Upload(bg, v))
				require.NoError(t, s.plan.Forward(bg, s.f))
				for i, o := range download(t, s.f.O) {
					sum += float64(o) * float64(s.do[i])
				}
				return sum
			}
			for _, at := range []int{0, 3, 8, 17} {
				const h = 1.0 / 64
				require.InDelta(t, (loss(at, h)-loss(at, -h))/(2*h), got[at], 2e-3*(1+math.Abs(float64(got[at]))), "element %d", at)
			}
			require.NoError(t, s.f.Captured[0].Upload(bg, values))
			require.NoError(t, s.plan.Forward(bg, s.f))
			s.b.Accumulate = true
			require.NoError(t, s.plan.Backward(bg, s.b))
			for i, x := range download(t, s.b.DCaptured[0]) {
				require.Equal(t, 2*got[i], x, "added to itself")
			}
		})
	}
}

// TestCapturedAccumulatesFirst: the first backward pass of a device may be one that adds gradients with respect to captured tensors to what
// there is: it is the pass whose kernels are checked on the device.
func TestCapturedAccumulatesFirst(t *testing.T) {
	d := testDevice(t)
	values := randomValues(rand.New(rand.NewPCG(1, 2)), F32, [4]int{1, 1, 9, 2})
	p := Problem{Batch: 1, Heads: 2, QueryLen: 19, KeyLen: 23, HeadDim: 8, DType: F32,
		ScoreFunction: score.RelativeBias(score.Capture("table", 9, 2), score.Key().Sub(score.Position()).Add(score.ConstInt(4)))}
	s := newCapturedSample(t, d, p, values)
	for _, x := range []*Tensor{s.b.DQ, s.b.DK, s.b.DV, s.b.DCaptured[0]} {
		require.NoError(t, x.Upload(bg, make([]float32, x.Elements())))
	}
	s.b.Accumulate = true
	require.NoError(t, s.plan.Backward(bg, s.b))
	added := download(t, s.b.DCaptured[0])
	s.b.Accumulate = false
	require.NoError(t, s.plan.Backward(bg, s.b))
	require.Equal(t, download(t, s.b.DCaptured[0]), added)
}

// TestCapturedRepeats: the same bits in every run, whether sums meet in shared memory or a table is too large for that; a table of an
// element for each pair has the gradient of a bias.
func TestCapturedRepeats(t *testing.T) {
	vktest.Long(t, "TestCapturedFiniteDifferences")
	d := testDevice(t)
	const n, m = 96, 90
	few := score.RelativeBias(score.Capture("few", 3, 4), score.Key().Sub(score.Query()).Mod(score.ConstInt(3)))
	pairs, err := score.New(score.S().Add(score.Capture("pairs", n, m).At(score.Query(), score.Key())))
	require.NoError(t, err)
	for name, f := range map[string]score.Function{"few": few, "pairs": pairs} {
		t.Run(name, func(t *testing.T) {
			vktest.Budget(t)
			p := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: m, HeadDim: 8, DType: F16, ScoreFunction: f}
			s := newCapturedSample(t, d, p, make([]float32, p.Captures()[0].Elements()))
			require.NoError(t, s.plan.Backward(bg, s.b))
			first := download(t, s.b.DCaptured[0])
			for range 49 {
				require.NoError(t, s.plan.Backward(bg, s.b))
				require.Equal(t, first, download(t, s.b.DCaptured[0]))
			}
			if name == "few" {
				return
			}
			q := p
			q.ScoreFunction, q.Bias = score.Function{}, PerScore{DType: F32, Batch: 1, Heads: 1, Queries: n, Keys: m}
			plan := planGradients(t, d, q, TierScalar)
			b, mk := s.b, plainly(t, d)
			b.Captured, b.DCaptured = Captured{}, Captured{}
			b.Bias, b.DBias = mk(F32, [4]int{1, 1, n, m}), mk(F32, [4]int{1, 1, n, m})
			require.NoError(t, b.Bias.Upload(bg, make([]float32, n*m)))
			require.NoError(t, plan.Backward(bg, b))
			require.InDeltaSlice(t, doubles(download(t, b.DBias)), doubles(first), 1e-5)
			require.NoError(t, plan.Close())
		})
	}
}

// TestCapturedSums: what gradients with respect to captured tensors are added up in is allocated where one is first asked for, once, and
// passes without any are what they were before and behind it.
func TestCapturedSums(t *testing.T) {
	d := testDevice(t)
	const elements = 1 << 16
	p := Problem{Batch: 1, Heads: 2, QueryLen: 19, KeyLen: 23, HeadDim: 8, DType: F32, Sinks: true,
		ScoreFunction: score.RelativeBias(score.Capture("table", elements/2, 2), score.Key())}
	s := newCapturedSample(t, d, p, randomValues(rand.New(rand.NewPCG(1, 2)), F32, [4]int{1, 1, elements / 2, 2}))
	info, err := s.plan.BackwardInfo()
	require.NoError(t, err)
	require.Greater(t, info.WorkspaceBytes, uint64(8*elements))
	taken := func() uint64 { return d.Usage().ByLabel["workspace"].Current }
	before := taken()
	r, err := s.plan.NewRecording(ForBackward())
	require.NoError(t, err)
	defer r.Close()
	run := func(b Backward) (out [][]float32) {
		require.NoError(t, r.Backward(b))
		pending, err := r.Submit()
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		for _, x := range []*Tensor{b.DQ, b.DK, b.DV, b.DSinks} {
			out = append(out, download(t, x))
		}
		return out
	}
	without := s.b
	without.DCaptured = Captured{}
	first := run(without)
	small := taken() - before
	require.Less(t, small, uint64(8*elements))
	require.Equal(t, first, run(s.b))
	sums := download(t, s.b.DCaptured[0])
	whole := taken() - before
	require.GreaterOrEqual(t, whole, small+8*elements)
	require.Equal(t, first, run(without))
	require.Equal(t, first, run(s.b))
	require.Equal(t, sums, download(t, s.b.DCaptured[0]))
	require.Equal(t, whole, taken()-before, "nothing more")
}

// TestCapturedNaN: a term that is no number makes the gradient none, and the next one is a number again.
func TestCapturedNaN(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8, DType: F32, ScoreFunction: score.RelativeBias(score.Capture("table", 5, 2),
		score.Key())}
	s := newCapturedSample(t, d, p, make([]float32, 10))
	do := append([]float32(nil), s.do...)
	do[7] = float32(math.NaN())
	for _, x := range []struct {
		do   []float32
		none bool
	}{{do, true}, {s.do, false}} {
		require.NoError(t, s.b.DO.Upload(bg, x.do))
		require.NoError(t, s.plan.Backward(bg, s.b))
		for _, y := range download(t, s.b.DCaptured[0]) {
			require.Equal(t, x.none, math.IsNaN(float64(y)))
		}
	}
}

// TestCapturedRefuses: what has no gradient, the wrong tensor, and one that overlaps another.
func TestCapturedRefuses(t *testing.T) {
	d := testDevice(t)
	table, ids := score.Capture("table", 5, 2), score.CaptureInt("ids", 20)
	f, err := score.New(score.S().Add(table.At(ids.At(score.Key()), score.Head())))
	require.NoError(t, err)
	plan := planGradients(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8, DType: F32, ScoreFunction: f}, TierScalar)
	mk, p := plainly(t, d), plan.Problem()
	b := Backward{Forward: Forward{Q: mk(F32, p.QShape()), K: mk(F32, p.KShape()), V: mk(F32, p.VShape()), O: mk(F32, p.OShape()),
		LSE: mk(F32, p.LSEShape())}, DO: mk(F32, p.OShape()), DQ: mk(F32, p.QShape()), DK: mk(F32, p.KShape()), DV: mk(F32, p.VShape())}
	at := map[string]int{}
	for i, c := range p.Captures() {
		at[c.Name] = i
	}
	b.Captured[at["table"]], b.Captured[at["ids"]] = mk(F32, [4]int{1, 1, 5, 2}), mk(Int32, [4]int{1, 1, 1, 20})
	small := Problem{Batch: 1, Heads: 1, QueryLen: 10, HeadDim: 1, DType: F32}
	for says, set := range map[string]func(to *Captured){
		"holds integers":             func(to *Captured) { to[at["ids"]] = mk(Int32, [4]int{1, 1, 1, 20}) },
		"must be float32 of shape":   func(to *Captured) { to[at["table"]] = mk(F32, [4]int{1, 1, 2, 5}) },
		"must not overlap":           func(to *Captured) { to[at["table"]] = b.Captured[at["table"]] },
		"capture 2 tensors by name":  func(to *Captured) { to[5] = mk(F32, small.QShape()) },
		"must be a tensor made by a": func(to *Captured) { to[at["table"]] = &Tensor{} },
	} {
		b.DCaptured = Captured{}
		set(&b.DCaptured)
		err := plan.Backward(bg, b)
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, says)
	}
	inside, err := b.DQ.View(0, F32, [4]int{1, 1, 5, 2}, [4]int{10, 10, 2, 1})
	require.NoError(t, err)
	b.DCaptured, b.Captured[at["table"]] = Captured{}, inside
	err = plan.Backward(bg, b)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "one of Captured is")
	require.NoError(t, plan.Close())
}
