// Package kerneltest has made-up devices for tests of what kernels decide before there is any device.
package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// Hopper has the limits of an H200, and every feature that kernels ask for.
func Hopper() *kernel.Capabilities {
	f := &vk.Facts{EffectiveVersion: vk.Version13, Type: vk.DeviceDiscrete, VendorID: 0x10de, Multiprocessors: 132,
		MultiprocessorSubgroups: 64}
	f.Limits.MaxSharedMemory, f.Limits.MaxWorkgroupInvocations, f.Limits.MaxPushConstants = 48<<10, 1024, 256
	f.Limits.MaxWorkgroupSize = [3]uint32{1024, 1024, 64}
	f.Subgroup.Size, f.Subgroup.MaxWorkgroupSubgroups = 32, 32
	return &kernel.Capabilities{Facts: f}
}

// Least has what Vulkan promises of any device and no more: workgroups of 128 invocations, 16 KiB of shared memory, no subgroup operations.
func Least() *kernel.Capabilities {
	f := &vk.Facts{EffectiveVersion: vk.Version11, Type: vk.DeviceIntegrated}
	f.Limits.MaxSharedMemory, f.Limits.MaxWorkgroupInvocations = 16<<10, 128
	f.Limits.MaxWorkgroupSize = [3]uint32{128, 128, 64}
	f.Limits.MaxPushConstants, f.Limits.MaxStorageBufferRange = 128, 1<<27
	f.Subgroup.Size = 1
	return &kernel.Capabilities{Facts: f}
}

// CPU is lavapipe's: subgroups of eight.
func CPU() *kernel.Capabilities {
	c := Least()
	c.Facts.Type, c.Facts.Subgroup.Size = vk.DeviceCPU, 8
	c.Facts.Limits.MaxSharedMemory, c.Facts.Limits.MaxWorkgroupInvocations = 32<<10, 1024
	c.Facts.Limits.MaxWorkgroupSize = [3]uint32{1024, 1024, 1024}
	return c
}

// Devices are all of them by name.
func Devices() map[string]*kernel.Capabilities {
	return map[string]*kernel.Capabilities{"hopper": Hopper(), "least": Least(), "cpu": CPU()}
}

// Draw makes up a device within what Vulkan promises of any.
func Draw(t *rapid.T) *kernel.Capabilities {
	f := &vk.Facts{EffectiveVersion: vk.Version11, Type: vk.DeviceType(rapid.IntRange(0, 4).Draw(t, "type"))}
	f.VendorID = rapid.SampledFrom([]uint32{0x1002, 0x10de, 0x8086}).Draw(t, "vendor")
	f.Limits.MaxSharedMemory = uint32(rapid.SampledFrom([]int{16 << 10, 32 << 10, 48 << 10, 64 << 10, 100 << 10}).Draw(t, "shared"))
	f.Limits.MaxWorkgroupInvocations = uint32(rapid.SampledFrom([]int{128, 256, 1024}).Draw(t, "invocations"))
	f.Limits.MaxWorkgroupSize = [3]uint32{f.Limits.MaxWorkgroupInvocations, 128, 64}
	f.Limits.MaxPushConstants = 128
	f.Subgroup.Size = uint32(rapid.SampledFrom([]int{1, 4, 8, 16, 32, 64, 128}).Draw(t, "subgroup"))
	f.Subgroup.Compute = true
	f.Subgroup.Ops = vk.SubgroupBasic | vk.SubgroupShuffle
	f.Subgroup.FullSubgroups = rapid.Bool().Draw(t, "full")
	f.Subgroup.RequiredSizeCompute = f.Subgroup.FullSubgroups
	c := &kernel.Capabilities{Facts: f}
	c.Enabled.ComputeFullSubgroups, c.Enabled.SubgroupSizeControl = f.Subgroup.FullSubgroups, f.Subgroup.FullSubgroups
	return c
}

