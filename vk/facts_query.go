package vk

import (
	"slices"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// queryFacts asks the driver for everything in Facts. version is the instance's.
func queryFacts(t *instanceTable, physical uintptr, version Version) (*Facts, error) {
	extensions, err := listNames("vkEnumerateDeviceExtensionProperties", func(out []abi.ExtensionProperties) int32 {
		return t.deviceExtensions(physical, out)
	}, func(p *abi.ExtensionProperties) string { return abi.Chars(p.ExtensionName[:]) })
	if err != nil {
		return nil, err
	}
	slices.Sort(extensions)
	f := &Facts{Extensions: slices.Compact(extensions)}

	// The base properties come first: the device's version decides what else may be asked.
	frame := abi.NewFrame()
	defer frame.Free()
	f.APIVersion = Version(t.queryProperties(frame, physical, 0).core.Properties.ApiVersion)
	f.EffectiveVersion = min(f.APIVersion, version)
	mask := structMask(f.EffectiveVersion, f.HasExtension)
	f.setProperties(t.queryProperties(frame, physical, mask), mask)

	f.Features = fromFeatures(t.queryFeatures(frame, physical, mask))
	f.Features.MemoryBudget, f.Features.ExternalMemoryHost = mask&hasBudget != 0, mask&hasExternalHost != 0
	f.Subgroup.FullSubgroups = f.Features.ComputeFullSubgroups

	f.Heaps, f.MemoryTypes = queryMemory(t, physical, mask)
	families, err := list("vkGetPhysicalDeviceQueueFamilyProperties", func(out []abi.QueueFamilyProperties) int32 {
		return t.queueFamilies(physical, out)
	})
	if err != nil {
		return nil, err
	}
	for _, q := range families {
		f.Queues = append(f.Queues, QueueFamily{QueueFlags(q.QueueFlags), q.QueueCount, q.TimestampValidBits})
	}
	if f.Features.CooperativeMatrix {
		shapes, err := list("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR", func(out []abi.CooperativeMatrixPropertiesKHR) int32 {
			return t.matrices(physical, out)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range shapes {
			f.Matrices = append(f.Matrices, MatrixShape{
				M: s.MSize, N: s.NSize, K: s.KSize,
				A: ComponentType(s.AType), B: ComponentType(s.BType), C: ComponentType(s.CType), Result: ComponentType(s.ResultType),
				Scope: Scope(s.Scope), Saturating: s.SaturatingAccumulation != 0,
			})
		}
	}
	return f, nil
}

// optional is one structure that is core from a version on and an extension before; version 0 means never core.
type optional struct {
	bit       structs
	core      Version
	extension string
}

var optionals = []optional{
	{has8Bit, Version12, "VK_KHR_8bit_storage"},
	{hasFloat16Int8, Version12, "VK_KHR_shader_float16_int8"},
	{hasTimeline, Version12, "VK_KHR_timeline_semaphore"},
	{hasSubgroupSize, Version13, "VK_EXT_subgroup_size_control"},
	{hasCooperativeMatrix, 0, "VK_KHR_cooperative_matrix"},
	{hasBFloat16, 0, "VK_KHR_shader_bfloat16"},
	{hasMemoryModel, Version12, "VK_KHR_vulkan_memory_model"},
	{hasDeviceAddress, Version12, "VK_KHR_buffer_device_address"},
	{hasExecutable, 0, "VK_KHR_pipeline_executable_properties"},
	{hasHostQueryReset, Version12, "VK_EXT_host_query_reset"},
	{hasSynchronization2, Version13, "VK_KHR_synchronization2"},
	{hasScalarLayout, Version12, "VK_EXT_scalar_block_layout"},
	{hasMaintenance4, Version13, "VK_KHR_maintenance4"},
	{hasSubgroupExtended, Version12, "VK_KHR_shader_subgroup_extended_types"},
	{hasFloatControls, Version12, extFloatControls},
	{hasDriver, Version12, "VK_KHR_driver_properties"},
	{hasBudget, 0, "VK_EXT_memory_budget"},
	{hasNVMultiprocessors, 0, "VK_NV_shader_sm_builtins"},
	{hasAMDComputeUnits, 0, "VK_AMD_shader_core_properties2"},
	{hasArmCores, 0, "VK_ARM_shader_core_builtins"},
	{hasExternalHost, 0, "VK_EXT_external_memory_host"},
}

func structMask(version Version, has func(string) bool) (mask structs) {
	for _, o := range optionals {
		if o.core != 0 && version >= o.core || has(o.extension) {
			mask |= o.bit
		}
	}
	return mask
}

func (f *Facts) setProperties(p *properties, mask structs) {
	c := &p.core.Properties
	f.Name = abi.Chars(c.DeviceName[:])
	f.VendorID, f.DeviceID = c.VendorID, c.DeviceID
	f.Type = DeviceType(c.DeviceType)
	f.DriverVersion = c.DriverVersion
	for i := range f.PipelineCacheUUID {
		f.PipelineCacheUUID[i] = byte(c.PipelineCacheUUID[i])
		f.DeviceUUID[i] = byte(p.id.DeviceUUID[i])
		f.DriverUUID[i] = byte(p.id.DriverUUID[i])
	}
	if mask&hasDriver != 0 {
		f.DriverID = p.driver.DriverID
		f.DriverName = abi.Chars(p.driver.DriverName[:])
		f.DriverInfo = abi.Chars(p.driver.DriverInfo[:])
	}

	l := &c.Limits
	f.Limits = Limits{
		MaxSharedMemory:             l.MaxComputeSharedMemorySize,
		MaxWorkgroupInvocations:     l.MaxComputeWorkGroupInvocations,
		MaxStorageBufferRange:       uint64(l.MaxStorageBufferRange),
		MinStorageBufferAlignment:   l.MinStorageBufferOffsetAlignment,
		MaxPushConstants:            l.MaxPushConstantsSize,
		MaxBoundDescriptorSets:      l.MaxBoundDescriptorSets,
		MaxStorageBuffersPerStage:   l.MaxPerStageDescriptorStorageBuffers,
		MaxStorageBuffersPerSet:     l.MaxDescriptorSetStorageBuffers,
		MaxAllocationCount:          l.MaxMemoryAllocationCount,
		MaxAllocationSize:           p.maintenance3.MaxMemoryAllocationSize,
		NonCoherentAtomSize:         l.NonCoherentAtomSize,
		MinImportedHostAlignment:    p.externalHost.MinImportedHostPointerAlignment,
		TimestampPeriod:             float64(l.TimestampPeriod),
		TimestampComputeAndGraphics: l.TimestampComputeAndGraphics != 0,
	}
	for i := range 3 {
		f.Limits.MaxWorkgroupSize[i] = l.MaxComputeWorkGroupSize[i]
		f.Limits.MaxWorkgroupCount[i] = l.MaxComputeWorkGroupCount[i]
	}
	f.Limits.MaxBufferSize = f.Limits.MaxAllocationSize
	if mask&hasMaintenance4 != 0 {
		f.Limits.MaxBufferSize = p.maintenance4.MaxBufferSize
	}

	s := &p.subgroup
	f.Subgroup = Subgroup{
		Size: s.SubgroupSize, Min: s.SubgroupSize, Max: s.SubgroupSize,
		Ops: SubgroupOps(s.SupportedOperations), Compute: s.SupportedStages&abi.ShaderStageComputeBit != 0,
	}
	if mask&hasSubgroupSize != 0 {
		z := &p.subgroupSize
		f.Subgroup.Min, f.Subgroup.Max = z.MinSubgroupSize, z.MaxSubgroupSize
		f.Subgroup.RequiredSizeCompute = z.RequiredSubgroupSizeStages&abi.ShaderStageComputeBit != 0
		f.Subgroup.MaxWorkgroupSubgroups = z.MaxComputeWorkgroupSubgroups
	}
	switch {
	case mask&hasNVMultiprocessors != 0:
		f.Multiprocessors = p.nvMultiprocessors.ShaderSMCount
		f.MultiprocessorSubgroups = p.nvMultiprocessors.ShaderWarpsPerSM
	case mask&hasAMDComputeUnits != 0:
		f.Multiprocessors = p.amdComputeUnits.ActiveComputeUnitCount
	case mask&hasArmCores != 0:
		f.Multiprocessors = p.armCores.ShaderCoreCount
	}
	if mask&hasFloatControls != 0 {
		z := &p.floatControls
		f.FloatControls = FloatControls{
			RoundingRTE16: z.ShaderRoundingModeRTEFloat16 != 0, RoundingRTE32: z.ShaderRoundingModeRTEFloat32 != 0,
			DenormPreserve16: z.ShaderDenormPreserveFloat16 != 0, DenormPreserve32: z.ShaderDenormPreserveFloat32 != 0,
			DenormFlush16: z.ShaderDenormFlushToZeroFloat16 != 0, DenormFlush32: z.ShaderDenormFlushToZeroFloat32 != 0,
			SignedZeroInfNan16: z.ShaderSignedZeroInfNanPreserveFloat16 != 0,
			SignedZeroInfNan32: z.ShaderSignedZeroInfNanPreserveFloat32 != 0,
			DenormIndependence: Independence(z.DenormBehaviorIndependence), RoundingIndependence: Independence(z.RoundingModeIndependence),
		}
	}
}

// featureBits pairs each field of Features with its place in the C structures; MemoryBudget and ExternalMemoryHost have none.
func featureBits(f *Features, c *features) []struct {
	on  *bool
	bit *uint32
} {
	type pair = struct {
		on  *bool
		bit *uint32
	}
	return []pair{
		{&f.RobustBufferAccess, &c.core.Features.RobustBufferAccess},
		{&f.Int16, &c.core.Features.ShaderInt16},
		{&f.Int64, &c.core.Features.ShaderInt64},
		{&f.Float64, &c.core.Features.ShaderFloat64},
		{&f.Storage16, &c.storage16.StorageBuffer16BitAccess},
		{&f.Storage8, &c.storage8.StorageBuffer8BitAccess},
		{&f.Float16, &c.float16Int8.ShaderFloat16},
		{&f.Int8, &c.float16Int8.ShaderInt8},
		{&f.TimelineSemaphore, &c.timeline.TimelineSemaphore},
		{&f.SubgroupSizeControl, &c.subgroupSize.SubgroupSizeControl},
		{&f.ComputeFullSubgroups, &c.subgroupSize.ComputeFullSubgroups},
		{&f.CooperativeMatrix, &c.matrix.CooperativeMatrix},
		{&f.CooperativeMatrixRobust, &c.matrix.CooperativeMatrixRobustBufferAccess},
		{&f.BFloat16Type, &c.bfloat16.ShaderBFloat16Type},
		{&f.BFloat16DotProduct, &c.bfloat16.ShaderBFloat16DotProduct},
		{&f.BFloat16CooperativeMatrix, &c.bfloat16.ShaderBFloat16CooperativeMatrix},
		{&f.VulkanMemoryModel, &c.memoryModel.VulkanMemoryModel},
		{&f.VulkanMemoryModelDeviceScope, &c.memoryModel.VulkanMemoryModelDeviceScope},
		{&f.BufferDeviceAddress, &c.deviceAddress.BufferDeviceAddress},
		{&f.PipelineExecutableInfo, &c.executable.PipelineExecutableInfo},
		{&f.HostQueryReset, &c.hostQueryReset.HostQueryReset},
		{&f.Synchronization2, &c.synchronization2.Synchronization2},
		{&f.ScalarBlockLayout, &c.scalarLayout.ScalarBlockLayout},
		{&f.Maintenance4, &c.maintenance4.Maintenance4},
		{&f.SubgroupExtendedTypes, &c.subgroupExtended.ShaderSubgroupExtendedTypes},
	}
}

func fromFeatures(c *features) (f Features) {
	for _, p := range featureBits(&f, c) {
		*p.on = *p.bit != 0
	}
	return f
}

func toFeatures(f Features, c *features) {
	for _, p := range featureBits(&f, c) {
		*p.bit = 0
		if *p.on {
			*p.bit = 1
		}
	}
}

func queryMemory(t *instanceTable, physical uintptr, mask structs) ([]Heap, []MemoryType) {
	f := abi.NewFrame()
	defer f.Free()
	m := t.queryMemory(f, physical, mask)
	p := &m.core.MemoryProperties
	heaps := make([]Heap, p.MemoryHeapCount)
	for i := range heaps {
		h := &p.MemoryHeaps[i]
		heaps[i] = Heap{Size: h.Size, DeviceLocal: h.Flags&abi.MemoryHeapDeviceLocalBit != 0, Budget: h.Size}
		if mask&hasBudget != 0 {
			heaps[i].Budget, heaps[i].Usage = m.budget.HeapBudget[i], m.budget.HeapUsage[i]
		}
	}
	types := make([]MemoryType, p.MemoryTypeCount)
	for i := range types {
		types[i] = MemoryType{p.MemoryTypes[i].HeapIndex, MemoryFlags(p.MemoryTypes[i].PropertyFlags)}
	}
	return heaps, types
}
