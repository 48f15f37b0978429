package flash

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// maxLogitSample is a problem with inputs drawn, which a test may change before it uploads them.
type maxLogitSample struct {
	p       Problem
	q, k, v []float32
}

func newMaxLogitSample(p Problem) *maxLogitSample {
	r := rand.New(rand.NewPCG(3, 4))
	s := &maxLogitSample{p: p}
	for to, shape := range map[*[]float32][4]int{&s.q: p.QShape(), &s.k: p.KShape(), &s.v: p.VShape()} {
		*to = make([]float32, shape[0]*shape[1]*shape[2]*shape[3])
		for i := range *to {
			(*to)[i] = float32(r.IntN(17)-8) / 8 // sums of products are exact in any order
		}
	}
	return s
}

func (s *maxLogitSample) forward(t *testing.T, d *Device) Forward {
	t.Helper()
	tensor := func(dtype DType, shape [4]int, values []float32) *Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		if values != nil {
			require.NoError(t, x.Upload(bg, values))
		}
		return x
	}
	return Forward{Q: tensor(s.p.DType, s.p.QShape(), s.q), K: tensor(s.p.DType, s.p.KShape(), s.k),
		V: tensor(s.p.DType, s.p.VShape(), s.v), O: tensor(s.p.DType, s.p.OShape(), nil), LSE: tensor(F32, s.p.LSEShape(), nil),
		MaxLogit: tensor(F32, [4]int{1, 1, s.p.Batch, s.p.Heads}, nil)}
}

// right is what the oracle says.
func (s *maxLogitSample) right(t *testing.T) []float64 {
	t.Helper()
	of := func(shape [4]int, values []float32) ref.Tensor {
		return ref.Tensor{B: shape[0], H: shape[1], N: shape[2], D: shape[3], Data: values}
	}
	out, err := ref.MaxLogits(ref.Problem{Options: ref.Options{Scale: s.p.Scale, Causal: map[Causal]ref.Causal{
		CausalBottomRight: ref.BottomRight}[s.p.Causal]}, Q: of(s.p.QShape(), s.q), K: of(s.p.KShape(), s.k), V: of(s.p.VShape(), s.v)})
	require.NoError(t, err)
	return out
}

func (s *maxLogitSample) download(t *testing.T, x *Tensor) []float32 {
	t.Helper()
	out := make([]float32, x.Elements())
	require.NoError(t, x.Download(bg, out))
	return out
}

// TestMaxLogitIsExact: the largest score is the very number that a product of exact sums with the scale gives, in every kernel, whatever
// was in the tensor before, every time; o and lse are what they are without it, in bits.
func TestMaxLogitIsExact(t *testing.T) {
	d := testDevice(t)
	for _, causal := range []Causal{CausalNone, CausalBottomRight} {
		p, err := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 33, KeyLen: 70, HeadDim: 8, DType: F16, Causal: causal, Scale: 0.25,
			MaxLogit: true}.Normalize()
		require.NoError(t, err)
		s := newMaxLogitSample(p)
		for _, x := range []struct { // other ways to reduce rows, to notice growth, and to fill tiles
			of   Implementation
			tier Tier
			set  string
			to   int
		}{{Flash, TierScalar, "subgroup", 0}, {Flash1, TierScalar, "subgroup", 0}, {Flash, TierMatrix, "max_first", 0},
			{Flash, TierMatrix, "max_first", 1}, {Flash, TierMatrix, "pack", 1}, {Flash, TierMatrix, "parts", 2}} {
			plan, err := d.Plan(p, WithImplementation(x.of), WithTier(x.tier), WithTuning(map[string]int{x.set: x.to}))
			if errors.Is(err, ErrUnsupported) {
				continue
			}
			require.NoError(t, err)
			f := s.forward(t, d)
			require.NoError(t, plan.Forward(bg, f))
			for i, want := range s.right(t) {
				require.InDelta(t, want, s.download(t, f.MaxLogit)[i], 1e-6*math.Abs(want), "%s=%d, head %d", x.set, x.to, i)
			}
		}
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			plan, f := mustPlan(t, d, p, opts...), s.forward(t, d)
			for range 2 {
				require.NoError(t, plan.Forward(bg, f))
				for i, want := range s.right(t) {
					require.InDelta(t, want, s.download(t, f.MaxLogit)[i], 1e-6*math.Abs(want), "head %d", i)
				}
			}
			without, g := p, s.forward(t, d)
			without.MaxLogit, g.MaxLogit = false, nil
			other := mustPlan(t, d, without, opts...)
			// References and sums with late or repeat, and so their roundings, are others.
			if tuning := other.ForwardInfo().Tuning; tuning["late"] != 0 || tuning["repeat"] != 0 {
				other = mustPlan(t, d, without, append(opts, WithTuning(map[string]int{"late": 0, "repeat": 0}))...)
			}
			require.NoError(t, other.Forward(bg, g))
			require.Equal(t, s.download(t, g.O), s.download(t, f.O))
			require.Equal(t, s.download(t, g.LSE), s.download(t, f.LSE))
		})
	}
}

