// Package abi is what package vk needs to call Vulkan without C: structures laid out as C's compilers do, memory for them that does not
// move, calls of functions by their address, and libraries opened at run time.
//
// Structures hold no Go pointers. What C calls a pointer is a uintptr here: the address of memory in a [Frame], of memory that a Frame
// pinned, or of the driver's. Their fields are named as in Vulkan's headers, with a capital letter first.
package abi

//go:generate go run ./generate
