package vk

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// behaviour is what a fault needs to know of a function. Those without one never fail.
type behaviour struct {
	fails bool   // it returns a VkResult
	makes string // the object that its success makes, without Vk
	ends  string // the object that it destroys; handle is which argument
	// the argument that says how many elements, and the one that is the array, of functions that fill one; they may say Incomplete
	count, array int
	handle       int
	waits        bool // it waits for the device, or asks it: a lost device always fails it
	// results that the function gives although it did what it was called for
	done []Result
}

func failing() behaviour                 { return behaviour{fails: true} }
func making(object string) behaviour     { return behaviour{fails: true, makes: object} }
func ending(object string) behaviour     { return behaviour{ends: object, handle: 1} }
func filling(count, array int) behaviour { return behaviour{fails: true, count: count, array: array} }
func waiting(doneAnyway ...Result) behaviour {
	return behaviour{fails: true, waits: true, done: doneAnyway}
}

var behaviours = [entries]behaviour{
	callCreateInstance:                       failing(), // this and the next three are called without a table: see Faults.take
	callEnumerateInstanceExtensionProperties: failing(), callEnumerateInstanceLayerProperties: failing(),
	callEnumeratePhysicalDevices: failing(),

	callEnumerateDeviceExtensionProperties: filling(2, 3), callGetPhysicalDeviceCooperativeMatrixPropertiesKHR: filling(1, 2),
	callCreateDevice: making("Device"), callDestroyDevice: {ends: "Device"},
	callCreateDebugUtilsMessengerEXT: making("DebugUtilsMessengerEXT"), callDestroyDebugUtilsMessengerEXT: ending("DebugUtilsMessengerEXT"),
	callCreateHeadlessSurfaceEXT: making("SurfaceKHR"), callDestroySurfaceKHR: ending("SurfaceKHR"),
	callGetPhysicalDeviceSurfaceSupportKHR: failing(), callGetPhysicalDeviceSurfaceCapabilitiesKHR: failing(),
	callGetPhysicalDeviceSurfaceFormatsKHR: filling(2, 3), callGetPhysicalDeviceSurfacePresentModesKHR: filling(2, 3),

	callDeviceWaitIdle: waiting(), callQueueWaitIdle: waiting(), callQueueSubmit: waiting(),
	callCreateBuffer: making("Buffer"), callDestroyBuffer: ending("Buffer"), callBindBufferMemory: failing(),
	callAllocateMemory: making("DeviceMemory"), callFreeMemory: ending("DeviceMemory"), callMapMemory: failing(),
	callFlushMappedMemoryRanges: failing(), callInvalidateMappedMemoryRanges: failing(),
	callCreatePipelineCache: making("PipelineCache"), callDestroyPipelineCache: ending("PipelineCache"),
	callGetPipelineCacheData: filling(2, 3), callMergePipelineCaches: failing(),
	callCreateShaderModule: making("ShaderModule"), callDestroyShaderModule: ending("ShaderModule"),
	callCreateDescriptorSetLayout: making("DescriptorSetLayout"), callDestroyDescriptorSetLayout: ending("DescriptorSetLayout"),
	callCreatePipelineLayout: making("PipelineLayout"), callDestroyPipelineLayout: ending("PipelineLayout"),
	callCreateComputePipelines: making("Pipeline"), callDestroyPipeline: ending("Pipeline"),
	callCreateDescriptorPool: making("DescriptorPool"), callDestroyDescriptorPool: ending("DescriptorPool"),
	callResetDescriptorPool: failing(), callAllocateDescriptorSets: failing(),
	callCreateCommandPool: making("CommandPool"), callDestroyCommandPool: ending("CommandPool"), callResetCommandPool: failing(),
	callAllocateCommandBuffers: making("CommandBuffer"), callFreeCommandBuffers: ending("CommandBuffer"),
	callBeginCommandBuffer: failing(), callEndCommandBuffer: failing(), callResetCommandBuffer: failing(),
	callCreateFence: making("Fence"), callDestroyFence: ending("Fence"), callResetFences: failing(),
	callGetFenceStatus: waiting(), callWaitForFences: waiting(),
	callCreateSemaphore: making("Semaphore"), callDestroySemaphore: ending("Semaphore"),
	callWaitSemaphores: waiting(), callGetSemaphoreCounterValue: waiting(), callSignalSemaphore: failing(),
	callCreateQueryPool: making("QueryPool"), callDestroyQueryPool: ending("QueryPool"), callGetQueryPoolResults: waiting(),
	callGetPipelineExecutablePropertiesKHR: failing(), callGetPipelineExecutableStatisticsKHR: failing(),
	callCreateSwapchainKHR: making("SwapchainKHR"), callDestroySwapchainKHR: ending("SwapchainKHR"),
	callGetSwapchainImagesKHR: filling(2, 3),
	callAcquireNextImageKHR:   waiting(Suboptimal), // an image that is told to be suboptimal was acquired all the same
	// A presentation that fails because of its surface waits for its semaphores and gives its image back all the same.
	callQueuePresentKHR: waiting(Suboptimal, ErrOutOfDate, ErrSurfaceLost),
}

