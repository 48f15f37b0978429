// Package vk is Vulkan for Go, cut down to what compute needs: an instance, the facts of a physical device, a device with
// one compute queue, buffers, compute pipelines, descriptors, command streams, fences, timeline semaphores and queries; and
// to what shows in a window what was computed: surfaces, swapchains and copies to their images.
//
// The Vulkan loader is opened at run time; nothing links against it, and nothing here is C: a function is called by its address,
// with structures that the package itself lays out (github.com/ebitengine/purego does the calling), so that a program builds with
// CGO_ENABLED=0, and for other systems without a compiler for them. Where cgo is on, instance creation and enumeration go through
// github.com/vulkan-go/vulkan. Every other call goes through a table of addresses kept per instance and per device, loaded with
// vkGetInstanceProcAddr and vkGetDeviceProcAddr, so that several instances, several devices and handles made by somebody else's
// loader can live in one process. The driver never keeps an address of Go's memory beyond a call.
//
// Errors are values: a VkResult becomes a [*CallError] that matches [ErrDeviceLost], [ErrOutOfDeviceMemory] and the other
// results under errors.Is; an argument that breaks a rule becomes an [*ArgumentError] before any Vulkan call is made.
//
// Concurrency. Instance, PhysicalDevice and Device are safe for concurrent use, as are the queue's submissions and the
// creation and destruction of every object. One object of the kinds Buffer, CommandPool (with its buffers),
// DescriptorPool (with its sets), QueryPool, Fence and Stream belongs to one goroutine at a time, as in Vulkan.
// Closing a device waits for the work that is running and closes what was made from it.
//
// Handles are uintptr, so that those of any other binding fit; 64-bit platforms only.
package vk