// Problem fills in what a problem leaves open: one batch entry, two heads on one, as many keys as queries, values as wide as keys.
func Problem(p attn.Problem) *attn.Problem {
	one := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	one(&p.Batch, 1)
	one(&p.Heads, 2)
	one(&p.KeyHeads, 1)
	one(&p.QueryLen, 64)
	one(&p.KeyLen, p.QueryLen)
	one(&p.HeadDim, 64)
	one(&p.ValueDim, p.HeadDim)
	for _, t := range []*attn.DType{&p.KeyType, &p.ValueType} {
		if !t.Quantised() {
			*t = p.DType
		}
	}
	p.Scale = 1
	return &p
}

// DrawProblem makes up a problem that matrices can run.
func DrawProblem(t *rapid.T) *attn.Problem {
	keyHeads := rapid.IntRange(1, 8).Draw(t, "key heads")
	return Problem(attn.Problem{Batch: rapid.IntRange(1, 4).Draw(t, "batch"), Heads: keyHeads * rapid.IntRange(1, 8).Draw(t, "group"),
		KeyHeads: keyHeads, QueryLen: rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 5000)).Draw(t, "nq"),
		HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
		DType: attn.DType(rapid.IntRange(1, 2).Draw(t, "dtype")), ByPosition: attn.ByPosition{Causal: attn.Causal(rapid.IntRange(0,
			2).Draw(t, "causal"))}})
}

// DrawFragment makes up a fragment that a device may list.
func DrawFragment(t *rapid.T, lanes int) kernel.Fragment {
	side := rapid.SampledFrom([]int{8, 16, 32})
	f := kernel.Fragment{M: side.Draw(t, "m"), N: side.Draw(t, "n"), K: side.Draw(t, "k"), Lanes: lanes}
	if !f.Fits() {
		t.Skip("no fragment for the shader")
	}
	return f
}

// Features has a problem with each feature that a kernel may refuse, by the name that the refusal has for it.
func Features() map[string]attn.Problem {
	return map[string]attn.Problem{
		"dropout":                    {Dropout: 0.5},
		"block mask":                 {Blocks: attn.Blocks{Queries: 16, Keys: 16}},
		"bias":                       {ByScore: attn.ByScore{Bias: attn.PerScore{In: true, DType: attn.F32}}},
		"mask":                       {ByScore: attn.ByScore{BoolMask: attn.PerScore{In: true, DType: attn.Bool}}},
		"sinks":                      {ByScore: attn.ByScore{Sinks: true}},
		"lengths of keys or queries": {KeyLengths: true},
		"pages of keys and values":   {Pages: attn.Pages{Size: 16, Count: 8, PerSequence: 4}},
		"quantised keys or values":   {KeyType: attn.Q8_0},
		"lists of keys":              {Lists: attn.Lists{Keys: 40}},
		"largest score of each head": {MaxLogit: true}, // of forward passes: backward kernels are never asked
		"packed sequences":           {Packed: attn.Packed{Queries: 100, Keys: 100}},
	}
}

// Refuses requires that a kernel refuses problems with these features, each by its name, and takes the others. need is what every problem
// of the kernel has.
func Refuses(t *testing.T, o *kernel.Offer, need attn.Problem, refused ...string) {
	t.Helper()
	want := map[string]bool{}
	for _, name := range refused {
		require.Contains(t, Features(), name)
		want[name] = true
	}
	for name, p := range Features() {
		if need.Blocks != (attn.Blocks{}) {
			p.Blocks = need.Blocks
		}
		p.QueryLen, p.HeadDim = need.QueryLen, need.HeadDim
		why := o.Refuses(Problem(p))
		if want[name] {
			require.Equal(t, "it has no "+name, why, o.Name)
		} else {
			require.Empty(t, why, "%s with %s", o.Name, name)
		}
	}
	wide := need
	wide.HeadDim = o.MostDim + 1
	require.Contains(t, o.Refuses(Problem(wide)), "it takes up to", o.Name)
	wide.HeadDim = o.MostDim
	require.Empty(t, o.Refuses(Problem(wide)), o.Name)
}
