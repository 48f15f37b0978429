//go:build cgo && !darwin && !freebsd && !vkattn_novulkango

package vk

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	vulkan "github.com/vulkan-go/vulkan"
)

// vulkan-go's function pointers are process-wide and InitInstance replaces them, so all of its calls are made under this
// lock, and the pointers are loaded anew for each instance. Only calls that take single structures or handles are used:
// those that take slices of structures free their C copies too early.
var vulkanGo sync.Mutex

func initVulkanGo(gipa uintptr) error {
	vulkanGo.Lock()
	defer vulkanGo.Unlock()
	vulkan.SetGetInstanceProcAddr(*(*unsafe.Pointer)(unsafe.Pointer(&gipa)))
	if err := vulkan.Init(); err != nil {
		return errors.New("vk: vulkan-go could not load its functions: " + err.Error())
	}
	return nil
}

// createInstance calls vkCreateInstance and returns the instance and its physical devices. next is memory of a frame,
// which vulkan-go passes through unread.
func createInstance(f *Faults, app string, version Version, layers, extensions []string, portability bool,
	next unsafe.Pointer) (instance uintptr, physical []uintptr, err error) {
	vulkanGo.Lock()
	defer vulkanGo.Unlock()
	// vulkan-go puts the addresses of Go strings, and of next, into C memory, so they are pinned until the call is over.
	var pins runtime.Pinner
	defer pins.Unpin()
	if next != nil {
		pins.Pin(next)
	}
	appInfo := vulkan.ApplicationInfo{
		SType:            vulkan.StructureTypeApplicationInfo,
		PApplicationName: zeroTerminated(&pins, app)[0],
		PEngineName:      "vkattn\x00",
		ApiVersion:       uint32(version),
	}
	info := vulkan.InstanceCreateInfo{
		SType:                   vulkan.StructureTypeInstanceCreateInfo,
		PNext:                   next,
		PApplicationInfo:        &appInfo,
		EnabledLayerCount:       uint32(len(layers)),
		PpEnabledLayerNames:     zeroTerminated(&pins, layers...),
		EnabledExtensionCount:   uint32(len(extensions)),
		PpEnabledExtensionNames: zeroTerminated(&pins, extensions...),
	}
	if portability {
		info.Flags = 1 // VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
	}
	if r, fails := f.take(callCreateInstance, false); fails {
		return 0, nil, callErr("vkCreateInstance", r, "")
	}
	var handle vulkan.Instance
	r := vulkan.CreateInstance(&info, nil, &handle)
	runtime.KeepAlive(&info)
	runtime.KeepAlive(&appInfo)
	info.Free()
	if r != vulkan.Success {
		return 0, nil, callErr("vkCreateInstance", Result(r), "")
	}
	defer func() {
		if err != nil {
			vulkan.DestroyInstance(handle, nil)
		}
	}()
	if err := vulkan.InitInstance(handle); err != nil {
		return 0, nil, errors.New("vk: vulkan-go could not load the instance's functions: " + err.Error())
	}
	for {
		var n uint32
		r := vulkan.EnumeratePhysicalDevices(handle, &n, nil)
		if injected, fails := f.take(callEnumeratePhysicalDevices, false); fails {
			r = vulkan.Result(injected)
		}
		if r < 0 {
			return 0, nil, callErr("vkEnumeratePhysicalDevices", Result(r), "")
		}
		physical = make([]uintptr, n)
		if n > 0 {
			devices := make([]vulkan.PhysicalDevice, n)
			r := vulkan.EnumeratePhysicalDevices(handle, &n, devices)
			if injected, fails := f.take(callEnumeratePhysicalDevices, true); fails {
				r = vulkan.Result(injected)
			}
			if Result(r) == Incomplete {
				continue // a device came between the two calls
			}
			if r < 0 {
				return 0, nil, callErr("vkEnumeratePhysicalDevices", Result(r), "")
			}
			for i := range devices[:n] {
				physical[i] = *(*uintptr)(unsafe.Pointer(&devices[i]))
			}
			physical = physical[:n]
		}
		return *(*uintptr)(unsafe.Pointer(&handle)), physical, nil
	}
}

// zeroTerminated returns the strings as C wants them, pinned.
func zeroTerminated(pins *runtime.Pinner, names ...string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n + "\x00"
		pins.Pin(unsafe.StringData(out[i]))
	}
	return out
}
