package pipeline

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

func TestUsage(t *testing.T) {
	c := newContext(t, Options{})
	require.Zero(t, c.Usage().Current)
	a, err := c.Alloc("weights", 1000, vk.DeviceLocal)
	require.NoError(t, err)
	b, err := c.Alloc("weights", 3000, vk.DeviceLocal)
	require.NoError(t, err)
	s, err := c.Alloc("scores", 500, vk.Readback)
	require.NoError(t, err)
	assert.Equal(t, "scores", s.Label())

	u := c.Usage()
	wa, wb, ws := a.AllocatedBytes(), b.AllocatedBytes(), s.AllocatedBytes()
	assert.GreaterOrEqual(t, wa, uint64(1000))
	assert.Equal(t, wa+wb+ws, u.Current)
	assert.EqualValues(t, 1000+3000+500, u.Asked)
	assert.Equal(t, LabelUsage{Current: wa + wb, Peak: wa + wb, Buffers: 2}, u.ByLabel["weights"])

	b.Close()
	b.Close() // once more is nothing
	u = c.Usage()
	assert.Equal(t, wa+ws, u.Current)
	assert.Equal(t, wa+wb+ws, u.Peak, "the high-water mark stays")
	assert.EqualValues(t, 1500, u.Asked)
	assert.EqualValues(t, 4500, u.PeakAsked)
	assert.Equal(t, LabelUsage{Current: wa, Peak: wa + wb, Buffers: 1}, u.ByLabel["weights"])

	s.Close()
	c.ResetPeak()
	u = c.Usage()
	assert.Equal(t, u.Current, u.Peak)
	assert.Equal(t, u.Asked, u.PeakAsked)
	assert.NotContains(t, u.ByLabel, "scores")
	a.Close()
	assert.Zero(t, c.Usage().Current)
	assert.Equal(t, wa, c.Usage().Peak)
}

// TestPeaksOutliveWhatMadeThem: a small allocation after a large one that is gone is no new peak.
func TestPeaksOutliveWhatMadeThem(t *testing.T) {
	c := newContext(t, Options{})
	large, err := c.Alloc("x", 100_000, vk.DeviceLocal)
	require.NoError(t, err)
	high := large.AllocatedBytes()
	large.Close()
	small, err := c.Alloc("x", 1000, vk.DeviceLocal)
	require.NoError(t, err)
	u := c.Usage()
	assert.Equal(t, small.AllocatedBytes(), u.Current)
	assert.Equal(t, high, u.Peak)
	assert.EqualValues(t, 1000, u.Asked)
	assert.EqualValues(t, 100_000, u.PeakAsked)
	assert.Equal(t, LabelUsage{Current: small.AllocatedBytes(), Peak: high, Buffers: 1}, u.ByLabel["x"])
}

// TestHeapsAreCounted: where the device does not keep account itself, what is free is what was not allocated, or was freed
// again, in the heap of its kind.
func TestHeapsAreCounted(t *testing.T) {
	c := newContext(t, Options{})
	perHeap := func() []uint64 {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		return slices.Clone(c.memory.perHeap)
	}
	none := make([]uint64, len(c.facts.Heaps))
	require.Equal(t, none, perHeap())
	for range 2 {
		want := slices.Clone(none)
		var buffers []*Buffer
		for _, kind := range []vk.MemoryKind{vk.DeviceLocal, vk.Upload, vk.Readback} {
			b, err := c.Alloc("x", 5000, kind)
			require.NoError(t, err)
			want[c.heapFor(kind)] += b.AllocatedBytes()
			buffers = append(buffers, b)
		}
		require.Equal(t, want, perHeap())
		for _, b := range buffers {
			b.Close()
		}
		require.Equal(t, none, perHeap(), "freed")
	}

	// A device of made-up heaps.
	facts := *c.facts
	facts.Heaps = []vk.Heap{{Size: 1000, DeviceLocal: true}, {Size: 700}}
	facts.MemoryTypes = []vk.MemoryType{{Heap: 0, Flags: vk.MemoryDeviceLocal},
		{Heap: 1, Flags: vk.MemoryHostVisible | vk.MemoryHostCoherent}}
	made := &Context{dev: c.dev, facts: &facts, memory: account{perHeap: []uint64{300, 100}}}
	free, known := made.leftIn(facts.Heaps, false, vk.DeviceLocal)
	require.True(t, known)
	require.EqualValues(t, 700, free)
	free, _ = made.leftIn(facts.Heaps, false, vk.Upload)
	require.EqualValues(t, 600, free)
	made.memory.perHeap[0] = 2000
	free, _ = made.leftIn(facts.Heaps, false, vk.DeviceLocal)
	require.Zero(t, free, "more than there is leaves nothing")
	free, _ = made.leftIn([]vk.Heap{{Size: 1000, Budget: 900, Usage: 850}, {}}, true, vk.DeviceLocal)
	require.EqualValues(t, 50, free, "the device's own account")
}

