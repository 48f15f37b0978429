package conformance

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

const goldenFolder = "../../../../testdata/vectors"

// TestConformance runs every case on every target that the device offers, several cases at once: go test -parallel says how many. With
// -short it runs a cover of their options.
func TestConformance(t *testing.T) {
	dev := device(t)
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder)}
	targets := Targets(dev, o)
	require.NotEmpty(t, targets)
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	picked := chosenOf(cases, targets)
	mapped := mapCover(cases, picked)
	var count sync.Mutex
	ran := map[string]int{}
	for at, c := range cases {
		chosen := picked[at]
		if len(chosen) == 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			vktest.Budget(t)
			dev := lease(t)
			defer c.release()
			for i, target := range chosen {
				t.Run(target.String(), func(t *testing.T) {
					vktest.Budget(t)
					vktest.Tag(t, target.kernel(), string(target.Tier), c.Problem.DType.String())
					c.after = nil
					if mapped[[2]int{at, i}] {
						c.after = c.mapped
					}
					r := c.Run(context.Background(), dev, target)
					require.Empty(t, takeMessages(),
						"the validation layers object, to this or to what ran beside it (-parallel 1: nothing)")
					if r.Skipped != "" {
						t.Skip(r.Skipped)
					}
					require.True(t, r.Pass, "%v: %s", c.Problem, r.Failure)
					c.requireZerosFail(t, target)
					if len(c.Backward) > 0 && target.light { // other devices may have no such kernel
						require.Empty(t, r.NoGradients)
					}
					if f := target.Family(); target.Tier == flash.TierScalar && (f == "flash2" || f == "standard") {
						require.Empty(t, r.NoGradients)
						if f == "flash2" && r.Gradients && c.hasTangents() {
							require.NotEmpty(t, r.Tangents, "no pass in forward mode: %s", r.NoTangents)
						}
					}
					count.Lock()
					ran[target.String()]++
					count.Unlock()
				})
			}
		})
	}
	t.Cleanup(func() { // when all of them have ended
		closeLeased(t)
		for _, target := range targets {
			t.Logf("%s: %d of %d cases ran", target, ran[target.String()], len(cases))
		}
	})
}

