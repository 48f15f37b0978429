package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
)

// What a suite costs where a CPU is the device is compiling: seconds for a kernel of matrix fragments, a third of one for a scalar kernel.
// go test -short runs a part of the suite that keeps what finds mistakes: for each kernel every option that any case of the whole suite has for
// it, and every pair of options that concern the same thing.

// A choice is one case on one target.
type choice struct {
	at      int // of the case
	target  int
	options []option
	kernels []string // what it compiles, as far as this file knows
}

// option is a value of an axis: a value dimension above the head dimension, say. It must occur beside every option of the axes with which it
// has a concern in common.
type option struct {
	axis, value string
	concern     concern
}

type concern int

const (
	compiled concern = 1 << iota // what a kernel is made from
	data                         // how much there is, and where it lies
	formed                       // what the forms of a kernel treat differently
)

// family is what is covered by itself: the forms of a kernel are options of it, other kernels are other families.
func (t Target) family() string { return t.kernel() + "/" + string(t.Tier) }

// kernel names the implementation, and its kernel for few queries apart.
func (t Target) kernel() string {
	if t.Tuning["decode"] == 1 {
		return t.Implementation.String() + " (few queries)"
	}
	return t.Implementation.String()
}

// options says what is special about a case on a target.
func (c *Case) options(t Target) []option {
	p, err := c.Problem.Normalize()
	if err != nil {
		return nil
	}
	gradients := c.hasGradients() && !t.skipsGradients(c)
	is := func(axis string, b bool, of concern) option { return option{axis, fmt.Sprint(b), of} }
	out := []option{
		{"type", p.DType.String(), compiled | data},
		{"causal", p.Causal.String(), compiled | data | formed},
		{"value dimension", relation(p.ValueDim, p.HeadDim), compiled},
		is("whole pieces of 16 bytes", p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0, compiled|formed),
		is("dropout", p.Dropout > 0, compiled|formed),
		is("lse", !c.NoLSE, compiled|formed),
		is("gradients", gradients, compiled|formed),
		{"blocks", blocksName(p.Blocks), compiled | data | formed},
		{"heads", relation(p.KeyHeads, p.Heads) + ", " + relation(p.KeyHeads, 1) + " than one", data},
		{"layout", layoutName(c.Layouts), data},
		{"lengths", relation(p.QueryLen, p.KeyLen), data},
		{"queries", lengthName(p.QueryLen), data},
		{"keys", lengthName(p.KeyLen), data},
		// These need only occur.
		{"batch", relation(p.Batch, 1), 0},
		{"scale", scaleName(c.Problem.Scale), 0},
		{"size", sizeName(max(p.HeadDim, p.ValueDim)), 0},
		{"kind", c.kind(), 0},
	}
	if form, ok := t.Tuning["form"]; ok {
		out = append(out, option{"form", fmt.Sprint(form), formed})
	}
	if t.Implementation != flash.Flash { // the others share much of its code: there these need only occur
		for i := range out {
			switch out[i].axis {
			case "type", "causal", "whole pieces of 16 bytes", "dropout", "gradients":
				out[i].concern = compiled
			default:
				out[i].concern = 0
			}
		}
	}
	if gradients {
		out = append(out, is("accumulates", c.accumulates(), 0))
	}
	return out
}

func relation(a, b int) string {
	switch {
	case a < b:
		return "fewer"
	case a > b:
		return "more"
	}
	return "equal"
}

func layoutName(l Layouts) string {
	if l == all(l.Q) {
		return l.Q.String()
	}
	return "different ones"
}

func lengthName(n int) string {
	switch {
	case n == 1:
		return "one"
	case n%16 == 0:
		return "whole tiles"
	}
	return "ragged"
}

func scaleName(scale float64) string {
	switch {
	case scale < 0:
		return "negative"
	case scale > 0:
		return "given"
	}
	return "default"
}

func blocksName(b flash.Blocks) string {
	switch {
	case b == flash.Blocks{}:
		return "none"
	case b.PerHead:
		return "for each head"
	}
	return "for all heads"
}

func sizeName(d int) string {
	for _, most := range []int{16, 32, 64, 128} {
		if d <= most {
			return fmt.Sprintf("up to %d", most)
		}
	}
	return "up to 256"
}

