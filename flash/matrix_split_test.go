package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// splitInputs are what splitting fp32 into terms of a narrower type may lose bits of, or overflow with.
var splitInputs = []struct {
	name string
	fill func(rng *rand.Rand, s *sample)
	wide bool // numbers of one row are further apart than 2^15, which terms of fp16 have not the exponents for
}{
	{"normal", func(*rand.Rand, *sample) {}, false},
	{"positive values", func(_ *rand.Rand, s *sample) { each(s.v, func(_ int, x float64) float64 { return 1 + math.Abs(x) }) }, false},
	{"scores of 100", func(_ *rand.Rand, s *sample) { scale(s.q, 10); scale(s.k, 10) }, false},
	{"scores that cancel", func(_ *rand.Rand, s *sample) {
		d := s.p.HeadDim
		each(s.q, func(i int, x float64) float64 { return either(i%d < 2, 64, x) })
		each(s.k, func(i int, x float64) float64 { return either(i%d < 2, 64*float64(1-2*(i%d)), x) })
	}, false},
	// with a query of 1e-30 beside 1, whose scores are of order 1 at the former
	{"keys of 1e30 beside 1e-30", func(_ *rand.Rand, s *sample) {
		d := s.p.HeadDim
		each(s.k, func(i int, x float64) float64 { return x * either(i/d%3 == 0, 1e30, 1e-30) })
		each(s.q, func(i int, x float64) float64 { return x * 1e-30 })
	}, false},
	{"values of 1e30 beside 1e-30", func(_ *rand.Rand, s *sample) {
		d := s.p.ValueDim
		each(s.v, func(i int, x float64) float64 { return x * either(i/d%50 == 3, 1e30, 1e-30) })
	}, false},
	{"large values at small weights", func(_ *rand.Rand, s *sample) { // e^-40 of 1e9
		d, far := s.p.HeadDim, func(key int) bool { return key%7 == 3 }
		each(s.q, func(i int, x float64) float64 { return either(i%d == 0, 16, x) })
		each(s.k, func(i int, x float64) float64 {
			return either(i%d == 0, either(far(i/d), -2.5*math.Sqrt(float64(d)), 0), x)
		})
		each(s.v, func(i int, x float64) float64 { return x * either(far(i/s.p.ValueDim), 1e9, 1) })
	}, false},
	{"values of 1e-35", func(_ *rand.Rand, s *sample) { scale(s.v, 1e-35) }, false},
	{"columns of 2^-8 to 1", func(rng *rand.Rand, s *sample) {
		w := make([]float64, s.p.HeadDim)
		for i := range w {
			w[i] = math.Ldexp(1, -rng.IntN(9))
		}
		d := s.p.HeadDim
		each(s.q, func(i int, x float64) float64 { return x * w[i%d] })
		each(s.k, func(i int, x float64) float64 { return x / w[i%d] })
	}, false},
	{"columns of 2^-40 to 1", func(rng *rand.Rand, s *sample) {
		d := s.p.HeadDim
		each(s.q, func(i int, x float64) float64 { return math.Ldexp(x, -i%d*40/d) })
		each(s.k, func(i int, x float64) float64 { return math.Ldexp(x, i%d*40/d) })
	}, true},
	{"zeros", func(_ *rand.Rand, s *sample) {
		d := s.p.HeadDim
		each(s.q, func(i int, x float64) float64 { return either(i/d%2 == 0, 0, x) })
		each(s.k, func(i int, x float64) float64 { return either(i/d%3 == 0, 0, x) })
		each(s.v, func(i int, x float64) float64 { return either(i/s.p.ValueDim%5 < 3, 0, x) })
	}, false},
}

func each(x []float32, f func(i int, x float64) float64) {
	for i := range x {
		x[i] = float32(f(i, float64(x[i])))
	}
}
func scale(x []float32, by float64) { each(x, func(_ int, x float64) float64 { return x * by }) }
func either(yes bool, a, b float64) float64 {
	if yes {
		return a
	}
	return b
}

// weightedSizes is Σ_j P_ij |V_jd|: what errors of fp32 sums go with.
func (s *sample) weightedSizes(t *testing.T) []float64 {
	t.Helper()
	p := s.in
	tensor := func(shape [4]int, data []float32) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		copy(x.Data, data)
		return x
	}
	p.Q, p.K, p.V = tensor(s.p.QShape(), s.q), tensor(s.p.KShape(), s.k), tensor(s.p.VShape(), s.v)
	each(p.V.Data, func(_ int, x float64) float64 { return math.Abs(x) })
	o, _, err := ref.Forward(p)
	require.NoError(t, err)
	return o.Data
}

