package vk

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	mu    sync.Mutex
	armed []fault
	fired entry // the call that failed last since arming, -1 for none
	live  map[string]int
}

// fault is one that is armed.
type fault struct {
	calls    []entry
	at, seen int
	result   Result
}

// maxFaults is how many can be armed at once.
const maxFaults = 16

// FaultKind is a group of calls that [Faults.Arm] can make fail.
type FaultKind struct {
	Name   string
	Calls  []string // functions of Vulkan
	Result Result   // that they fail with when nothing else is said
	calls  []entry
}

// faultKind makes a kind of some calls.
func faultKind(name string, result Result, calls ...entry) FaultKind {
	k := FaultKind{Name: name, Result: result, calls: calls}
	for _, c := range calls {
		k.Calls = append(k.Calls, c.String())
	}
	return k
}

var faultKinds = []FaultKind{
	faultKind("instance", ErrOutOfHostMemory, callCreateInstance),
	faultKind("messenger", ErrOutOfHostMemory, callCreateDebugUtilsMessengerEXT),
	faultKind("enumerate", ErrOutOfHostMemory, callEnumerateInstanceExtensionProperties, callEnumerateInstanceLayerProperties,
		callEnumeratePhysicalDevices, callEnumerateDeviceExtensionProperties,
		callGetPhysicalDeviceCooperativeMatrixPropertiesKHR),
	faultKind("device", ErrInitializationFailed, callCreateDevice),
	faultKind("alloc", ErrOutOfDeviceMemory, callAllocateMemory),
	faultKind("buffer", ErrOutOfHostMemory, callCreateBuffer),
	faultKind("bind", ErrOutOfDeviceMemory, callBindBufferMemory),
	faultKind("map", ErrMemoryMapFailed, callMapMemory),
	faultKind("flush", ErrOutOfHostMemory, callFlushMappedMemoryRanges, callInvalidateMappedMemoryRanges),
	faultKind("shader", ErrOutOfHostMemory, callCreateShaderModule),
	faultKind("layout", ErrOutOfHostMemory, callCreateDescriptorSetLayout, callCreatePipelineLayout),
	faultKind("pipeline", ErrOutOfHostMemory, callCreateComputePipelines),
	faultKind("cache", ErrOutOfHostMemory, callCreatePipelineCache, callMergePipelineCaches),
	faultKind("cachedata", ErrOutOfHostMemory, callGetPipelineCacheData),
	faultKind("statistics", ErrOutOfHostMemory, callGetPipelineExecutablePropertiesKHR,
		callGetPipelineExecutableStatisticsKHR),
	faultKind("descriptorpool", ErrOutOfHostMemory, callCreateDescriptorPool, callResetDescriptorPool),
	faultKind("descriptorset", ErrOutOfHostMemory, callAllocateDescriptorSets),
	faultKind("commandpool", ErrOutOfHostMemory, callCreateCommandPool, callResetCommandPool),
	faultKind("command", ErrOutOfHostMemory, callAllocateCommandBuffers),
	faultKind("begin", ErrOutOfHostMemory, callBeginCommandBuffer),
	faultKind("end", ErrOutOfHostMemory, callEndCommandBuffer),
	faultKind("reset", ErrOutOfHostMemory, callResetCommandBuffer),
	faultKind("submit", ErrOutOfHostMemory, callQueueSubmit),
	faultKind("fence", ErrOutOfHostMemory, callCreateFence, callResetFences),
	faultKind("semaphore", ErrOutOfHostMemory, callCreateSemaphore, callGetSemaphoreCounterValue, callSignalSemaphore),
	faultKind("status", ErrOutOfHostMemory, callGetFenceStatus),
	faultKind("wait", ErrOutOfHostMemory, callWaitForFences, callWaitSemaphores),
	faultKind("idle", ErrOutOfHostMemory, callDeviceWaitIdle, callQueueWaitIdle),
	faultKind("querypool", ErrOutOfHostMemory, callCreateQueryPool),
	faultKind("query", NotReady, callGetQueryPoolResults),
	faultKind("surface", ErrSurfaceLost, callCreateHeadlessSurfaceEXT, callGetPhysicalDeviceSurfaceSupportKHR,
		callGetPhysicalDeviceSurfaceCapabilitiesKHR, callGetPhysicalDeviceSurfaceFormatsKHR,
		callGetPhysicalDeviceSurfacePresentModesKHR),
	faultKind("swapchain", ErrSurfaceLost, callCreateSwapchainKHR, callGetSwapchainImagesKHR),
	faultKind("acquire", ErrOutOfDate, callAcquireNextImageKHR),
	faultKind("present", ErrOutOfDate, callQueuePresentKHR),
}

