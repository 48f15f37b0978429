//go:build !cgo || darwin || freebsd || vkattn_novulkango

package vk

import (
	"unsafe"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

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

// newInstance calls vkCreateInstance; next is the chain's head.
func newInstance(gipa uintptr, app string, version Version, layers, extensions []string, portability bool, next unsafe.Pointer,
	out *uintptr) int32 {
	p := procAddr(gipa, 0, callCreateInstance.String())
	if p == 0 {
		return withoutFunction
	}
	f := abi.NewFrame()
	defer f.Free()
	about := abi.Struct[abi.ApplicationInfo](f)
	about.PApplicationName, about.PEngineName, about.ApiVersion = f.String(app), f.String("vkattn"), uint32(version)
	info := abi.Struct[abi.InstanceCreateInfo](f)
	info.PNext = uintptr(next)
	info.Flags = flag(portability, abi.InstanceCreateEnumeratePortabilityBitKHR)
	info.PApplicationInfo = abi.Address(about)
	info.EnabledLayerCount, info.PpEnabledLayerNames = uint32(len(layers)), f.Strings(layers)
	info.EnabledExtensionCount, info.PpEnabledExtensionNames = uint32(len(extensions)), f.Strings(extensions)
	handle := abi.New[uintptr](f)
	r := int32(f.Call(p, abi.Address(info), 0, abi.Address(handle)))
	*out = *handle
	return r
}

func physicalDevices(gipa, instance uintptr, out []uintptr) int32 {
	p := procAddr(gipa, instance, callEnumeratePhysicalDevices.String())
	if p == 0 {
		return withoutFunction
	}
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 { return int32(f.Call(p, instance, n, array)) })
}
