package vk

import (
	"unsafe"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

func instanceVersion(gipa uintptr) Version {
	f := abi.NewFrame()
	defer f.Free()
	const version10 = 1 << 22
	v := abi.New[uint32](f)
	if p := procAddr(gipa, 0, "vkEnumerateInstanceVersion"); p == 0 || Result(int32(f.Call(p, abi.Address(v)))) != Success {
		return version10
	}
	return Version(*v)
}

// without is the result of a function that is not there.
const withoutFunction = int32(ErrInitializationFailed)

func listInstanceExtensions(gipa uintptr, layer string, out []abi.ExtensionProperties) int32 {
	p := procAddr(gipa, 0, callEnumerateInstanceExtensionProperties.String())
	if p == 0 {
		return withoutFunction
	}
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		var name uintptr
		if layer != "" {
			name = f.String(layer)
		}
		return int32(f.Call(p, name, n, array))
	})
}

func listInstanceLayers(gipa uintptr, out []abi.LayerProperties) int32 {
	p := procAddr(gipa, 0, callEnumerateInstanceLayerProperties.String())
	if p == 0 {
		return withoutFunction
	}
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 { return int32(f.Call(p, n, array)) })
}

// instanceChain is the pNext chain of vkCreateInstance.
type instanceChain struct {
	messenger  abi.DebugUtilsMessengerCreateInfoEXT
	validation abi.ValidationFeaturesEXT
	enable     [4]uint32
}

// newInstanceChain makes a chain in a frame and returns its head, nil of an empty one: a messenger, where there is a receiver, and what the
// validation layer shall check.
func newInstanceChain(f *abi.Frame, receiver uint64, more checks) (c *instanceChain, head unsafe.Pointer) {
	c = abi.New[instanceChain](f)
	if receiver != 0 {
		describeMessenger(&c.messenger, receiver)
		head = unsafe.Pointer(&c.messenger)
	}
	if more == 0 {
		return c, head
	}
	v := &c.validation
	v.Init()
	v.PEnabledValidationFeatures = abi.AddressOf(c.enable[:])
	for _, x := range []struct {
		check   checks
		enables []uint32
	}{
		{checkSync, []uint32{abi.ValidationFeatureEnableSynchronizationValidationEXT}},
		{checkGPU, []uint32{abi.ValidationFeatureEnableGpuAssistedEXT, abi.ValidationFeatureEnableGpuAssistedReserveBindingSlotEXT}},
		{checkBest, []uint32{abi.ValidationFeatureEnableBestPracticesEXT}},
	} {
		if more&x.check != 0 {
			v.EnabledValidationFeatureCount += uint32(copy(c.enable[v.EnabledValidationFeatureCount:], x.enables))
		}
	}
	if receiver == 0 {
		return c, unsafe.Pointer(v)
	}
	c.messenger.PNext = abi.Address(v)
	return c, head
}

// newLoaderChain is a chain whose messenger hears what the loader says of drivers that it could not load.
func newLoaderChain(f *abi.Frame, receiver uint64) unsafe.Pointer {
	c, head := newInstanceChain(f, receiver, 0)
	c.messenger.MessageSeverity = abi.DebugUtilsMessageSeverityErrorBitEXT
	c.messenger.MessageType = abi.DebugUtilsMessageTypeGeneralBitEXT
	return head
}

// destroyUnloaded destroys an instance that there is no table for.
func destroyUnloaded(gipa, instance uintptr) {
	if p := procAddr(gipa, instance, callDestroyInstance.String()); p != 0 {
		f := abi.NewFrame()
		defer f.Free()
		f.Call(p, instance, 0)
	}
}

func (t *instanceTable) destroy() {
	f := abi.NewFrame()
	defer f.Free()
	t.call(f, callDestroyInstance, t.handle, 0)
}

func (t *instanceTable) createMessenger(receiver uint64, out *uintptr) int32 {
	if !t.has(callCreateDebugUtilsMessengerEXT, callDestroyDebugUtilsMessengerEXT) {
		return int32(ErrExtensionNotPresent)
	}
	f := abi.NewFrame()
	defer f.Free()
	info := abi.New[abi.DebugUtilsMessengerCreateInfoEXT](f)
	describeMessenger(info, receiver)
	handle := abi.New[uintptr](f)
	r := t.call(f, callCreateDebugUtilsMessengerEXT, t.handle, abi.Address(info), 0, abi.Address(handle))
	*out = *handle
	return r
}

func (t *instanceTable) destroyMessenger(messenger uintptr) {
	f := abi.NewFrame()
	defer f.Free()
	t.call(f, callDestroyDebugUtilsMessengerEXT, t.handle, messenger, 0)
}

func (t *instanceTable) deviceExtensions(physical uintptr, out []abi.ExtensionProperties) int32 {
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		return t.call(f, callEnumerateDeviceExtensionProperties, physical, 0, n, array)
	})
}

// createDevice makes a device with one queue of a family and some that only copy, of another; features are chained and hold what is to be
// enabled.
func (t *instanceTable) createDevice(physical uintptr, family, transferFamily, transfers uint32, features *features, extensions []string,
	out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	priorities := abi.Slice[float32](f, mostTransfers)
	for i := range priorities {
		priorities[i] = 1
	}
	queues := abi.Slice[abi.DeviceQueueCreateInfo](f, 2)
	for i, q := range []struct{ family, count uint32 }{{family, 1}, {transferFamily, min(transfers, mostTransfers)}} {
		queues[i].Init()
		queues[i].QueueFamilyIndex, queues[i].QueueCount, queues[i].PQueuePriorities = q.family, q.count, abi.AddressOf(priorities)
	}
	info := abi.Struct[abi.DeviceCreateInfo](f)
	info.PNext = abi.Address(features)
	info.QueueCreateInfoCount, info.PQueueCreateInfos = 1, abi.AddressOf(queues)
	if transfers > 0 {
		info.QueueCreateInfoCount = 2
	}
	info.EnabledExtensionCount, info.PpEnabledExtensionNames = uint32(len(extensions)), f.Strings(extensions)
	handle := abi.New[uintptr](f)
	r := t.call(f, callCreateDevice, physical, abi.Address(info), 0, abi.Address(handle))
	*out = *handle
	return r
}

// destroyUnloadedDevice destroys a device that there is no table for.
func (t *instanceTable) destroyUnloadedDevice(device uintptr) {
	if p := procAddr(t.functions[callGetDeviceProcAddr], device, callDestroyDevice.String()); p != 0 {
		f := abi.NewFrame()
		defer f.Free()
		f.Call(p, device, 0)
	}
}
