package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

// hasSurfaces says whether the instance's functions can ask about surfaces: whether VK_KHR_surface is enabled.
func (t *instanceTable) hasSurfaces() bool {
	return t.has(callDestroySurfaceKHR, callGetPhysicalDeviceSurfaceSupportKHR, callGetPhysicalDeviceSurfaceCapabilitiesKHR,
		callGetPhysicalDeviceSurfaceFormatsKHR, callGetPhysicalDeviceSurfacePresentModesKHR)
}

func (t *instanceTable) destroySurface(surface uintptr) {
	f := abi.NewFrame()
	defer f.Free()
	t.call(f, callDestroySurfaceKHR, t.handle, surface, 0)
}

func (t *instanceTable) createHeadlessSurface(out *uintptr) int32 {
	if !t.has(callCreateHeadlessSurfaceEXT) {
		return int32(ErrExtensionNotPresent)
	}
	f := abi.NewFrame()
	defer f.Free()
	info, surface := abi.Struct[abi.HeadlessSurfaceCreateInfoEXT](f), abi.New[uintptr](f)
	r := t.call(f, callCreateHeadlessSurfaceEXT, t.handle, abi.Address(info), 0, abi.Address(surface))
	*out = *surface
	return r
}

func (t *instanceTable) surfaceSupport(physical uintptr, family uint32, surface uintptr, out *bool) int32 {
	f := abi.NewFrame()
	defer f.Free()
	yes := abi.New[uint32](f)
	r := t.call(f, callGetPhysicalDeviceSurfaceSupportKHR, physical, uintptr(family), surface, abi.Address(yes))
	*out = *yes != 0
	return r
}

func (t *instanceTable) surfaceCapabilities(physical, surface uintptr, out *abi.SurfaceCapabilitiesKHR) int32 {
	f := abi.NewFrame()
	defer f.Free()
	c := abi.New[abi.SurfaceCapabilitiesKHR](f)
	r := t.call(f, callGetPhysicalDeviceSurfaceCapabilitiesKHR, physical, surface, abi.Address(c))
	*out = *c
	return r
}

func (t *instanceTable) surfaceFormats(physical, surface uintptr, out []abi.SurfaceFormatKHR) int32 {
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		return t.call(f, callGetPhysicalDeviceSurfaceFormatsKHR, physical, surface, n, array)
	})
}

func (t *instanceTable) surfaceModes(physical, surface uintptr, out []uint32) int32 {
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		return t.call(f, callGetPhysicalDeviceSurfacePresentModesKHR, physical, surface, n, array)
	})
}

func (d *deviceTable) hasSwapchains() bool {
	return d.has(callCreateSwapchainKHR, callDestroySwapchainKHR, callGetSwapchainImagesKHR, callAcquireNextImageKHR, callQueuePresentKHR)
}

// createSwapchain makes one as described, but for the structure's type.
func (d *deviceTable) createSwapchain(i *abi.SwapchainCreateInfoKHR, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.New[abi.SwapchainCreateInfoKHR](f)
	*info = *i
	info.Init()
	return d.create(f, callCreateSwapchainKHR, abi.Address(info), out)
}

func (d *deviceTable) swapchainImages(swapchain uintptr, out []uintptr) int32 {
	return fill(out, func(f *abi.Frame, n, array uintptr) int32 {
		return d.call(f, callGetSwapchainImagesKHR, d.handle, swapchain, n, array)
	})
}

func (d *deviceTable) acquire(swapchain uintptr, nanoseconds uint64, semaphore uintptr, index *uint32) int32 {
	f := abi.NewFrame()
	defer f.Free()
	i := abi.New[uint32](f)
	r := d.call(f, callAcquireNextImageKHR, d.handle, swapchain, uintptr(nanoseconds), semaphore, 0, abi.Address(i))
	*index = *i
	return r
}

func (d *deviceTable) present(queue, swapchain uintptr, index uint32, wait uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	s, w, i := abi.New[uint64](f), abi.New[uint64](f), abi.New[uint32](f)
	*s, *w, *i = uint64(swapchain), uint64(wait), index
	info := abi.Struct[abi.PresentInfoKHR](f)
	info.WaitSemaphoreCount, info.PWaitSemaphores = 1, abi.Address(w)
	info.SwapchainCount, info.PSwapchains, info.PImageIndices = 1, abi.Address(s), abi.Address(i)
	return d.call(f, callQueuePresentKHR, queue, abi.Address(info))
}
