package vk

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Facts of devices that are not at hand: ticks of other lengths, timestamps of fewer bits, memory that is not coherent.

// pretending gives a device of made-up facts, on which nothing runs.
func pretending(period float64, validBits uint32, atom uint64) *Device {
	return &Device{facts: &Facts{Limits: Limits{TimestampPeriod: period, NonCoherentAtomSize: atom}}, queue: Queue{validBits: validBits}}
}

func TestNanoseconds(t *testing.T) {
	const top = ^uint64(0)
	for _, c := range []struct {
		period   float64
		bits     uint32
		from, to uint64
		want     float64
	}{
		{1, 64, 1000, 1700, 700},
		{52.083, 36, 1000, 1100, 5208.3}, // Intel
		{10, 64, 1000, 1100, 1000},       // AMD
		{1, 64, top - 9, 10, 20},         // the counter passes its end
		{52.083, 36, 1<<36 - 10, 10, 20 * 52.083},
		{10, 48, 1<<48 - 1, 0, 10},
		{52.083, 32, 5, 5, 0},
		{2, 36, top, 5, 12}, // bits that are not valid may hold anything
		{2, 36, 5, 1<<40 | 7, 4},
	} {
		p := &QueryPool{}
		p.init(pretending(c.period, c.bits, 1), 1)
		require.InDelta(t, c.want, p.Nanoseconds(c.from, c.to), 1e-9, "%+v", c)
	}
}

// validated opens the machine's first device, with messages of the validation layer in a list.
func validated(t *testing.T) (*Device, func() []Message) {
	t.Helper()
	var mu sync.Mutex
	var got []Message
	in, err := NewInstance(InstanceOptions{Validation: true, OnMessage: func(m Message) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	}})
	if errors.Is(err, ErrLayerMissing) && os.Getenv("VKATTN_REQUIRE_VALIDATION") != "1" {
		t.Skip(err)
	}
	if err != nil && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	devices, err := in.PhysicalDevices()
	require.NoError(t, err)
	require.NotEmpty(t, devices)
	d, err := devices[0].Open(DeviceOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, func() []Message {
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}
}

// TestTimestampsHaveValidBits: what a queue leaves in the other bits is not read.
func TestTimestampsHaveValidBits(t *testing.T) {
	d, messages := validated(t)
	if d.queue.validBits < 8 {
		t.Skip("the queue has no timestamps")
	}
	q, err := d.NewQueryPool(1)
	require.NoError(t, err)
	pool, err := d.NewCommandPool()
	require.NoError(t, err)
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	fence, err := d.NewFence(false)
	require.NoError(t, err)
	var s Stream
	s.ResetQueries(q, 0, 1)
	s.WriteTimestamp(q, 0, StageCompute)
	require.NoError(t, cmd.Begin(true))
	require.NoError(t, cmd.Execute(&s))
	require.NoError(t, cmd.End())
	require.NoError(t, d.Queue().Submit(Submission{Commands: []*CommandBuffer{cmd}, Fence: fence}))
	require.NoError(t, fence.Wait(time.Minute))
	all, few := []uint64{0}, []uint64{0}
	require.NoError(t, q.Results(0, all))
	require.Greater(t, all[0], uint64(255))
	d.queue.validBits = 8
	require.NoError(t, q.Results(0, few))
	require.Equal(t, all[0]&255, few[0])
	require.Empty(t, messages())
}

// TestSyncCountsAtoms: memory that is not coherent is flushed and invalidated in whole atoms, coherent memory never.
func TestSyncCountsAtoms(t *testing.T) {
	b := &Buffer{size: 250, capacity: 256, allocated: 1024, mapped: make([]byte, 256), kind: Upload}
	b.init(pretending(1, 64, 64), 1)
	var calls [][2]uint64
	failing := errors.New("no memory")
	count := func(offset, size uint64) error {
		calls = append(calls, [2]uint64{offset, size})
		return failing
	}
	for _, c := range []struct{ offset, size, first, n uint64 }{
		{0, 4, 0, 64}, {65, 1, 64, 64}, {60, 8, 0, 128}, {64, WholeSize, 64, 192}, {0, 256, 0, 256}, {250, 6, 192, 64},
	} {
		calls = nil
		require.ErrorIs(t, b.sync("Flush", c.offset, c.size, count), failing)
		require.Equal(t, [][2]uint64{{c.first, c.n}}, calls, "%+v", c)
	}
	calls = nil
	require.NoError(t, b.sync("Flush", 0, 0, count))
	require.NoError(t, b.sync("Flush", 256, WholeSize, count))
	b.coherent = true
	require.NoError(t, b.sync("Flush", 0, 4, count))
	require.Empty(t, calls, "nothing to do")
}

// TestSyncReachesTheDriver: the calls themselves are made. Their ranges are right where the device's own atoms are known; with
// the size of atoms made up as a byte the validation layer objects.
func TestSyncReachesTheDriver(t *testing.T) {
	d, messages := validated(t)
	if d.facts.Limits.NonCoherentAtomSize < 16 {
		t.Skip("the device's atoms are smaller than what a wrong range is off by")
	}
	for kind, sync := range map[MemoryKind]func(b *Buffer, offset, size uint64) error{Upload: (*Buffer).Flush,
		Readback: (*Buffer).Invalidate} {
		b, err := d.NewBuffer(4096, kind)
		require.NoError(t, err)
		b.coherent = false // a flush of coherent memory is allowed
		require.NoError(t, sync(b, 4, 4))
		require.NoError(t, sync(b, 4000, WholeSize))
		require.Empty(t, messages())

		facts := d.facts
		wrong := *facts
		wrong.Limits.NonCoherentAtomSize = 1
		d.facts = &wrong
		_ = sync(b, 4, 4)
		d.facts = facts
		found := messages()
		require.NotEmpty(t, found)
		require.Contains(t, found[0].ID, "VkMappedMemoryRange", "%v", found)
		require.NoError(t, b.Close())
	}
}
