package flash

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/internal/tuned"
	"github.com/vkattn/vkattn/shaders"
)

// TestVerdictsKeepTheirKeys: the key of a verdict names the words that the driver gets, as it did when the hash was made of them each time:
// verdicts on users' disks stay theirs.
func TestVerdictsKeepTheirKeys(t *testing.T) {
	d := testDevice(t)
	const module = "scalar_forward.f16"
	for _, functions := range []score.Code{{}, {Score: score.Softcap(30)}} {
		c := kernel.Constants{"SCORE_FUNCTIONS": 0, "MASK_FUNCTIONS": 0}
		words, err := d.env.Module(module)
		require.NoError(t, err)
		if !functions.Score.Identity() {
			c["SCORE_FUNCTIONS"] = 1
			info, err := shaders.Describe(module)
			require.NoError(t, err)
			spliced := functions
			spliced.FirstBinding = info.Interface.BindingCount()
			words, err = score.Splice(words, spliced)
			require.NoError(t, err)
		}
		sum := sha256.Sum256(spirv.Bytes(words))
		key, err := d.env.ProofKey([]kernel.Compiled{{Module: module, Constants: c, Functions: functions}})
		require.NoError(t, err)
		specialized := ""
		if n := d.env.Ctx.Specialized(); n > 0 {
			specialized = fmt.Sprintf(" specialized %d", n)
		}
		require.Equal(t, fmt.Sprintf("check 3%s %s %.16s%v", specialized, module, hex.EncodeToString(sum[:]), c), key)
	}
}

// TestPlanAgain: a plan of a problem that was planned before is the same program, found without looking anything up, until something
// changed that the choice depends on.
func TestPlanAgain(t *testing.T) {
	t.Setenv(tuned.Env, filepath.Join(t.TempDir(), "tuning.json"))
	testDevice(t) // skips where there is none
	d, err := Open(WithoutDiskCache())
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	p := Problem{Batch: 2, Heads: 2, QueryLen: 70, HeadDim: 32, Causal: CausalBottomRight, ScoreFunction: score.Softcap(20)}
	first := mustPlan(t, d, p)
	again := func(p Problem, opts ...PlanOption) kernel.Program {
		t.Helper()
		plan := mustPlan(t, d, p, opts...)
		require.NoError(t, plan.Close())
		return plan.program
	}
	require.Same(t, first.program, again(p))
	same := p
	same.KeyHeads, same.KeyLen, same.ValueDim, same.Scale, same.ScoreFunction = 2, 70, 32, 1/math.Sqrt(32), score.Softcap(20)
	require.Same(t, first.program, again(same), "said in other words")
	for name, change := range map[string]func(*Problem){
		"length": func(p *Problem) { p.QueryLen++ }, "scale": func(p *Problem) { p.Scale = 2 },
		"mask":     func(p *Problem) { p.Causal = CausalNone },
		"function": func(p *Problem) { p.ScoreFunction = score.Softcap(21) },
		"seen":     func(p *Problem) { p.MaskFunction = score.PrefixLM(3) },
		"bias":     func(p *Problem) { p.Bias = PerScore{F32, 1, 1, 70, 70} },
	} {
		other := p
		change(&other)
		require.NotSame(t, first.program, again(other), name)
		require.Equal(t, other.ScoreFunction, mustPlan(t, d, other).attn.Score, name)
	}
	require.NotSame(t, first.program, again(p, WithTier(TierScalar)), "options count")
	require.NotSame(t, again(p), again(p, WithTuning(map[string]int{"br": 16})))
	require.Same(t, again(p, WithTuning(map[string]int{"br": 16})), again(p, WithTuning(map[string]int{"br": 16})))
	require.Same(t, first.program, again(p))

	// A tuning that is stored counts from then on, and no more once it is removed.
	key := d.tuned().Key(first.ForwardInfo().KernelName, attnOf(normal(t, p)))
	require.NoError(t, tuned.Store(tuned.Entry{Key: key, Tuning: map[string]int{"br": 16}, Tile: "16", Gain: 2}))
	stored := mustPlan(t, d, p)
	require.True(t, stored.Tuned())
	require.Equal(t, 16, stored.ForwardInfo().Tuning["br"])
	require.Same(t, stored.program, again(p))
	require.NoError(t, tuned.Remove(key))
	require.False(t, mustPlan(t, d, p).Tuned())

	// A kernel that is denied now is not taken, backward neither.
	plan := mustPlan(t, d, p)
	forward := plan.program.(interface {
		Compiled(kernel.Variant) []kernel.Compiled
	})
	proof, err := d.env.ProofKey(forward.Compiled(kernel.Variant{Aligned: true, LSE: true}))
	require.NoError(t, err)
	require.Equal(t, kernel.Passed, d.env.Recall(proof), "functions of the user's make it prove itself")
	d.env.Remember(proof, "o is wrong")
	t.Cleanup(func() { d.env.Forget(proof) })
	if other, err := d.Plan(p); err == nil { // a device with other kernels for this takes one
		require.NotEqual(t, plan.ForwardInfo().KernelName, other.ForwardInfo().KernelName)
		require.NoError(t, other.Close())
	} else {
		require.ErrorIs(t, err, ErrUnsupported)
	}
	d.env.Forget(proof)
	require.Equal(t, plan.ForwardInfo().Kernel, mustPlan(t, d, p).ForwardInfo().Kernel)
}

