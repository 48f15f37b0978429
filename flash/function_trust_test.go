package flash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/shaders"
)

// crossed is a module whose hooks get each other's operands, as a splice would give them that mistook one for another. Without functions it
// computes what it always did.
func crossed(code []uint32) []uint32 {
	const header, extInst, refract = 5, 12, 72 // words before the first instruction; OpExtInst; GLSL.std.450's
	code = append([]uint32(nil), code...)
	for at := header; at < len(code); at += int(code[at] >> 16) {
		if w := code[at:]; w[0]&0xffff == extInst && w[4] == refract {
			w[5], w[6] = w[6], w[5]
		}
	}
	return code
}

// functionCase is a problem for a kernel of the scalar tier into which functions are put.
type functionCase struct {
	modules string // whose names begin so
	problem Problem
	impl    Implementation
	back    bool // its backward pass
}

func functionCases() map[string]functionCase {
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 23, HeadDim: 8, DType: F16, ScoreFunction: score.Softcap(1)}
	biased, masked, blocks := p, p, p
	biased.Bias = PerScore{DType: F16, Batch: 1, Heads: 1, Queries: 20, Keys: 23}
	masked.ScoreFunction, masked.MaskFunction = score.Function{}, score.PrefixLM(5)
	blocks.Blocks = Blocks{Queries: 16, Keys: 16}
	one := p
	one.QueryLen, one.KeyLen = 1, 300
	return map[string]functionCase{
		"forward":           {"scalar_forward", p, Flash, false},
		"forward of a mask": {"scalar_forward", masked, Flash, false},
		"block mask":        {"scalar_forward", blocks, Flash, false},
		"one query":         {"scalar_decode", one, Flash, false},
		"flash1":            {"scalar_flash1", p, Flash1, false},
		"standard":          {"standard_softmax", p, Standard, false},
		"backward":          {"scalar_backward_", p, Flash, true},
		"bias":              {"scalar_backward_bias", biased, Flash, true},
		"standard backward": {"standard_backward_softmax", p, Standard, true},
	}
}

// TestFunctionsAreProved: what functions are put into is tried before its first use on the scalar tier too. A module in which they land in
// the wrong place is denied, with what was wrong, and the same module without functions is neither tried nor denied.
func TestFunctionsAreProved(t *testing.T) {
	for name, c := range functionCases() {
		t.Run(name, func(t *testing.T) {
			if c.back {
				vktest.Long(t, "forward passes")
			}
			d := testDevice(t)
			forgetProcess(t)
			plan := func(p Problem) (*Plan, error) {
				opts := []PlanOption{WithImplementation(c.impl), WithTier(TierScalar)}
				if c.modules == "scalar_decode" { // and not the one that would take its place
					opts = append(opts, WithTuning(map[string]int{"decode": 1}))
				}
				plan, err := d.Plan(p, opts...)
				if err == nil {
					t.Cleanup(func() { require.NoError(t, plan.Close()) })
					if c.back {
						_, err = plan.BackwardInfo()
					}
				}
				return plan, err
			}
			tried := func() int { return len(kernel.Known.Entries) }
			plain := c.problem
			plain.ScoreFunction, plain.MaskFunction = score.Function{}, score.MaskFunction{}
			_, err := plan(plain)
			require.NoError(t, err)
			require.Zero(t, tried(), "without functions nothing is tried")
			_, err = plan(c.problem)
			require.NoError(t, err)
			n := tried()
			require.NotZero(t, n)
			for key, verdict := range kernel.Known.Entries {
				require.Equal(t, kernel.Passed, verdict, key)
			}
			_, err = plan(c.problem)
			require.NoError(t, err)
			require.Equal(t, n, tried(), "the verdict is remembered")
			other := c.problem
			if other.ScoreFunction = score.Softcap(2); !c.problem.MaskFunction.Everything() {
				other.ScoreFunction, other.MaskFunction = score.Function{}, score.PrefixLM(6)
			}
			_, err = plan(other)
			require.NoError(t, err)
			require.Greater(t, tried(), n, "another function is other code")

			d.env.Modules = func(name string) ([]uint32, error) {
				code, err := shaders.Shipped.Module(name)
				if err == nil && strings.HasPrefix(name, c.modules) {
					code = crossed(code)
				}
				return code, err
			}
			_, err = plan(c.problem)
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, "self-check failed: ")
			require.ErrorContains(t, err, "should be")
			var unsupported *UnsupportedError
			require.ErrorAs(t, err, &unsupported)
			require.True(t, unsupported.Denied)
			_, err = plan(plain)
			require.NoError(t, err)
		})
	}
}

