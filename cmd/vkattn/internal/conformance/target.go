package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
	kernels "github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// Target is one way to compute attention on a device: an implementation, a tier, and tuning that
// forces a form of its kernel.
type Target struct {
	Implementation flash.Implementation
	Tier           flash.Tier
	Tuning         map[string]int
	info           flash.TierInfo
	light          bool // see light
}

// BlockSparse is the family of kernels for problems with a block mask, and of no others.
const BlockSparse = attn.BlockSparse

// ParseFamily reads the name of a family: an implementation's, or BlockSparse.
func ParseFamily(s string) (family string, err error) {
	if s == BlockSparse {
		return s, nil
	}
	impl, err := flash.ParseImplementation(s)
	return impl.String(), err
}

// familyOf is the family of what a device offers.
func familyOf(t flash.TierInfo) string {
	if len(t.Needs) > 0 {
		return BlockSparse
	}
	return t.Implementation.String()
}

// Family is the implementation's name, or BlockSparse.
func (t Target) Family() string { return familyOf(t.info) }

// MasksBlocks says whether the target runs problems with a block mask, and no others.
func (t Target) MasksBlocks() bool { return t.Family() == BlockSparse }

// String is for example flash2/scalar or flash2/matrix/form=2.
func (t Target) String() string {
	name := fmt.Sprintf("%s/%s", t.Family(), t.Tier)
	for _, key := range slices.Sorted(maps.Keys(t.Tuning)) {
		name += fmt.Sprintf("/%s=%d", key, t.Tuning[key])
	}
	return name
}

// forms lists, by tier, the tuning parameter that forces a form of the kernel and its values. A tier
// whose plans have no such parameter is one target.
var forms = map[flash.Tier]struct {
	parameter string
	values    []int
}{
	flash.TierMatrix: {"form", []int{1, 2, 3}},
}

