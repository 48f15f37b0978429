package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

// structs says which optional structures may be chained: bits computed from version and extensions.
type structs uint32

const (
	has8Bit structs = 1 << iota
	hasFloat16Int8
	hasTimeline
	hasSubgroupSize
	hasCooperativeMatrix
	hasBFloat16
	hasMemoryModel
	hasDeviceAddress
	hasExecutable
	hasHostQueryReset
	hasSynchronization2
	hasScalarLayout
	hasMaintenance4
	hasSubgroupExtended
	hasFloatControls
	hasDriver
	hasBudget
	hasNVMultiprocessors
	hasAMDComputeUnits
	hasArmCores
	hasExternalHost
)

// features is the pNext chain of what a device can do, and of what one is made with. The head comes first.
type features struct {
	core             abi.PhysicalDeviceFeatures2
	storage16        abi.PhysicalDevice16BitStorageFeatures
	storage8         abi.PhysicalDevice8BitStorageFeatures
	float16Int8      abi.PhysicalDeviceShaderFloat16Int8Features
	timeline         abi.PhysicalDeviceTimelineSemaphoreFeatures
	subgroupSize     abi.PhysicalDeviceSubgroupSizeControlFeatures
	matrix           abi.PhysicalDeviceCooperativeMatrixFeaturesKHR
	bfloat16         abi.PhysicalDeviceShaderBfloat16FeaturesKHR
	memoryModel      abi.PhysicalDeviceVulkanMemoryModelFeatures
	deviceAddress    abi.PhysicalDeviceBufferDeviceAddressFeatures
	executable       abi.PhysicalDevicePipelineExecutablePropertiesFeaturesKHR
	hostQueryReset   abi.PhysicalDeviceHostQueryResetFeatures
	synchronization2 abi.PhysicalDeviceSynchronization2Features
	scalarLayout     abi.PhysicalDeviceScalarBlockLayoutFeatures
	maintenance4     abi.PhysicalDeviceMaintenance4Features
	subgroupExtended abi.PhysicalDeviceShaderSubgroupExtendedTypesFeatures
}

type properties struct {
	core              abi.PhysicalDeviceProperties2
	subgroup          abi.PhysicalDeviceSubgroupProperties
	id                abi.PhysicalDeviceIDProperties
	maintenance3      abi.PhysicalDeviceMaintenance3Properties
	driver            abi.PhysicalDeviceDriverProperties
	subgroupSize      abi.PhysicalDeviceSubgroupSizeControlProperties
	floatControls     abi.PhysicalDeviceFloatControlsProperties
	maintenance4      abi.PhysicalDeviceMaintenance4Properties
	nvMultiprocessors abi.PhysicalDeviceShaderSMBuiltinsPropertiesNV
	amdComputeUnits   abi.PhysicalDeviceShaderCoreProperties2AMD
	armCores          abi.PhysicalDeviceShaderCoreBuiltinsPropertiesARM
	externalHost      abi.PhysicalDeviceExternalMemoryHostPropertiesEXT
}

type memory struct {
	core   abi.PhysicalDeviceMemoryProperties2
	budget abi.PhysicalDeviceMemoryBudgetPropertiesEXT
}

// structure is what begins with a type and the address of the next.
type structure interface {
	Init()
	Base() *abi.BaseOutStructure
}

// chain links structures in a frame behind the first: those whose bit is in the mask, and those without a bit.
func chain(mask structs, first structure, links ...link) {
	first.Init()
	tail := first.Base()
	tail.PNext = 0
	for _, l := range links {
		if l.bit != 0 && mask&l.bit == 0 {
			continue
		}
		l.structure.Init()
		next := l.structure.Base()
		tail.PNext, next.PNext = abi.Address(next), 0
		tail = next
	}
}

type link struct {
	bit       structs
	structure structure
}

func (x *features) chain(mask structs) {
	chain(mask, &x.core,
		link{0, &x.storage16}, link{has8Bit, &x.storage8}, link{hasFloat16Int8, &x.float16Int8}, link{hasTimeline, &x.timeline},
		link{hasSubgroupSize, &x.subgroupSize}, link{hasCooperativeMatrix, &x.matrix}, link{hasBFloat16, &x.bfloat16},
		link{hasMemoryModel, &x.memoryModel}, link{hasDeviceAddress, &x.deviceAddress}, link{hasExecutable, &x.executable},
		link{hasHostQueryReset, &x.hostQueryReset}, link{hasSynchronization2, &x.synchronization2},
		link{hasScalarLayout, &x.scalarLayout}, link{hasMaintenance4, &x.maintenance4}, link{hasSubgroupExtended, &x.subgroupExtended})
}

// queryFeatures returns what a device can do, in the frame.
func (t *instanceTable) queryFeatures(f *abi.Frame, physical uintptr, mask structs) *features {
	x := abi.New[features](f)
	x.chain(mask)
	t.call(f, callGetPhysicalDeviceFeatures2, physical, abi.Address(&x.core))
	return x
}

func (t *instanceTable) queryProperties(f *abi.Frame, physical uintptr, mask structs) *properties {
	x := abi.New[properties](f)
	chain(mask, &x.core,
		link{0, &x.subgroup}, link{0, &x.id}, link{0, &x.maintenance3}, link{hasDriver, &x.driver},
		link{hasSubgroupSize, &x.subgroupSize}, link{hasFloatControls, &x.floatControls}, link{hasMaintenance4, &x.maintenance4},
		link{hasNVMultiprocessors, &x.nvMultiprocessors}, link{hasAMDComputeUnits, &x.amdComputeUnits},
		link{hasArmCores, &x.armCores}, link{hasExternalHost, &x.externalHost})
	t.call(f, callGetPhysicalDeviceProperties2, physical, abi.Address(&x.core))
	return x
}

func (t *instanceTable) queryMemory(f *abi.Frame, physical uintptr, mask structs) *memory {
	x := abi.New[memory](f)
	chain(mask, &x.core, link{hasBudget, &x.budget})
	t.call(f, callGetPhysicalDeviceMemoryProperties2, physical, abi.Address(&x.core))
	return x
}

func (t *instanceTable) queueFamilies(physical uintptr, out []abi.QueueFamilyProperties) int32 {
	f := abi.NewFrame()
	defer f.Free()
	n := abi.New[uint32](f)
	t.call(f, callGetPhysicalDeviceQueueFamilyProperties, physical, abi.Address(n), 0)
	if len(out) == 0 {
		return int32(*n)
	}
	*n = min(*n, uint32(len(out))) // no more than there are: the validation layer advises so
	t.call(f, callGetPhysicalDeviceQueueFamilyProperties, physical, abi.Address(n), abi.Pin(f, out))
	return int32(*n)
}

func (t *instanceTable) matrices(physical uintptr, out []abi.CooperativeMatrixPropertiesKHR) int32 {
	if !t.has(callGetPhysicalDeviceCooperativeMatrixPropertiesKHR) {
		return 0
	}
	for i := range out {
		out[i].Init()
	}
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		return t.call(f, callGetPhysicalDeviceCooperativeMatrixPropertiesKHR, physical, n, array)
	})
}
