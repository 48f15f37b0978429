package abi

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cLibrary is a function of C's library.
func cLibrary(t testing.TB, name string) uintptr {
	t.Helper()
	library := map[string]string{"linux": "libc.so.6", "darwin": "/usr/lib/libSystem.B.dylib", "windows": "msvcrt.dll"}[runtime.GOOS]
	if library == "" {
		library = "libc.so"
	}
	l, err := Open(library)
	require.NoError(t, err)
	p := Symbol(l, name)
	require.NotZero(t, p, name)
	return p
}

// Memory of a frame is zero, of its own, and gone with the frame.
func TestFrame(t *testing.T) {
	f := NewFrame()
	defer f.Free()
	info := Struct[ComputePipelineCreateInfo](f)
	require.Equal(t, ComputePipelineCreateInfo{SType: info.SType}, *info)
	info.Stage.Init()
	a := Slice[uint64](f, 10*frameWords) // more than a frame's
	b := Slice[byte](f, 3)
	copy(b, "abc")
	for i := range a {
		require.Zero(t, a[i])
		a[i] = ^uint64(0)
	}
	require.Equal(t, "abc", string(b))
	require.NotZero(t, info.Stage.SType)
	require.Equal(t, "text", Text(f.String("text")))
	require.Equal(t, "", Text(0))
	names := At[[2]uintptr](f.Strings([]string{"one", "two"}))
	require.Equal(t, "one two", Text(names[0])+" "+Text(names[1]))
	require.Zero(t, f.Strings(nil))
	require.Zero(t, Pin[byte](f, nil))
	require.Equal(t, "ab", Chars([]byte{'a', 'b', 0, 'c'}))
	require.Equal(t, "ab", Chars([]byte("ab")), "an array that is full")

	f.Rewind()
	require.Equal(t, SubmitInfo{SType: 4}, *Struct[SubmitInfo](f), "what lay there before")
}

// C's library reads a number out of a string and writes where it ends, while the collector runs and stacks move: addresses in a frame stay
// what they were.
func TestCallsUnderCollection(t *testing.T) {
	strtoull := cLibrary(t, "strtoull")
	calls := 1_000_000
	if testing.Short() {
		calls = 100_000
	}
	var stop atomic.Bool
	var wg, collector sync.WaitGroup
	collector.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	var deep func(depth, i int) bool
	deep = func(depth, i int) bool { // the stack grows below the call, and moves
		var pad [64]byte
		pad[depth%64] = byte(i)
		if depth > 0 {
			return deep(depth-1, i) && pad[depth%64] == byte(i)
		}
		f := NewFrame()
		defer f.Free()
		text := strconv.Itoa(i) + "x"
		start, end := f.String(text), New[uintptr](f)
		got := f.Call(strtoull, start, Address(end), 10)
		return got == uintptr(i) && *end-start == uintptr(len(text)-1)
	}
	for g := range 4 {
		wg.Go(func() {
			for i := range calls / 4 {
				if !deep(i*g%40, i) {
					t.Errorf("call %d of goroutine %d went wrong", i, g)
					return
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	collector.Wait()
}

func TestCallAllocatesNothing(t *testing.T) {
	abs := cLibrary(t, "abs")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f := NewFrame()
		defer f.Free()
		info := Struct[SubmitInfo](f)
		info.PNext = Address(Struct[TimelineSemaphoreSubmitInfo](f))
		f.Call(abs, 7)
	}))
}

var compared atomic.Int64

// C calls back into Go, which may be collecting and may be preempted meanwhile.
func TestCallback(t *testing.T) {
	qsort := cLibrary(t, "qsort")
	compare := Callback(func(a, b uintptr) uintptr {
		if compared.Add(1)%64 == 0 {
			runtime.GC()
		}
		runtime.Gosched()
		return uintptr(int(*At[uint32](a)) - int(*At[uint32](b)))
	})
	f := NewFrame()
	defer f.Free()
	s := Slice[uint32](f, 100)
	for i := range s {
		s[i] = uint32(i * 37 % 100)
	}
	f.Call(qsort, AddressOf(s), uintptr(len(s)), 4, compare)
	for i := range s {
		require.EqualValues(t, i, s[i])
	}
	require.NotZero(t, compared.Load())
}

func TestThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := Thread()
	require.NotZero(t, mine)
	require.Equal(t, mine, Thread())
	other := make(chan uintptr)
	go func() {
		runtime.LockOSThread() // not this goroutine's thread, which is taken
		defer runtime.UnlockOSThread()
		other <- Thread()
	}()
	require.NotEqual(t, mine, <-other)
}

// BenchmarkCall is what a call costs that does next to nothing. A frame is taken for each, as most of package vk's functions do.
func BenchmarkCall(b *testing.B) {
	abs := cLibrary(b, "abs")
	b.ReportAllocs()
	for b.Loop() {
		f := NewFrame()
		f.Call(abs, 7)
		f.Free()
	}
}

// Ten arguments arrive, each where it belongs, and the result comes back whole.
func TestArguments(t *testing.T) {
	var got [maxArgs]uintptr
	take := Callback(func(a, b, c, d, e, f, g, h, i, j uintptr) uintptr {
		got = [maxArgs]uintptr{a, b, c, d, e, f, g, h, i, j}
		return 1<<63 | 5
	})
	f := NewFrame()
	defer f.Free()
	want := [maxArgs]uintptr{1 << 40, 2 << 40, 3 << 40, 4 << 40, 5 << 40, 6 << 40, 7 << 40, 8 << 40, 9 << 40, 10 << 40}
	require.Equal(t, uintptr(1<<63|5), f.Call(take, want[:]...))
	require.Equal(t, want, got)
}

// Queued calls are made in order, once, before their arguments' memory is used again.
func TestQueue(t *testing.T) {
	memcpy := cLibrary(t, "memcpy")
	const calls, bytes = 1000, 400 // more memory than a frame has, before the calls of a batch are full
	kept, f := NewFrame(), NewFrame()
	defer kept.Free()
	defer f.Free()
	to := Slice[byte](kept, calls*bytes)
	var order []uintptr
	note := Callback(func(i uintptr) uintptr {
		order = append(order, i)
		return 0
	})
	for i := range calls {
		f.Settle()
		from := Slice[byte](f, bytes)
		for j := range from {
			from[j] = byte(i + j)
		}
		f.Queue(memcpy, Address(&to[i*bytes]), AddressOf(from), bytes)
		f.Queue(note, uintptr(i))
	}
	f.Flush()
	f.Flush()
	require.Len(t, order, calls)
	for i := range calls {
		require.EqualValues(t, i, order[i])
		for j := range bytes {
			require.Equal(t, byte(i+j), to[i*bytes+j], "byte %d of call %d", j, i)
		}
	}
}
