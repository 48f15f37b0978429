package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/tuned"
)

func tuningProblem() Problem {
	return narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 16, DType: F16, Causal: CausalBottomRight})
}

func TestStoredTuning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "tuning.json")
	t.Setenv(tuned.Env, path)
	d := testDevice(t)
	p := tuningProblem()
	plan := func(p Problem, opts ...PlanOption) *Plan {
		return mustPlan(t, d, p, append(opts, WithTier(TierScalar))...)
	}
	builtIn := plan(p)
	require.False(t, builtIn.Tuned(), "there is no file")

	key := d.tuned().Key("scalar_forward", attnOf(normal(t, p)))
	entry := tuned.Entry{Key: key, Tuning: map[string]int{"br": 8, "bc": 64, "mr": 1, "mc": 4}, Tile: "8x64", Gain: 1.25}
	require.NoError(t, tuned.Store(entry))
	stored := plan(p)
	require.True(t, stored.Tuned())
	require.Equal(t, "scalar_forward 8x64", stored.ForwardInfo().Kernel)
	require.Contains(t, stored.String(), "measured on this device by vkattn tune: 1.25 × the built-in choice")
	require.NotContains(t, fmt.Sprint(stored.ForwardInfo().WhyNotFaster), "stored tuning")
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, stored.Forward(bg, f))
	s.check(t, stored, f)

	// What it is not for, and what goes before it.
	require.Equal(t, builtIn.ForwardInfo().Kernel, plan(p, WithoutStoredTuning()).ForwardInfo().Kernel)
	require.Equal(t, "scalar_forward 16x64", plan(p, WithTuning(map[string]int{"br": 16, "bc": 64, "mr": 2, "mc": 4})).ForwardInfo().Kernel)
	for name, other := range map[string]func(*Problem){
		"head dimension":  func(p *Problem) { p.HeadDim = 24 },
		"value dimension": func(p *Problem) { p.ValueDim = 12 },
		"type":            func(p *Problem) { p.DType = F32 },
		"no mask":         func(p *Problem) { p.Causal = CausalNone },
		"decoding":        func(p *Problem) { p.QueryLen, p.KeyLen = 1, 64 },
	} {
		q := p
		other(&q)
		if !testing.Short() {
			require.False(t, plan(q).Tuned(), name)
			continue
		}
		q, err := q.Normalize() // what a plan looks up, without the kernel that it then compiles
		require.NoError(t, err)
		found, _ := d.storedTuning("scalar_forward", attnOf(q))
		require.Nil(t, found, name)
	}
	longer := p
	longer.QueryLen, longer.Batch = 100, 3
	require.True(t, plan(longer).Tuned(), "the same class of problems")

	// Storing again replaces, another key adds, removing takes away.
	entry.Tuning, entry.Tile = map[string]int{"br": 16, "bc": 32, "mr": 2, "mc": 4}, "16x32"
	second := entry
	second.HeadDim = 99
	require.NoError(t, tuned.Store(entry, second))
	all, err := tuned.Stored()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "scalar_forward 16x32", plan(p).ForwardInfo().Kernel)
	require.NoError(t, tuned.Remove(key))
	require.False(t, plan(p).Tuned())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path, path + ".lock"}, left, "no temporary file stays")
}

func TestStoredTuningThatDoesNotFit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(tuned.Env, path)
	d := testDevice(t)
	p := tuningProblem()
	builtIn := mustPlan(t, d, p, WithTier(TierScalar)).ForwardInfo().Kernel
	key := d.tuned().Key("scalar_forward", attnOf(normal(t, p)))
	for name, test := range map[string]struct {
		tuning map[string]int
		why    string
	}{
		"an impossible tile": {map[string]int{"br": 7, "mr": 2}, "must be a multiple of mr"},
		"a number outside its range": {map[string]int{"dk": 1 << 62}, "WithTuning[dk] is 4611686018427387904: must be a multiple of 4 " +
			"from 4 to 576"},
		"a negative number": {map[string]int{"br": -1}, "WithTuning[br] is -1: must be from 1 to 1024"},
		"an unknown name":   {map[string]int{"colour": 3}, "has no such parameter"},
		"a name that is gone": {map[string]int{"br": 32, "kv_columns": 2},
			"WithTuning[kv_columns] is 2: scalar_forward has no such parameter"},
		"too much for memory": {map[string]int{"br": 1024, "bc": 1024}, "device's"},
	} {
		require.NoError(t, tuned.Store(tuned.Entry{Key: key, Tuning: test.tuning, Tile: "bad"}))
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, builtIn, plan.ForwardInfo().Kernel, name)
		require.False(t, plan.Tuned())
		why := plan.ForwardInfo().WhyNotFaster // the last is of the kernel itself
		require.Contains(t, why[len(why)-1], "scalar_forward: stored tuning bad is left aside", name)
		require.Contains(t, why[len(why)-1], test.why, name)
	}
	for name, text := range map[string]string{
		"is damaged":       "{",
		"is of version 99": `{"version": 99}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, builtIn, plan.ForwardInfo().Kernel)
		why := plan.ForwardInfo().WhyNotFaster
		require.Contains(t, why[len(why)-1], name)
		require.Condition(t, func() bool {
			return strings.HasPrefix(strings.Join(d.Notices(), "\n"), "stored tunings are not used: ")
		})
		require.Error(t, tuned.Store(tuned.Entry{Key: key}), "a file that cannot be read is not overwritten")
	}
	t.Setenv(tuned.Env, "off")
	require.NotContains(t, mustPlan(t, d, p, WithTier(TierScalar)).String(), "stored tuning")
	require.ErrorContains(t, tuned.Store(tuned.Entry{Key: key}), "VKATTN_TUNING is off")
	require.NoError(t, tuned.Remove(key), "nothing to remove")
}
