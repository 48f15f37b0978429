package vk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// DeviceOptions say how a device is opened.
type DeviceOptions struct {
	Without Features // supported features that shall not be enabled, for tests and for comparing
	Surface *Surface // that the queue shall be able to present to, with swapchains; nil: none
	// Copies asks for queues that only copy, beside the one that computes, where the device has a family of such; buffers belong to both
	// then.
	Copies bool
}

// Device is a logical device with one queue. It is safe for concurrent use. Its methods return ErrClosed after Close and
// the error of [Device.Lost] once the device is lost.
type Device struct {
	table      *deviceTable
	instance   *instanceTable // for memory budgets; owned when attached
	parent     *Instance      // nil when attached
	physical   uintptr
	external   External
	facts      *Facts
	enabled    Features
	mask       structs
	handle     uintptr
	owned      bool
	queue      Queue
	transfers  []*Queue    // that only copy, beside it
	sharedLock sync.Locker // the caller's, of an attached queue; may be nil
	faults     *Faults     // of tests; nil otherwise
	presents   bool        // VK_KHR_swapchain is enabled

	lost atomic.Pointer[CallError]

	// life is read-locked by every call into the driver and locked by Close, so that nothing is destroyed under a call.
	life   sync.RWMutex
	closed bool

	// emptying is read-locked where a command buffer is emptied and locked where a buffer is destroyed. A driver does not mind both at
	// once, but the validation layers may then find the command buffer's next contents invalid: they mark all that held the buffer, as it
	// was when they began.
	emptying sync.RWMutex

	mu       sync.Mutex
	children map[child]struct{}
}

// child is an object made from a device, which Close destroys if its owner did not.
type child interface{ destroy() }

// Open creates a device with one compute queue and every supported feature of [Features] (but the robust accesses), less
// those in o.Without.
func (p *PhysicalDevice) Open(o DeviceOptions) (*Device, error) {
	in := p.instance
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, ErrClosed
	}
	family, err := p.family(o.Surface)
	if err != nil {
		return nil, err
	}
	var transfer uint32
	var transfers int
	if o.Copies {
		transfer, transfers = transferFamily(p.facts, family)
	}
	enabled := without(p.facts.Features, o.Without)
	enabled.RobustBufferAccess, enabled.CooperativeMatrixRobust = false, false
	// A feature that says more about another is nothing without it.
	enabled.ComputeFullSubgroups = enabled.ComputeFullSubgroups && enabled.SubgroupSizeControl
	enabled.VulkanMemoryModelDeviceScope = enabled.VulkanMemoryModelDeviceScope && enabled.VulkanMemoryModel
	enabled.BFloat16DotProduct = enabled.BFloat16DotProduct && enabled.BFloat16Type
	enabled.BFloat16CooperativeMatrix = enabled.BFloat16CooperativeMatrix && enabled.BFloat16Type && enabled.CooperativeMatrix

	mask := structMask(p.facts.EffectiveVersion, p.facts.HasExtension)
	var extensions []string
	for _, o := range optionals {
		if p.facts.HasExtension(o.extension) && (o.core == 0 || p.facts.EffectiveVersion < o.core) && wanted(o.bit, enabled) {
			extensions = append(extensions, o.extension)
		} else if o.core == 0 || p.facts.EffectiveVersion < o.core {
			mask &^= o.bit
		}
	}
	if p.facts.HasExtension("VK_KHR_portability_subset") {
		extensions = append(extensions, "VK_KHR_portability_subset") // must be enabled where it is offered
	}

	if o.Surface != nil {
		extensions = append(extensions, extSwapchain)
	}

	f := abi.NewFrame()
	defer f.Free()
	features := abi.New[features](f)
	features.chain(mask)
	toFeatures(enabled, features)
	var handle uintptr
	r := Result(in.table.createDevice(p.handle, family, transfer, uint32(transfers), features, extensions, &handle))
	if r < 0 {
		return nil, callErr("vkCreateDevice", r, p.facts.Name)
	}
	d := &Device{
		instance: in.table, parent: in, physical: p.handle, facts: p.facts, enabled: enabled, mask: mask,
		handle: handle, owned: true, faults: in.faults, presents: o.Surface != nil,
	}
	if err := d.init(0, family); err != nil {
		in.table.destroyUnloadedDevice(handle)
		return nil, err
	}
	if err := d.initTransfers(transfer, transfers); err != nil {
		d.unload()
		in.table.destroyUnloadedDevice(handle)
		return nil, err
	}
	if in.debug {
		extensions = append(extensions, extDebugUtils)
	}
	d.external = External{
		GetInstanceProcAddr: GetInstanceProcAddr(), Instance: in.handle, PhysicalDevice: p.handle, Device: d.handle,
		Queue: d.queue.handle, QueueFamily: family, APIVersion: in.version, Enabled: enabled, Extensions: extensions,
	}
	in.open[d] = struct{}{}
	return d, nil
}