func TestUsageFromManyGoroutines(t *testing.T) {
	c := newContext(t, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				b, err := c.Alloc("shared", 4096, vk.DeviceLocal)
				if assert.NoError(t, err) {
					b.Close()
				}
			}
		}()
	}
	wg.Wait()
	assert.Zero(t, c.Usage().Current)
	assert.Zero(t, c.Usage().ByLabel["shared"].Buffers)
}

// TestAllocRefuses asks for more than there is in each of the ways that can fail, and checks that nothing was counted.
func TestAllocRefuses(t *testing.T) {
	c := newContext(t, Options{})
	facts := *c.facts
	c.facts = &facts // a copy to change

	refused := func(size uint64, rule string) *MemoryError {
		t.Helper()
		_, err := c.Alloc("too much", size, vk.DeviceLocal)
		var m *MemoryError
		require.ErrorAs(t, err, &m)
		assert.Equal(t, "too much", m.Label)
		assert.Equal(t, size, m.Needed)
		assert.Contains(t, m.Error(), rule)
		assert.Zero(t, c.Usage().Current)
		return m
	}
	refused(math.MaxUint64, "the device's largest")
	refused(facts.Limits.MaxBufferSize+1, "the device's largest buffer")

	facts.Limits.MaxBufferSize, facts.Limits.MaxAllocationSize = 0, 5000
	m := refused(5001, "the device's largest allocation")
	assert.Equal(t, uint64(5000), m.Available)
	b, err := c.Alloc("fits", 5000, vk.DeviceLocal)
	require.NoError(t, err)
	b.Close()

	facts.Limits.MaxAllocationSize = math.MaxUint64
	free, known := c.free(vk.DeviceLocal)
	require.True(t, known)
	m = refused(free+(1<<30), "free in the device's memory")
	assert.InDelta(t, float64(free), float64(m.Available), 4e9)

	facts.Limits.MaxAllocationCount = 1
	b, err = c.Alloc("one", 64, vk.DeviceLocal)
	require.NoError(t, err)
	_, err = c.Alloc("two", 64, vk.DeviceLocal)
	require.ErrorAs(t, err, &m)
	b.Close()

	var arg *ArgumentError
	_, err = c.Alloc("", 64, vk.DeviceLocal)
	assert.ErrorAs(t, err, &arg)
	_, err = c.Alloc("nothing", 0, vk.DeviceLocal)
	assert.ErrorAs(t, err, &arg)
}

func TestMemoryErrorUnwraps(t *testing.T) {
	err := error(&MemoryError{Label: "x", Needed: 2 << 30, Available: 1 << 30, Rule: "free", Err: vk.ErrOutOfDeviceMemory})
	assert.ErrorIs(t, err, vk.ErrOutOfDeviceMemory)
	assert.Equal(t,
		`pipeline: allocating "x" needs 2147483648 bytes (2 GiB), but 1073741824 bytes (1 GiB) are free: VK_ERROR_OUT_OF_DEVICE_MEMORY`,
		err.Error())
}

// TestTransfers moves data of awkward sizes at awkward offsets through a small staging ring, so that it goes round many times.
func TestTransfers(t *testing.T) {
	c := newContext(t, Options{StagingBytes: 64 << 10})
	const room = 1 << 20
	b, err := c.Alloc("data", room, vk.DeviceLocal)
	require.NoError(t, err)
	ctx := context.Background()
	all := asBytes(pattern(room/4, 11))
	require.NoError(t, c.Upload(ctx, b.All(), all))
	for _, part := range []struct{ off, n uint64 }{{0, room}, {1, 1}, {3, 65536}, {65535, 65537}, {77, 300001}, {room - 1, 1}} {
		got := make([]byte, part.n)
		require.NoError(t, c.Download(ctx, b.Range(part.off, part.n), got))
		require.Equal(t, all[part.off:part.off+part.n], got, "offset %d", part.off)
	}
	for i := range all[1001:201002] {
		all[1001+i] ^= 0xff
	}
	require.NoError(t, c.Upload(ctx, b.Range(1001, 200001), all[1001:201002]))
	got := make([]byte, room)
	require.NoError(t, c.Download(ctx, b.All(), got))
	assert.Equal(t, all, got)

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	assert.ErrorIs(t, c.Upload(cancelled, b.All(), make([]byte, room)), context.Canceled)
	require.NoError(t, c.Download(ctx, b.All(), got))
	assert.Equal(t, all, got, "a cancelled upload touches nothing")
	assert.ErrorIs(t, c.Download(cancelled, b.All(), got), context.Canceled)

	var arg *ArgumentError
	assert.ErrorAs(t, c.Upload(ctx, b.All(), make([]byte, 5)), &arg)
	assert.ErrorAs(t, c.Upload(ctx, Binding{}, nil), &arg)
	assert.ErrorAs(t, c.Download(ctx, b.Range(room, 4), make([]byte, 4)), &arg)
	b.Close()
	assert.ErrorAs(t, c.Download(ctx, Binding{Buffer: b.Buffer, Size: 4}, make([]byte, 4)), &arg)
}