// meanError is the mean error of o over those.
func meanError(t *testing.T, o []float32, want, sizes []float64) (mean float64) {
	t.Helper()
	for i := range o {
		if sizes[i] != 0 {
			mean += math.Abs(float64(o[i])-want[i]) / sizes[i] / float64(len(o))
		} else {
			require.Zero(t, o[i])
		}
	}
	return mean
}

// splitMay is how far sums of terms may be off where fp32 arithmetic is off by want: twice that, but for two inputs of which the order of
// fp32 operations decides. An H100 is off by 5.7e-6 and 6.4e-5 there (docs/notes/split.md).
func splitMay(input string, terms int, want, scale float64) float64 {
	switch {
	// 4096 and −4096, at once in scalar sums; half a unit of 4096's last place is lost where something stands between
	case input == "scores that cancel":
		return max(2*want, 4096*0x1p-24*scale)
	// a device that takes denormals for 0: of each of the products of terms, as of the one of scalar sums
	case input == "values of 1e-35" && want > 1e-6:
		return float64(terms*(terms+1)/2) * want
	}
	return 2 * want
}

// TestSplitIsAsCloseAsScalar: sums of terms on matrices are as close to attention in float64 as fp32 arithmetic is, whatever the scales of
// the inputs, and the same bits twice.
func TestSplitIsAsCloseAsScalar(t *testing.T) {
	vktest.Long(t, "fp32 on matrices in the conformance suite")
	d := matrixDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 21, KeyLen: 150, HeadDim: 20, ValueDim: 8, DType: F32}.Normalize()
	require.NoError(t, err)
	scalar := mustPlan(t, d, p, WithTier(TierScalar))
	for _, terms := range []int{2, 3} {
		if terms == 2 && testing.Short() {
			continue // the suite's target
		}
		plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": terms}))
		require.Contains(t, plan.ForwardInfo().Kernel, "matrix_forward_split")
		for _, in := range splitInputs {
			t.Run(fmt.Sprintf("%d terms, %s", terms, in.name), func(t *testing.T) {
				s := newSample(t, p)
				in.fill(rand.New(rand.NewPCG(3, 4)), s)
				s.answer(t)
				sizes := s.weightedSizes(t)
				run := func(plan *Plan) []float32 {
					f := s.tensors(t, d, plainly(t, d))
					require.NoError(t, plan.Forward(bg, f))
					return download(t, f.O)
				}
				least := 3e-8 // half a unit of fp32's last place
				want, got := max(least, meanError(t, run(scalar), s.o, sizes)), meanError(t, run(plan), s.o, sizes)
				t.Logf("mean error over sum P|V|: %.2g, scalar %.2g", got, want)
				if in.wide && plan.ForwardInfo().Tuning["bf16"] == 0 {
					require.Greater(t, got, 10*want, "the documentation says that this is lost")
					return
				}
				require.LessOrEqual(t, got, splitMay(in.name, terms, want, p.Scale))
				require.Equal(t, run(plan), run(plan))
			})
		}
		require.NoError(t, plan.Close())
	}
	require.NoError(t, scalar.Close())
}

// TestSplitGradients: backward passes, which are in fp32 arithmetic, follow a forward pass on matrices with gradients as close to float64
// as theirs behind the scalar tier's. Here the tiers are asked for; where sums of terms are taken unasked, plans choose so.
func TestSplitGradients(t *testing.T) {
	vktest.Long(t, "gradients of fp32 on scalar kernels")
	d := matrixDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 37, KeyLen: 53, HeadDim: 20, ValueDim: 12, DType: F32,
		Causal: CausalBottomRight}.Normalize()
	require.NoError(t, err)
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	copy(do.Data, randomValues(rand.New(rand.NewPCG(3, 4)), F32, p.OShape())) // as newBackwardSample has it
	for tier, name := range map[Tier]string{TierScalar: "scalar_forward", TierMatrix: "matrix_forward_split"} {
		plan := mustPlan(t, d, p, WithTier(tier))
		require.Equal(t, name, plan.ForwardInfo().KernelName)
		plan.gradient.tier = TierScalar
		s, b := newBackwardSample(t, d, plan, F32)
		require.NoError(t, plan.Backward(bg, b))
		want, err := ref.Backward(s.in, do, nil)
		require.NoError(t, err)
		for what, x := range map[string]struct {
			got  *Tensor
			want []float64
		}{"dq": {b.DQ, want.DQ.Data}, "dk": {b.DK, want.DK.Data}, "dv": {b.DV, want.DV.Data}} {
			for i, got := range download(t, x.got) {
				require.InDelta(t, x.want[i], float64(got), 2e-6*max(1, math.Abs(x.want[i])), "%s: %s[%d]", name, what, i)
			}
		}
		require.NoError(t, plan.Close())
	}
}

