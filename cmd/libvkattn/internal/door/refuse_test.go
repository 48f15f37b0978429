package door

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/internal/flashtest"
)

// good are a forward pass's tensors that do.
func good() Forward {
	of := func(shape [4]int) *Tensor {
		n := shape[0] * shape[1] * shape[2] * shape[3]
		return onHost(flash.F32, shape, rowMajor, make([]float32, n)).Tensor
	}
	return Forward{Q: of(qShape), K: of(kShape), V: of(vShape), O: of(oShape), LSE: of(lseShape)}
}

// TestRefusals: what is wrong with a tensor or an option is an error that names it, and no pass is made.
func TestRefusals(t *testing.T) {
	device := opened(t)
	for _, c := range []struct {
		argument string
		spoil    func(f *Forward, o *Options)
	}{
		{"forward.q", func(f *Forward, _ *Options) { f.Q = nil }},
		{"forward.o", func(f *Forward, _ *Options) { f.O = nil }},
		{"forward.q.data", func(f *Forward, _ *Options) { f.Q.Data = nil }},
		{"forward.q.data", func(f *Forward, _ *Options) { f.Q.Buffer = 1 }},
		{"forward.q.dtype", func(f *Forward, _ *Options) { f.Q.DType = 5 }},
		{"forward.q.dtype", func(f *Forward, _ *Options) { f.Q.DType = math.MaxUint32 }},
		{"forward.k.shape", func(f *Forward, _ *Options) { f.K.Shape[2] = 0 }},
		{"forward.k.shape", func(f *Forward, _ *Options) { f.K.Shape[2] = -1 }},
		{"forward.k.shape", func(f *Forward, _ *Options) { f.K.Shape[0] = 1<<32 + 2 }},
		{"forward.v.offset", func(f *Forward, _ *Options) { f.V.Bytes-- }},
		{"forward.v.offset", func(f *Forward, _ *Options) { f.V.Offset = 2 }},
		{"forward.v.offset", func(f *Forward, _ *Options) { f.V.Offset = math.MaxUint64 - 3 }},
		{"forward.v.bytes", func(f *Forward, _ *Options) { f.V.Bytes = math.MaxUint64 }},
		{"forward.q.strides", func(f *Forward, _ *Options) { f.Q.Strides = [4]int64{-1, 1, 1, 1} }},
		{"forward.q.strides", func(f *Forward, _ *Options) { f.Q.Strides = [4]int64{1, 1, 1, 2} }},
		{"forward.q.strides", func(f *Forward, _ *Options) { f.Q.Strides = [4]int64{1 << 40, 1, 1, 1} }},
		{"forward.o.strides", func(f *Forward, _ *Options) { f.O.Strides = [4]int64{0, 0, 24, 1} }},
		{"forward.o", func(f *Forward, _ *Options) { f.O.Data = f.V.Data }},
		{"forward.lse", func(f *Forward, _ *Options) { f.LSE.Data, f.LSE.Bytes = f.O.Data, f.O.Bytes }},
		{"k", func(f *Forward, _ *Options) { f.K.Shape[3]-- }},
		{"v", func(f *Forward, _ *Options) { f.V.DType = uint32(flash.F16) }},
		{"Forward.O", func(f *Forward, _ *Options) { f.O.Shape[3]-- }},
		{"Problem.Bias", func(f *Forward, _ *Options) { f.Bias = f.Q }},
		{"options.causal", func(_ *Forward, o *Options) { o.Causal = 3 }},
		{"options.layout", func(_ *Forward, o *Options) { o.Layout = 2 }},
		{"options.window", func(_ *Forward, o *Options) { o.Window, o.Left = true, -2 }},
		{"options.window", func(_ *Forward, o *Options) { o.Window, o.Right = true, math.MaxInt64 }},
		{"Problem.Scale", func(_ *Forward, o *Options) { o.Scale = math.NaN() }},
		{"Problem.Dropout", func(_ *Forward, o *Options) { o.Dropout = 1 }},
	} {
		f, o := good(), Options{}
		c.spoil(&f, &o)
		out, before := f.O, []byte(nil)
		if out != nil && out.Buffer == 0 && out.Data != f.V.Data {
			before = bytes.Clone(unsafe.Slice((*byte)(out.Data), out.Bytes))
		}
		status, text := Enter("f", func() error { return SDPAForward(device, o, f) })
		require.Equal(t, BadArgument, status, "%s: %s", c.argument, text)
		require.Contains(t, text, "f: flash: "+c.argument+" is ")
		if before != nil {
			require.Equal(t, before, unsafe.Slice((*byte)(out.Data), out.Bytes), c.argument)
		}
	}

	f := good()
	require.NoError(t, SDPAForward(device, Options{}, f))
	flashtest.Refused(t, "backward.do_", SDPABackward(device, Options{}, Backward{Forward: f}))
	flashtest.Refused(t, "backward.dq", SDPABackward(device, Options{}, Backward{Forward: f, DO: f.O, DQ: f.Q}))
	flashtest.Refused(t, "jvp.o_tangent", SDPAJVP(device, Options{}, JVP{Forward: f}))
	flashtest.Refused(t, "JVP", SDPAJVP(device, Options{}, JVP{Forward: f, OTangent: good().O}))
	f.LSE = nil
	flashtest.Refused(t, "forward.lse", SDPABackward(device, Options{}, Backward{Forward: f, DO: f.O, DQ: f.Q}))
}