// TestTransfersAfterFailedWait: a copy that could not be waited for fails its transfer, which leaves the caller's memory alone from then
// on. Later ones wait for it again: they work once that does, also where they need a larger buffer, and Close frees nothing under it.
func TestTransfersAfterFailedWait(t *testing.T) {
	f := vk.NewFaults()
	c, err := New(vktest.Open(t, vktest.Options{Faults: f}), Options{NoDiskCache: true})
	require.NoError(t, err)
	const small, room = 64 << 10, 1 << 20
	b, err := c.Alloc("data", room, vk.DeviceLocal)
	require.NoError(t, err)
	ctx := context.Background()
	all, part := asBytes(pattern(room/4, 11)), asBytes(pattern(small/4, 12))
	failing := func(call func() error) { // the host has no memory to wait with, neither for the copy nor for the device
		t.Helper()
		require.NoError(t, f.Arm("wait", 1, 0))
		require.NoError(t, f.Arm("idle", 1, 0))
		require.ErrorIs(t, call(), vk.ErrOutOfHostMemory)
		f.Disarm()
	}
	up := func() error { return c.Upload(ctx, b.Range(0, small), part) }
	failing(up)
	failing(up) // of the first one again
	require.NoError(t, up())
	failing(up)
	require.NoError(t, c.Upload(ctx, b.All(), all))

	got := make([]byte, room)
	failing(func() error { return c.Download(ctx, b.Range(0, small), got[:small]) })
	require.NoError(t, c.Download(ctx, b.Range(small, small), got[small:2*small]))
	require.Equal(t, make([]byte, small), got[:small], "the caller's again")
	require.Equal(t, all[small:2*small], got[small:2*small])
	require.NoError(t, c.Download(ctx, b.All(), got))
	require.Equal(t, all, got)

	failing(up)
	require.NoError(t, f.Arm("wait", 1, 0))
	require.NoError(t, f.Arm("idle", 1, 0))
	require.NoError(t, c.Close())
	f.Disarm()
	require.Zero(t, c.Usage().Current)
}

// TestTransfersSynchroniseTheHost counts what memory that is not coherent depends on: one flush of each chunk before the device
// copies it, one invalidation of each before the host does, and a failure of either told.
func TestTransfersSynchroniseTheHost(t *testing.T) {
	c := newContext(t, Options{StagingBytes: 64 << 10})
	same := func(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	require.True(t, same(c.upload.sync, (*vk.Buffer).Flush))
	require.True(t, same(c.down.sync, (*vk.Buffer).Invalidate))

	var flushed, invalidated []uint64
	var failing error
	count := func(sizes *[]uint64, kind vk.MemoryKind) func(*vk.Buffer, uint64, uint64) error {
		return func(b *vk.Buffer, offset, size uint64) error {
			assert.Equal(t, kind, b.Kind())
			assert.Zero(t, offset)
			*sizes = append(*sizes, size)
			return failing
		}
	}
	c.upload.sync, c.down.sync = count(&flushed, vk.Upload), count(&invalidated, vk.Readback)
	const room = 3*64<<10 - 100
	b, err := c.Alloc("data", room, vk.DeviceLocal)
	require.NoError(t, err)
	data := make([]byte, room)
	chunks := []uint64{64 << 10, 64 << 10, 64<<10 - 100}
	require.NoError(t, c.Upload(context.Background(), b.All(), data))
	assert.Equal(t, chunks, flushed)
	assert.Empty(t, invalidated)
	require.NoError(t, c.Download(context.Background(), b.All(), data))
	assert.Equal(t, chunks, flushed)
	assert.ElementsMatch(t, chunks, invalidated)
	failing = vk.ErrOutOfHostMemory
	assert.ErrorIs(t, c.Upload(context.Background(), b.All(), data), failing)
	assert.ErrorIs(t, c.Download(context.Background(), b.All(), data), failing)
}

// TestTransferCancelledHalfWay cancels between two chunks: the error comes back and the ring works afterwards.
func TestTransferCancelledHalfWay(t *testing.T) {
	c := newContext(t, Options{StagingBytes: 64 << 10})
	const room = 8 * 64 << 10
	b, err := c.Alloc("data", room, vk.DeviceLocal)
	require.NoError(t, err)
	ctx := &countdown{Context: context.Background(), left: 3}
	assert.ErrorIs(t, c.Upload(ctx, b.All(), make([]byte, room)), errStopped)
	in := asBytes(pattern(room/4, 1))
	require.NoError(t, c.Upload(context.Background(), b.All(), in))
	got := make([]byte, room)
	require.NoError(t, c.Download(context.Background(), b.All(), got))
	assert.Equal(t, in, got)
}

var errStopped = errors.New("stopped")

// countdown is a context that is cancelled at the given look at it.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return errStopped
	}
	return nil
}