// TestCapturedGradientIsProved: the same of the gradient with respect to a captured tensor, which is tried where it is first asked for.
func TestCapturedGradientIsProved(t *testing.T) {
	d := testDevice(t)
	forgetProcess(t)
	f := score.RelativeBias(score.Capture("table", 8, 2), score.T5Bucket(true, 8, 40))
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 23, HeadDim: 8, DType: F16, ScoreFunction: f}
	table := make([]float32, 16)
	for i := range table {
		table[i] = float32(i%5) / 4
	}
	s := newCapturedSample(t, d, p, table)
	require.NoError(t, s.plan.Backward(bg, s.b))
	s = newCapturedSample(t, d, p, table)
	d.env.Modules = func(name string) ([]uint32, error) {
		code, err := shaders.Shipped.Module(name)
		if err == nil && strings.HasPrefix(name, "scalar_backward_captured") {
			code = crossed(code)
		}
		return code, err
	}
	err := s.plan.Backward(bg, s.b)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "scalar_backward_captured")
	require.ErrorContains(t, err, "dtable")
}

// TestScoresAreProved: the same of the kernel that looks at scores, which is tried where it is first asked for.
func TestScoresAreProved(t *testing.T) {
	d := testDevice(t)
	forgetProcess(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 23, HeadDim: 8, DType: F16, Causal: CausalBottomRight,
		ScoreFunction: score.Softcap(1)}
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	out := make([]float32, 2*20*23)
	require.NoError(t, mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar)).Scores(bg, f, out))
	d = testDevice(t) // the first one has the kernel
	f = s.tensors(t, d, plainly(t, d))
	plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar))
	forgetProcess(t)
	d.env.Modules = func(name string) ([]uint32, error) {
		code, err := shaders.Shipped.Module(name)
		return crossed(code), err
	}
	err := plan.Scores(bg, f, out)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "self-check failed: s[")
}

// TestStrangeFunctionsAreTrusted: functions that make much of roundings, and such that give no number for some of what a self-check draws,
// are no reason to deny a kernel that computes them as it should.
func TestStrangeFunctionsAreTrusted(t *testing.T) {
	vktest.Long(t, "functions of the conformance suite")
	d := testDevice(t)
	build := func(e score.Float) score.Function {
		f, err := score.New(e)
		require.NoError(t, err)
		return f
	}
	slope := score.Capture("slope", 2).At(score.Head())
	for name, f := range map[string]score.Function{
		"steep":      build(score.S().Mul(score.Const(60))),
		"square":     build(score.S().Mul(score.S()).Mul(score.Const(20))),
		"no number":  build(score.S().Sub(slope.Log())),
		"of nothing": build(score.S().Log()),
		"edges":      build(score.S().Abs().Log()), // whose slope at 0 is none
		"jump":       build(score.S().Less(score.Const(0)).Select(score.S().Mul(score.Const(30)), score.S())),
	} {
		for _, dtype := range []DType{F32, F16} {
			for _, impl := range []Implementation{Flash, Standard, Flash1} {
				t.Run(name+"/"+dtype.String()+"/"+impl.String(), func(t *testing.T) {
					if impl == Flash1 || (impl == Flash) != (dtype == F32) {
						vktest.Long(t, "each function in both types, in each on one kernel")
					}
					plan, err := d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 64, DType: dtype, ScoreFunction: f},
						WithImplementation(impl), WithTier(TierScalar))
					require.NoError(t, err)
					if impl != Flash1 {
						_, err = plan.BackwardInfo()
						require.NoError(t, err)
					}
					require.NoError(t, plan.Close())
				})
			}
		}
	}
}