// positiveResults are the results that are no errors, with the calls that may give them.
var positiveResults = map[Result][]entry{
	Timeout:    {callWaitForFences, callWaitSemaphores, callAcquireNextImageKHR},
	NotReady:   {callGetFenceStatus, callGetQueryPoolResults, callAcquireNextImageKHR},
	Suboptimal: {callAcquireNextImageKHR, callQueuePresentKHR},
	Incomplete: {callEnumerateInstanceExtensionProperties, callEnumerateInstanceLayerProperties, callEnumeratePhysicalDevices,
		callEnumerateDeviceExtensionProperties, callGetPhysicalDeviceCooperativeMatrixPropertiesKHR, callGetPipelineCacheData,
		callGetPhysicalDeviceSurfaceFormatsKHR, callGetPhysicalDeviceSurfacePresentModesKHR, callGetSwapchainImagesKHR},
}

// anyCall is the kind of all calls.
const anyCall = "any"

// FaultKinds lists the kinds of calls that can be made to fail; the last one, "any", is all of them.
func FaultKinds() []FaultKind {
	all := FaultKind{Name: anyCall, Result: ErrOutOfHostMemory}
	for _, k := range faultKinds {
		all.Calls = append(all.Calls, k.Calls...)
		all.calls = append(all.calls, k.calls...)
	}
	return append(slices.Clone(faultKinds), all)
}

// NewFaults makes an empty set of faults, which does nothing but count.
func NewFaults() *Faults { return &Faults{fired: -1, live: map[string]int{}} }

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
		calls = slices.DeleteFunc(slices.Clone(calls), func(e entry) bool { return !slices.Contains(may, e) })
		if len(calls) == 0 {
			return argErr(call, "result", r, fmt.Sprintf("no call of the kind %s returns it", kind))
		}
	case r > 0:
		return argErr(call, "result", r, "it must be a failure, or one of "+resultList())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.armed) == maxFaults {
		return argErr(call, "faults", maxFaults, "no more can be armed at once")
	}
	f.armed = append(f.armed, fault{calls: calls, at: n, result: r})
	f.fired = -1
	return nil
}

// Disarm takes back all that was armed. A device that is lost stays so.
func (f *Faults) Disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = nil
}

// Fired returns the call that failed last since Arm, "" for none.
func (f *Faults) Fired() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fired < 0 {
		return ""
	}
	return f.fired.String()
}

// Live counts the objects that were made and not destroyed, by their type without Vk. Descriptor sets belong to their pool.
func (f *Faults) Live() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	live := maps.Clone(f.live)
	maps.DeleteFunc(live, func(_ string, n int) bool { return n == 0 })
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

// take counts a call and says whether it is to fail, with what. partial: it fills an array, which may be too small for all.
func (f *Faults) take(e entry, partial bool) (r Result, fails bool) {
	if f == nil {
		return Success, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.armed {
		x := &f.armed[i]
		if !slices.Contains(x.calls, e) || x.result == Incomplete && !partial {
			continue
		}
		if x.seen++; x.seen == x.at {
			r, fails, f.fired = x.result, true, e
		}
	}
	return r, fails
}

// count notes that objects were made, or destroyed where n is negative.
func (f *Faults) count(object string, n int) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[object] += n
}

// faulty makes the calls of list fail as the faults say.
func faulty[T any](f *Faults, e entry, fill func([]T) int32) func([]T) int32 {
	if f == nil {
		return fill
	}
	return func(out []T) int32 {
		switch r, fails := f.take(e, len(out) > 0); {
		case fails && r == Incomplete:
			fill(out[:len(out)/2])
			return int32(len(out)) // as much as there was room for
		case fails:
			return int32(r)
		}
		return fill(out)
	}
}

// AttachWithFaults is Attach for a device whose calls may fail. The owner's instance and device must have no faults, or the
// same.
func AttachWithFaults(e External, f *Faults) (*Device, error) {
	for _, h := range []uintptr{e.PhysicalDevice, e.Device} {
		if other := faultsOf(h); f != nil && other != nil && other != f {
			return nil, argErr("AttachWithFaults", "f", "other faults", "it must be those of the device's owner")
		}
	}
	return attachWith(e, f)
}
