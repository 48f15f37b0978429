package vk

import "fmt"

// DeviceType is a VkPhysicalDeviceType.
type DeviceType uint32

// The kinds of device.
const (
	DeviceOther DeviceType = iota
	DeviceIntegrated
	DeviceDiscrete
	DeviceVirtual
	DeviceCPU
)

// String returns a word for the kind.
func (t DeviceType) String() string {
	switch t {
	case DeviceIntegrated:
		return "integrated"
	case DeviceDiscrete:
		return "discrete"
	case DeviceVirtual:
		return "virtual"
	case DeviceCPU:
		return "cpu"
	}
	return "other"
}

// Version is a Vulkan API version as VK_MAKE_API_VERSION packs it.
type Version uint32

// MakeVersion packs major.minor.patch.
func MakeVersion(major, minor, patch uint32) Version {
	return Version(major<<22 | minor<<12 | patch)
}

// The versions that matter here.
const (
	Version11 Version = 1<<22 | 1<<12
	Version12 Version = 1<<22 | 2<<12
	Version13 Version = 1<<22 | 3<<12
	Version14 Version = 1<<22 | 4<<12
)

// String returns major.minor.patch.
func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", uint32(v)>>22&0x7f, uint32(v)>>12&0x3ff, uint32(v)&0xfff)
}

// Facts is all that is known of a physical device.
type Facts struct {
	Name              string // for people
	VendorID          uint32 // PCI's, 0x10de for NVIDIA, or a VkVendorId
	DeviceID          uint32
	Type              DeviceType
	APIVersion        Version  // the device's own
	EffectiveVersion  Version  // what may be used: the smaller of the device's and the instance's
	DriverVersion     uint32   // packed as the vendor likes; see DriverInfo
	DriverID          uint32   // VkDriverId, 0 where unknown
	DriverName        string   // "" where the driver does not say, as DriverInfo
	DriverInfo        string   // its version, for people
	PipelineCacheUUID [16]byte // changes with anything that makes compiled pipelines useless
	DeviceUUID        [16]byte // of the device, across processes and APIs
	DriverUUID        [16]byte // of the driver's build

	// Multiprocessors is how many workgroups run side by side at the least: NVIDIA's streaming multiprocessors, AMD's compute
	// units, Arm's cores; 0 where no extension says.
	Multiprocessors uint32
	// MultiprocessorSubgroups is how many subgroups a multiprocessor holds at most, 0 where no extension says. It tells NVIDIA's
	// architectures apart.
	MultiprocessorSubgroups uint32

	Limits        Limits
	Subgroup      Subgroup
	Features      Features // supported
	FloatControls FloatControls
	Extensions    []string      // device extensions offered, sorted
	Matrices      []MatrixShape // of VK_KHR_cooperative_matrix; none without it
	Heaps         []Heap
	MemoryTypes   []MemoryType
	Queues        []QueueFamily
}

// HasExtension says whether the device offers the named extension.
func (f *Facts) HasExtension(name string) bool {
	if f == nil {
		return false
	}
	for _, e := range f.Extensions {
		if e == name {
			return true
		}
	}
	return false
}

// Limits are those of VkPhysicalDeviceLimits and its extensions that compute meets. Sizes are in bytes.
type Limits struct {
	MaxSharedMemory             uint32    // of one workgroup
	MaxWorkgroupInvocations     uint32    // the product of a workgroup's dimensions
	MaxWorkgroupSize            [3]uint32 // each dimension
	MaxWorkgroupCount           [3]uint32 // of one dispatch
	MaxStorageBufferRange       uint64    // of one binding
	MinStorageBufferAlignment   uint64    // of a binding's offset
	MaxPushConstants            uint32
	MaxBoundDescriptorSets      uint32
	MaxStorageBuffersPerStage   uint32
	MaxStorageBuffersPerSet     uint32
	MaxAllocationCount          uint32
	MaxAllocationSize           uint64
	MaxBufferSize               uint64  // MaxAllocationSize where the device does not say
	NonCoherentAtomSize         uint64  // of flushes and invalidations
	MinImportedHostAlignment    uint64  // of host memory that is imported, and of its size; 0 where none can be
	TimestampPeriod             float64 // nanoseconds per tick
	TimestampComputeAndGraphics bool    // every graphics and compute queue has timestamps
}

// SubgroupOps is a VkSubgroupFeatureFlags.
type SubgroupOps uint32

// Operations on subgroups.
const (
	SubgroupBasic           SubgroupOps = 1 << 0
	SubgroupVote            SubgroupOps = 1 << 1
	SubgroupArithmetic      SubgroupOps = 1 << 2
	SubgroupBallot          SubgroupOps = 1 << 3
	SubgroupShuffle         SubgroupOps = 1 << 4
	SubgroupShuffleRelative SubgroupOps = 1 << 5
	SubgroupClustered       SubgroupOps = 1 << 6
	SubgroupQuad            SubgroupOps = 1 << 7
	SubgroupRotate          SubgroupOps = 1 << 9
)

// Subgroup is what a device offers on subgroups.
type Subgroup struct {
	Size                  uint32      // the default
	Min, Max              uint32      // that can be required; both Size where it cannot
	Ops                   SubgroupOps // allowed operations
	Compute               bool        // allowed in compute shaders
	RequiredSizeCompute   bool        // a size can be required of a compute pipeline
	FullSubgroups         bool        // full subgroups can be required of a compute pipeline
	MaxWorkgroupSubgroups uint32      // of a pipeline that requires a size; 0 where it cannot
}

// Single says whether the device has subgroups of one size alone: then they are of that size without a pipeline that requires it.
func (s *Subgroup) Single() bool { return s.Size > 0 && s.Min == s.Size && s.Max == s.Size }

