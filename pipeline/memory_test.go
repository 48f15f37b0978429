package pipeline

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	assert.Equal(t, `pipeline: allocating "x" needs 2147483648 bytes (2 GiB), but 1073741824 bytes (1 GiB) are free: VK_ERROR_OUT_OF_DEVICE_MEMORY`, err.Error())
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
