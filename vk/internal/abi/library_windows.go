package abi

import "golang.org/x/sys/windows"

// Open opens a library. It stays open.
func Open(name string) (library uintptr, err error) {
	h, err := windows.LoadLibrary(name)
	return uintptr(h), err
}

// Symbol is the address of a function of a library, 0 where it has none of that name.
func Symbol(library uintptr, name string) uintptr {
	p, err := windows.GetProcAddress(windows.Handle(library), name)
	if err != nil {
		return 0
	}
	return p
}

// Thread is a number of the calling thread that no other has while it lives.
func Thread() uintptr { return uintptr(windows.GetCurrentThreadId()) }