// wanted says whether an extension is needed for what is enabled; those without a feature of their own always are.
func wanted(bit structs, f Features) bool {
	switch bit {
	case has8Bit:
		return f.Storage8
	case hasFloat16Int8:
		return f.Float16 || f.Int8
	case hasTimeline:
		return f.TimelineSemaphore
	case hasSubgroupSize:
		return f.SubgroupSizeControl
	case hasCooperativeMatrix:
		return f.CooperativeMatrix
	case hasBFloat16:
		return f.BFloat16Type
	case hasMemoryModel:
		return f.VulkanMemoryModel
	case hasDeviceAddress:
		return f.BufferDeviceAddress
	case hasExecutable:
		return f.PipelineExecutableInfo
	case hasHostQueryReset:
		return f.HostQueryReset
	case hasSynchronization2:
		return f.Synchronization2
	case hasScalarLayout:
		return f.ScalarBlockLayout
	case hasMaintenance4:
		return f.Maintenance4
	case hasSubgroupExtended:
		return f.SubgroupExtendedTypes
	case hasBudget:
		return f.MemoryBudget
	case hasExternalHost:
		return f.ExternalMemoryHost
	case hasNVMultiprocessors, hasAMDComputeUnits, hasArmCores:
		return false // properties alone
	}
	return true
}

// computeFamily picks the queue family: compute with timestamps before without, and a general one before one that only
// computes, since that is the queue every driver is tuned for.
func computeFamily(f *Facts) (uint32, error) {
	i, err := familyWhere(f, func(uint32) (bool, error) { return true, nil })
	if err == nil && i < 0 {
		err = fmt.Errorf("vk: device %q has no queue family that computes: %w", f.Name, ErrUnsupported)
	}
	return uint32(i), err
}

// familyWhere is computeFamily among those that may serve, -1 where there is none.
func familyWhere(f *Facts, may func(family uint32) (bool, error)) (int, error) {
	best, score := -1, -1
	for i, q := range f.Queues {
		if q.Flags&QueueCompute == 0 || q.Count == 0 {
			continue
		}
		s := 0
		if q.TimestampValidBits > 0 {
			s += 2
		}
		if q.Flags&QueueGraphics != 0 {
			s++
		}
		if s <= score {
			continue
		}
		switch ok, err := may(uint32(i)); {
		case err != nil:
			return -1, err
		case ok:
			best, score = i, s
		}
	}
	return best, nil
}

// without returns the features of f that are not in g.
func without(f, g Features) Features {
	a, b := f.fields(), g.fields()
	for i := range a {
		*a[i] = *a[i] && !*b[i]
	}
	return f
}

// fields returns the addresses of all fields, in order.
func (f *Features) fields() []*bool {
	n := int(unsafe.Sizeof(*f) / unsafe.Sizeof(false)) // all fields are bool
	flags := unsafe.Slice((*bool)(unsafe.Pointer(f)), n)
	out := make([]*bool, n)
	for i := range flags {
		out[i] = &flags[i]
	}
	return out
}

// init loads the functions and the queue of a device that exists.
func (d *Device) init(queue uintptr, family uint32) error {
	d.children = map[child]struct{}{}
	table, missing := loadDeviceTable(d.instance, d.handle, d.facts.EffectiveVersion >= Version12)
	if missing != 0 {
		return fmt.Errorf("vk: device %q has no function %v: %w", d.facts.Name, missing, ErrUnsupported)
	}
	d.table = table
	if queue == 0 {
		queue = d.table.queue(family, 0)
	}
	d.faults.hookTable(&d.table.table, d.handle, queue)
	d.enabled.TimelineSemaphore = d.enabled.TimelineSemaphore && d.table.hasTimeline()
	d.enabled.PipelineExecutableInfo = d.enabled.PipelineExecutableInfo && d.table.hasExecutable()
	d.queue.dev, d.queue.handle, d.queue.family = d, queue, family
	d.queue.validBits = d.facts.Queues[family].TimestampValidBits
	return nil
}

// unload lets go of the table of functions.
func (d *Device) unload() {
	d.table.unhook()
	d.table = nil
}

// Facts returns what is known of the physical device; it must not be changed.
func (d *Device) Facts() *Facts { return d.facts }

// Enabled returns the features that the device was created with.
func (d *Device) Enabled() Features { return d.enabled }

