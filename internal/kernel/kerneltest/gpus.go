package kerneltest

import (
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// GPU is a device as its maker describes it; nobody here has one but the H200.
type GPU struct {
	Name, Family    string
	Vendor          uint32
	Multiprocessors uint32 // that the driver tells
	Subgroups       uint32 // the same, of a multiprocessor
	SharedKiB       uint32
	Lanes           uint32
	Invocations     uint32   // of a workgroup
	Fragments       [][3]int // of fp16
	Form            int      // what the layout of fragments allows
	Held            int      // times that a subgroup holds an element of an operand
	Words           int      // of a lane's registers; 0: not looked at
	WordsUpTo       int      // head dimensions up to which tiles are to fit them
}

var (
	nvidiaFragments = [][3]int{{16, 16, 16}, {16, 8, 16}, {16, 8, 8}}
	cube            = [][3]int{{16, 16, 16}}
)

// GPUs are devices of every family of tiles.
var GPUs = []GPU{
	{"H100 PCIe", "hopper", 0x10de, 114, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"H200", "hopper", 0x10de, 132, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"B200", "hopper", 0x10de, 148, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"A100", "ampere", 0x10de, 108, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 3060", "ampere", 0x10de, 28, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 4090", "ampere", 0x10de, 128, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 5090", "ampere", 0x10de, 170, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"T4", "turing", 0x10de, 40, 32, 48, 32, 1024, [][3]int{{16, 8, 8}, {16, 16, 16}}, kernel.FormRegisters, 1, 255, 256},
	{"T4, an older driver", "turing", 0x10de, 40, 32, 48, 32, 1024, [][3]int{{16, 8, 8}}, kernel.FormRegisters, 1, 255, 256},
	{"GTX 1080", "turing", 0x10de, 20, 64, 48, 32, 1024, nil, 0, 1, 0, 0},
	{"RX 7900 XTX, Mesa", "rdna3", 0x1002, 96, 0, 64, 64, 1024, cube, kernel.FormRows, 4, 256, 256},
	{"RX 7600, AMD", "rdna3", 0x1002, 32, 0, 32, 32, 1024, cube, kernel.FormRows, 2, 256, 256},
	{"A770, 8 lanes", "arc", 0x8086, 0, 0, 64, 8, 1024, [][3]int{{8, 8, 16}}, kernel.FormShared, 1, 128, 64},
	{"A770, 16 lanes", "arc", 0x8086, 0, 0, 64, 16, 1024, [][3]int{{8, 16, 16}}, kernel.FormShared, 1, 64, 64},
	{"A770, 32 lanes", "arc", 0x8086, 0, 0, 64, 32, 1024, [][3]int{{8, 16, 16}}, kernel.FormShared, 1, 32, 64},
	{"M2", "apple", 0x106b, 0, 0, 32, 32, 1024, nil, 0, 1, 0, 0},
	{"M1, Honeykrisp", "apple", 0x10005, 0, 0, 32, 32, 1024, nil, 0, 1, 0, 0},
	{"RX 9070 XT", "rdna4", 0x1002, 64, 0, 64, 64, 1024, cube, kernel.FormRows, 1, 256, 256},
	{"RX 6800", "rdna2", 0x1002, 60, 0, 64, 64, 1024, nil, 0, 1, 0, 0},
	{"Vega 64", "gcn", 0x1002, 64, 0, 64, 64, 1024, nil, 0, 1, 0, 0},
	{"Adreno 740", "adreno", 0x5143, 0, 0, 32, 128, 2048, nil, 0, 1, 0, 0},
	{"SwiftShader", "swiftshader", 0x1ae0, 0, 0, 32, 4, 256, nil, 0, 1, 0, 0},
	{"Mali", "generic", 0x13b5, 10, 0, 32, 16, 512, nil, 0, 1, 0, 0},
	{"UHD 770", "generic", 0x8086, 0, 0, 64, 32, 1024, nil, 0, 1, 0, 0},
	{"the least that Vulkan asks", "generic", 0xffff, 0, 0, 16, 4, 128, nil, 0, 1, 0, 0},
}

// Caps are its capabilities, with subgroups and 16-bit storage.
func (g *GPU) Caps() *kernel.Capabilities {
	f := &vk.Facts{Name: g.Name, VendorID: g.Vendor, EffectiveVersion: vk.Version13, Type: vk.DeviceDiscrete,
		Multiprocessors:         g.Multiprocessors,
		MultiprocessorSubgroups: g.Subgroups}
	f.Limits.MaxSharedMemory, f.Limits.MaxWorkgroupInvocations = g.SharedKiB<<10, g.Invocations
	f.Limits.MaxWorkgroupSize = [3]uint32{g.Invocations, g.Invocations, 64}
	f.Subgroup.Size, f.Subgroup.MaxWorkgroupSubgroups = g.Lanes, g.Invocations/g.Lanes
	f.Subgroup.Min, f.Subgroup.Max = g.Lanes, g.Lanes
	switch g.Family {
	case "rdna2", "rdna3", "rdna4":
		f.Subgroup.Min = 32
	case "adreno":
		f.Subgroup.Min = 64
	}
	if g.Family == "rdna4" {
		f.DeviceID = 0x7550
	}
	if g.Family == "apple" {
		f.Type = vk.DeviceIntegrated
	}
	if g.Family == "swiftshader" {
		f.Type = vk.DeviceCPU
	}
	f.Subgroup.Compute, f.Subgroup.FullSubgroups, f.Subgroup.RequiredSizeCompute = true, true, true
	f.Subgroup.Ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
	for _, s := range g.Fragments {
		for _, in := range []vk.ComponentType{vk.ComponentF16, vk.ComponentBF16} {
			f.Matrices = append(f.Matrices, vk.MatrixShape{M: uint32(s[0]), N: uint32(s[1]), K: uint32(s[2]), A: in, B: in,
				C:      vk.ComponentF32,
				Result: vk.ComponentF32, Scope: vk.ScopeSubgroup})
		}
	}
	c := &kernel.Capabilities{Facts: f}
	c.Enabled.ComputeFullSubgroups, c.Enabled.SubgroupSizeControl, c.Enabled.Storage16 = true, true, true
	return c
}

// Everything is the same with every feature of kernels on matrices enabled, and room for arguments.
func (g *GPU) Everything() *kernel.Capabilities {
	c := g.Caps()
	c.Facts.Limits.MaxPushConstants = 256
	e := &c.Enabled
	e.CooperativeMatrix, e.VulkanMemoryModel, e.Float16, e.Int16, e.BFloat16Type, e.BFloat16CooperativeMatrix = true, true, true,
		true, true, true
	e.Maintenance4 = true
	return c
}
