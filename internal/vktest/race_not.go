//go:build !race

package vktest

// Race says that the race detector is on. A sync.Pool then drops some of what it is given, so that calls of Vulkan, whose memory comes
// from pools, allocate now and then.
const Race = false
