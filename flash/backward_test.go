package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

// backwardSample is a forward pass that has run, with what its backward pass is given.
type backwardSample struct {
	*sample
	f  Forward
	do []float32
}

func newBackwardSample(t testing.TB, d *Device, plan *Plan, dtype DType) (*backwardSample, Backward) {
	t.Helper()
	p := plan.Problem()
	s := &backwardSample{sample: newSample(t, p)}
	s.f = s.tensors(t, d, plainly(t, d))
	s.f.Seed, s.f.Offset = 0x0123456789abcdef, 5
	if p.Sinks {
		shape := [4]int{1, 1, 1, p.Heads}
		s.f.Sinks = plainly(t, d)(F32, shape)
		require.NoError(t, s.f.Sinks.Upload(bg, randomValues(rand.New(rand.NewPCG(5, 6)), F32, shape)))
	}
	weights, err := plan.NewWeights()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, weights.Close()) })
	s.f.Weights = weights
	s.do = randomValues(rand.New(rand.NewPCG(3, 4)), dtype, p.OShape())
	s.forward(t, plan)
	mk := plainly(t, d)
	b := Backward{Forward: s.f, DO: mk(dtype, p.OShape()), DQ: mk(dtype, p.QShape()), DK: mk(dtype, p.KShape()), DV: mk(dtype, p.VShape())}
	require.NoError(t, b.DO.Upload(bg, s.do))
	return s, b
}

func (s *backwardSample) forward(t testing.TB, plan *Plan) {
	t.Helper()
	pending, err := plan.SubmitForward(s.f)
	require.NoError(t, err)
	require.NoError(t, pending.Wait(bg))
}

func download(t testing.TB, x *Tensor) []float32 {
	t.Helper()
	out := make([]float32, x.Elements())
	require.NoError(t, x.Download(bg, out))
	return out
}

// loss is Σ do·o (+ Σ lse) of a forward pass with the inputs as they stand on the device.
func (s *backwardSample) loss(t testing.TB, plan *Plan, withLSE bool) float64 {
	t.Helper()
	s.forward(t, plan)
	sum := 0.0
	for i, o := range download(t, s.f.O) {
		sum += float64(o) * float64(s.do[i])
	}
	if withLSE {
		for _, l := range download(t, s.f.LSE) {
			if !math.IsInf(float64(l), -1) {
				sum += float64(l)
			}
		}
	}
	return sum
}

// TestBackwardFiniteDifferences compares gradients with differences of the plan's own forward pass: no other implementation
// is involved.
func TestBackwardFiniteDifferences(t *testing.T) {
	d := testDevice(t)
	for _, p := range []Problem{
		{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 9, KeyLen: 11, HeadDim: 8, Causal: CausalBottomRight},
		{Batch: 1, Heads: 1, QueryLen: 11, KeyLen: 13, HeadDim: 8, Window: SlidingWindow(4, 2)},
		{Batch: 2, Heads: 1, QueryLen: 12, KeyLen: 7, HeadDim: 3, ValueDim: 5, Causal: CausalBottomRight, Scale: -0.7},
		{Batch: 1, Heads: 1, QueryLen: 6, KeyLen: 20, HeadDim: 8, Dropout: 0.3},
	} {
		if testing.Short() && p.Dropout > 0 { // conformance has gradients with it
			continue
		}
		everyBackward(t, d, p, func(t *testing.T, plan *Plan) {
			s, b := newBackwardSample(t, d, plan, F32)
			ones := make([]float32, s.f.LSE.Elements())
			for i := range ones {
				ones[i] = 1
			}
			b.DLSE = plainly(t, d)(F32, plan.Problem().LSEShape())
			require.NoError(t, b.DLSE.Upload(bg, ones))
			require.NoError(t, plan.Backward(bg, b))
			rng := rand.New(rand.NewPCG(5, 6))
			const h = 1e-2 // the error of the central difference is of order h², that of fp32 1e-6/h
			for _, x := range []struct {
				name   string
				tensor *Tensor
				values []float32
				grad   []float32
			}{{"q", s.f.Q, s.q, download(t, b.DQ)}, {"k", s.f.K, s.k, download(t, b.DK)}, {"v", s.f.V, s.v, download(t, b.DV)}} {
				for range 6 {
					i := rng.IntN(len(x.values))
					at := func(delta float32) float64 {
						values := append([]float32(nil), x.values...)
						values[i] += delta
						require.NoError(t, x.tensor.Upload(bg, values))
						return s.loss(t, plan, true)
					}
					want := (at(h) - at(-h)) / (2 * h)
					require.NoError(t, x.tensor.Upload(bg, x.values))
					require.InDelta(t, want, float64(x.grad[i]), 3e-3*math.Max(1, math.Abs(want)), "d%s[%d]", x.name, i)
				}
			}
		})
	}
}