// Handle returns the VkDevice, 0 of a nil Device.
func (d *Device) Handle() uintptr {
	if d == nil {
		return 0
	}
	return d.handle
}

// External describes the device as [Attach] wants it; that of a nil Device is zero.
func (d *Device) External() External {
	if d == nil {
		return External{}
	}
	return d.external
}

// Queue returns the device's queue.
func (d *Device) Queue() *Queue { return &d.queue }

// Lost returns a *CallError with ErrDeviceLost once the device is lost, nil until then.
func (d *Device) Lost() error {
	if d == nil {
		return nil
	}
	if e := d.lost.Load(); e != nil {
		return e
	}
	return nil
}

// HeapBudget asks for the memory heaps with their budget and usage of this moment.
func (d *Device) HeapBudget() ([]Heap, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if d.physical == 0 { // no constructor made the device
		return nil, ErrClosed
	}
	heaps, _ := queryMemory(d.instance, d.physical, d.mask&hasBudget)
	return heaps, nil
}

// DeviceHeap returns the index of the heap that device-local buffers come from.
func (d *Device) DeviceHeap() int {
	for _, t := range d.memoryTypes(DeviceLocal, ^uint32(0)) {
		return int(d.facts.MemoryTypes[t].Heap)
	}
	return 0
}

// WaitIdle waits until all submitted work is done.
func (d *Device) WaitIdle() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.waitIdle()
}

func (d *Device) waitIdle() error {
	d.queue.lock()
	defer d.queue.unlock()
	used := d.queue.used || !d.owned
	for _, q := range d.transfers {
		q.lock()
		defer q.unlock()
		used = used || q.used
	}
	if !used {
		return nil // a driver that was told what to compile for, and has no hardware, cannot wait for it
	}
	return d.check("vkDeviceWaitIdle", d.table.waitIdle())
}

// Close waits for submitted work, destroys what was made from the device and not closed, and then the device itself unless
// it was attached. A second call does nothing. The error is that of waiting; everything is destroyed all the same.
func (d *Device) Close() error {
	if d == nil {
		return nil
	}
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	wait := d.waitIdle
	if !d.owned {
		wait = d.queue.waitIdle
	}
	err := wait()
	for try := 1; try < 3 && err != nil && !errors.Is(err, ErrDeviceLost); try++ {
		err = wait() // what is destroyed while the device uses it brings down more than a program that waits for memory
	}
	if d.owned && errors.Is(err, ErrDeviceLost) {
		err = nil // whoever cares has been told; the device is going away
	}
	d.mu.Lock()
	for c := range d.children {
		c.destroy()
	}
	d.children = nil
	d.mu.Unlock()
	if d.owned {
		d.table.destroy()
	} else {
		d.instance.unhook()
	}
	d.unload()
	d.instance = nil
	if d.parent != nil {
		// Instance.Close closes devices without holding its lock.
		d.parent.mu.Lock()
		delete(d.parent.open, d)
		d.parent.mu.Unlock()
	}
	return err
}

// enter begins a call into the driver: it fails when the device is closed or lost. leave must follow when it does not.
func (d *Device) enter() error {
	if d == nil {
		return ErrClosed
	}
	d.life.RLock()
	if d.closed {
		d.life.RUnlock()
		return ErrClosed
	}
	if e := d.lost.Load(); e != nil {
		d.life.RUnlock()
		return e
	}
	return nil
}

func (d *Device) leave() { d.life.RUnlock() }

// check turns a result into an error and remembers the loss of the device.
func (d *Device) check(call string, r int32) error { return d.checkFor(call, r, "") }

func (d *Device) checkFor(call string, r int32, detail string) error {
	if r >= 0 {
		return nil
	}
	e := &CallError{Call: call, Result: Result(r), Detail: detail}
	if e.Result == ErrDeviceLost {
		d.lost.CompareAndSwap(nil, e)
		return d.lost.Load()
	}
	return e
}

func (d *Device) track(c child) {
	d.mu.Lock()
	d.children[c] = struct{}{}
	d.mu.Unlock()
}

// release destroys a child once; it works on a lost device and does nothing on a closed one, whose Close did it.
func (d *Device) release(c child) {
	d.life.RLock()
	defer d.life.RUnlock()
	d.mu.Lock()
	_, mine := d.children[c]
	delete(d.children, c)
	d.mu.Unlock()
	if mine {
		c.destroy()
	}
}

// name gives an object a name that validation messages and debuggers show.
func (d *Device) name(objectType uint32, handle uintptr, name string) {
	if name == "" {
		return
	}
	d.table.name(objectType, handle, name)
}