// TestSplitOfSpecialNumbers: what is not finite stays in its rows and columns, whatever scales their others; denormals and the largest
// numbers are numbers like others.
func TestSplitOfSpecialNumbers(t *testing.T) {
	d := matrixDevice(t)
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 12, KeyLen: 30, HeadDim: 8, DType: F32}.Normalize()
	require.NoError(t, err)
	plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 2}))
	finite := func(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
	run := func(change func(s *sample)) (s *sample, o, lse []float32) {
		s = newSample(t, p)
		change(s)
		f := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, f))
		return s, download(t, f.O), download(t, f.LSE)
	}
	near := func(want float64, got float32) { require.InDelta(t, want, float64(got), 1e-6*max(1, math.Abs(want))) }
	for _, bad := range []float32{float32(math.NaN()), math.Float32frombits(0x7fffffff), math.Float32frombits(0xff800001),
		float32(math.Inf(1)), float32(math.Inf(-1))} {
		right, _, _ := run(func(*sample) {})
		_, o, lse := run(func(s *sample) { s.q[3*p.HeadDim+5] = bad }) // one row of everything
		for i := range o {
			if i/p.HeadDim == 3 {
				require.False(t, finite(o[i]), "%v", bad)
				require.False(t, finite(lse[3]), "%v", bad)
				continue
			}
			near(right.o[i], o[i])
		}
		_, o, _ = run(func(s *sample) { s.k[7*p.HeadDim+1] = bad }) // every row
		for i := range o {
			require.False(t, finite(o[i]), "%v", bad)
		}
		_, o, lse = run(func(s *sample) { s.v[9*p.HeadDim+2] = bad }) // one column
		for i := range o {
			if i%p.HeadDim == 2 {
				require.False(t, finite(o[i]), "%v", bad)
				continue
			}
			near(right.o[i], o[i])
			near(right.lse[i/p.HeadDim], lse[i/p.HeadDim])
		}
	}
	for name, by := range map[string]float32{"large": math.MaxFloat32 / (1 << 12), "denormal": 1e-40} {
		s, o, _ := run(func(s *sample) {
			for i := range s.v {
				s.v[i] *= by
			}
		})
		s.answer(t)
		for i := range o {
			require.InDelta(t, s.o[i]/float64(by), float64(o[i])/float64(by), either(name == "denormal", 1.1, 1e-6),
				"%s: denormals may be 0", name)
		}
	}
	s, o, lse := run(func(s *sample) { scale(s.q, 1e-41); scale(s.k, 1e-41) }) // scores of 0
	s.answer(t)
	for i := range o {
		near(s.o[i], o[i])
		near(s.lse[i/p.HeadDim], lse[i/p.HeadDim])
	}
	require.NoError(t, plan.Close())
}

// TestSplitForms: forms with which no device here would take it prove themselves too, and terms that are not scaled, as those of bf16 are
// not. (The proof compares with attention in float64, within what the loss of one product of terms would exceed.)
func TestSplitForms(t *testing.T) {
	vktest.Long(t, "one form of fp32 on matrices in the conformance suite")
	d := matrixDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 30, HeadDim: 12, ValueDim: 8, DType: F32,
		Causal: CausalBottomRight}.Normalize()
	require.NoError(t, err)
	for _, c := range []struct {
		terms  int
		scaled bool
		form   int
		short  bool
		// the suite has three terms in rows
	}{{3, false, kernel.FormRegisters, true}, {2, false, kernel.FormShared, true}, {2, true, kernel.FormRows, false}} {
		t.Run(fmt.Sprintf("%d terms, scaled %v, form %d", c.terms, c.scaled, c.form), func(t *testing.T) {
			if !c.short {
				vktest.Long(t, "two of the forms")
			}
			prog, err := matrix.PlanTerms(d.env, attnOf(p), kernel.NewTuning(map[string]int{"form": c.form}), attn.F16, c.terms, c.scaled)
			require.NoError(t, err)
			require.Contains(t, prog.Tile(), fmt.Sprintf("form %d %d terms", c.form, c.terms))
		})
	}
	_, err = matrix.PlanTerms(d.env, attnOf(p), kernel.NewTuning(map[string]int{"form": kernel.FormShared}), attn.F16, 2, true)
	require.ErrorContains(t, err, "form 3")
}

