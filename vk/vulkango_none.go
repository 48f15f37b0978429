//go:build darwin || freebsd || vkattn_novulkango

package vk

/*
#include "cvk.h"
#include <stdlib.h>
*/
import "C"

import "unsafe"

// vulkan-go links against MoltenVK on macOS and against the loader on FreeBSD, and this package links against nothing: there
// it makes the few calls itself. The build tag vkattn_novulkango does the same elsewhere, for testing it.

func initVulkanGo(uintptr) error { return nil }

// createInstance calls vkCreateInstance and returns the instance and its physical devices. next is C memory.
func createInstance(f *Faults, app string, version Version, layers, extensions []string, portability bool,
	next unsafe.Pointer) (instance uintptr, physical []uintptr, err error) {
	gipa := C.uint64_t(GetInstanceProcAddr())
	name := C.CString(app)
	defer C.free(unsafe.Pointer(name))
	l, freeLayers := cStrings(layers)
	defer freeLayers()
	e, freeExtensions := cStrings(extensions)
	defer freeExtensions()
	if r, fails := f.take(callCreateInstance, false); fails {
		return 0, nil, callErr("vkCreateInstance", r, "")
	}
	var handle C.uint64_t
	r := Result(C.vka_instance_create(gipa, name, C.uint32_t(version), l, C.uint32_t(len(layers)), e, C.uint32_t(len(extensions)),
		cbool(portability), next, &handle))
	if r != Success {
		return 0, nil, callErr("vkCreateInstance", r, "")
	}
	devices, err := list("vkEnumeratePhysicalDevices", faulty(f, callPhysicalDevices, func(out *C.uint64_t, n C.uint32_t) C.int32_t {
		return C.vka_physical_devices(gipa, handle, out, n)
	}))
	if err != nil {
		C.vka_instance_destroy_unloaded(gipa, handle)
		return 0, nil, err
	}
	for _, d := range devices {
		physical = append(physical, uintptr(d))
	}
	return uintptr(handle), physical, nil
}
