//go:build !windows

package abi

import (
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

// Open opens a library. It stays open.
func Open(name string) (library uintptr, err error) {
	runtime.LockOSThread() // purego asks for the reason by a second call, and the system keeps it for each thread
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// Symbol is the address of a function of a library, 0 where it has none of that name.
func Symbol(library uintptr, name string) uintptr {
	p, err := purego.Dlsym(library, name)
	if err != nil {
		return 0
	}
	return p
}

var threadSelf = sync.OnceValue(func() uintptr { return Symbol(purego.RTLD_DEFAULT, "pthread_self") })

// Thread is a number of the calling thread that no other has while it lives.
func Thread() uintptr {
	f := NewFrame()
	defer f.Free()
	return f.Call(threadSelf())
}
