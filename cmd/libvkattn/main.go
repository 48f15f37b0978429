// Command libvkattn is the C interface: go build -buildmode=c-shared makes a library of it (make lib), and vkattn.h, which is written by
// hand, says what its functions do. Here C's values become Go's and nothing more; package door does the work.
package main

/*
#include <stdlib.h>
#define VKATTN_NO_PROTOTYPES // cgo writes its own, which know no const
#include "vkattn.h"
*/
import "C"

import (
	"unsafe"

	"github.com/vkattn/vkattn/cmd/libvkattn/internal/door"
)

func main() {}

// enter runs a function of the interface, and gives C its status and text.
func enter(function string, text **C.char, f func() error) C.vkattn_status {
	status, message := door.Enter(function, f)
	if text != nil {
		*text = nil
		if status != door.OK {
			*text = C.CString(message)
		}
	}
	return C.vkattn_status(status)
}

//export vkattn_version
func vkattn_version() C.uint32_t { return C.VKATTN_VERSION }

//export vkattn_free
func vkattn_free(text *C.char) { C.free(unsafe.Pointer(text)) }

//export vkattn_device_open
func vkattn_device_open(options *C.vkattn_open_options, device *C.vkattn_device, text **C.char) C.vkattn_status {
	return enter("vkattn_device_open", text, func() error {
		if device == nil {
			return door.Required("device")
		}
		*device = 0
		o, err := openOptions(options)
		if err != nil {
			return err
		}
		h, err := door.Open(o)
		*device = C.vkattn_device(h)
		return err
	})
}

//export vkattn_device_attach
func vkattn_device_attach(external *C.vkattn_external, device *C.vkattn_device, text **C.char) C.vkattn_status {
	return enter("vkattn_device_attach", text, func() error {
		if device == nil {
			return door.Required("device")
		}
		*device = 0
		e, err := externalOf(external)
		if err != nil {
			return err
		}
		h, err := door.Attach(e)
		*device = C.vkattn_device(h)
		return err
	})
}

//export vkattn_device_describe
func vkattn_device_describe(device C.vkattn_device, description, text **C.char) C.vkattn_status {
	return enter("vkattn_device_describe", text, func() error {
		if description == nil {
			return door.Required("text")
		}
		*description = nil
		s, err := door.Describe(door.Handle(device))
		if err == nil {
			*description = C.CString(s)
		}
		return err
	})
}

//export vkattn_device_close
func vkattn_device_close(device C.vkattn_device, text **C.char) C.vkattn_status {
	return enter("vkattn_device_close", text, func() error { return door.Close(door.Handle(device)) })
}

// sdpa reads options and a pass, in this order, and runs it.
func sdpa[P any](function string, device C.vkattn_device, options *C.vkattn_options, text **C.char, read func() (P, error),
	run func(door.Handle, door.Options, P) error) C.vkattn_status {
	return enter(function, text, func() error {
		o, err := optionsOf(options)
		if err != nil {
			return err
		}
		p, err := read()
		if err != nil {
			return err
		}
		return run(door.Handle(device), o, p)
	})
}

//export vkattn_sdpa_forward
func vkattn_sdpa_forward(device C.vkattn_device, options *C.vkattn_options, pass *C.vkattn_forward, text **C.char) C.vkattn_status {
	read := func() (door.Forward, error) { return forwardOf("pass", pass) }
	return sdpa("vkattn_sdpa_forward", device, options, text, read, door.SDPAForward)
}

//export vkattn_sdpa_backward
func vkattn_sdpa_backward(device C.vkattn_device, options *C.vkattn_options, pass *C.vkattn_backward, text **C.char) C.vkattn_status {
	read := func() (door.Backward, error) { return backwardOf(pass) }
	return sdpa("vkattn_sdpa_backward", device, options, text, read, door.SDPABackward)
}

//export vkattn_sdpa_jvp
func vkattn_sdpa_jvp(device C.vkattn_device, options *C.vkattn_options, pass *C.vkattn_jvp, text **C.char) C.vkattn_status {
	read := func() (door.JVP, error) { return jvpOf(pass) }
	return sdpa("vkattn_sdpa_jvp", device, options, text, read, door.SDPAJVP)
}

//export vkattn_cache_create
func vkattn_cache_create(device C.vkattn_device, options *C.vkattn_cache_options, cache *C.vkattn_cache, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_create", text, func() error {
		if cache == nil {
			return door.Required("cache")
		}
		*cache = 0
		o, err := cacheOptionsOf(options)
		if err != nil {
			return err
		}
		h, err := door.NewCache(door.Handle(device), o)
		*cache = C.vkattn_cache(h)
		return err
	})
}

//export vkattn_cache_close
func vkattn_cache_close(cache C.vkattn_cache, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_close", text, func() error { return door.CloseCache(door.Handle(cache)) })
}

//export vkattn_cache_add
func vkattn_cache_add(cache C.vkattn_cache, sequence *C.uint64_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_add", text, func() error {
		return number("sequence", sequence, func() (uint64, error) { return door.AddSequence(door.Handle(cache)) })
	})
}

//export vkattn_cache_fork
func vkattn_cache_fork(cache C.vkattn_cache, of C.uint64_t, sequence *C.uint64_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_fork", text, func() error {
		return number("sequence", sequence, func() (uint64, error) { return door.ForkSequence(door.Handle(cache), uint64(of)) })
	})
}

//export vkattn_cache_truncate
func vkattn_cache_truncate(cache C.vkattn_cache, sequence, length C.uint64_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_truncate", text, func() error {
		return door.TruncateSequence(door.Handle(cache), uint64(sequence), uint64(length))
	})
}

//export vkattn_cache_free
func vkattn_cache_free(cache C.vkattn_cache, sequence C.uint64_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_free", text, func() error { return door.FreeSequence(door.Handle(cache), uint64(sequence)) })
}

//export vkattn_cache_length
func vkattn_cache_length(cache C.vkattn_cache, sequence C.uint64_t, length *C.uint64_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_length", text, func() error {
		return number("length", length, func() (uint64, error) { return door.SequenceLength(door.Handle(cache), uint64(sequence)) })
	})
}

//export vkattn_cache_step
func vkattn_cache_step(cache C.vkattn_cache, requests *C.vkattn_request, count C.uint32_t, text **C.char) C.vkattn_status {
	return enter("vkattn_cache_step", text, func() error {
		if requests == nil && count > 0 {
			return door.Required("requests")
		}
		return door.Step(door.Handle(cache), unsafe.Slice((*door.Request)(unsafe.Pointer(requests)), count))
	})
}

//export vkattn_cache_attend
func vkattn_cache_attend(cache C.vkattn_cache, layer C.uint32_t, options *C.vkattn_options, pass *C.vkattn_forward,
	text **C.char) C.vkattn_status {
	return enter("vkattn_cache_attend", text, func() error {
		o, err := optionsOf(options)
		if err != nil {
			return err
		}
		f, err := forwardOf("pass", pass)
		if err != nil {
			return err
		}
		return door.Attend(door.Handle(cache), uint32(layer), o, f)
	})
}

// number gives C a number: 0 where there is an error.
func number(name string, to *C.uint64_t, f func() (uint64, error)) error {
	if to == nil {
		return door.Required(name)
	}
	*to = 0
	n, err := f()
	*to = C.uint64_t(n)
	return err
}
