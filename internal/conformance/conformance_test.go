package conformance

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash"
)

const goldenFolder = "../../testdata/vectors"

// TestConformance runs every case on every target that the device offers.
func TestConformance(t *testing.T) {
	dev := device(t)
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder), Quick: testing.Short()}
	targets := Targets(dev, o)
	require.NotEmpty(t, targets)
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	ran := map[string]int{}
	for _, c := range cases {
		for _, target := range targets {
			t.Run(c.Name+"/"+target.String(), func(t *testing.T) {
				r := c.Run(context.Background(), dev, target)
				require.Empty(t, takeMessages(), "the validation layers object")
				if r.Skipped != "" {
					t.Skip(r.Skipped)
				}
				require.True(t, r.Pass, "%v: %s", c.Problem, r.Failure)
				if target.Tier == flash.TierScalar && (target.Implementation == flash.Flash || target.Implementation == flash.Standard) {
					require.Empty(t, r.NoGradients)
				}
				ran[target.String()]++
			})
		}
		c.release()
	}
	for _, target := range targets {
		t.Logf("%s: %d of %d cases ran", target, ran[target.String()], len(cases))
	}
}

// TestEveryTierIsThere: what a device must offer at least.
func TestEveryTierIsThere(t *testing.T) {
	offered := map[string]bool{}
	for _, target := range Targets(device(t), Options{}) {
		offered[target.Implementation.String()+"/"+string(target.Tier)] = true
	}
	require.True(t, offered["flash2/scalar"])
	require.True(t, offered["standard/scalar"])
	if required("VKATTN_REQUIRE_MATRIX") {
		require.True(t, offered["flash2/matrix"], "VKATTN_REQUIRE_MATRIX=1, and the device offers %v", offered)
	}
}

// TestRandomProblems looks for a problem on which any target is wrong, and shrinks what it finds.
func TestRandomProblems(t *testing.T) {
	dev := device(t)
	small := onCPU(dev.Info())
	if f := flag.Lookup("rapid.checks"); small && f != nil && f.Value.String() == f.DefValue {
		require.NoError(t, f.Value.Set("25")) // each check compiles new kernels, on two cores
		defer f.Value.Set(f.DefValue)
	}
	// In CI the problems are always the same ones: what fails there fails again. Elsewhere every run looks at new ones.
	if f := flag.Lookup("rapid.seed"); os.Getenv("CI") != "" && f != nil && f.Value.String() == f.DefValue {
		require.NoError(t, f.Value.Set("20240607"))
		defer f.Value.Set(f.DefValue)
	}
	var targets []Target
	for _, target := range Targets(dev, Options{}) {
		if !target.light { // takes seconds to compile each kernel; the core cases cover it
			targets = append(targets, target)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := Draw(func(low, high int) int { return rapid.IntRange(low, high).Draw(t, "choice") }, small)
		c.Name = c.Problem.String() + " " + c.Layouts.String()
		for _, target := range targets {
			r := c.Run(context.Background(), dev, target)
			if r.Skipped == "" && !r.Pass {
				t.Fatalf("%s on %v: %s", c.Name, target, r.Failure)
			}
			if m := takeMessages(); len(m) > 0 {
				t.Fatalf("%s on %v: the validation layers object: %v", c.Name, target, m)
			}
		}
	})
}

// TestRun checks the suite as the command runs it.
func TestRun(t *testing.T) {
	dev := device(t)
	calls := 0
	results, err := Run(context.Background(), dev, Options{
		Implementations: []flash.Implementation{flash.Flash}, Tiers: []flash.Tier{flash.TierScalar},
		Filter: only("^(golden/f16_one|golden/f16_d16|core/one/.*)$"),
		Progress: func(done, total int, r Result) {
			calls++
			require.Equal(t, calls, done)
			require.Equal(t, 5, total)
		},
	})
	require.NoError(t, err)
	require.Len(t, results, 5)
	require.Equal(t, 5, calls)
	for _, r := range results {
		require.True(t, r.Pass, "%s: %s%s", r.Case, r.Failure, r.Skipped)
		require.NotEmpty(t, r.Kernel)
		require.Positive(t, r.Bound)
		require.LessOrEqual(t, r.MaxErr, r.Bound)
		require.Positive(t, r.Duration)
	}
	_, err = Run(context.Background(), dev, Options{Filter: only("no such case")})
	require.Error(t, err)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Run(cancelled, dev, Options{Filter: only("core/one/f16")})
	require.ErrorIs(t, err, context.Canceled)
}