// hook stands between a table and the driver where faults were asked for.
type hook struct {
	faults  *Faults
	handles []uintptr // dispatchable ones that the table is called with
	device  uintptr   // 0 of an instance's
	lost    atomic.Bool
	calls   atomic.Int64 // that wait, under way
	settled sync.Once

	mu       sync.Mutex
	commands map[uintptr]int // command buffers of each pool, which go with it
}

// hooked are the hooks of tables that are in use.
var hooked struct {
	sync.Mutex
	hooks []*hook
}

// faultsOf are the faults that calls with a dispatchable handle meet, nil where there are none.
func faultsOf(handle uintptr) *Faults {
	hooked.Lock()
	defer hooked.Unlock()
	for _, h := range hooked.hooks {
		if slices.Contains(h.handles, handle) {
			return h.faults
		}
	}
	return nil
}

// hookTable puts faults below a table; nil faults do nothing. handles are what the table's functions are called with besides its own.
func (f *Faults) hookTable(t *table, device uintptr, handles ...uintptr) {
	if f == nil {
		return
	}
	t.hook = &hook{faults: f, handles: append(handles, t.handle), device: device, commands: map[uintptr]int{}}
	hooked.Lock()
	hooked.hooks = append(hooked.hooks, t.hook)
	hooked.Unlock()
}

// hookHandle adds a handle that a table's functions are called with.
func (t *table) hookHandle(handle uintptr) {
	if t.hook != nil {
		hooked.Lock()
		t.hook.handles = append(t.hook.handles, handle)
		hooked.Unlock()
	}
}

// unhook forgets the hook of a table that is no longer used.
func (t *table) unhook() {
	hooked.Lock()
	hooked.hooks = slices.DeleteFunc(hooked.hooks, func(h *hook) bool { return h == t.hook })
	hooked.Unlock()
}

// call is table.call with faults.
func (h *hook) call(f *abi.Frame, t *table, e entry, args []uintptr) int32 {
	b := &behaviours[e]
	if b.waits {
		h.calls.Add(1)
		defer h.calls.Add(-1)
	}
	if b.ends != "" {
		h.settle(f, t)
	}
	real := func() Result { return Result(int32(f.Call(t.functions[e], args...))) }
	if !b.fails {
		r := real()
		h.countEnd(b, args)
		return int32(r)
	}
	result, failed := h.take(e, b.array != 0 && args[b.array] != 0)
	switch {
	case !failed:
	case result == Incomplete && e == callGetPipelineCacheData: // whatever part of it the driver would have given, it is of no use
		*abi.At[uintptr](args[b.count]) = 0
		return int32(Incomplete)
	case result == Incomplete && b.array != 0:
		*abi.At[uint32](args[b.count]) /= 2
		if r := real(); r < 0 {
			return int32(r)
		}
		return int32(Incomplete)
	case slices.Contains(b.done, result):
		if r := real(); r < 0 || r != Success && e == callAcquireNextImageKHR { // no image
			return int32(r)
		}
		return int32(result)
	default:
		return int32(result)
	}
	r := real()
	if r == Success && b.makes != "" {
		h.faults.count(b.makes, 1)
		if e == callAllocateCommandBuffers {
			h.countCommand(uintptr(abi.At[abi.CommandBufferAllocateInfo](args[1]).CommandPool), 1)
		}
	}
	return int32(r)
}

// take says whether a call fails, and with what.
func (h *hook) take(e entry, partial bool) (r Result, fails bool) {
	r, fails = h.faults.take(e, partial)
	if fails && r == ErrDeviceLost && h.device != 0 {
		// Others may have hooked the same VkDevice: it is lost to all of them.
		hooked.Lock()
		for _, other := range hooked.hooks {
			if other.device == h.device {
				other.lost.Store(true)
			}
		}
		hooked.Unlock()
	}
	if !fails && behaviours[e].waits && h.lost.Load() {
		return ErrDeviceLost, true
	}
	return r, fails
}

// settle waits for what a device still does that was declared lost: what a truly lost one runs can be destroyed at any time, and this one
// only seems to be.
func (h *hook) settle(f *abi.Frame, t *table) {
	if !h.lost.Load() {
		return
	}
	h.settled.Do(func() {
		for h.calls.Load() > 0 {
			runtime.Gosched()
		}
		f.Call(t.functions[callDeviceWaitIdle], h.device)
	})
}

// countEnd notes what a call has destroyed.
func (h *hook) countEnd(b *behaviour, args []uintptr) {
	if b.ends == "" || args[b.handle] == 0 {
		return
	}
	h.faults.count(b.ends, -1)
	switch b.ends {
	case "CommandBuffer":
		h.countCommand(args[1], -1)
	case "CommandPool":
		h.faults.count("CommandBuffer", -h.countCommand(args[1], 0))
		h.mu.Lock()
		delete(h.commands, args[1])
		h.mu.Unlock()
	}
}

// countCommand changes how many command buffers a pool has and returns the number.
func (h *hook) countCommand(pool uintptr, by int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commands[pool] += by
	return h.commands[pool]
}