// TestHandles: what is closed, of another kind or made up is an error, and a number is never used again.
func TestHandles(t *testing.T) {
	device := opened(t)
	c := testCache(t, device)
	for _, h := range []Handle{0, c, device + 1000, math.MaxUint64} {
		require.ErrorIs(t, SDPAForward(h, Options{}, good()), errClosed)
		require.ErrorIs(t, Close(h), errClosed)
		_, err := Describe(h)
		require.ErrorIs(t, err, errClosed)
	}
	require.ErrorIs(t, CloseCache(device), errClosed)
	require.NoError(t, CloseCache(c))
	require.Greater(t, testCacheClosed(t, device), c)
}

// testCacheClosed makes and closes a cache, and gives its handle.
func testCacheClosed(t *testing.T, device Handle) Handle {
	c := testCache(t, device)
	require.NoError(t, CloseCache(c))
	return c
}

// TestCloseDevice: once a device is closed its caches say so, and can still be closed.
func TestCloseDevice(t *testing.T) {
	h := devices.add(&device{Device: flashtest.Device(t), attached: true})
	c := testCache(t, h)
	require.NoError(t, Close(h))
	require.Equal(t, Closed, statusOf(Step(c, nil)))
	require.NoError(t, CloseCache(c))
	require.Equal(t, Closed, statusOf(Close(h)))
}

// TestEnter: errors become the statuses that vkattn.h lists, and so do panics and faults.
func TestEnter(t *testing.T) {
	for want, err := range map[Status]error{
		BadArgument: bad("x", 1, "must not"), Unsupported: fmt.Errorf("a: %w", flash.ErrUnsupported), NoMemory: &flash.MemoryError{},
		NoDevice: errors.Join(flash.ErrArgument, flash.ErrNoDevice), DeviceLost: errors.Join(flash.ErrClosed, flash.ErrDeviceLost),
		Closed: flash.ErrClosed, OutOfPages: kvcache.ErrOutOfPages, UnknownSequence: kvcache.ErrFreedSequence, Failed: errors.New("disk"),
	} {
		status, text := Enter("f", func() error { return err })
		require.Equal(t, want, status)
		require.Equal(t, "f: "+err.Error(), text)
	}
	status, text := Enter("f", func() error { return nil })
	require.Equal(t, OK, status)
	require.Empty(t, text)
	status, text = Enter("f", func() error { panic("oh") })
	require.Equal(t, Panicked, status)
	require.Equal(t, "f: vkattn: panic: oh", text)
}

// TestMemoryThatIsNotThere: a pointer into nowhere is an error as well, whichever tensor has it, and the device goes on.
func TestMemoryThatIsNotThere(t *testing.T) {
	device := opened(t)
	for name, spoil := range map[string]func(f *Forward){
		"input":  func(f *Forward) { f.K.Data = unmapped(t, int(f.K.Bytes)) },
		"gaps":   func(f *Forward) { f.K.Data, f.K.Strides = unmapped(t, int(f.K.Bytes)), [4]int64{0, 16, 16, 1} },
		"output": func(f *Forward) { f.O.Data = unmapped(t, int(f.O.Bytes)) },
	} {
		f := good()
		spoil(&f)
		status, text := Enter("f", func() error { return SDPAForward(device, Options{}, f) })
		require.Equal(t, Panicked, status, "%s: %s", name, text)
		require.NoError(t, SDPAForward(device, Options{}, good()))
	}
}

// TestThreads: functions may be called from all threads at a time, a device and a cache closed while they are in use; of those that close
// one and the same, one succeeds.
func TestThreads(t *testing.T) {
	h := devices.add(&device{Device: flashtest.Device(t), attached: true})
	require.NoError(t, SDPAForward(h, Options{}, good()))
	c := testCache(t, h)
	var passes, closedDevice, closedCache atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 6 {
				s, err := AddSequence(c)
				if err == nil {
					_ = Step(c, []Request{{Sequence: s, Tokens: 1}})
					_ = FreeSequence(c, s)
				}
				switch status, text := Enter("f", func() error { return SDPAForward(h, Options{}, good()) }); status {
				case OK:
					passes.Add(1)
				case Closed:
				default:
					t.Errorf("thread %d, pass %d: %v: %s", i, n, status, text)
				}
			}
			if CloseCache(c) == nil {
				closedCache.Add(1)
			}
			if Close(h) == nil {
				closedDevice.Add(1)
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, passes.Load(), int64(6))
	require.EqualValues(t, 1, closedCache.Load())
	require.EqualValues(t, 1, closedDevice.Load())
}
