package vk

/*
#include "cvk.h"
#include <stdlib.h>
*/
import "C"

import (
	"slices"
	"unsafe"
)

// queryFacts asks the driver for everything in Facts. version is the instance's.
func queryFacts(t *C.vka_instance, physical uintptr, version Version) (*Facts, error) {
	handle := C.uint64_t(physical)
	extensions, err := listNames("vkEnumerateDeviceExtensionProperties", func(out *C.VkExtensionProperties, n C.uint32_t) C.int32_t {
		return C.vka_device_extensions(t, handle, out, n)
	}, func(p *C.VkExtensionProperties) string { return C.GoString(&p.extensionName[0]) })
	if err != nil {
		return nil, err
	}
	slices.Sort(extensions)
	f := &Facts{Extensions: slices.Compact(extensions)}

	// The base properties come first: the device's version decides what else may be asked.
	p, free := cNew[C.vka_properties]()
	defer free()
	C.vka_properties_query(t, handle, 0, p)
	f.APIVersion = Version(p.core.properties.apiVersion)
	f.EffectiveVersion = min(f.APIVersion, version)
	mask := structMask(f.EffectiveVersion, f.HasExtension)
	C.vka_properties_query(t, handle, mask, p)
	f.setProperties(p, mask)

	features, free := newFeatures()
	defer free()
	C.vka_features_query(t, handle, mask, features)
	f.Features = fromFeatures(features)
	f.Features.MemoryBudget, f.Features.ExternalMemoryHost = mask&C.VKA_BUDGET != 0, mask&C.VKA_EXTERNAL_HOST != 0
	f.Subgroup.FullSubgroups = f.Features.ComputeFullSubgroups

	f.Heaps, f.MemoryTypes = queryMemory(t, physical, mask)
	families, err := list("vkGetPhysicalDeviceQueueFamilyProperties", func(out *C.VkQueueFamilyProperties, n C.uint32_t) C.int32_t {
		return C.vka_queue_families(t, handle, out, n)
	})
	if err != nil {
		return nil, err
	}
	for _, q := range families {
		f.Queues = append(f.Queues, QueueFamily{QueueFlags(q.queueFlags), uint32(q.queueCount), uint32(q.timestampValidBits)})
	}
	if f.Features.CooperativeMatrix {
		shapes, err := list("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", func(out *C.VkCooperativeMatrixPropertiesKHR,
			n C.uint32_t) C.int32_t {
			return C.vka_matrices(t, handle, out, n)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range shapes {
			f.Matrices = append(f.Matrices, MatrixShape{
				M: uint32(s.MSize), N: uint32(s.NSize), K: uint32(s.KSize),
				A: ComponentType(s.AType), B: ComponentType(s.BType), C: ComponentType(s.CType), Result: ComponentType(s.ResultType),
				Scope: Scope(s.scope), Saturating: s.saturatingAccumulation != 0,
			})
		}
	}
	return f, nil
}

// cNew returns a zeroed T in C memory and what frees it: chained structures point at each other, which Go memory must not.
func cNew[T any]() (*T, func()) {
	var zero T
	p := C.calloc(1, C.size_t(unsafe.Sizeof(zero)))
	return (*T)(p), func() { C.free(p) }
}

func newFeatures() (*C.vka_features, func()) { return cNew[C.vka_features]() }

// optional is one structure that is core from a version on and an extension before; version 0 means never core.
type optional struct {
	bit       C.uint32_t
	core      Version
	extension string
}

var optionals = []optional{
	{C.VKA_8BIT, Version12, "VK_KHR_8bit_storage"},
	{C.VKA_FLOAT16_INT8, Version12, "VK_KHR_shader_float16_int8"},
	{C.VKA_TIMELINE, Version12, "VK_KHR_timeline_semaphore"},
	{C.VKA_SUBGROUP_SIZE, Version13, "VK_EXT_subgroup_size_control"},
	{C.VKA_COOPERATIVE_MATRIX, 0, "VK_KHR_cooperative_matrix"},
	{C.VKA_BFLOAT16, 0, "VK_KHR_shader_bfloat16"},
	{C.VKA_MEMORY_MODEL, Version12, "VK_KHR_vulkan_memory_model"},
	{C.VKA_DEVICE_ADDRESS, Version12, "VK_KHR_buffer_device_address"},
	{C.VKA_EXECUTABLE, 0, "VK_KHR_pipeline_executable_properties"},
	{C.VKA_HOST_QUERY_RESET, Version12, "VK_EXT_host_query_reset"},
	{C.VKA_SYNCHRONIZATION2, Version13, "VK_KHR_synchronization2"},
	{C.VKA_SCALAR_LAYOUT, Version12, "VK_EXT_scalar_block_layout"},
	{C.VKA_MAINTENANCE4, Version13, "VK_KHR_maintenance4"},
	{C.VKA_SUBGROUP_EXTENDED, Version12, "VK_KHR_shader_subgroup_extended_types"},
	{C.VKA_FLOAT_CONTROLS, Version12, extFloatControls},
	{C.VKA_DRIVER, Version12, "VK_KHR_driver_properties"},
	{C.VKA_BUDGET, 0, "VK_EXT_memory_budget"},
	{C.VKA_NV_MULTIPROCESSORS, 0, "VK_NV_shader_sm_builtins"},
	{C.VKA_AMD_COMPUTE_UNITS, 0, "VK_AMD_shader_core_properties2"},
	{C.VKA_ARM_CORES, 0, "VK_ARM_shader_core_builtins"},
	{C.VKA_EXTERNAL_HOST, 0, "VK_EXT_external_memory_host"},
}

func structMask(version Version, has func(string) bool) (mask C.uint32_t) {
	for _, o := range optionals {
		if o.core != 0 && version >= o.core || has(o.extension) {
			mask |= o.bit
		}
	}
	return mask
}

func (f *Facts) setProperties(p *C.vka_properties, mask C.uint32_t) {
	c := &p.core.properties
	f.Name = C.GoString(&c.deviceName[0])
	f.VendorID, f.DeviceID = uint32(c.vendorID), uint32(c.deviceID)
	f.Type = DeviceType(c.deviceType)
	f.DriverVersion = uint32(c.driverVersion)
	for i := range f.PipelineCacheUUID {
		f.PipelineCacheUUID[i] = byte(c.pipelineCacheUUID[i])
		f.DeviceUUID[i] = byte(p.id.deviceUUID[i])
		f.DriverUUID[i] = byte(p.id.driverUUID[i])
	}
	if mask&C.VKA_DRIVER != 0 {
		f.DriverID = uint32(p.driver.driverID)
		f.DriverName = C.GoString(&p.driver.driverName[0])
		f.DriverInfo = C.GoString(&p.driver.driverInfo[0])
	}

	l := &c.limits
	f.Limits = Limits{
		MaxSharedMemory:             uint32(l.maxComputeSharedMemorySize),
		MaxWorkgroupInvocations:     uint32(l.maxComputeWorkGroupInvocations),
		MaxStorageBufferRange:       uint64(l.maxStorageBufferRange),
		MinStorageBufferAlignment:   uint64(l.minStorageBufferOffsetAlignment),
		MaxPushConstants:            uint32(l.maxPushConstantsSize),
		MaxBoundDescriptorSets:      uint32(l.maxBoundDescriptorSets),
		MaxStorageBuffersPerStage:   uint32(l.maxPerStageDescriptorStorageBuffers),
		MaxStorageBuffersPerSet:     uint32(l.maxDescriptorSetStorageBuffers),
		MaxAllocationCount:          uint32(l.maxMemoryAllocationCount),
		MaxAllocationSize:           uint64(p.maintenance3.maxMemoryAllocationSize),
		NonCoherentAtomSize:         uint64(l.nonCoherentAtomSize),
		MinImportedHostAlignment:    uint64(p.external_host.minImportedHostPointerAlignment),
		TimestampPeriod:             float64(l.timestampPeriod),
		TimestampComputeAndGraphics: l.timestampComputeAndGraphics != 0,
	}
	for i := range 3 {
		f.Limits.MaxWorkgroupSize[i] = uint32(l.maxComputeWorkGroupSize[i])
		f.Limits.MaxWorkgroupCount[i] = uint32(l.maxComputeWorkGroupCount[i])
	}
	f.Limits.MaxBufferSize = f.Limits.MaxAllocationSize
	if mask&C.VKA_MAINTENANCE4 != 0 {
		f.Limits.MaxBufferSize = uint64(p.maintenance4.maxBufferSize)
	}

	s := &p.subgroup
	f.Subgroup = Subgroup{
		Size: uint32(s.subgroupSize), Min: uint32(s.subgroupSize), Max: uint32(s.subgroupSize),
		Ops: SubgroupOps(s.supportedOperations), Compute: s.supportedStages&C.VK_SHADER_STAGE_COMPUTE_BIT != 0,
	}
	if mask&C.VKA_SUBGROUP_SIZE != 0 {
		z := &p.subgroup_size
		f.Subgroup.Min, f.Subgroup.Max = uint32(z.minSubgroupSize), uint32(z.maxSubgroupSize)
		f.Subgroup.RequiredSizeCompute = z.requiredSubgroupSizeStages&C.VK_SHADER_STAGE_COMPUTE_BIT != 0
		f.Subgroup.MaxWorkgroupSubgroups = uint32(z.maxComputeWorkgroupSubgroups)
	}
	switch {
	case mask&C.VKA_NV_MULTIPROCESSORS != 0:
		f.Multiprocessors = uint32(p.nv_multiprocessors.shaderSMCount)
		f.MultiprocessorSubgroups = uint32(p.nv_multiprocessors.shaderWarpsPerSM)
	case mask&C.VKA_AMD_COMPUTE_UNITS != 0:
		f.Multiprocessors = uint32(p.amd_compute_units.activeComputeUnitCount)
	case mask&C.VKA_ARM_CORES != 0:
		f.Multiprocessors = uint32(p.arm_cores.shaderCoreCount)
	}
	if mask&C.VKA_FLOAT_CONTROLS != 0 {
		z := &p.float_controls
		f.FloatControls = FloatControls{
			RoundingRTE16: z.shaderRoundingModeRTEFloat16 != 0, RoundingRTE32: z.shaderRoundingModeRTEFloat32 != 0,
			DenormPreserve16: z.shaderDenormPreserveFloat16 != 0, DenormPreserve32: z.shaderDenormPreserveFloat32 != 0,
			DenormFlush16: z.shaderDenormFlushToZeroFloat16 != 0, DenormFlush32: z.shaderDenormFlushToZeroFloat32 != 0,
			SignedZeroInfNan16: z.shaderSignedZeroInfNanPreserveFloat16 != 0,
			SignedZeroInfNan32: z.shaderSignedZeroInfNanPreserveFloat32 != 0,
			DenormIndependence: Independence(z.denormBehaviorIndependence), RoundingIndependence: Independence(z.roundingModeIndependence),
		}
	}
}

// featureBits pairs each field of Features with its place in the C structures; MemoryBudget and ExternalMemoryHost have none.
func featureBits(f *Features, c *C.vka_features) []struct {
	on  *bool
	bit *C.VkBool32
} {
	type pair = struct {
		on  *bool
		bit *C.VkBool32
	}
	return []pair{
		{&f.RobustBufferAccess, &c.core.features.robustBufferAccess},
		{&f.Int16, &c.core.features.shaderInt16},
		{&f.Int64, &c.core.features.shaderInt64},
		{&f.Float64, &c.core.features.shaderFloat64},
		{&f.Storage16, &c.storage16.storageBuffer16BitAccess},
		{&f.Storage8, &c.storage8.storageBuffer8BitAccess},
		{&f.Float16, &c.float16_int8.shaderFloat16},
		{&f.Int8, &c.float16_int8.shaderInt8},
		{&f.TimelineSemaphore, &c.timeline.timelineSemaphore},
		{&f.SubgroupSizeControl, &c.subgroup_size.subgroupSizeControl},
		{&f.ComputeFullSubgroups, &c.subgroup_size.computeFullSubgroups},
		{&f.CooperativeMatrix, &c.matrix.cooperativeMatrix},
		{&f.CooperativeMatrixRobust, &c.matrix.cooperativeMatrixRobustBufferAccess},
		{&f.BFloat16Type, &c.bfloat16.shaderBFloat16Type},
		{&f.BFloat16DotProduct, &c.bfloat16.shaderBFloat16DotProduct},
		{&f.BFloat16CooperativeMatrix, &c.bfloat16.shaderBFloat16CooperativeMatrix},
		{&f.VulkanMemoryModel, &c.memory_model.vulkanMemoryModel},
		{&f.VulkanMemoryModelDeviceScope, &c.memory_model.vulkanMemoryModelDeviceScope},
		{&f.BufferDeviceAddress, &c.device_address.bufferDeviceAddress},
		{&f.PipelineExecutableInfo, &c.executable.pipelineExecutableInfo},
		{&f.HostQueryReset, &c.host_query_reset.hostQueryReset},
		{&f.Synchronization2, &c.synchronization2.synchronization2},
		{&f.ScalarBlockLayout, &c.scalar_layout.scalarBlockLayout},
		{&f.Maintenance4, &c.maintenance4.maintenance4},
		{&f.SubgroupExtendedTypes, &c.subgroup_extended.shaderSubgroupExtendedTypes},
	}
}

func fromFeatures(c *C.vka_features) (f Features) {
	for _, p := range featureBits(&f, c) {
		*p.on = *p.bit != 0
	}
	return f
}

func toFeatures(f Features, c *C.vka_features) {
	for _, p := range featureBits(&f, c) {
		*p.bit = 0
		if *p.on {
			*p.bit = 1
		}
	}
}

func queryMemory(t *C.vka_instance, physical uintptr, mask C.uint32_t) ([]Heap, []MemoryType) {
	m, free := cNew[C.vka_memory]()
	defer free()
	C.vka_memory_query(t, C.uint64_t(physical), mask, m)
	p := &m.core.memoryProperties
	heaps := make([]Heap, p.memoryHeapCount)
	for i := range heaps {
		h := &p.memoryHeaps[i]
		heaps[i] = Heap{Size: uint64(h.size), DeviceLocal: h.flags&C.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT != 0, Budget: uint64(h.size)}
		if mask&C.VKA_BUDGET != 0 {
			heaps[i].Budget, heaps[i].Usage = uint64(m.budget.heapBudget[i]), uint64(m.budget.heapUsage[i])
		}
	}
	types := make([]MemoryType, p.memoryTypeCount)
	for i := range types {
		types[i] = MemoryType{uint32(p.memoryTypes[i].heapIndex), MemoryFlags(p.memoryTypes[i].propertyFlags)}
	}
	return heaps, types
}
