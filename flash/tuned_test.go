package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

func tuningProblem() Problem {
	return narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 16, DType: F16, Causal: CausalBottomRight})
}

func TestCandidates(t *testing.T) {
	d := testDevice(t)
	p := tuningProblem()
	got, err := d.Candidates(p, WithTier(TierScalar))
	require.NoError(t, err)
	require.Greater(t, len(got), 3)
	require.True(t, got[0].Default)
	require.Empty(t, got[0].Tuning)
	var effects []map[string]int
	for _, c := range got {
		require.Equal(t, "scalar_forward", c.Kernel)
		plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(c.Tuning), WithoutStoredTuning())
		require.True(t, strings.HasSuffix(plan.Kernel(), c.Tile))
		for _, e := range effects {
			require.NotEqual(t, e, plan.Tuning(), "no tiling twice")
		}
		effects = append(effects, plan.Tuning())
	}
	back, err := d.BackwardCandidates(p, WithTier(TierScalar))
	require.NoError(t, err)
	require.Len(t, back, 1)
	require.True(t, back[0].Default)
	require.Equal(t, "scalar_backward", back[0].Kernel)
	tuned := mustPlan(t, d, p, WithTier(TierScalar), WithTunings(map[string]int{"bc": 32, "kv_bc": 64}))
	info, err := tuned.BackwardInfo()
	require.NoError(t, err)
	require.Equal(t, [2]int{32, 64}, [2]int{tuned.Tuning()["bc"], info.Tuning["kv_bc"]}, "each name goes to the pass that has it")
	require.NoError(t, tuned.Close())

	standard, err := d.Candidates(p, WithImplementation(Standard))
	require.NoError(t, err)
	require.Len(t, standard, 1, "a kernel without a choice")
	_, err = d.Candidates(Problem{})
	require.ErrorIs(t, err, ErrArgument)
}

func TestStoredTuning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "tuning.json")
	t.Setenv(TuningEnv, path)
	d := testDevice(t)
	p := tuningProblem()
	plan := func(p Problem, opts ...PlanOption) *Plan {
		return mustPlan(t, d, p, append(opts, WithTier(TierScalar))...)
	}
	builtIn := plan(p)
	require.False(t, builtIn.Tuned(), "there is no file")

	key, err := d.TuningKey("scalar_forward", p)
	require.NoError(t, err)
	entry := TuningEntry{TuningKey: key, Tuning: map[string]int{"br": 8, "bc": 64, "mr": 1, "mc": 4}, Tile: "8x64", Gain: 1.25}
	require.NoError(t, StoreTunings(entry))
	tuned := plan(p)
	require.True(t, tuned.Tuned())
	require.Equal(t, "scalar_forward 8x64", tuned.Kernel())
	require.Contains(t, tuned.String(), "measured on this device by vkattn tune: 1.25 × the built-in choice")
	require.NotContains(t, fmt.Sprint(tuned.WhyNotFaster()), "stored tuning")
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, tuned.Forward(bg, f))
	s.check(t, tuned, f)

	// What it is not for, and what goes before it.
	require.Equal(t, builtIn.Kernel(), plan(p, WithoutStoredTuning()).Kernel())
	require.Equal(t, "scalar_forward 16x64", plan(p, WithTuning(map[string]int{"br": 16, "bc": 64, "mr": 2, "mc": 4})).Kernel())
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
	require.NoError(t, StoreTunings(entry, second))
	all, err := StoredTunings()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "scalar_forward 16x32", plan(p).Kernel())
	require.NoError(t, RemoveTunings(key))
	require.False(t, plan(p).Tuned())
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path, path + ".lock"}, left, "no temporary file stays")
}

// TestStoredTuningsAdd: storing and removing entries leave those of other keys as they are.
func TestStoredTuningsAdd(t *testing.T) {
	t.Setenv(TuningEnv, filepath.Join(t.TempDir(), "tuning.json"))
	entry := func(device string, dim int) TuningEntry {
		return TuningEntry{TuningKey: TuningKey{Device: device, Kernel: "scalar_forward", HeadDim: dim}, Tuning: map[string]int{"br": dim},
			Tile: fmt.Sprint(dim), Gain: 1.5}
	}
	stored := func() []TuningEntry {
		all, err := StoredTunings()
		require.NoError(t, err)
		return all
	}
	a, b, c := entry("a", 16), entry("a", 32), entry("b", 16)
	for i, e := range []TuningEntry{a, b, c} {
		require.NoError(t, StoreTunings(e))
		require.Equal(t, []TuningEntry{a, b, c}[:i+1], stored(), "one after the other")
	}
	b.Tile = "another"
	require.NoError(t, StoreTunings(b))
	require.Equal(t, []TuningEntry{a, b, c}, stored(), "one is replaced")
	require.NoError(t, RemoveTunings(b.TuningKey))
	require.Equal(t, []TuningEntry{a, c}, stored())
	require.NoError(t, RemoveTunings(b.TuningKey))
	require.Equal(t, []TuningEntry{a, c}, stored(), "it is gone already")
}

