package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

// destroyHandle calls one of the functions that end an object: vkDestroy… and vkFreeMemory.
func (d *deviceTable) destroyHandle(e entry, handle uintptr) {
	f := abi.NewFrame()
	defer f.Free()
	d.call(f, e, d.handle, handle, 0)
}

// create calls one of the functions that make an object of a structure.
func (d *deviceTable) create(f *abi.Frame, e entry, info uintptr, out *uintptr) int32 {
	handle := abi.New[uintptr](f)
	r := d.call(f, e, d.handle, info, 0, abi.Address(handle))
	*out = *handle
	return r
}

func (d *deviceTable) destroy() {
	f := abi.NewFrame()
	defer f.Free()
	d.call(f, callDestroyDevice, d.handle, 0)
}

func (d *deviceTable) queue(family, index uint32) uintptr {
	f := abi.NewFrame()
	defer f.Free()
	q := abi.New[uintptr](f)
	d.call(f, callGetDeviceQueue, d.handle, uintptr(family), uintptr(index), abi.Address(q))
	return *q
}

func (d *deviceTable) waitIdle() int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callDeviceWaitIdle, d.handle)
}

func (d *deviceTable) waitQueueIdle(queue uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callQueueWaitIdle, queue)
}

func (d *deviceTable) hasTimeline() bool {
	return d.has(callWaitSemaphores, callGetSemaphoreCounterValue, callSignalSemaphore)
}

func (d *deviceTable) hasExecutable() bool {
	return d.has(callGetPipelineExecutablePropertiesKHR, callGetPipelineExecutableStatisticsKHR)
}

// forgetDebugUtils forgets the functions of VK_EXT_debug_utils.
func (d *deviceTable) forgetDebugUtils() {
	for _, e := range []entry{callSetDebugUtilsObjectNameEXT, callCmdBeginDebugUtilsLabelEXT, callCmdEndDebugUtilsLabelEXT} {
		d.functions[e] = 0
	}
}

func (d *deviceTable) name(objectType uint32, handle uintptr, name string) {
	if !d.has(callSetDebugUtilsObjectNameEXT) {
		return
	}
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.DebugUtilsObjectNameInfoEXT](f)
	info.ObjectType, info.ObjectHandle, info.PObjectName = objectType, uint64(handle), f.String(name)
	d.call(f, callSetDebugUtilsObjectNameEXT, d.handle, abi.Address(info))
}
