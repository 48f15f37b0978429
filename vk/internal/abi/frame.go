package abi

import (
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

var _ [unsafe.Sizeof(uintptr(0)) - 8]byte // 64-bit platforms only: structures and handles are laid out for them

// frameWords is what a frame holds before it takes more memory: enough for any call of a steady state.
const frameWords = 1024

// Frame is memory for the arguments of a few calls. It lies in Go's heap, which does not move, as words without pointers, so that
// structures in it may hold each other's addresses; the frame keeps all of them until Free. One goroutine has it at a time.
type Frame struct {
	words  []uint64
	used   int
	full   [][]uint64 // earlier words, which structures may still point to
	batch  batch
	pins   runtime.Pinner
	pinned bool
}

var frames = sync.Pool{New: func() any { return &Frame{words: make([]uint64, frameWords)} }}

// NewFrame takes a frame, which Free gives back. Neither allocates once frames are there.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Free ends the use of all that came from the frame, once what was queued is called.
func (f *Frame) Free() {
	f.Rewind()
	if f.pinned {
		f.pins.Unpin()
		f.pinned = false
	}
	frames.Put(f)
}

// Rewind ends the use of all memory that came from the frame, once what was queued is called; what is pinned stays so.
func (f *Frame) Rewind() {
	f.Flush()
	f.used = 0
	if f.full != nil {
		f.full = nil
	}
}

// Settle is Rewind where not much of the frame is left, for those who queue without end.
func (f *Frame) Settle() {
	if f.used > frameWords/2 {
		f.Rewind()
	}
}

// take returns the address of n bytes of zeros.
func (f *Frame) take(n uintptr) unsafe.Pointer {
	need := max(1, int((n+7)/8))
	if f.used+need > len(f.words) {
		f.full = append(f.full, f.words)
		f.words, f.used = make([]uint64, max(need, frameWords)), 0
	}
	w := f.words[f.used : f.used+need]
	clear(w)
	f.used += need
	return unsafe.Pointer(&w[0])
}

// New makes a zero T, which holds no Go pointers, in a frame.
func New[T any](f *Frame) *T {
	var t T
	return (*T)(f.take(unsafe.Sizeof(t)))
}

// Slice makes n of them, at least one in memory so that there is an address.
func Slice[T any](f *Frame, n int) []T {
	var t T
	return unsafe.Slice((*T)(f.take(unsafe.Sizeof(t)*uintptr(max(n, 1)))), n)
}

// typed is a structure that says what it is.
type typed[T any] interface {
	*T
	Init()
	Base() *BaseOutStructure
}

// Struct makes a structure in a frame that is zero but for its type.
func Struct[T any, P typed[T]](f *Frame) P {
	p := P(New[T](f))
	p.Init()
	return p
}

// Address is that of memory in a frame, or of nil.
func Address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// AddressOf is the address of a slice in a frame, 0 of an empty one.
func AddressOf[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// Pin keeps a slice of the caller's where it is until the frame is freed, and returns its address, 0 of an empty one. The slice
// holds no Go pointers.
func Pin[T any](f *Frame, s []T) uintptr {
	if len(s) == 0 {
		return 0
	}
	f.pins.Pin(&s[0])
	f.pinned = true
	return uintptr(unsafe.Pointer(&s[0]))
}

// String copies a string into the frame, ended by a zero byte, and returns its address.
func (f *Frame) String(s string) uintptr {
	b := Slice[byte](f, len(s)+1)
	copy(b, s)
	return AddressOf(b)
}

// Strings makes an array of the addresses of strings; 0 where there are none.
func (f *Frame) Strings(s []string) uintptr {
	if len(s) == 0 {
		return 0
	}
	a := Slice[uintptr](f, len(s))
	for i := range s {
		a[i] = f.String(s[i])
	}
	return AddressOf(a)
}

// At is a T at an address that is not of Go's memory, or of a frame.
func At[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// Bytes are n bytes at an address that is not of Go's memory.
func Bytes(address uintptr, n uint64) []byte { return unsafe.Slice(At[byte](address), n) }

// Text is the string at an address, which a zero byte ends; "" of 0.
func Text(address uintptr) string {
	if address == 0 {
		return ""
	}
	n := 0
	for *At[byte](address + uintptr(n)) != 0 {
		n++
	}
	return string(Bytes(address, uint64(n)))
}

// Chars is the string in an array of chars, up to its zero byte.
func Chars(c []byte) string {
	s, _, _ := strings.Cut(string(c), "\x00")
	return s
}
