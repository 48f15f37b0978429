package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// feature is one of Vulkan's.
type feature struct {
	name, extension string     // the extension that has it, if any
	core            vk.Version // drivers of this version know it without, 0: none does
	has             func(f *vk.Facts) bool
	implied         bool // where features before it are missing, it is too
}

// known says whether a driver knows the feature: one that does and does not offer it says that the device cannot.
func (x *feature) known(f *vk.Facts) bool {
	return x.extension != "" && f.HasExtension(x.extension) || x.core != 0 && f.EffectiveVersion >= x.core
}

// ability is what attention gains from a device that has some features.
type ability struct {
	name     string
	on       string // another ability, without which this one says nothing
	needs    []feature
	kernel   func(t *flash.TierInfo) bool // one that needs it, of those that do not run all their types
	cost     string                       // of doing without
	hardware string                       // which offers the features, "" for any
}

// abilityJSON is an ability, as a device has it or not.
type abilityJSON struct {
	Name    string   `json:"name"`
	Has     bool     `json:"has"`
	Lacks   []string `json:"lacks,omitempty"` // features
	Cost    string   `json:"cost,omitempty"`
	Do      string   `json:"do,omitempty"`
	Kernels []string `json:"kernels,omitempty"` // that run none of their types without, or not all
}

// misses says that a kernel does not run a type on the device.
func misses(t *flash.TierInfo, dtype flash.DType) bool {
	return slices.ContainsFunc(t.Missing, func(why string) bool { return strings.HasPrefix(why, dtype.String()+": ") })
}

// of is a feature that drivers know by an extension, or from a version of Vulkan on.
func of(name, extension string, core vk.Version, has func(f *vk.Facts) bool) feature {
	return feature{name: name, extension: extension, core: core, has: has}
}

var (
	storage16 = of("storageBuffer16BitAccess", "VK_KHR_16bit_storage", vk.Version11, func(f *vk.Facts) bool {
		return f.Features.Storage16
	})
	sizeControl = of("subgroupSizeControl", "VK_EXT_subgroup_size_control", vk.Version13, func(f *vk.Facts) bool {
		return f.Subgroup.Single() || f.Features.SubgroupSizeControl && f.Subgroup.RequiredSizeCompute
	})
	fullSubgroups = of("computeFullSubgroups", "VK_EXT_subgroup_size_control", vk.Version13, func(f *vk.Facts) bool {
		return f.Features.ComputeFullSubgroups && f.Subgroup.FullSubgroups
	})
	shuffles = of("subgroup votes and shuffles in compute shaders", "", vk.Version11, func(f *vk.Facts) bool {
		const ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
		return f.Subgroup.Compute && f.Subgroup.Ops&ops == ops
	})
)

// multiplies is the feature of matrices of a type that are multiplied into such of fp32.
func multiplies(name, extension string, t vk.ComponentType) feature {
	return feature{name: name, extension: extension, implied: true, has: func(f *vk.Facts) bool {
		return slices.ContainsFunc(f.Matrices, func(s vk.MatrixShape) bool {
			return s.A == t && s.B == t && s.C == vk.ComponentF32 && s.Result == vk.ComponentF32 && s.Scope == vk.ScopeSubgroup
		})
	}}
}

const matrices = "matrices"

