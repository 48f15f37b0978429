//go:build !windows

package abi

import "unsafe"

// run makes the calls on the thread's own stack, as cgo would: runtime.cgocall is what purego, whose package stands in for runtime/cgo
// where that is not linked, calls too.
func (b *batch) run() {
	b.next, b.end = Address(&b.calls[0]), Address(&b.calls[0])+uintptr(b.n)*unsafe.Sizeof(call{})
	cgocall(runAddress, unsafe.Pointer(b))
}

// runAddress is that of the assembly's run.
var runAddress uintptr

//go:linkname cgocall runtime.cgocall
func cgocall(function uintptr, argument unsafe.Pointer) int32