func TestStoredTuningThatDoesNotFit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(TuningEnv, path)
	d := testDevice(t)
	p := tuningProblem()
	builtIn := mustPlan(t, d, p, WithTier(TierScalar)).Kernel()
	key, err := d.TuningKey("scalar_forward", p)
	require.NoError(t, err)
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
		require.NoError(t, StoreTunings(TuningEntry{TuningKey: key, Tuning: test.tuning, Tile: "bad"}))
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, builtIn, plan.Kernel(), name)
		require.False(t, plan.Tuned())
		why := plan.WhyNotFaster() // the last is of the kernel itself
		require.Contains(t, why[len(why)-1], "scalar_forward: stored tuning bad is left aside", name)
		require.Contains(t, why[len(why)-1], test.why, name)
	}
	for name, text := range map[string]string{
		"is damaged":       "{",
		"is of version 99": `{"version": 99}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		require.Equal(t, builtIn, plan.Kernel())
		why := plan.WhyNotFaster()
		require.Contains(t, why[len(why)-1], name)
		require.Condition(t, func() bool {
			return strings.HasPrefix(strings.Join(d.Notices(), "\n"), "stored tunings are not used: ")
		})
		require.Error(t, StoreTunings(TuningEntry{TuningKey: key}), "a file that cannot be read is not overwritten")
	}
	t.Setenv(TuningEnv, "off")
	require.NotContains(t, mustPlan(t, d, p, WithTier(TierScalar)).String(), "stored tuning")
	require.ErrorContains(t, StoreTunings(TuningEntry{TuningKey: key}), "VKATTN_TUNING is off")
	require.NoError(t, RemoveTunings(key), "nothing to remove")
}

// TestTuningKeysHaveTheKeyLength: few queries have tiles that cut the keys into parts, as many as suit the number of keys.
func TestTuningKeysHaveTheKeyLength(t *testing.T) {
	key := func(queries, keys int) TuningKey {
		d := &Device{env: &kernel.Env{Caps: kernel.Capabilities{Facts: &vk.Facts{}}}}
		return d.tuningKey("scalar_decode", &attn.Problem{QueryLen: queries, KeyLen: keys, DType: attn.F16})
	}
	require.NotEqual(t, key(1, 4096), key(1, 65536))
	require.Equal(t, key(1, 5000), key(1, 8192))
	require.Equal(t, key(1, 7), key(1, 1024))
	require.Equal(t, key(2048, 4096), key(2048, 65536))
	require.NotContains(t, fmt.Sprint(key(2048, 4096)), "up to")
}

// caches are plain keys and values, and the ways in which a cache differs from them.
var caches = []attn.Problem{{},
	{Pages: attn.Pages{Size: 16, Count: 4096, PerSequence: 512}}, {Pages: attn.Pages{Size: 256, Count: 256, PerSequence: 32}},
	{KeyType: attn.Q8_0, ValueType: attn.Q8_0}, {KeyType: attn.Q8_0}, {ValueType: attn.Q8_0}, {KeyType: attn.Q4_0, ValueType: attn.Q4_0},
	{Pages: attn.Pages{Size: 16, Count: 4096, PerSequence: 512}, KeyType: attn.Q8_0, ValueType: attn.Q8_0},
	{Packed: attn.Packed{Queries: 9000, Keys: 9000}},
}

// TestTuningKeysTellCachesApart: what is fastest where keys lie in pages, or are quantised, says nothing of other places, as an entry of
// the tuning file and as a row of a file of tiles.
func TestTuningKeysTellCachesApart(t *testing.T) {
	d := &Device{env: &kernel.Env{Caps: *largeGPU()}}
	d.env.Caps.Facts.Name = "GPU"
	problem := func(cache attn.Problem) *attn.Problem {
		p := cache
		p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen, p.HeadDim, p.ValueDim, p.DType = 1, 8, 8, 1, 8192, 128, 128, attn.F16
		for _, t := range []*attn.DType{&p.KeyType, &p.ValueType} {
			if !t.Quantised() {
				*t = p.DType
			}
		}
		return &p
	}
	var entries []TuningEntry
	for i, cache := range caches {
		entries = append(entries, TuningEntry{TuningKey: d.tuningKey("scalar_decode", problem(cache)), Tuning: map[string]int{"w": i + 1}})
	}
	file := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(TuningEnv, file)
	require.NoError(t, StoreTunings(entries...))
	stored, err := StoredTunings()
	require.NoError(t, err)
	require.ElementsMatch(t, entries, stored)

	text, err := d.exportTiles(entries)
	require.NoError(t, err)
	exported, err := parseTiles("mine.tiles", text)
	require.NoError(t, err)
	c := d.env.Caps
	c.Tiles, err = exported.Over(c.TilesDevice())
	require.NoError(t, err)
	for i, cache := range caches {
		p := problem(cache)
		entry, note := d.storedTuning("scalar_decode", p)
		require.Empty(t, note)
		require.Equal(t, i+1, entry.Tuning["w"], "%v", p)
		row := c.TunedRow("scalar_decode", p)
		require.NotNil(t, row, "%v", p)
		require.Equal(t, i+1, row.Get("w"), "%v", p)
	}

	// What was measured of tensors alone is for these alone.
	require.NoError(t, RemoveTunings(entries[1].TuningKey))
	entry, _ := d.storedTuning("scalar_decode", problem(caches[1]))
	require.Nil(t, entry)
	text, err = d.exportTiles(entries[:1])
	require.NoError(t, err)
	exported, err = parseTiles("mine.tiles", text)
	require.NoError(t, err)
	c.Tiles, err = exported.Over(d.env.Caps.TilesDevice())
	require.NoError(t, err)
	require.NotNil(t, c.TunedRow("scalar_decode", problem(caches[0])))
	for _, cache := range caches[1:] {
		require.Nil(t, c.TunedRow("scalar_decode", problem(cache)))
	}
}