// abilities are in the order in which they are told.
var abilities = []ability{{
	name: "fp16, bf16", needs: []feature{storage16},
	kernel: func(t *flash.TierInfo) bool { return misses(t, flash.F16) || misses(t, flash.BF16) },
	cost:   "tensors are fp32 alone, of twice the bytes",
}, {
	name: matrices, on: "fp16, bf16",
	needs: []feature{
		of("Vulkan 1.3", "", vk.Version13, func(f *vk.Facts) bool { return f.EffectiveVersion >= vk.Version13 }),
		of("cooperativeMatrix", "VK_KHR_cooperative_matrix", 0, func(f *vk.Facts) bool {
			return f.Features.CooperativeMatrix
		}),
		multiplies("fp16 matrices into fp32", "VK_KHR_cooperative_matrix", vk.ComponentF16),
		of("shaderFloat16", "VK_KHR_shader_float16_int8", vk.Version12, func(f *vk.Facts) bool {
			return f.Features.Float16
		}),
		of("shaderInt16", "", vk.Version11, func(f *vk.Facts) bool { return f.Features.Int16 }),
		of("vulkanMemoryModel", "VK_KHR_vulkan_memory_model", vk.Version12, func(f *vk.Facts) bool {
			return f.Features.VulkanMemoryModel
		}),
		sizeControl, fullSubgroups, shuffles,
	},
	kernel: func(t *flash.TierInfo) bool {
		return t.Tier == flash.TierMatrix && (len(t.DTypes) == 0 || misses(t, flash.F16))
	},
	cost:     "all types are computed by the scalar tier, at the rate of fp32: matrix units are several times as fast",
	hardware: "NVIDIA from Turing, AMD from RDNA 3 and Intel Arc have the hardware",
}, {
	name: "bf16 matrices", on: matrices,
	needs: []feature{
		of("shaderBFloat16Type", "VK_KHR_shader_bfloat16", 0, func(f *vk.Facts) bool { return f.Features.BFloat16Type }),
		of("shaderBFloat16CooperativeMatrix", "VK_KHR_shader_bfloat16", 0, func(f *vk.Facts) bool {
			return f.Features.BFloat16CooperativeMatrix
		}),
		multiplies("bf16 matrices into fp32", "VK_KHR_shader_bfloat16", vk.ComponentBF16),
	},
	kernel: func(t *flash.TierInfo) bool { return t.Tier == flash.TierMatrix && misses(t, flash.BF16) },
	cost: "bf16 is computed by the scalar tier, at the rate of fp32, and fp32 is not put together of bf16 matrices; fp16 is as fast as " +
		"ever",
	hardware: "NVIDIA's driver has it on Hopper, Mesa's on RDNA 4",
}, {
	name: "decoding", needs: []feature{sizeControl, shuffles},
	kernel: func(t *flash.TierInfo) bool { return t.Tier == flash.TierScalar && t.MostRows > 0 },
	cost:   "few queries are computed by kernels for many, which read the cache through shared memory",
}, {
	name: "timestamps",
	needs: []feature{of("timestamps of compute queues", "", vk.Version11, func(f *vk.Facts) bool {
		return flash.DeviceInfo{Facts: f}.Timestamps()
	})},
	cost: "times are the host's, and short passes look slower than they are; attention is not affected",
}}

// abilitiesOf says which abilities a device has.
func abilitiesOf(info flash.DeviceInfo) (out []abilityJSON) {
	lacks := map[string]bool{}
	for _, a := range abilities {
		if lacks[a.on] {
			lacks[a.name] = true
			continue
		}
		one := abilityJSON{Name: a.name, Has: true}
		var missing []feature
		for _, f := range a.needs {
			if !f.has(info.Facts) && !(f.implied && len(missing) > 0) {
				missing = append(missing, f)
				one.Lacks = append(one.Lacks, f.name)
			}
		}
		if len(missing) > 0 {
			lacks[a.name] = true
			one.Has, one.Cost, one.Do = false, a.cost, a.remedy(info.Facts, missing)
		}
		for i := range info.Tiers {
			if t := &info.Tiers[i]; len(missing) > 0 && len(t.Missing) > 0 && a.kernel != nil && a.kernel(t) {
				one.Kernels = append(one.Kernels, t.Kernel)
			}
		}
		out = append(out, one)
	}
	return out
}

// remedy is what may bring missing features.
func (a *ability) remedy(f *vk.Facts, missing []feature) string {
	var wanted []string
	for _, m := range missing {
		if name := cmp.Or(m.extension, m.name); !m.known(f) && !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return "nothing: the driver knows these features, and says that the device has none"
	}
	do := "look for a newer driver, which may have " + strings.Join(wanted, ", ")
	if slices.Contains(wanted, "Vulkan 1.3") && f.APIVersion >= vk.Version13 {
		do = "update the Vulkan loader, which is older than the driver"
	}
	if a.hardware != "" {
		do += "; " + a.hardware
	}
	return do
}