// TestBackwardPlanAgain: likewise of backward passes, whose options count.
func TestBackwardPlanAgain(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 48, HeadDim: 16}
	backward := func(opts ...PlanOption) kernel.BackwardProgram {
		t.Helper()
		plan := mustPlan(t, d, p, opts...)
		_, err := plan.BackwardInfo()
		require.NoError(t, err)
		require.NoError(t, plan.Close())
		return plan.gradient.is.program
	}
	first := backward(WithTier(TierScalar))
	require.Same(t, first, backward(WithTier(TierScalar)))
	tuned := backward(WithTier(TierScalar), WithBackwardTuning(map[string]int{"q_br": 16}))
	require.NotSame(t, first, tuned)
	require.Same(t, tuned, backward(WithTier(TierScalar), WithBackwardTuning(map[string]int{"q_br": 16})))
}

// TestPlanAgainAllocatesLittle: what is left of planning is the plan itself.
func TestPlanAgainAllocatesLittle(t *testing.T) {
	d := testDevice(t)
	for _, p := range []Problem{
		{Batch: 1, Heads: 8, KeyHeads: 2, QueryLen: 512, HeadDim: 64, Causal: CausalBottomRight},
		{Batch: 4, Heads: 8, QueryLen: 1, KeyLen: 2000, HeadDim: 64, DType: F16},
		{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 16, ScoreFunction: score.Softcap(30)},
	} {
		n := testing.AllocsPerRun(20, func() {
			plan, err := d.Plan(p)
			require.NoError(t, err)
			require.NoError(t, plan.Close())
		})
		require.LessOrEqual(t, n, 20.0, p)
	}
}

// TestSelectionsAreBounded: a device remembers the problems that were planned last, not all that ever were.
func TestSelectionsAreBounded(t *testing.T) {
	var s selections
	at := func(i int) *selectionKey { return &selectionKey{problem: attn.Problem{QueryLen: i}} }
	used := &selection{}
	s.put(at(-1), used)
	for i := range 10 * mostSelections {
		s.put(at(i), &selection{})
		require.LessOrEqual(t, s.used.Len(), mostSelections)
		require.Same(t, used, s.get(at(-1)), "what is in use stays")
		require.NotNil(t, s.get(at(i)))
	}
	require.Nil(t, s.get(at(0)))
}

// TestCacheLimit: what a program says may be kept on disk is what is.
func TestCacheLimit(t *testing.T) {
	testDevice(t) // skips where there is none
	_, err := Open(WithCacheLimit(0))
	require.ErrorIs(t, err, ErrArgument)
	dir := t.TempDir()
	work := func(opts ...DeviceOption) (files []string) {
		d, err := Open(append(opts, WithCacheDir(dir), WithDevice("0"))...)
		require.NoError(t, err)
		for _, dim := range []int{8, 16, 24} {
			require.NoError(t, mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: dim}, WithTier(TierScalar)).Close())
		}
		require.NoError(t, d.Close())
		files, err = filepath.Glob(filepath.Join(dir, "*", "*.bin"))
		require.NoError(t, err)
		return files
	}
	require.Empty(t, work(WithCacheLimit(1)))
	require.Len(t, work(), 3)
}
