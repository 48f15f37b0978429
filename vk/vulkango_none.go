//go:build !cgo || darwin || freebsd || vkattn_novulkango

package vk

import "unsafe"

// vulkan-go needs cgo, and links against MoltenVK on macOS and against the loader on FreeBSD, where this package links against nothing.
// Without vulkan-go this package makes the few calls itself. The build tag vkattn_novulkango does so elsewhere, for testing it.

func initVulkanGo(uintptr) error { return nil }

// createInstance calls vkCreateInstance and returns the instance and its physical devices. next is memory of a frame.
func createInstance(f *Faults, app string, version Version, layers, extensions []string, portability bool,
	next unsafe.Pointer) (instance uintptr, physical []uintptr, err error) {
	gipa := GetInstanceProcAddr()
	if r, fails := f.take(callCreateInstance, false); fails {
		return 0, nil, callErr("vkCreateInstance", r, "")
	}
	if r := Result(newInstance(gipa, app, version, layers, extensions, portability, next, &instance)); r != Success {
		return 0, nil, callErr("vkCreateInstance", r, "")
	}
	physical, err = list("vkEnumeratePhysicalDevices", faulty(f, callEnumeratePhysicalDevices, func(out []uintptr) int32 {
		return physicalDevices(gipa, instance, out)
	}))
	if err != nil {
		destroyUnloaded(gipa, instance)
		return 0, nil, err
	}
	return instance, physical, nil
}
