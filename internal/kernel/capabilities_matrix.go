package kernel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/vk"
)

// LacksMatrix says what matrix_forward needs of a device, for storage type t, that this one lacks.
func (c *Capabilities) LacksMatrix(t attn.DType) string {
	if t == attn.F32 {
		return "matrices take fp16 or bf16, and rounding fp32 to them would not be exact"
	}
	if v := c.Facts.EffectiveVersion; v < vk.Version13 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.3 is needed", v)
	}
	if why := c.LacksArguments(&PassArgs().Standard); why != "" { // the forward pass's, and some more
		return why
	}
	e, f := &c.Enabled, &c.Facts.Features
	type need struct {
		feature            string
		enabled, supported bool
	}
	needs := []need{
		{"cooperativeMatrix", e.CooperativeMatrix, f.CooperativeMatrix},
		{"vulkanMemoryModel", e.VulkanMemoryModel, f.VulkanMemoryModel},
		{"shaderFloat16", e.Float16, f.Float16},
		{"shaderInt16", e.Int16, f.Int16},
		{"storageBuffer16BitAccess", e.Storage16, f.Storage16},
		{"subgroupSizeControl", e.SubgroupSizeControl || c.Facts.Subgroup.Single(), f.SubgroupSizeControl},
		{"computeFullSubgroups", e.ComputeFullSubgroups, f.ComputeFullSubgroups},
		{"maintenance4", e.Maintenance4, f.Maintenance4}, // workgroups' sizes are LocalSizeId
	}
	if t == attn.BF16 {
		needs = append(needs, need{"shaderBFloat16Type", e.BFloat16Type, f.BFloat16Type},
			need{"shaderBFloat16CooperativeMatrix", e.BFloat16CooperativeMatrix, f.BFloat16CooperativeMatrix})
	}
	for _, n := range needs {
		if why := lacking(n.feature, n.enabled, n.supported); why != "" {
			return why
		}
	}
	s := &c.Facts.Subgroup
	const ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
	if !s.Compute || s.Ops&ops != ops || !s.FullSubgroups || !c.knownSubgroups() {
		return "the device lacks votes, shuffles or full subgroups of a known size in compute shaders"
	}
	if len(c.Fragments(t)) == 0 {
		return fmt.Sprintf("the device multiplies no %v matrices into fp32 ones in subgroups of %d, of a shape that fits", t, s.Size)
	}
	return ""
}

// Fragments lists the shapes in which the device multiplies matrices of a type, the preferred first: 16×16×16, for which
// the tiles were measured, then the largest.
func (c *Capabilities) Fragments(t attn.DType) []Fragment {
	component := vk.ComponentF16
	if t == attn.BF16 {
		component = vk.ComponentBF16
	}
	var out []Fragment
	for _, m := range c.Facts.Matrices {
		s := Fragment{M: int(m.M), N: int(m.N), K: int(m.K), Lanes: int(c.Facts.Subgroup.Size)}
		if m.A == component && m.B == component && m.C == vk.ComponentF32 && m.Result == vk.ComponentF32 && m.Scope == vk.ScopeSubgroup &&
			s.Fits() && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	rank := func(s Fragment) int {
		if s.M == 16 && s.N == 16 && s.K == 16 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b Fragment) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.M*b.N*b.K, a.M*a.N*a.K), cmp.Compare(a.K, b.K), cmp.Compare(a.N, b.N))
	})
	return out
}

// Fits says whether the shader takes a fragment: shared memory is counted in pieces of 8 elements, and chunks of keys hold
// whole fragments of either kind.
func (s Fragment) Fits() bool {
	return s.M > 0 && s.N > 0 && s.K > 0 && s.N%8 == 0 && s.K%8 == 0 && (s.N%s.K == 0 || s.K%s.N == 0)
}

// ChooseFragment takes the preferred fragment, or what is asked for.
func (c *Capabilities) ChooseFragment(dtype attn.DType, t *Tuning) (Fragment, error) {
	all := c.Fragments(dtype)
	if len(all) == 0 { // unsupported has said so
		return Fragment{}, &Declined{Why: "the device has no such matrices"}
	}
	s := all[0]
	for _, f := range all { // the first that agrees with what is asked for
		if agrees(t, "fm", f.M) && agrees(t, "fn", f.N) && agrees(t, "fk", f.K) {
			s = f
			break
		}
	}
	s.M, s.N, s.K = t.Get("fm", s.M), t.Get("fn", s.N), t.Get("fk", s.K)
	if !slices.Contains(all, s) {
		return s, &Declined{Why: fmt.Sprintf("the device has no %v fragments of %v; it has %v", s, dtype, all)}
	}
	return s, nil
}

// ReservedOnCPU is the reason not to take a kernel on matrices although it can run, unless its tier is asked for: a driver on a CPU
// compiles its unrolled fragments for seconds, and then multiplies them one number at a time.
func ReservedOnCPU(c *Capabilities, _ *attn.Problem) string {
	if c.Facts.Type == vk.DeviceCPU {
		return "matrices on a CPU are slower than the scalar tier; WithTier(TierMatrix) insists"
	}
	return ""
}

// ChooseForm takes the preferred fragment and the best form that its layout allows, or what is asked for.
func (e *Env) ChooseForm(dtype attn.DType, t *Tuning) (Fragment, FragmentLayout, int, error) {
	s, err := e.Caps.ChooseFragment(dtype, t)
	if err != nil {
		return s, FragmentLayout{}, 0, err
	}
	layout, err := e.Layout(dtype, s)
	if err != nil {
		return s, layout, 0, err
	}
	form := t.Get("form", layout.Form)
	if form < layout.Form {
		return s, layout, form, &Declined{Why: fmt.Sprintf("form %d needs another layout of %v fragments than this device's: %s", form, s,
			layout.Why)}
	}
	return s, layout, form, nil
}

func agrees(t *Tuning, name string, v int) bool {
	w, given := t.Given[name]
	return !given || w == v
}