// chosenOf gives the targets that each case runs on: with -short a cover, else all. Golden vectors on the scalar tier are TestFolder's
// then, which runs them with all that their files hold. Where a CPU is the device, which compiles kernels of fragments for seconds each,
// one form of such a kernel runs all that skip leaves it, and the others the cover.
func chosenOf(cases []*Case, targets []Target) [][]Target {
	if testing.Short() {
		return cover(cases, targets, singly)
	}
	covered := cover(cases, targets, inPairs)
	chosen := make([][]Target, len(cases))
	for at, c := range cases {
		for _, t := range targets {
			golden := c.kind() == "golden" && t.Tier == flash.TierScalar
			all := !t.light || t.Tuning["form"] <= 1 && t.Tuning[terms] == 0 || slices.Contains(lightForms, c.Name)
			if !golden && (all || slices.ContainsFunc(covered[at], func(o Target) bool { return o.String() == t.String() })) {
				chosen[at] = append(chosen[at], t)
			}
		}
	}
	return chosen
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
	vktest.Long(t, "the suite has random problems, always the same ones")
	dev := device(t)
	small := onCPU(dev.Info())
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		require.NoError(t, f.Value.Set("25")) // each compiles new kernels, for seconds on some drivers
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

// TestRun checks the suite as the command runs it: the same results in the same order, whatever runs at once.
func TestRun(t *testing.T) {
	dev := device(t)
	o := Options{
		Families: []string{"flash2"}, Tiers: []flash.Tier{flash.TierScalar},
		Filter: only("^(golden/f16_d16|core/gqa/f16|core/one/.*|threshold/65536-tiny-large-last-gap16/f16)$"),
	}
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	require.Len(t, cases, 6)
	var names []string // as results must come
	for _, c := range cases {
		for _, target := range Targets(dev, o) {
			names = append(names, c.Name+" "+target.String())
		}
	}
	for _, parallel := range []int{0, 1, 4} {
		var told []string
		o.Parallel, o.Progress = parallel, func(done, total int, r Result) {
			told = append(told, r.Case+" "+r.Target)
			require.Len(t, told, done)
			require.Len(t, names, total)
		}
		results, err := Run(context.Background(), dev, o)
		require.NoError(t, err)
		require.Equal(t, names, told, "%d at once", parallel)
		require.Len(t, results, len(names))
		for i, r := range results {
			require.Equal(t, names[i], r.Case+" "+r.Target)
			if r.Skipped != "" {
				continue
			}
			require.True(t, r.Pass, "%s: %s", r.Case, r.Failure)
			require.NotEmpty(t, r.Kernel)
			require.Positive(t, r.Bound)
			require.LessOrEqual(t, r.MaxErr, r.Bound)
			require.Positive(t, r.Duration)
		}
	}
	_, err = Run(context.Background(), dev, Options{Filter: only("no such case")})
	require.Error(t, err)
	require.Empty(t, takeMessages())
}

// A suite that is cancelled ends at once, with the results that were there.
func TestRunIsCancelled(t *testing.T) {
	dev := device(t)
	o := Options{Families: []string{"flash2"}, Tiers: []flash.Tier{flash.TierScalar}, Filter: only("core/(one|gqa|dv|top-left)")}
	for _, after := range []int{0, 2} {
		ctx, cancel := context.WithCancel(context.Background())
		told := 0
		o.Parallel, o.Progress = 3, func(done, _ int, _ Result) {
			told = done
			if done == after {
				cancel()
			}
		}
		if after == 0 {
			cancel()
		}
		results, err := Run(ctx, dev, o)
		require.ErrorIs(t, err, context.Canceled)
		require.GreaterOrEqual(t, told, after)
		if after == 0 {
			require.Empty(t, results)
		}
		require.GreaterOrEqual(t, len(results), after)
		for _, r := range results {
			require.Empty(t, r.Failure, "%s: what was cut short is no result", r.Case)
		}
	}
	require.Empty(t, takeMessages())
}

// A case's estimate of its memory is not far below what it takes: cases beside it count on that.
func TestFootprints(t *testing.T) {
	dev := device(t)
	targets := Targets(dev, Options{Tiers: []flash.Tier{flash.TierScalar}})
	for _, c := range []*Case{
		{Name: "forward", Problem: flash.Problem{Batch: 2, Heads: 8, KeyHeads: 2, QueryLen: 512, KeyLen: 1200, HeadDim: 8,
			DType: flash.F16}, Sample: 4},
		{Name: "odd", Layouts: all(OddBNHD), Problem: flash.Problem{Batch: 3, Heads: 9, QueryLen: 600, HeadDim: 8, DType: flash.F32},
			Sample: 4},
		{Name: "gradients", Gradients: true, Problem: flash.Problem{Batch: 1, Heads: 8, QueryLen: 600, HeadDim: 8, DType: flash.F32,
			Causal: flash.CausalBottomRight}},
	} {
		if testing.Short() { // a quarter of the scores
			c.Problem.QueryLen, c.Problem.KeyLen = c.Problem.QueryLen/2, c.Problem.KeyLen/2
		}
		shared, runs := c.footprint(targets)
		require.Positive(t, shared)
		for i, target := range targets {
			if target.skip(c) != "" {
				require.Zero(t, runs[i])
				continue
			}
			dev.ResetPeak()
			before := dev.Usage()
			r := c.Run(context.Background(), dev, target)
			require.Empty(t, r.Failure, "%s on %v", c.Name, target)
			if r.Skipped != "" {
				continue
			}
			took := int64(0)
			for label, use := range dev.Usage().ByLabel {
				if !strings.HasPrefix(label, "staging") { // belongs to the device
					took += int64(use.Peak - before.ByLabel[label].Current)
				}
			}
			const guards = 64 << 10 // and what allocations are rounded up to
			require.Positive(t, took)
			require.LessOrEqual(t, took, runs[i]+guards, "%s on %v", c.Name, target)
		}
	}
	require.Positive(t, budget(dev))
}