// TestSplitWays: tiles in registers, in shared memory and under a branch, two row fragments, Q in shared memory, growth by sums, keys in
// parts. A plan is what proved itself.
func TestSplitWays(t *testing.T) {
	vktest.Long(t, "one way of fp32 on matrices in the conformance suite")
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 96, HeadDim: 12, ValueDim: 8, DType: F32}
	for i, tuning := range []map[string]int{
		{"w": 1, "rm": 2, "bc": 2, "ck": 1, "prefetch": 3, "pipe": 1, "q_reg": 1, "terms": 2},
		{"w": 2, "bc": 2, "ck": 2, "prefetch": 4, "pipe": 1, "max_first": 0, "terms": 3, "bf16": 0},
		{"w": 1, "bc": 1, "ck": 1, "form": 2, "prefetch": 5, "q_reg": 1, "parts": 2, "terms": 2},
	} {
		t.Run(fmt.Sprint(tuning), func(t *testing.T) {
			if i > 0 {
				vktest.Long(t, "one of the ways")
			}
			vktest.Budget(t)
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
			require.Contains(t, plan.ForwardInfo().Kernel, "matrix_forward_split")
			s := newSample(t, p)
			f := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, f))
			s.check(t, plan, f)
			require.NoError(t, plan.Close())
		})
	}
}

// TestSplitChoice: what cannot be is refused with the reason, and other types hear nothing of the kernel.
func TestSplitChoice(t *testing.T) {
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 20, HeadDim: 8, DType: F32}
	_, err := d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 2, "bf16": 1}))
	require.ErrorContains(t, err, "must be 3 with bf16")
	require.ErrorIs(t, err, ErrArgument)
	_, err = d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 4}))
	require.ErrorIs(t, err, ErrArgument)
	if why := d.env.Caps.LacksMatrix(attn.BF16); why != "" {
		_, err = d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"bf16": 1}))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "matrix_forward_split: terms of bfloat16: "+why)
	}
	blocks := p
	blocks.Blocks = Blocks{Queries: 16, Keys: 16}
	_, err = d.Plan(blocks, WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
	p.DType = F16
	require.NotContains(t, mustPlan(t, d, p, WithTier(TierScalar)).String(), "split")
	at := slices.IndexFunc(d.Info().Tiers, func(i TierInfo) bool { return i.Kernel == "matrix_forward_split" })
	info := d.Info().Tiers[at]
	require.Equal(t, []DType{F32}, info.DTypes)
	require.Empty(t, info.Backward)
	require.Empty(t, info.Missing, "of types that it is not for")
}

// TestSplitThatDoesNotFit: where no tile of so many terms fits into shared memory, the device does not offer what is asked for, and says
// so; it is no mistake in the number of terms. Numbers of a tile that do not fit are one.
func TestSplitThatDoesNotFit(t *testing.T) {
	d := planningDevice(t)
	facts := *d.env.Caps.Facts
	facts.Limits.MaxSharedMemory = 16 << 10
	d.env.Caps.Facts = &facts
	p := Problem{Batch: 1, Heads: 1, QueryLen: 100, HeadDim: 256, DType: F32}
	_, err := d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 3, "bf16": 0, "decode": 0}))
	var unsupported *UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.False(t, unsupported.Denied)
	require.Contains(t, unsupported.Reasons[len(unsupported.Reasons)-1], "bytes of shared memory pass the device's 16384")
	_, err = d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 3, "bf16": 0, "decode": 0, "bc": 16}))
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "bytes of shared memory pass the device's 16384")
	p.HeadDim = 32
	_, err = d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"terms": 3, "bf16": 0, "decode": 0}))
	require.ErrorIs(t, err, errPlanned)
}