// Targets lists what the device offers, in the order of Device.Info, narrowed by the options: with each tuning of theirs in turn.
func Targets(dev *flash.Device, o Options) []Target {
	tunings := o.Tunings
	if len(tunings) == 0 {
		tunings = []map[string]int{nil}
	}
	var out []Target
	for _, tier := range dev.Info().Tiers {
		if len(o.Families) > 0 && !slices.Contains(o.Families, familyOf(tier)) ||
			len(o.Tiers) > 0 && !slices.Contains(o.Tiers, tier.Tier) || len(tier.DTypes) == 0 {
			continue
		}
		for _, tuning := range tunings {
			for _, t := range tierTargets(dev, tier, tuning) {
				if !slices.ContainsFunc(out, func(o Target) bool { return o.String() == t.String() }) {
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// tierTargets are those of a tier with a tuning: one for each form of its kernel that the tuning leaves open.
func tierTargets(dev *flash.Device, tier flash.TierInfo, tuning map[string]int) (out []Target) {
	info := dev.Info()
	base := Target{Implementation: tier.Implementation, Tier: tier.Tier, Tuning: maps.Clone(tuning), info: tier}
	base.info.MaxDim = maxDim(info, tier)
	base.light = tier.Tier == flash.TierMatrix && onCPU(info)
	if decode, ok := decodes(info, tier); ok {
		base.Tuning = map[string]int{"decode": decode}
		maps.Copy(base.Tuning, tuning)
	}
	form, ok := forms[tier.Tier]
	_, forced := tuning[form.parameter]
	if forced = forced || !ok; forced && !isSplit(tier) {
		return []Target{base}
	}
	has := tunings(dev, base)
	if _, split := has[terms]; split {
		return splitTargets(base)
	}
	if _, has := has[form.parameter]; forced || !has {
		return []Target{base}
	}
	for _, value := range form.values {
		out = append(out, base.with(map[string]int{form.parameter: value}))
	}
	return out
}

// with is the target with further numbers, where its own tuning leaves them open.
func (t Target) with(tuning map[string]int) Target {
	own := t.Tuning
	t.Tuning = maps.Clone(tuning)
	maps.Copy(t.Tuning, own)
	return t
}

// terms is the tuning parameter of the kernel whose operands are sums of so many terms.
const terms = "terms"

// isSplit says whether that may be a kernel of a tier: matrices take no fp32 as it is.
func isSplit(tier flash.TierInfo) bool {
	return tier.Tier == flash.TierMatrix && slices.Equal(tier.DTypes, []flash.DType{flash.F32})
}

// splitTargets are those of that kernel: two terms, which are of fp16, and three, of bf16 where the device has it, each in forms 1 and 2;
// where compiling takes long, each number and each form once. Two ways are left out, for a device takes them only where it must or is asked
// to, and flash's TestSplitForms and TestSplitWays run them: form 3, which terms of fp16 do not have, and three terms of fp16 (bf16=0).
func splitTargets(base Target) (out []Target) {
	for n := 2; n <= 3; n++ {
		for form := 1; form <= 2; form++ {
			if !base.light || form == n-1 {
				out = append(out, base.with(map[string]int{terms: n, "form": form}))
			}
		}
	}
	return out
}

// maxDim is the largest dimension that any kernel like this one takes: of a tier, one kernel may be for wide heads alone.
func maxDim(info flash.DeviceInfo, tier flash.TierInfo) (most int) {
	for _, t := range info.Tiers {
		if t.Implementation == tier.Implementation && t.Tier == tier.Tier && familyOf(t) == familyOf(tier) &&
			(t.MostRows > 0) == (tier.MostRows > 0) {
			most = max(most, t.MaxDim)
		}
	}
	return most
}

// decodes says which value of the tuning parameter decode makes plans take this kernel and not the other of its tier, where a device has
// both: one is for few rows, and the other takes those too.
func decodes(info flash.DeviceInfo, tier flash.TierInfo) (value int, both bool) {
	few := func(t flash.TierInfo) bool {
		return t.Implementation == tier.Implementation && t.Tier == tier.Tier && t.MostRows > 0 && len(t.DTypes) > 0
	}
	if familyOf(tier) == BlockSparse || !slices.ContainsFunc(info.Tiers, few) {
		return 0, false
	}
	if tier.MostRows > 0 {
		return 1, true
	}
	return 0, true
}

// declines says whether the target may decline a problem: a tier that needs special hardware, and a kernel for few rows.
func (t Target) declines() bool { return t.Tier != flash.TierScalar || t.Tuning["decode"] == 1 }

// tunings are the tuning parameters of a plan's kernel.
func tunings(dev *flash.Device, t Target) map[string]int {
	p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 16, HeadDim: 8, DType: t.info.DTypes[0]} // narrow: a plan compiles its kernel
	if t.MasksBlocks() {
		p.Blocks = flash.Blocks{Queries: 64, Keys: 64}
	}
	plan, err := dev.Plan(p, t.options(nil, nil)...)
	if err != nil {
		return nil
	}
	defer plan.Close()
	return plan.ForwardInfo().Tuning
}

// onCPU tells drivers that run shaders on the CPU, where sizes must stay small.
func onCPU(info flash.DeviceInfo) bool { return info.Facts != nil && info.Facts.Type == vk.DeviceCPU }

// options are those that make a plan for this target and no other. tuning is that of a case; ofBackward too, of the backward kernels alone,
// for names that kernels of both passes have.
func (t Target) options(tuning, ofBackward map[string]int) []flash.PlanOption {
	all := maps.Clone(t.Tuning)
	if all == nil {
		all = map[string]int{}
	}
	maps.Copy(all, tuning)
	out := []flash.PlanOption{flash.WithImplementation(t.Implementation), flash.WithTier(t.Tier)}
	if len(all)+len(ofBackward) > 0 {
		forward, backward := tune.Split(all)
		maps.Copy(backward, ofBackward)
		for _, name := range formNames {
			if v, ok := t.Tuning[name]; ok {
				backward[name] = v
			}
		}
		out = append(out, flash.WithTuning(forward), flash.WithBackwardTuning(backward))
	}
	return out
}

// formNames are the numbers of a target that its backward kernels have too, and are given: a form of the forward kernel alone would leave
// gradients to the device's own, whichever target they are said to be of.
var formNames = []string{"form", "fm", "fn", "fk"}

// formsGradients says whether the target has such a number.
func (t Target) formsGradients() bool {
	return slices.ContainsFunc(formNames, func(name string) bool { _, ok := t.Tuning[name]; return ok })
}

// formed checks that a backward pass has them.
func (t Target) formed(info *flash.PassInfo) error {
	for _, name := range formNames {
		if want, ok := t.Tuning[name]; ok && info.Tuning[name] != want {
			return fmt.Errorf("asked for %v, the backward pass has %s=%d", t, name, info.Tuning[name])
		}
	}
	return nil
}

// A CPU driver takes seconds to compile a kernel of matrix fragments, ever more with the head
// dimension: there a matrix target runs the core cases up to this dimension, and one of 64.
const (
	lightDim  = 32
	lightLast = "core/d64"
	// The one case whose backward pass such a target runs, beside those that are about backward kernels (Case.Backward): three kernels of
	// fragments more. Those of standard attention are small ones, and run in all of its cases.
	lightGradients = "core/gqa/f16"
)

// lightWide are the cases of wide heads that such a target runs: for those there is a kernel of its own.
var lightWide = []string{"wide/264-dv24/f16", "wide/264-dv24/bf16", "wide/261-dv29-packed/f16", "wide/scores/f16", "max-logit/wide-264/f16",
	"latent/lengths/f16", "latent/pages/f16", "latent/scores/f16", "latent/packed/f16", "latent/fp8/f16", "latent/q8/f16", "latent/q5/f16",
	"latent/values-q8/f16", "latent/lists/f16", "latent/lists-pages/f16", "latent/lists-scores/f16"}

// lightQuantised are those of quantised keys and values, whose rows are blocks of 32, that short runs have on such a target.
var lightQuantised = []string{"caches/quantised/mixed-many/f16", "caches/quantised/values-many/f16"}

// lightForms are the cases that flash1 runs there in forms 2 and 3.
var lightForms = []string{"core/gqa/f16", "core/dv/f16", "core/empty-rows/f16", "core/d29/bottom-right/f16", "core/layout-odd/f16",
	"max-logit/grown/f16"}

// ofBackward says whether the target's tuning is of backward kernels: its gradients are what it is for.
func (t Target) ofBackward() bool {
	_, backward := tune.Split(t.Tuning)
	return len(backward) > 0
}

func (t Target) skipsGradients(c *Case) bool {
	return t.light && !t.ofBackward() && len(c.Backward) == 0 && t.Implementation != flash.Standard && c.Name != lightGradients
}

// hasGradients says whether the case's gradients are computed on this target.
func (t Target) hasGradients(c *Case) bool { return !t.skipsGradients(c) && t.info.Backward != "" }

// keepDS is the tuning parameter of the backward pass that insists on the kernel of keys leaving dS in memory for dq.
const keepDS = kernels.KeepDSParameter

// skip says why a case does not run on this target, "" when it does.
func (t Target) skip(c *Case) string {
	if len(c.lacks) > 0 {
		return "the library does not have this: " + strings.Join(c.lacks, ", ")
	}
	if !slices.Contains(t.info.DTypes, c.Problem.DType) {
		for _, why := range t.info.Missing {
			if strings.HasPrefix(why, c.Problem.DType.String()) {
				return why
			}
		}
		return fmt.Sprintf("%v is not offered", c.Problem.DType)
	}
	if c.Only != nil && !slices.Contains(c.Only, t.Implementation) {
		return fmt.Sprintf("for %v only", c.Only)
	}
	if c.Backward[keepDS] == 1 && (t.Tier != flash.TierMatrix || t.Tuning["form"] > 1) {
		return "dS is left in memory by kernels on matrices in form 1 alone"
	}
	if c.operator.stored() && t.Implementation != flash.Standard {
		return "the scores are an output: standard alone stores them"
	}
	if masked := c.Problem.Blocks != (flash.Blocks{}) || c.Problem.MaskBlocks != (flash.Blocks{}); masked && !t.MasksBlocks() {
		return "for kernels with a block mask, or classes of blocks, only"
	} else if !masked && t.MasksBlocks() {
		return "it has no block mask"
	}
	d := max(c.Problem.HeadDim, c.Problem.ValueDim)
	decode, given := t.Tuning["decode"]
	cached := c.Problem.KeyType != 0 || c.Problem.ValueType != 0 || c.Problem.Pages != (flash.Pages{})
	if cached && c.Tuning["parts"] > 1 && t.Tier == flash.TierScalar && given && decode == 0 {
		return "of a cache it does not take keys in parts"
	}
	few := (!given || decode == 1) && (t.Tier != flash.TierMatrix || d > plainDim && given && c.Problem.Heads/c.Problem.KeyHeads > 8)
	if c.Problem.Lists != (flash.Lists{}) && !(few && slices.Contains(t.info.Features, attn.WithLists.Names()[0])) {
		return "it has no lists of keys, or not of such heads"
	}
	if d > t.info.MaxDim {
		return fmt.Sprintf("it takes head dimensions up to %d", t.info.MaxDim)
	}
	wide := d > plainDim && t.Tier == flash.TierMatrix && t.Tuning["decode"] != 1 // of few rows they go to another kernel
	if c.Problem.Packed != (flash.Packed{}) && (t.Implementation != flash.Flash || wide) {
		return "it has no packed sequences"
	}
	if t.light && t.Implementation == flash.Flash1 && t.Tuning["form"] > 1 && !slices.Contains(lightForms, c.Name) {
		return "flash2 runs it in this form, by the same code, and compiling takes long on a CPU"
	}
	if t.light && c.Name != lightLast && !slices.Contains(lightWide, c.Name) {
		if !c.Core {
			return "not among the core cases, to which a matrix tier on a CPU is held"
		}
		if d > lightDim {
			return fmt.Sprintf("dimension %d would take too long to compile on a CPU", d)
		}
	}
	return ""
}