// everyBackward runs a test for each implementation that has a backward pass.
func everyBackward(t *testing.T, d *Device, p Problem, f func(t *testing.T, plan *Plan)) {
	for _, impl := range []Implementation{Flash, Standard} {
		t.Run(impl.String()+" "+p.String(), func(t *testing.T) {
			if impl == Standard && p.HeadDim%4 != 0 {
				vktest.Long(t, "rows of whole pieces; those of its matrices are aligned in any case")
			}
			plan := mustPlan(t, d, p, WithImplementation(impl))
			f(t, plan)
			require.NoError(t, plan.Close())
		})
	}
}

// TestBackwardRepeats: fifty runs give the same bits, at several sizes; twelve in short tests, at one.
func TestBackwardRepeats(t *testing.T) {
	d := testDevice(t)
	problems, runs := []Problem{
		{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 33, KeyLen: 65, HeadDim: 16, DType: F16},
		{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 130, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 300, HeadDim: 16, DType: F16},
	}, 50
	if testing.Short() {
		problems, runs = []Problem{usual(Problem{})}, 12
	}
	for _, p := range problems {
		everyBackward(t, d, p, func(t *testing.T, plan *Plan) {
			_, b := newBackwardSample(t, d, plan, F16)
			var first [3][]float32
			for run := range runs {
				require.NoError(t, plan.Backward(bg, b))
				got := [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
				if run == 0 {
					first = got
				}
				require.Equal(t, first, got, "run %d", run)
				for _, g := range []*Tensor{b.DQ, b.DK, b.DV} { // what was there before must not matter
					require.NoError(t, g.Upload(bg, randomValues(rand.New(rand.NewPCG(uint64(run), 1)), F16, g.Shape())))
				}
			}
		})
	}
}

// TestBackwardSteadyState: recording other tensors, submitting and waiting again leave the garbage collector alone, on every tier.
func TestBackwardSteadyState(t *testing.T) {
	d := testDevice(t)
	for i := range 4 {
		impl, tier := []Implementation{Flash, Standard}[i/2], []Tier{TierScalar, TierMatrix}[i%2]
		p := usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 8, DType: F16, Causal: CausalBottomRight})
		plan, err := planGradients(t, d, p, tier), error(nil)
		if impl == Standard { // whose backward pass has the weights that its forward pass kept
			plan, err = d.Plan(p, WithImplementation(impl), WithTier(tier))
		}
		if tier != TierScalar && errors.Is(err, ErrUnsupported) {
			t.Log(err)
			continue
		}
		require.NoError(t, err)
		if _, err := plan.BackwardInfo(); tier != TierScalar && errors.Is(err, ErrUnsupported) {
			t.Log(err)
			continue
		}
		var sets [2]Backward
		for i := range sets {
			_, sets[i] = newBackwardSample(t, d, plan, F16)
		}
		r, err := plan.NewRecording(ForBackward())
		require.NoError(t, err)
		run := func(i int) {
			if err := r.Backward(sets[i%2]); err != nil {
				t.Fatal(err)
			}
			pending, err := r.Submit()
			if err != nil {
				t.Fatal(err)
			}
			if err := pending.Wait(bg); err != nil {
				t.Fatal(err)
			}
		}
		run(0)
		run(1)
		i := 0
		require.Zero(t, testing.AllocsPerRun(50, func() { i++; run(i) }), "%v, tier %s", impl, tier)
		require.NoError(t, r.Close())
		require.NoError(t, plan.Close())
	}
}