// TestMaxLogitOfNoNumbers: a score that is NaN makes its head's largest NaN, and no other head's, whether scores after it are numbers or
// not; one that a mask hides makes nothing.
func TestMaxLogitOfNoNumbers(t *testing.T) {
	d := testDevice(t)
	nan := float32(math.NaN())
	for _, x := range []struct {
		name    string
		head, j int
		value   float32
		seen    bool
	}{{"first key", 1, 0, nan, true}, {"last key", 0, 69, nan, true}, {"infinite", 1, 40, float32(math.Inf(1)), true},
		{"hidden", 0, 69, nan, false}} {
		p, err := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 33, KeyLen: 70, HeadDim: 8, DType: F16, MaxLogit: true}.Normalize()
		require.NoError(t, err)
		if !x.seen {
			p.Causal = CausalTopLeft
		}
		s := newMaxLogitSample(p)
		for i := range s.q { // so that an infinity times each is one
			s.q[i] = float32(math.Abs(float64(s.q[i]))) + 1
		}
		s.k[(x.head*p.KeyLen+x.j)*p.HeadDim+3] = x.value
		check := func(t *testing.T, plan *Plan) {
			t.Helper()
			f := s.forward(t, d)
			require.NoError(t, plan.Forward(bg, f))
			for i, got := range s.download(t, f.MaxLogit) {
				of := x.seen && i/2 == x.head // of batch entry 0, whose heads come first
				require.Equal(t, of, math.IsNaN(float64(got)), "head %d has %v", i, got)
				require.False(t, math.IsInf(float64(got), 0), "head %d", i)
			}
		}
		t.Run(x.name, func(t *testing.T) {
			everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) { check(t, mustPlan(t, d, p, opts...)) })
			for form := 2; form <= 3; form++ {
				plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"form": form}))
				if !errors.Is(err, ErrUnsupported) {
					require.NoError(t, err)
					check(t, plan)
				}
			}
		})
	}
}

