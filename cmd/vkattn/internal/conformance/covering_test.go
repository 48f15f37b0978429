package conformance

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/flash"
)

// wholeSuite is what tests of covers choose from.
func wholeSuite(t *testing.T) (dev *flash.Device, targets []Target, cases []*Case) {
	t.Helper()
	dev = device(t)
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder)}
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	return dev, Targets(dev, o), cases
}

// TestCoverHasEveryPair: the cover in pairs has, for each family, every option and pair of options of the whole suite, and needs far fewer
// kernels.
func TestCoverHasEveryPair(t *testing.T) {
	_, targets, cases := wholeSuite(t)
	picked := cover(cases, targets, inPairs)
	want, have := map[string]bool{}, map[string]bool{}
	allKernels, kernels := map[string]bool{}, map[string]bool{}
	note := func(c *Case, target Target, pairs, compiled map[string]bool) {
		ch := choice{options: c.options(target)}
		for _, pair := range ch.pairs() {
			pairs[target.family()+": "+pair] = true
		}
		for _, k := range c.compiles(target) {
			compiled[k.name] = true
		}
	}
	for i, c := range cases {
		for _, target := range targets {
			if mayRun(c, target) && !c.drawn() {
				note(c, target, want, allKernels)
			}
		}
		for _, target := range picked[i] {
			require.True(t, mayRun(c, target))
			note(c, target, have, kernels)
		}
	}
	for pair := range want {
		require.True(t, have[pair], "%s is in the suite, and left out", pair)
	}
	require.Greater(t, len(want), 1000)
	t.Logf("%d pairs; %d kernels of %d", len(want), len(kernels), len(allKernels))
	require.Less(t, len(kernels), len(allKernels)*2/3)

	// The axes that stand in the comment above: a value of each that no case had would be no axis.
	for _, option := range []string{
		"flash2/scalar: type=float32, causal=top-left", "flash2/scalar: type=bfloat16, dropout=true",
		"flash2/scalar: causal=bottom-right, gradients=true",
		"flash2/scalar: type=float16, layout=odd", "flash2/scalar: lengths=more, queries=ragged",
		"flash2 (few queries)/scalar: type=bfloat16, queries=one",
		"standard/scalar: type=float32, gradients=true", "flash1/scalar: type=bfloat16, dropout=true", "flash1/scalar: layout=odd",
		"blocksparse/scalar: blocks=for each head",
	} {
		require.True(t, have[option], option)
	}
}

// TestShortCoverHasEveryOption: what go test -short runs has, on each tier, every option that the whole suite has and every kernel, with a
// number of kernels that two cores compile in a minute or two.
func TestShortCoverHasEveryOption(t *testing.T) {
	dev, targets, cases := wholeSuite(t)
	picked := cover(cases, targets, singly)
	missing, count := map[string]bool{}, 0
	kernels, seconds := map[string]bool{}, map[string]float64{}
	each := func(targets []Target, c *Case, do func(option string)) {
		for _, target := range targets {
			family, options := c.coveredAs(target, singly)
			for _, o := range options {
				do(family + ": " + o.axis + "=" + o.value)
			}
		}
	}
	for _, c := range cases {
		able := slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return !mayRun(c, t) || c.drawn() })
		each(able, c, func(option string) { missing[option] = true })
	}
	require.Greater(t, len(missing), 200)
	for i, c := range cases {
		each(picked[i], c, func(option string) { delete(missing, option) })
		for _, target := range picked[i] {
			count++
			for _, k := range c.compiles(target) {
				if !kernels[k.name] {
					seconds[target.family()] += k.seconds
				}
				kernels[k.name] = true
			}
		}
	}
	require.Empty(t, missing)
	sum := 0.0
	for _, s := range seconds {
		sum += s
	}
	t.Logf("%d cases, %d kernels, %.0f s: %v", count, len(kernels), sum, seconds)
	if onCPU(dev.Info()) {
		require.Less(t, len(kernels), 250)
	}
}

// TestMutantsExpectShortCases: the cases that tools/mutate expects to find a mistake are among those that go test -short runs where a CPU
// is the device. On others short runs have other cases, and other tests stand behind these.
func TestMutantsExpectShortCases(t *testing.T) {
	dev := device(t)
	if !onCPU(dev.Info()) {
		t.Skip("the mutants' lists name what runs on a CPU")
	}
	o := Options{Seed: 1, Vectors: os.DirFS(goldenFolder)}
	targets := Targets(dev, o)
	cases, err := Cases(dev, o)
	require.NoError(t, err)
	short := map[string][]Target{}
	for at, chosen := range cover(cases, targets, singly) {
		short[cases[at].Name] = chosen
	}
	for _, k := range killers() {
		if slices.ContainsFunc(targets, k.on) {
			require.True(t, slices.ContainsFunc(short[k.name], k.on), "%s expects %s on %s, which short runs leave out", k.list,
				k.name, k.target)
		}
	}
	require.Greater(t, len(killers()), 20)
}

// TestPickCovers: whatever there is to choose from, all options and pairs are there afterwards.
func TestPickCovers(t *testing.T) {
	c := &Case{Name: "core/x"}
	c.Problem.Batch, c.Problem.Heads, c.Problem.QueryLen, c.Problem.HeadDim = 1, 1, 8, 8
	rapid.Check(t, func(t *rapid.T) {
		var all []choice
		want := map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "choices") {
			var ch choice
			for axis := range 5 {
				ch.options = append(ch.options, option{fmt.Sprint(axis), fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "value")), concern(axis)})
			}
			ch.kernels = []kernel{{fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "kernel")), 1}}
			all = append(all, ch)
			for _, pair := range ch.pairs() {
				want[pair] = true
			}
		}
		for _, ch := range pick(all, nil, []*Case{c}, map[string]bool{}) {
			for _, pair := range ch.pairs() {
				delete(want, pair)
			}
		}
		if len(want) > 0 {
			t.Fatalf("left out: %v", want)
		}
	})
}
