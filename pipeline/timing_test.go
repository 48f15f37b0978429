package pipeline

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

func TestTimings(t *testing.T) {
	c := newContext(t, Options{})
	if !c.HasTimestamps() {
		t.Skip("the queue has no timestamps")
	}
	const n = 16 * 1024
	a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
	k := mixKernel(t, c, 3)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 3, MaxBindings: 4, Timestamps: true})
	require.True(t, r.HasTimestamps())
	_, err := r.Timings()
	assert.ErrorIs(t, err, ErrNoTimestamps, "nothing recorded")
	chain(t, r, k, a, b, n, 1, 5)
	short := mixArgs{n: n, spin: 5000}
	require.NoError(t, r.Dispatch(k, []Access{{b.All(), Read}, {a.All(), Write}}, short.bytes(), groupsFor(n), "long"))
	require.NoError(t, r.Fill(b.All(), 1, "fill"))
	runAndWait(t, c, r) // a CPU's driver makes machine code in the first run
	step, long := math.Inf(1), math.Inf(1)
	for range 3 {
		start := time.Now()
		p := runAndWait(t, c, r)
		wall := time.Since(start)
		require.True(t, p.HasTimestamps())
		ts := p.Timings()
		require.Len(t, ts, 3)
		assert.Equal(t, []string{"step", "long", "fill"}, []string{ts[0].Label, ts[1].Label, ts[2].Label})
		sum := 0.0
		for _, x := range ts {
			assert.GreaterOrEqual(t, x.GPUns, 0.0)
			sum += x.GPUns
		}
		step, long = min(step, ts[0].GPUns), min(long, ts[1].GPUns)
		whole, err := p.Nanoseconds()
		require.NoError(t, err)
		assert.InDelta(t, sum, whole, 1, "the parts add up")
		assert.Less(t, whole, float64(wall.Nanoseconds()))
		assert.Positive(t, whole)
	}
	assert.Greater(t, long, step, "a thousand times the work")
}

// TestNoTimestamps takes the path of a queue whose timestampValidBits is 0.
func TestNoTimestamps(t *testing.T) {
	c := newContext(t, Options{})
	c.timestampBits = 0
	assert.False(t, c.HasTimestamps())
	a, b := alloc(t, c, "a", 64), alloc(t, c, "b", 64)
	in := pattern(64, 2)
	upload(t, c, a, in)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 2, MaxBindings: 4, Timestamps: true})
	assert.False(t, r.HasTimestamps())
	chain(t, r, mixKernel(t, c, 3), a, b, 64, 2, 0)
	p := runAndWait(t, c, r)
	assert.False(t, p.HasTimestamps())
	assert.Nil(t, p.Timings())
	_, err := p.Nanoseconds()
	assert.ErrorIs(t, err, ErrNoTimestamps)
	assert.Equal(t, chainWant(in, 2, 0, 3), download(t, c, a, 64))
}

// BenchmarkRecordSubmit is the host's cost of running a plan again: record with new bindings, submit, wait. The part until
// Submit returns is reported as ns of CPU.
func BenchmarkRecordSubmit(b *testing.B) {
	c := newContext(b, Options{})
	x, y := alloc(b, c, "x", 64), alloc(b, c, "y", 64)
	k := mixKernel(b, c, 3)
	r := newRecording(b, c, RecordingInfo{MaxDispatches: 1, MaxBindings: 2})
	args := mixArgs{n: 64}
	ctx := context.Background()
	var host time.Duration
	once := func(i int) {
		src, dst := x, y
		if i%2 == 1 {
			src, dst = y, x
		}
		start := time.Now()
		if err := r.Reset(); err != nil {
			b.Fatal(err)
		}
		if err := r.Dispatch(k, []Access{{src.All(), Read}, {dst.All(), Write}}, args.bytes(), [3]uint32{1, 1, 1}, "mix"); err != nil {
			b.Fatal(err)
		}
		p, err := c.Submit(r)
		if err != nil {
			b.Fatal(err)
		}
		host += time.Since(start)
		if err := p.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 4 {
		once(i)
	}
	host = 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		once(i)
	}
	b.ReportMetric(float64(host.Nanoseconds())/float64(b.N), "host-ns/op")
}

// TestRecordSubmitDoesNotAllocate holds the benchmark's promise.
func TestRecordSubmitDoesNotAllocate(t *testing.T) {
	c := newContext(t, Options{})
	x, y := alloc(t, c, "x", 64), alloc(t, c, "y", 64)
	k := mixKernel(t, c, 3)
	r := newRecording(t, c, RecordingInfo{MaxDispatches: 4, MaxBindings: 4, Timestamps: true})
	args := mixArgs{n: 64}
	ctx := context.Background()
	var failed error
	keep := func(err error) {
		if err != nil {
			failed = err
		}
	}
	once := func() {
		keep(r.Reset())
		keep(r.Prior(x.All(), DefaultPrior))
		keep(r.Next(y.All(), DefaultNext))
		keep(r.Fill(y.All(), 1, "fill"))
		keep(r.Dispatch(k, []Access{{x.All(), Read}, {y.All(), Write}}, args.bytes(), [3]uint32{1, 1, 1}, "mix"))
		x, y = y, x
		p, err := c.Submit(r)
		keep(err)
		keep(p.Wait(ctx))
		_, err = p.Nanoseconds()
		keep(err)
		p.Timings()
	}
	once()
	once()
	n := testing.AllocsPerRun(50, once)
	require.NoError(t, failed)
	if !vktest.Race {
		assert.Zero(t, n)
	}
}
