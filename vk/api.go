package vk

import "time"

func Load() error { return ErrUnsupported }

// Message is one message of the validation layers.
type Message struct {
	Severity Severity
	Types    MessageTypes
	ID       string // for example VUID-vkCmdDispatch-None-08114
	Number   int32
	Text     string
}

// Severity is a VkDebugUtilsMessageSeverityFlagBitsEXT.
type Severity uint32

// MessageTypes is a VkDebugUtilsMessageTypeFlagsEXT.
type MessageTypes uint32

type InstanceOptions struct {
	AppName        string
	Validation     bool
	SyncValidation bool
	MaxAPIVersion  Version
	OnMessage      func(Message)
}

type Instance struct{}

func NewInstance(o InstanceOptions) (*Instance, error)          { return nil, ErrUnsupported }
func (i *Instance) PhysicalDevices() ([]*PhysicalDevice, error) { return nil, ErrUnsupported }
func (i *Instance) Handle() uintptr                             { return 0 }
func (i *Instance) APIVersion() Version                         { return 0 }
func (i *Instance) Close() error                                { return nil }

type PhysicalDevice struct{}

func (p *PhysicalDevice) Facts() *Facts                         { return nil }
func (p *PhysicalDevice) Handle() uintptr                       { return 0 }
func (p *PhysicalDevice) Open(o DeviceOptions) (*Device, error) { return nil, ErrUnsupported }

type DeviceOptions struct {
	Without Features // supported features that shall not be enabled
}

// External is a device that somebody else made.
type External struct {
	GetInstanceProcAddr uintptr // 0: this process's loader
	Instance            uintptr
	PhysicalDevice      uintptr
	Device              uintptr
	Queue               uintptr
	QueueFamily         uint32
	APIVersion          Version  // that the instance was created with; 0: the device's
	Enabled             Features // that the device was created with
	Extensions          []string // that the device was created with
}

func Attach(e External) (*Device, error) { return nil, ErrUnsupported }

type Device struct{ facts *Facts }

func (d *Device) Facts() *Facts               { return d.facts }
func (d *Device) Enabled() Features           { return Features{} }
func (d *Device) Handle() uintptr             { return 0 }
func (d *Device) External() External          { return External{} }
func (d *Device) Queue() *Queue               { return nil }
func (d *Device) Lost() error                 { return nil }
func (d *Device) WaitIdle() error             { return nil }
func (d *Device) Close() error                { return nil }
func (d *Device) HeapBudget() ([]Heap, error) { return nil, nil }
func (d *Device) DeviceHeap() int             { return 0 }

type MemoryKind int

const (
	DeviceLocal MemoryKind = iota
	Upload
	Readback
)

type Buffer struct {
	dev      *Device
	handle   uintptr
	capacity uint64
}

func (d *Device) NewBuffer(size uint64, kind MemoryKind) (*Buffer, error) { return nil, ErrUnsupported }
func (d *Device) WrapBuffer(handle uintptr, size uint64) (*Buffer, error) { return nil, ErrUnsupported }
func (b *Buffer) Handle() uintptr                                         { return b.handle }
func (b *Buffer) Device() *Device                                         { return b.dev }
func (b *Buffer) Size() uint64                                            { return 0 }
func (b *Buffer) Capacity() uint64                                        { return b.capacity }
func (b *Buffer) AllocatedBytes() uint64                                  { return 0 }
func (b *Buffer) Kind() MemoryKind                                        { return 0 }
func (b *Buffer) Mapped() []byte                                          { return nil }
func (b *Buffer) Flush(offset, size uint64) error                         { return nil }
func (b *Buffer) Invalidate(offset, size uint64) error                    { return nil }
func (b *Buffer) Close() error                                            { return nil }

type PipelineCache struct{}

func (d *Device) NewPipelineCache(data []byte) (*PipelineCache, error) { return nil, ErrUnsupported }
func (c *PipelineCache) Data() ([]byte, error)                         { return nil, ErrUnsupported }
func (c *PipelineCache) Merge(others ...*PipelineCache) error          { return ErrUnsupported }
func (c *PipelineCache) Close() error                                  { return nil }

// SpecConstant is the value of one specialization constant.
type SpecConstant struct{ ID, Value uint32 }

type PipelineInfo struct {
	Name          string
	Code          []uint32
	Entry         string // "" means main
	Spec          []SpecConstant
	Bindings      int // storage buffers, set 0, bindings 0..Bindings-1
	PushBytes     int
	SubgroupSize  uint32 // 0: the driver's choice
	FullSubgroups bool
	Cache         *PipelineCache
	CaptureStats  bool
}