// Features are the device features that this project knows. In [Facts] they say what is supported, in
// [Device.Enabled] what the device was created with.
type Features struct {
	Float16                      bool // shaderFloat16: fp16 arithmetic
	Int8                         bool // shaderInt8
	Int16                        bool // shaderInt16
	Int64                        bool // shaderInt64
	Float64                      bool // shaderFloat64
	Storage16                    bool // storageBuffer16BitAccess
	Storage8                     bool // storageBuffer8BitAccess
	TimelineSemaphore            bool
	SubgroupSizeControl          bool
	ComputeFullSubgroups         bool
	CooperativeMatrix            bool // VK_KHR_cooperative_matrix
	CooperativeMatrixRobust      bool // cooperativeMatrixRobustBufferAccess
	BFloat16Type                 bool // shaderBFloat16Type
	BFloat16DotProduct           bool
	BFloat16CooperativeMatrix    bool
	VulkanMemoryModel            bool
	VulkanMemoryModelDeviceScope bool
	BufferDeviceAddress          bool
	PipelineExecutableInfo       bool
	HostQueryReset               bool
	Synchronization2             bool
	ScalarBlockLayout            bool
	Maintenance4                 bool
	SubgroupExtendedTypes        bool
	MemoryBudget                 bool // VK_EXT_memory_budget
	ExternalMemoryHost           bool // VK_EXT_external_memory_host
	RobustBufferAccess           bool // never enabled by Open: it costs a check per load
}

// FloatControls say what the device promises of rounding, denormals and special values (VK_KHR_shader_float_controls).
type FloatControls struct {
	RoundingRTE16, RoundingRTE32           bool
	DenormPreserve16, DenormPreserve32     bool
	DenormFlush16, DenormFlush32           bool
	SignedZeroInfNan16, SignedZeroInfNan32 bool
	DenormIndependence                     Independence // of widths, in what they do with denormals
	RoundingIndependence                   Independence // of widths, in how they round
}

// ComponentType is a VkComponentTypeKHR, the element of a cooperative matrix.
type ComponentType uint32

// Component types.
const (
	ComponentF16  ComponentType = 0
	ComponentF32  ComponentType = 1
	ComponentF64  ComponentType = 2
	ComponentS8   ComponentType = 3
	ComponentS16  ComponentType = 4
	ComponentS32  ComponentType = 5
	ComponentS64  ComponentType = 6
	ComponentU8   ComponentType = 7
	ComponentU16  ComponentType = 8
	ComponentU32  ComponentType = 9
	ComponentU64  ComponentType = 10
	ComponentBF16 ComponentType = 1000141000
)

// String returns a short name such as f16.
func (c ComponentType) String() string {
	names := [...]string{"f16", "f32", "f64", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"}
	if int(c) < len(names) {
		return names[c]
	}
	switch c {
	case ComponentBF16:
		return "bf16"
	case 1000491000:
		return "s8packed"
	case 1000491001:
		return "u8packed"
	case 1000491002:
		return "e4m3"
	case 1000491003:
		return "e5m2"
	}
	return fmt.Sprintf("type(%d)", uint32(c))
}

// Scope is a VkScopeKHR.
type Scope uint32

// Scopes.
const (
	ScopeDevice      Scope = 1
	ScopeWorkgroup   Scope = 2
	ScopeSubgroup    Scope = 3
	ScopeQueueFamily Scope = 5
)

// String returns the scope's name.
func (s Scope) String() string {
	switch s {
	case ScopeDevice:
		return "device"
	case ScopeWorkgroup:
		return "workgroup"
	case ScopeSubgroup:
		return "subgroup"
	case ScopeQueueFamily:
		return "queue family"
	}
	return fmt.Sprintf("scope(%d)", uint32(s))
}

// MatrixShape is one supported Result[M,N] = A[M,K]·B[K,N] + C[M,N] of cooperative matrices.
type MatrixShape struct {
	M, N, K         uint32
	A, B, C, Result ComponentType
	Scope           Scope
	Saturating      bool
}

// String returns for example 16x16x16 f16·f16+f32→f32 subgroup.
func (m MatrixShape) String() string {
	return fmt.Sprintf("%dx%dx%d %v·%v+%v→%v %v", m.M, m.N, m.K, m.A, m.B, m.C, m.Result, m.Scope)
}

// Heap is a memory heap. Budget and Usage are those of the moment, Budget = Size and Usage = 0 without VK_EXT_memory_budget.
type Heap struct {
	Size        uint64 // bytes, as all of these
	DeviceLocal bool   // the device's own memory, not the host's
	Budget      uint64 // what this process may use before allocations fail or slow down
	Usage       uint64 // what this process uses now
}

// MemoryFlags is a VkMemoryPropertyFlags.
type MemoryFlags uint32

// Memory properties.
const (
	MemoryDeviceLocal  MemoryFlags = 1 << 0
	MemoryHostVisible  MemoryFlags = 1 << 1
	MemoryHostCoherent MemoryFlags = 1 << 2
	MemoryHostCached   MemoryFlags = 1 << 3
)

// MemoryType is one memory type of a device.
type MemoryType struct {
	Heap  uint32
	Flags MemoryFlags
}

// QueueFlags is a VkQueueFlags.
type QueueFlags uint32

// Queue capabilities.
const (
	QueueGraphics QueueFlags = 1 << 0
	QueueCompute  QueueFlags = 1 << 1
	QueueTransfer QueueFlags = 1 << 2
)

// QueueFamily is one queue family of a device.
type QueueFamily struct {
	Flags              QueueFlags
	Count              uint32
	TimestampValidBits uint32 // 0: no timestamps
}