// TestBackwardPlan: what a plan says of its backward pass, and that memory beyond the tensors is linear.
func TestBackwardPlan(t *testing.T) {
	d := testDevice(t)
	p := narrowed(Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 100, KeyLen: 300, HeadDim: 16, DType: F16, Dropout: 0.1})
	plan := mustPlan(t, d, p)
	info, err := plan.BackwardInfo()
	require.NoError(t, err)
	require.Equal(t, uint64(4*2*4*100), info.WorkspaceBytes, "delta and nothing else")
	require.Contains(t, info.Kernel, "backward")
	require.Equal(t, 26.0/256, plan.DropoutProbability())
	require.NotEmpty(t, info.Tuning)

	split := mustPlan(t, d, p, WithBackwardTuning(map[string]int{"max_groups": 1}))
	s, b := newBackwardSample(t, d, split, F16)
	_ = s
	require.NoError(t, plan.Backward(bg, b))
	whole := [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
	require.NoError(t, split.Backward(bg, b))
	require.Equal(t, whole, [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}, "split into dispatches of one workgroup")

	for _, c := range []struct {
		tuning map[string]int
		says   string
	}{{map[string]int{"zz": 1}, "zz"}, {map[string]int{"kv_br": 33}, "kv_br = 33"}, {map[string]int{"kv_br": 1024, "kv_bc": 512},
		"workgroup"}} {
		_, err := mustPlan(t, d, p, WithTier(TierScalar), WithBackwardTuning(c.tuning)).BackwardInfo()
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, c.says)
	}
	for name, v := range map[string]int{"kv_br": -1, "q_mc": 3} {
		_, err = d.Plan(p, WithTier(TierScalar), WithBackwardTuning(map[string]int{name: v}))
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, fmt.Sprintf("WithBackwardTuning[%s] is %d: must be ", name, v))
	}
	_, err = d.Attention(bg, nil, nil, nil, Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 1, Dropout: 0.5})
	require.ErrorContains(t, err, "needs a seed")
	for _, bad := range []float64{-0.1, 1, 0.999, math.NaN(), math.Inf(1)} {
		_, err := Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 1, Dropout: bad}.Normalize()
		require.ErrorContains(t, err, "Problem.Dropout")
	}
}

// TestBackwardTiles forces shapes that the device at hand would not choose itself, those of other kinds of device.
func TestBackwardTiles(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 70, KeyLen: 81, HeadDim: 40, Causal: CausalBottomRight}
	if testing.Short() {
		p.HeadDim = 24 // three pieces of 8, the least that has one in the middle
	}
	plan := mustPlan(t, d, p)
	_, b := newBackwardSample(t, d, plan, F32)
	require.NoError(t, plan.Backward(bg, b))
	want := [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
	for _, tile := range []map[string]int{
		{"kv_br": 64, "kv_bc": 32, "kv_mr": 4, "kv_mc": 4, "q_br": 64, "q_bc": 32, "q_mr": 4, "q_mc": 4},
		{"kv_br": 32, "kv_bc": 64, "kv_mr": 2, "kv_mc": 4, "q_br": 8, "q_bc": 64, "q_mr": 1, "q_mc": 4},
		{"kv_br": 16, "kv_bc": 32, "kv_dk": 8, "kv_vc": 4, "q_br": 16, "q_bc": 64, "q_pc": 64, "q_dk": p.HeadDim, "q_vc": 32},
	} {
		if testing.Short() && tile["kv_br"] == 64 { // which takes longest to compile
			continue
		}
		other := mustPlan(t, d, p, WithBackwardTuning(tile))
		info, err := other.BackwardInfo()
		require.NoError(t, err)
		for name, v := range tile {
			require.Equal(t, v, info.Tuning[name])
		}
		require.NoError(t, other.Backward(bg, b))
		for i, g := range []*Tensor{b.DQ, b.DK, b.DV} {
			require.InDeltaSlice(t, doubles(want[i]), doubles(download(t, g)), 2e-4)
		}
		require.NoError(t, other.Close())
	}
}
