package vk

/*
#include "fault.h"
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// FaultEnv names the environment variable that makes calls into the driver fail, so that a program can be tested against a
// driver that does: kind:n, or kind:n=result, several of them separated by commas. VKATTN_FAULT=alloc:7 makes the seventh
// vkAllocateMemory of the process return VK_ERROR_OUT_OF_DEVICE_MEMORY, VKATTN_FAULT=submit:3=device_lost the third
// vkQueueSubmit VK_ERROR_DEVICE_LOST, after which the device stays lost. [FaultKinds] lists the kinds. A value that cannot be
// read is an error of NewInstance and Attach.
const FaultEnv = "VKATTN_FAULT"

// Faults makes chosen calls into the driver fail, and counts the objects that were made and not destroyed. It is for tests.
// Instances and devices that were not given one (InstanceOptions.Faults, AttachWithFaults) are not touched by it: their
// function tables are the driver's own.
type Faults struct {
	c *C.vka_faults // lives as long as the process: the driver's wrappers hold it
}

// FaultKind is a group of calls that [Faults.Arm] can make fail.
type FaultKind struct {
	Name   string
	Calls  []string // functions of Vulkan
	Result Result   // that they fail with when nothing else is said
	calls  uint64
}

// faultKind makes a kind of the calls with these numbers.
func faultKind(name string, result Result, calls ...C.int) FaultKind {
	k := FaultKind{Name: name, Result: result}
	for _, c := range calls {
		k.Calls = append(k.Calls, C.GoString(C.vka_call_name(c)))
		k.calls |= 1 << c
	}
	return k
}

var faultKinds = []FaultKind{
	faultKind("instance", ErrOutOfHostMemory, C.VKA_CALL_CreateInstance),
	faultKind("messenger", ErrOutOfHostMemory, C.VKA_CALL_CreateDebugUtilsMessengerEXT),
	faultKind("enumerate", ErrOutOfHostMemory, C.VKA_CALL_EnumerateInstanceExtensionProperties, C.VKA_CALL_EnumerateInstanceLayerProperties,
		C.VKA_CALL_EnumeratePhysicalDevices, C.VKA_CALL_EnumerateDeviceExtensionProperties,
		C.VKA_CALL_GetPhysicalDeviceCooperativeMatrixPropertiesKHR),
	faultKind("device", ErrInitializationFailed, C.VKA_CALL_CreateDevice),
	faultKind("alloc", ErrOutOfDeviceMemory, C.VKA_CALL_AllocateMemory),
	faultKind("buffer", ErrOutOfHostMemory, C.VKA_CALL_CreateBuffer),
	faultKind("bind", ErrOutOfDeviceMemory, C.VKA_CALL_BindBufferMemory),
	faultKind("map", ErrMemoryMapFailed, C.VKA_CALL_MapMemory),
	faultKind("flush", ErrOutOfHostMemory, C.VKA_CALL_FlushMappedMemoryRanges, C.VKA_CALL_InvalidateMappedMemoryRanges),
	faultKind("shader", ErrOutOfHostMemory, C.VKA_CALL_CreateShaderModule),
	faultKind("layout", ErrOutOfHostMemory, C.VKA_CALL_CreateDescriptorSetLayout, C.VKA_CALL_CreatePipelineLayout),
	faultKind("pipeline", ErrOutOfHostMemory, C.VKA_CALL_CreateComputePipelines),
	faultKind("cache", ErrOutOfHostMemory, C.VKA_CALL_CreatePipelineCache, C.VKA_CALL_MergePipelineCaches),
	faultKind("cachedata", ErrOutOfHostMemory, C.VKA_CALL_GetPipelineCacheData),
	faultKind("statistics", ErrOutOfHostMemory, C.VKA_CALL_GetPipelineExecutablePropertiesKHR,
		C.VKA_CALL_GetPipelineExecutableStatisticsKHR),
	faultKind("descriptorpool", ErrOutOfHostMemory, C.VKA_CALL_CreateDescriptorPool, C.VKA_CALL_ResetDescriptorPool),
	faultKind("descriptorset", ErrOutOfHostMemory, C.VKA_CALL_AllocateDescriptorSets),
	faultKind("commandpool", ErrOutOfHostMemory, C.VKA_CALL_CreateCommandPool, C.VKA_CALL_ResetCommandPool),
	faultKind("command", ErrOutOfHostMemory, C.VKA_CALL_AllocateCommandBuffers),
	faultKind("begin", ErrOutOfHostMemory, C.VKA_CALL_BeginCommandBuffer),
	faultKind("end", ErrOutOfHostMemory, C.VKA_CALL_EndCommandBuffer),
	faultKind("reset", ErrOutOfHostMemory, C.VKA_CALL_ResetCommandBuffer),
	faultKind("submit", ErrOutOfHostMemory, C.VKA_CALL_QueueSubmit),
	faultKind("fence", ErrOutOfHostMemory, C.VKA_CALL_CreateFence, C.VKA_CALL_ResetFences),
	faultKind("semaphore", ErrOutOfHostMemory, C.VKA_CALL_CreateSemaphore, C.VKA_CALL_GetSemaphoreCounterValue, C.VKA_CALL_SignalSemaphore),
	faultKind("status", ErrOutOfHostMemory, C.VKA_CALL_GetFenceStatus),
	faultKind("wait", ErrOutOfHostMemory, C.VKA_CALL_WaitForFences, C.VKA_CALL_WaitSemaphores),
	faultKind("idle", ErrOutOfHostMemory, C.VKA_CALL_DeviceWaitIdle, C.VKA_CALL_QueueWaitIdle),
	faultKind("querypool", ErrOutOfHostMemory, C.VKA_CALL_CreateQueryPool),
	faultKind("query", NotReady, C.VKA_CALL_GetQueryPoolResults),
	faultKind("surface", ErrSurfaceLost, C.VKA_CALL_CreateHeadlessSurfaceEXT, C.VKA_CALL_GetPhysicalDeviceSurfaceSupportKHR,
		C.VKA_CALL_GetPhysicalDeviceSurfaceCapabilitiesKHR, C.VKA_CALL_GetPhysicalDeviceSurfaceFormatsKHR,
		C.VKA_CALL_GetPhysicalDeviceSurfacePresentModesKHR),
	faultKind("swapchain", ErrSurfaceLost, C.VKA_CALL_CreateSwapchainKHR, C.VKA_CALL_GetSwapchainImagesKHR),
	faultKind("acquire", ErrOutOfDate, C.VKA_CALL_AcquireNextImageKHR),
	faultKind("present", ErrOutOfDate, C.VKA_CALL_QueuePresentKHR),
}

// positiveResults are the results that are no errors, with the calls that may give them.
var positiveResults = map[Result]uint64{
	Timeout:    1<<C.VKA_CALL_WaitForFences | 1<<C.VKA_CALL_WaitSemaphores | 1<<C.VKA_CALL_AcquireNextImageKHR,
	NotReady:   1<<C.VKA_CALL_GetFenceStatus | 1<<C.VKA_CALL_GetQueryPoolResults | 1<<C.VKA_CALL_AcquireNextImageKHR,
	Suboptimal: 1<<C.VKA_CALL_AcquireNextImageKHR | 1<<C.VKA_CALL_QueuePresentKHR,
	Incomplete: 1<<C.VKA_CALL_EnumerateInstanceExtensionProperties | 1<<C.VKA_CALL_EnumerateInstanceLayerProperties |
		1<<C.VKA_CALL_EnumeratePhysicalDevices | 1<<C.VKA_CALL_EnumerateDeviceExtensionProperties |
		1<<C.VKA_CALL_GetPhysicalDeviceCooperativeMatrixPropertiesKHR | 1<<C.VKA_CALL_GetPipelineCacheData |
		1<<C.VKA_CALL_GetPhysicalDeviceSurfaceFormatsKHR | 1<<C.VKA_CALL_GetPhysicalDeviceSurfacePresentModesKHR |
		1<<C.VKA_CALL_GetSwapchainImagesKHR,
}

// anyCall is the kind of all calls.
const anyCall = "any"

// FaultKinds lists the kinds of calls that can be made to fail; the last one, "any", is all of them.
func FaultKinds() []FaultKind {
	all := FaultKind{Name: anyCall, Result: ErrOutOfHostMemory}
	for _, k := range faultKinds {
		all.Calls = append(all.Calls, k.Calls...)
		all.calls |= k.calls
	}
	return append(slices.Clone(faultKinds), all)
}

// NewFaults makes an empty set of faults, which does nothing but count.
func NewFaults() *Faults { return &Faults{c: C.vka_faults_new()} }

// Arm makes the n-th call of a kind from now on fail with a result; 0 stands for the kind's own. The results that are no errors (Timeout,
// NotReady, Incomplete, Suboptimal) are for calls that may return them: others of the kind are not counted. A device on which a call gave
// ErrDeviceLost stays lost. The error is an *ArgumentError.
func (f *Faults) Arm(kind string, n int, r Result) error {
	const call = "Faults.Arm"
	kinds := FaultKinds()
	i := slices.IndexFunc(kinds, func(k FaultKind) bool { return k.Name == kind })
	if i < 0 {
		return argErr(call, "kind", strconv.Quote(kind), "it must be one of "+kindNames())
	}
	if n < 1 {
		return argErr(call, "n", n, "it must be at least 1")
	}
	calls := kinds[i].calls
	switch may, positive := positiveResults[r]; {
	case r == Success:
		r = kinds[i].Result
	case positive:
		if calls &= may; calls == 0 {
			return argErr(call, "result", r, fmt.Sprintf("no call of the kind %s returns it", kind))
		}
	case r > 0:
		return argErr(call, "result", r, "it must be a failure, or one of "+resultList())
	}
	if C.vka_faults_arm(f.c, C.uint64_t(calls), C.uint64_t(n), C.int32_t(r)) == 0 {
		return argErr(call, "faults", C.VKA_MAX_FAULTS, "no more can be armed at once")
	}
	return nil
}

// Disarm takes back all that was armed. A device that is lost stays so.
func (f *Faults) Disarm() { C.vka_faults_disarm(f.c) }

// Fired returns the call that failed last since Arm, "" for none.
func (f *Faults) Fired() string {
	if i := C.vka_faults_fired(f.c); i >= 0 {
		return C.GoString(C.vka_call_name(i))
	}
	return ""
}

// Live counts the objects that were made and not destroyed, by their type without Vk. Descriptor sets belong to their pool.
func (f *Faults) Live() map[string]int {
	live := map[string]int{}
	for i := range C.int(C.VKA_OBJECTS) {
		if n := int(C.vka_faults_live(f.c, i)); n != 0 {
			live[C.GoString(C.vka_object_name(i))] = n
		}
	}
	return live
}

// resultName is a result as VKATTN_FAULT takes it: without VK_ or VK_ERROR_, in lower case.
func resultName(r Result) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(r.String(), "VK_"), "ERROR_"))
}

func resultList() string {
	var names []string
	for r := range resultNames {
		if r != Success {
			names = append(names, resultName(r))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func kindNames() string {
	var names []string
	for _, k := range FaultKinds() {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

// ParseFaults reads what VKATTN_FAULT holds. The error is an *ArgumentError that says what it takes.
func ParseFaults(s string) (*Faults, error) {
	f := NewFaults()
	for _, part := range strings.Split(s, ",") {
		if err := f.parse(strings.TrimSpace(part)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Faults) parse(s string) error {
	bad := func(why string) error {
		return argErr("opening a device", FaultEnv, strconv.Quote(s), fmt.Sprintf("%s; it must be kind:n or kind:n=result, several "+
			"separated by commas; kinds are %s; results are %s",
			why, kindNames(), resultList()))
	}
	kind, rest, ok := strings.Cut(s, ":")
	if !ok {
		return bad("it has no colon")
	}
	number, name, given := strings.Cut(rest, "=")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return bad(fmt.Sprintf("%q is no number from 1 on", number))
	}
	result := Success
	if given {
		for r := range resultNames {
			if r != Success && resultName(r) == strings.ToLower(name) {
				result = r
			}
		}
		if result == Success {
			return bad(fmt.Sprintf("%q is no result", name))
		}
	}
	if err := f.Arm(kind, n, result); err != nil {
		return bad(err.(*ArgumentError).Rule)
	}
	return nil
}

// environment holds the process's faults, made when VKATTN_FAULT is first looked at and when it changes.
var environment struct {
	sync.Mutex
	value  string
	faults *Faults
}

// orEnvironment returns the faults given, else those of the environment, else nil.
func (f *Faults) orEnvironment() (*Faults, error) {
	if f != nil {
		return f, nil
	}
	e := &environment
	e.Lock()
	defer e.Unlock()
	value := os.Getenv(FaultEnv)
	if value == "" {
		e.value, e.faults = "", nil
		return nil, nil
	}
	if value != e.value {
		faults, err := ParseFaults(value)
		if err != nil {
			return nil, err
		}
		e.value, e.faults = value, faults
	}
	return e.faults, nil
}

// Calls that are made where there is no function table yet.
const (
	callCreateInstance     = C.VKA_CALL_CreateInstance
	callInstanceExtensions = C.VKA_CALL_EnumerateInstanceExtensionProperties
	callInstanceLayers     = C.VKA_CALL_EnumerateInstanceLayerProperties
	callPhysicalDevices    = C.VKA_CALL_EnumeratePhysicalDevices
)

// take counts a call and says whether it is to fail, with what. partial: it fills an array, which may be too small for all.
func (f *Faults) take(call int, partial bool) (r Result, fails bool) {
	if f == nil {
		return Success, false
	}
	var result C.int32_t
	fails = C.vka_faults_take(f.c, C.int(call), cbool(partial), &result) != 0
	return Result(result), fails
}

// countInstance notes that an instance was made or destroyed.
func (f *Faults) countInstance(n int) {
	if f != nil {
		C.vka_faults_count(f.c, C.VKA_OBJECT_Instance, C.int64_t(n))
	}
}

// countSurface notes that a surface was taken over which somebody else made.
func (f *Faults) countSurface() {
	if f != nil {
		C.vka_faults_count(f.c, C.VKA_OBJECT_SurfaceKHR, 1)
	}
}

// faulty makes the calls of list fail as the faults say.
func faulty[T any](f *Faults, call int, fill func(*T, C.uint32_t) C.int32_t) func(*T, C.uint32_t) C.int32_t {
	if f == nil {
		return fill
	}
	return func(out *T, n C.uint32_t) C.int32_t {
		switch r, fails := f.take(call, out != nil); {
		case fails && r == Incomplete:
			fill(out, n/2)
			return C.int32_t(n) // as much as there was room for
		case fails:
			return C.int32_t(r)
		}
		return fill(out, n)
	}
}

// hookInstance puts the faults below an instance's table.
func (f *Faults) hookInstance(t *C.vka_instance, physical ...uintptr) error {
	if f == nil {
		return nil
	}
	ok := C.vka_hook_instance(t, f.c) != 0
	for _, p := range physical {
		ok = ok && C.vka_hook_physical(t, C.uint64_t(p)) != 0
	}
	if !ok {
		return callErr("vkGetInstanceProcAddr", ErrOutOfHostMemory, FaultEnv)
	}
	return nil
}

// hookDevice puts the faults below a device's table.
func (f *Faults) hookDevice(t *C.vka_device, queue uintptr) error {
	if f != nil && C.vka_hook_device(t, f.c, C.uint64_t(queue)) == 0 {
		return callErr("vkGetDeviceProcAddr", ErrOutOfHostMemory, FaultEnv)
	}
	return nil
}

// hookQueue does it for a queue beside the one of hookDevice.
func (f *Faults) hookQueue(t *C.vka_device, queue uintptr) error {
	if f != nil && C.vka_hook_queue(t, C.uint64_t(queue)) == 0 {
		return callErr("vkGetDeviceQueue", ErrOutOfHostMemory, FaultEnv)
	}
	return nil
}

// unhook forgets a table that is about to be freed.
func (f *Faults) unhook(table unsafe.Pointer) {
	if f != nil {
		C.vka_unhook(table)
	}
}

// AttachWithFaults is Attach for a device whose calls may fail. The owner's instance and device must have no faults, or the
// same.
func AttachWithFaults(e External, f *Faults) (*Device, error) {
	for _, h := range []uintptr{e.PhysicalDevice, e.Device} {
		if other := C.vka_faults_of(C.uint64_t(h)); f != nil && other != nil && other != f.c {
			return nil, argErr("AttachWithFaults", "f", "other faults", "it must be those of the device's owner")
		}
	}
	return attachWith(e, f)
}