type ComputePipeline struct {
	dev       *Device
	name      string
	handle    uintptr
	layout    uintptr
	bindings  int
	pushBytes int
}

// Stat is one statistic of a compiled pipeline.
type Stat struct {
	Name, Description string
	Value             float64
}

func (d *Device) NewComputePipeline(i PipelineInfo) (*ComputePipeline, error) {
	return nil, ErrUnsupported
}
func (p *ComputePipeline) Stats() ([]Stat, error) { return nil, ErrUnsupported }
func (p *ComputePipeline) Name() string           { return p.name }
func (p *ComputePipeline) Bindings() int          { return p.bindings }
func (p *ComputePipeline) Close() error           { return nil }

type DescriptorPool struct{}
type DescriptorSet struct{ handle uintptr }

type BufferBinding struct {
	Buffer       *Buffer
	Offset, Size uint64
}

func (d *Device) NewDescriptorPool(sets, storageBuffers int) (*DescriptorPool, error) {
	return nil, ErrUnsupported
}
func (p *DescriptorPool) Allocate(c *ComputePipeline) (DescriptorSet, error) {
	return DescriptorSet{}, ErrUnsupported
}
func (p *DescriptorPool) Reset() error                                         { return nil }
func (p *DescriptorPool) Close() error                                         { return nil }
func (d *Device) UpdateDescriptors(set DescriptorSet, b []BufferBinding) error { return ErrUnsupported }

type CommandPool struct{}
type CommandBuffer struct{}

func (d *Device) NewCommandPool() (*CommandPool, error)                   { return nil, ErrUnsupported }
func (p *CommandPool) Allocate() (*CommandBuffer, error)                  { return nil, ErrUnsupported }
func (p *CommandPool) Reset() error                                       { return nil }
func (p *CommandPool) Close() error                                       { return nil }
func WrapCommandBuffer(d *Device, handle uintptr) (*CommandBuffer, error) { return nil, ErrUnsupported }
func (c *CommandBuffer) Begin(oneTime bool) error                         { return nil }
func (c *CommandBuffer) End() error                                       { return nil }
func (c *CommandBuffer) Reset() error                                     { return nil }
func (c *CommandBuffer) Execute(s *Stream) error                          { return nil }
func (c *CommandBuffer) Handle() uintptr                                  { return 0 }
func (c *CommandBuffer) Device() *Device                                  { return nil }
func (c *CommandBuffer) Close() error                                     { return nil }

type Fence struct{}

func (d *Device) NewFence(signaled bool) (*Fence, error) { return nil, ErrUnsupported }
func (f *Fence) Wait(timeout time.Duration) error        { return nil } // Timeout as error; negative: for ever
func (f *Fence) Signaled() (bool, error)                 { return false, nil }
func (f *Fence) Reset() error                            { return nil }
func (f *Fence) Close() error                            { return nil }

type TimelineSemaphore struct{}

func (d *Device) NewTimelineSemaphore(initial uint64) (*TimelineSemaphore, error) {
	return nil, ErrUnsupported
}
func (t *TimelineSemaphore) Value() (uint64, error)                         { return 0, nil }
func (t *TimelineSemaphore) Wait(value uint64, timeout time.Duration) error { return nil }
func (t *TimelineSemaphore) Signal(value uint64) error                      { return nil }
func (t *TimelineSemaphore) Handle() uintptr                                { return 0 }
func (t *TimelineSemaphore) Close() error                                   { return nil }

type TimelinePoint struct {
	Semaphore *TimelineSemaphore
	Value     uint64
}

type Submission struct {
	Commands []*CommandBuffer
	Wait     []TimelinePoint
	Signal   []TimelinePoint
	Fence    *Fence // may be nil
}

type Queue struct{}

func (q *Queue) Submit(s Submission) error  { return ErrUnsupported }
func (q *Queue) WaitIdle() error            { return ErrUnsupported }
func (q *Queue) Handle() uintptr            { return 0 }
func (q *Queue) Family() uint32             { return 0 }
func (q *Queue) TimestampValidBits() uint32 { return 0 }

type QueryPool struct {
	dev    *Device
	handle uintptr
	count  int
}

func (d *Device) NewQueryPool(timestamps int) (*QueryPool, error) { return nil, ErrUnsupported }
func (p *QueryPool) Results(first int, dst []uint64) error        { return nil } // masked ticks; NotReady as error
func (p *QueryPool) Nanoseconds(from, to uint64) float64          { return 0 }
func (p *QueryPool) Count() int                                   { return p.count }
func (p *QueryPool) Close() error                                 { return nil }