// TestBadMaxLogit: the tensor is given where the problem has it, as it has it, and nowhere else; one call of SDPA takes it, and its
// gradients, which there are none of, are those without it.
func TestBadMaxLogit(t *testing.T) {
	d := testDevice(t)
	p, err := Problem{Batch: 2, Heads: 2, QueryLen: 9, HeadDim: 8, DType: F32, MaxLogit: true}.Normalize()
	require.NoError(t, err)
	require.Contains(t, p.String(), "max logit")
	s := newMaxLogitSample(p)
	plan, good := mustPlan(t, d, p), s.forward(t, d)
	mk := func(shape ...int) *Tensor {
		x, err := d.NewTensor(F32, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	for _, change := range []func(f *Forward){
		func(f *Forward) { f.MaxLogit = nil },
		func(f *Forward) { f.MaxLogit = f.LSE },
		func(f *Forward) { f.MaxLogit = f.O },
	} {
		f := good
		change(&f)
		requireRefused(t, "Forward.MaxLogit", plan.Forward(bg, f))
	}
	apart := good
	apart.MaxLogit, err = mk(1, 1, 2, 4).View(0, F32, [4]int{1, 1, 2, 2}, [4]int{8, 8, 4, 1})
	require.NoError(t, err)
	requireRefused(t, "Forward.MaxLogit", plan.Forward(bg, apart))
	without := p
	without.MaxLogit = false
	requireRefused(t, "Forward.MaxLogit", mustPlan(t, d, without).Forward(bg, good))
	_, err = d.Attention(bg, s.q, s.k, s.v, p)
	requireRefused(t, "Problem", err)

	require.NoError(t, plan.Forward(bg, good))
	r, err := plan.NewRecording()
	require.NoError(t, err)
	sets, i := [2]Forward{good, s.forward(t, d)}, 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		i++
		if err := r.Forward(sets[i%2]); err != nil {
			t.Fatal(err)
		}
	}))
	b := Backward{Forward: good, DO: good.O, DQ: mk(2, 2, 9, 8), DK: mk(2, 2, 9, 8), DV: mk(2, 2, 9, 8)}
	require.NoError(t, plan.Backward(bg, b))
	opts := SDPAOptions{MaxLogit: mk(1, 1, 2, 2)}
	o, lse, err := d.SDPA(bg, good.Q, good.K, good.V, opts)
	require.NoError(t, err)
	require.Equal(t, s.download(t, good.MaxLogit), s.download(t, opts.MaxLogit))
	g, err := d.SDPAVJP(bg, good.Q, good.K, good.V, o, lse, o, opts)
	require.NoError(t, err)
	require.Equal(t, s.download(t, b.DK), s.download(t, g.DK))
}

// TestMaxLogitBesideOthers: what a plan does beside its forward pass, its gradients, its matrix of scores and maps of it, is the same with
// and without the largest scores.
func TestMaxLogitBesideOthers(t *testing.T) {
	d := testDevice(t)
	p, err := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 33, KeyLen: 40, HeadDim: 8, DType: F32, Causal: CausalBottomRight,
		ScoreFunction: score.Softcap(3), MaxLogit: true}.Normalize()
	require.NoError(t, err)
	for _, of := range []Implementation{Flash, Standard} {
		s := newMaxLogitSample(p)
		var results [2][][]float32
		for i, with := range []bool{false, true} {
			q, f := p, s.forward(t, d)
			if q.MaxLogit = with; !with {
				f.MaxLogit = nil
			}
			plan := mustPlan(t, d, q, WithImplementation(of), WithTier(TierScalar))
			w, err := plan.NewWeights()
			require.NoError(t, err)
			f.Weights = w
			require.NoError(t, plan.Forward(bg, f))
			b := Backward{Forward: f, DO: f.O}
			for to, shape := range map[**Tensor][4]int{&b.DQ: p.QShape(), &b.DK: p.KShape(), &b.DV: p.VShape()} {
				*to, err = d.NewTensor(F32, shape[0], shape[1], shape[2], shape[3])
				require.NoError(t, err)
			}
			require.NoError(t, plan.Backward(bg, b))
			m := Map{Forward: f, Pool: PoolMax}
			m.Out, err = d.NewTensor(F32, p.Batch, p.Heads, 5, 7)
			require.NoError(t, err)
			require.NoError(t, plan.Map(bg, m))
			for _, x := range []*Tensor{f.O, f.LSE, b.DQ, b.DK, b.DV, m.Out} {
				results[i] = append(results[i], s.download(t, x))
			}
			if of == Standard {
				matrix := make([]float32, p.Batch*p.Heads*p.QueryLen*p.KeyLen)
				require.NoError(t, plan.Scores(bg, f, matrix))
				results[i] = append(results[i], matrix)
			}
		}
		require.Equal(t, results[0], results[1], of)
	}
}