// kind is what the case's name begins with: all of it where the name stands for special inputs, its first part where cases differ in sizes.
func (c *Case) kind() string {
	parts := strings.Split(c.Name, "/")
	switch parts[0] {
	case "numeric", "threshold", "magnitude", "grid":
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

// compiles guesses what kernels a case needs on a target: the names of two cases' kernels are equal where both run the same one.
func (c *Case) compiles(t Target) []string {
	p, err := c.Problem.Normalize()
	if err != nil {
		return nil
	}
	whole := p.HeadDim*p.DType.Size()%16 == 0 && p.ValueDim*p.DType.Size()%16 == 0
	aligned := whole && !slices.ContainsFunc([]Layout{c.Layouts.Q, c.Layouts.K, c.Layouts.V}, func(l Layout) bool { return l == Odd || l == OddBNHD })
	same := fmt.Sprintf("%v %d %d %v %v %v %v %v few=%v", t, p.HeadDim, p.ValueDim, p.DType, p.Causal != flash.CausalNone, p.Dropout > 0, c.Tuning,
		p.Blocks != flash.Blocks{}, p.QueryLen*p.Heads/p.KeyHeads <= 16)
	out := []string{fmt.Sprint("forward ", same, whole, true)} // of which a plan makes sure at once
	if aligned != whole || c.NoLSE {
		out = append(out, fmt.Sprint("forward ", same, aligned, !c.NoLSE))
	}
	if c.hasGradients() && !t.skipsGradients(c) {
		for _, kernel := range []string{"keys ", "queries "} {
			out = append(out, fmt.Sprint(kernel, same, aligned))
		}
	}
	return out
}

// seconds is what it takes a CPU to compile one of a choice's kernels, and to run the case.
func (c *Case) seconds(t Target) (kernel, run float64) {
	p, err := c.Problem.Normalize()
	if err != nil {
		return 0, 0
	}
	kernel = 0.3
	if t.Implementation == flash.Standard { // three kernels in place of one
		kernel = 0.7
	}
	if t.Implementation == flash.Standard && t.Tier == flash.TierMatrix {
		kernel = 1.5
	}
	if t.Tier == flash.TierMatrix && t.Implementation != flash.Standard {
		kernel = 0.05 * float64(max(p.HeadDim, 8)+max(p.ValueDim, 8))
	}
	pairs := float64(p.Batch) * float64(p.Heads) * float64(p.QueryLen) * float64(p.KeyLen)
	return kernel, 0.02 + pairs*float64(p.HeadDim+p.ValueDim)*4e-8
}

// cover picks, for each family of targets, cases that have every option and every pair of options that any case has on it; of those that do,
// cheap ones. Then it adds the cases that need no further kernel to be compiled and are run in a moment.
// The targets stand by the case's place.
func cover(cases []*Case, targets []Target) [][]Target {
	families := map[string][]choice{}
	var order []string
	for at, c := range cases {
		for i, t := range targets {
			if !mayRun(c, t) {
				continue
			}
			if families[t.family()] == nil {
				order = append(order, t.family())
			}
			families[t.family()] = append(families[t.family()], choice{at, i, c.options(t), c.compiles(t)})
		}
	}
	picked := make([][]Target, len(cases))
	for _, name := range order {
		for _, ch := range pick(families[name], cases, targets) {
			picked[ch.at] = append(picked[ch.at], targets[ch.target])
		}
	}
	return picked
}

// mayRun says whether the case runs on the target, as far as can be told without a plan.
func mayRun(c *Case, t Target) bool {
	const fewRows = 8 // for each key head: as many as scalar_decode takes, which has no dropout
	p, err := c.Problem.Normalize()
	if most := max(p.HeadDim, p.ValueDim); t.light && most > 16 && (c.Name != lightLast || t.Implementation != flash.Flash) {
		return false // two fragments show what there is to see, and one dimension of many
	}
	if c.once && t.Implementation != flash.Flash {
		return false // it takes long to run, and is about code that all kernels share
	}
	return err == nil && t.skip(c) == "" && (t.Tuning["decode"] != 1 || p.QueryLen*p.Heads/p.KeyHeads <= fewRows && p.Dropout == 0)
}

// pairs are the options of a choice by themselves and two by two.
func (ch *choice) pairs() []string {
	var out []string
	for i, a := range ch.options {
		out = append(out, a.axis+"="+a.value)
		for _, b := range ch.options[:i] {
			if a.concern&b.concern != 0 {
				out = append(out, b.axis+"="+b.value+", "+a.axis+"="+a.value)
			}
		}
	}
	return out
}

// pick takes from a family's choices, again and again, the one with the most pairs that are not there yet for its time.
func pick(all []choice, cases []*Case, targets []Target) (out []choice) {
	ids := map[string]int{}
	pairs := make([][]int, len(all))
	for i := range all {
		drawn := cases[all[i].at].kind() == "random" // what such cases have together is chance
		for _, name := range all[i].pairs() {
			id, ok := ids[name]
			if !ok && !drawn {
				id, ok = len(ids), true
				ids[name] = id
			}
			if ok {
				pairs[i] = append(pairs[i], id)
			}
		}
	}
	seen, compiled, taken := make([]bool, len(ids)), map[string]bool{}, make([]bool, len(all))
	time := func(i int) (compile, run float64) {
		kernel, run := cases[all[i].at].seconds(targets[all[i].target])
		for _, k := range all[i].kernels {
			if !compiled[k] {
				compile += kernel
			}
		}
		return compile, run
	}
	take := func(i int) {
		taken[i] = true
		out = append(out, all[i])
		for _, k := range all[i].kernels {
			compiled[k] = true
		}
		for _, id := range pairs[i] {
			seen[id] = true
		}
	}
	for {
		best, most := -1, 0.0
		for i := range all {
			gain := 0.0
			for _, id := range pairs[i] {
				if !seen[id] {
					gain++
				}
			}
			compile, run := time(i)
			if gain /= compile + run; gain > most {
				best, most = i, gain
			}
		}
		if best < 0 {
			break
		}
		take(best)
	}
	for i := range all {
		if compile, run := time(i); !taken[i] && compile == 0 && run < 0.05 {
			take(i)
		}
	}
	return out
}
