package flash

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/vk"
)

// lacksMatrix says what matrix_forward needs of a device, for storage type t, that this one lacks.
func (c *capabilities) lacksMatrix(t DType) string {
	if t == F32 {
		return "matrices take fp16 or bf16, and rounding fp32 to them would not be exact"
	}
	if v := c.facts.EffectiveVersion; v < vk.Version13 {
		return fmt.Sprintf("the device offers Vulkan %v, and 1.3 is needed", v)
	}
	if n := c.facts.Limits.MaxPushConstants; n < forwardPushBytes {
		return fmt.Sprintf("the device allows %d bytes of push constants, and %d are needed", n, forwardPushBytes)
	}
	e, f := &c.enabled, &c.facts.Features
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
		{"subgroupSizeControl", e.SubgroupSizeControl, f.SubgroupSizeControl},
		{"computeFullSubgroups", e.ComputeFullSubgroups, f.ComputeFullSubgroups},
	}
	if t == BF16 {
		needs = append(needs, need{"shaderBFloat16Type", e.BFloat16Type, f.BFloat16Type},
			need{"shaderBFloat16CooperativeMatrix", e.BFloat16CooperativeMatrix, f.BFloat16CooperativeMatrix})
	}
	for _, n := range needs {
		if why := lacking(n.feature, n.enabled, n.supported); why != "" {
			return why
		}
	}
	s := &c.facts.Subgroup
	const ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
	if !s.Compute || s.Ops&ops != ops || !s.FullSubgroups || !s.RequiredSizeCompute {
		return "the device lacks votes, shuffles or required, full subgroups in compute shaders"
	}
	if len(c.fragments(t)) == 0 {
		return fmt.Sprintf("the device multiplies no %v matrices into fp32 ones in subgroups of %d, of a shape that fits", t, s.Size)
	}
	return ""
}

// fragments lists the shapes in which the device multiplies matrices of a type, the preferred first: 16×16×16, for which
// the tiles were measured, then the largest.
func (c *capabilities) fragments(t DType) []matrixShape {
	component := vk.ComponentF16
	if t == BF16 {
		component = vk.ComponentBF16
	}
	var out []matrixShape
	for _, m := range c.facts.Matrices {
		s := matrixShape{M: int(m.M), N: int(m.N), K: int(m.K), Lanes: int(c.facts.Subgroup.Size)}
		if m.A == component && m.B == component && m.C == vk.ComponentF32 && m.Result == vk.ComponentF32 && m.Scope == vk.ScopeSubgroup &&
			s.fits() && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	rank := func(s matrixShape) int {
		if s.M == 16 && s.N == 16 && s.K == 16 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b matrixShape) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.M*b.N*b.K, a.M*a.N*a.K), cmp.Compare(a.K, b.K), cmp.Compare(a.N, b.N))
	})
	return out
}

// fits says whether the shader takes a fragment: shared memory is counted in pieces of 8 elements, and chunks of keys hold
// whole fragments of either kind.
func (s matrixShape) fits() bool {
	return s.M > 0 && s.N > 0 && s.K > 0 && s.N%8 == 0 && s.K%8 == 0 && (s.N%s.K == 0 || s.K%s.N == 0)
}

// chooseFragment takes the preferred fragment, or what is asked for.
func (c *capabilities) chooseFragment(dtype DType, t *tuning) (matrixShape, error) {
	all := c.fragments(dtype)
	if len(all) == 0 { // unsupported has said so
		return matrixShape{}, &declined{why: "the device has no such matrices"}
	}
	s := all[0]
	for _, f := range all { // the first that agrees with what is asked for
		if agrees(t, "fm", f.M) && agrees(t, "fn", f.N) && agrees(t, "fk", f.K) {
			s = f
			break
		}
	}
	s.M, s.N, s.K = t.get("fm", s.M), t.get("fn", s.N), t.get("fk", s.K)
	if !slices.Contains(all, s) {
		return s, &declined{why: fmt.Sprintf("the device has no %v fragments of %v; it has %v", s, dtype, all)}
	}
	return s, nil
}

// reservedOnCPU is the reason not to take a kernel on matrices although it can run, unless its tier is asked for: a driver on a CPU
// compiles its unrolled fragments for seconds, and then multiplies them one number at a time.
func reservedOnCPU(c *capabilities) string {
	if c.facts.Type == vk.DeviceCPU {
		return "matrices on a CPU are slower than the scalar tier; WithTier(TierMatrix) insists"
	}
	return ""
}

// chooseForm takes the preferred fragment and the best form that its layout allows, or what is asked for.
func (e *environment) chooseForm(dtype DType, t *tuning) (matrixShape, matrixLayout, int, error) {
	s, err := e.caps.chooseFragment(dtype, t)
	if err != nil {
		return s, matrixLayout{}, 0, err
	}
	layout, err := e.layout(dtype, s)
	if err != nil {
		return s, layout, 0, err
	}
	form := t.get("form", layout.Form)
	switch {
	case form < formRegisters || form > formShared:
		return s, layout, form, t.bad("form", "must be 1, 2 or 3")
	case form < layout.Form:
		return s, layout, form, &declined{why: fmt.Sprintf("form %d needs another layout of %v fragments than this device's: %s", form, s, layout.Why)}
	}
	return s, layout, form, nil
}

func agrees(t *tuning, name string, v int) bool {
	w, given := t.given[name]
	return !given || w == v
}
