package pipeline

import (
	"context"
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

// newContext makes a context on the test device whose pipelines are not stored, and closes it with the test.
func newContext(t testing.TB, o Options) *Context {
	t.Helper()
	if o.CacheDir == "" {
		o.NoDiskCache = true
	}
	c, err := New(testDevice(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// testModule reads a module of testdata.
func testModule(t testing.TB, name string) []uint32 {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".spv")
	require.NoError(t, err)
	code := make([]uint32, len(b)/4)
	for i := range code {
		code[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return code
}

const groupSize = 64

func mixInfo(t testing.TB, mul uint32) KernelInfo {
	return KernelInfo{Name: "mix", Code: testModule(t, "mix"), Spec: []vk.SpecConstant{{ID: 0, Value: groupSize}, {ID: 1, Value: mul}},
		Bindings: 2, PushBytes: 20}
}

func mixKernel(t testing.TB, c *Context, mul uint32) *Kernel {
	t.Helper()
	k, err := c.Kernel(mixInfo(t, mul))
	require.NoError(t, err)
	return k
}

// mixArgs are the push constants of testdata/mix.comp.
type mixArgs struct{ n, add, srcOff, dstOff, spin uint32 }

func (a *mixArgs) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(a)), 20) }

// apply is what mix.comp computes.
func (a mixArgs) apply(dst, src []uint32, mul uint32) {
	for i := range a.n {
		v := src[a.srcOff+a.n-1-i]
		for range a.spin {
			v = v*1664525 + 1013904223
		}
		dst[a.dstOff+i] = v*mul + a.add
	}
}

func groupsFor(n uint32) [3]uint32 { return [3]uint32{(n + groupSize - 1) / groupSize, 1, 1} }

func alloc(t testing.TB, c *Context, label string, elems int) *Buffer {
	t.Helper()
	b, err := c.Alloc(label, uint64(4*elems), vk.DeviceLocal)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func asBytes(v []uint32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v)) }

func upload(t testing.TB, c *Context, b *Buffer, v []uint32) {
	t.Helper()
	require.NoError(t, c.Upload(context.Background(), b.Range(0, uint64(4*len(v))), asBytes(v)))
}

func download(t testing.TB, c *Context, b *Buffer, n int) []uint32 {
	t.Helper()
	v := make([]uint32, n)
	require.NoError(t, c.Download(context.Background(), b.Range(0, uint64(4*n)), asBytes(v)))
	return v
}

// pattern makes n words that differ from one another and from those of another seed.
func pattern(n int, seed uint32) []uint32 {
	v := make([]uint32, n)
	x := seed*2654435761 + 12345
	for i := range v {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		v[i] = x
	}
	return v
}

func newRecording(t testing.TB, c *Context, i RecordingInfo) *Recording {
	t.Helper()
	r, err := c.NewRecording(i)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// runAndWait submits a recording and waits for it.
func runAndWait(t testing.TB, c *Context, r *Recording) *Pending {
	t.Helper()
	p, err := c.Submit(r)
	require.NoError(t, err)
	require.NoError(t, p.Wait(context.Background()))
	return p
}
