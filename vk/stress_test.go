package vk_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// stressTime is how long the stress test runs: VKATTN_STRESS, a duration, or two seconds.
func stressTime(t *testing.T) time.Duration {
	if s := os.Getenv("VKATTN_STRESS"); s != "" {
		d, err := time.ParseDuration(s)
		require.NoError(t, err)
		return d
	}
	if testing.Short() {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

// Goroutines allocate while the collector runs all the time and others make pipelines, update descriptors, record barriers,
// submit and check every result. Whatever C kept of Go memory would be overwritten by now.
func TestStress(t *testing.T) {
	dev := vktest.Device(t)
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	stop := make(chan struct{})
	var wait sync.WaitGroup
	var first atomic.Pointer[error]
	fail := func(err error) bool {
		if err != nil {
			first.CompareAndSwap(nil, &err)
		}
		return first.Load() != nil
	}
	loop := func(step func(i uint32) error) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := uint32(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if fail(step(i)) {
					return
				}
			}
		}()
	}

	var garbage [4][]byte
	for g := range garbage {
		loop(func(i uint32) error {
			garbage[g] = make([]byte, 1+rand.IntN(1<<14))
			for j := range garbage[g] {
				garbage[g][j] = 0xa5
			}
			if i%64 == 0 {
				runtime.GC()
			}
			return nil
		})
	}
	cache, err := dev.NewPipelineCache(nil)
	require.NoError(t, err)
	var pipelines, runs, updates atomic.Int64
	for range 2 {
		loop(func(i uint32) error {
			info := affineInfo(1 + i%3)
			info.Name = string(append([]byte("pipeline "), byte('a'+i%26)))
			if i%2 == 0 {
				info.Cache = cache
			}
			p, err := dev.NewComputePipeline(info)
			if err != nil {
				return err
			}
			pipelines.Add(1)
			if i%100 == 0 {
				if _, err := cache.Data(); err != nil {
					return err
				}
			}
			return p.Close()
		})
	}
	for g := range uint32(2) {
		r := newRig(t, dev, 501+g, 3+g)
		r.upload(t)
		loop(func(i uint32) error {
			size := [2]uint64{r.x.Size(), r.x.Capacity()}[i%2] // so that every update changes something
			err := dev.UpdateDescriptors(r.set, []vk.BufferBinding{{Buffer: r.x, Size: size}, {Buffer: r.y, Size: size}})
			if err != nil {
				return err
			}
			updates.Add(1)
			r.encode(args(r.n, i))
			if err := r.run(); err != nil {
				return err
			}
			if err := r.down.Invalidate(0, vk.WholeSize); err != nil {
				return err
			}
			got := words(r.down)
			for j := range r.n {
				if got[j] != (3+g)*j+i {
					return errors.New("a wrong result")
				}
			}
			runs.Add(1)
			return nil
		})
	}
	loop(func(i uint32) error {
		b, err := dev.NewBuffer(uint64(1+rand.IntN(1<<16)), vk.MemoryKind(i%3))
		if err != nil {
			return err
		}
		if m := b.Mapped(); m != nil {
			m[len(m)-1] = 1
			if err := b.Flush(0, vk.WholeSize); err != nil {
				return err
			}
		}
		return b.Close()
	})

	time.Sleep(stressTime(t))
	close(stop)
	wait.Wait()
	if e := first.Load(); e != nil {
		t.Fatal(*e)
	}
	t.Logf("%d pipelines, %d descriptor updates, %d runs", pipelines.Load(), updates.Load(), runs.Load())
	require.Positive(t, pipelines.Load())
	require.Positive(t, runs.Load())
}

// Encoding, recording and submitting allocate nothing once warm, whatever is in the stream.
func TestNoAllocations(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{NoValidation: true}) // the layer calls back into Go when it has something to say
	r := newRig(t, dev, 64, 1)
	r.upload(t)
	push := args(64, 1)
	bindings := []vk.BufferBinding{{Buffer: r.x, Size: r.x.Capacity()}, {Buffer: r.y, Size: r.y.Capacity()}}
	var ticks [2]uint64
	var err error
	step := func() {
		if e := dev.UpdateDescriptors(r.set, bindings); e != nil {
			err = e
		}
		r.encode(push)
		if e := r.run(); e != nil {
			err = e
		}
		if r.queries != nil {
			if e := r.queries.Results(0, ticks[:]); e != nil {
				err = e
			}
		}
		if e := r.down.Invalidate(0, vk.WholeSize); e != nil {
			err = e
		}
	}
	step()
	n := testing.AllocsPerRun(100, step)
	require.NoError(t, err)
	if !vktest.Race {
		require.Zero(t, n, "allocations per run")
	}
	r.check(t, 1, 1)
}

// Close while others wait, submit and create: each gets its result or ErrClosed, and Close does not wait for a fence that
// never comes.
func TestCloseWhileUsed(t *testing.T) {
	for range 3 {
		dev := vktest.Device(t)
		fence, err := dev.NewFence(false)
		require.NoError(t, err)
		var wait sync.WaitGroup
		errs := make([]error, 3)
		wait.Add(len(errs))
		go func() { defer wait.Done(); errs[0] = fence.Wait(-1) }()
		go func() {
			defer wait.Done()
			for errs[1] == nil {
				errs[1] = dev.Queue().Submit(vk.Submission{})
			}
		}()
		go func() {
			defer wait.Done()
			for errs[2] == nil {
				_, errs[2] = dev.NewBuffer(100, vk.Upload)
			}
		}()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, dev.Close())
		wait.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, vk.ErrClosed)
		}
	}
}

func TestPipelineCache(t *testing.T) {
	dev := vktest.Device(t)
	a, err := dev.NewPipelineCache(nil)
	require.NoError(t, err)
	info := affineInfo(2)
	info.Cache = a
	p, err := dev.NewComputePipeline(info)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	data, err := a.Data()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(data), 32, "the header alone has 32 bytes")
	uuid := dev.Facts().PipelineCacheUUID
	require.Equal(t, uuid[:], data[16:32])
	b, err := dev.NewPipelineCache(data)
	require.NoError(t, err)
	require.NoError(t, b.Merge(a))
	refuses(t, "others", b.Merge(b))
	require.NoError(t, a.Close())
	require.Error(t, b.Merge(a))
	info.Cache = b
	p, err = dev.NewComputePipeline(info)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, b.Close())
	_, err = b.Data()
	require.ErrorIs(t, err, vk.ErrClosed)
	_, err = dev.NewComputePipeline(info)
	require.ErrorIs(t, err, vk.ErrClosed)
}

func TestPipelineStats(t *testing.T) {
	dev := vktest.Device(t)
	if !dev.Enabled().PipelineExecutableInfo {
		t.Skip("the device does not describe its pipelines")
	}
	info := affineInfo(2)
	info.CaptureStats = true
	p, err := dev.NewComputePipeline(info)
	require.NoError(t, err)
	stats, err := p.Stats()
	require.NoError(t, err)
	t.Logf("%+v", stats)
	require.NotEmpty(t, stats)
	q, err := dev.NewComputePipeline(affineInfo(3))
	require.NoError(t, err)
	_, err = q.Stats()
	refuses(t, "pipeline", err)
}

// Subgroup sizes that the device offers can be required; the driver's rules on them are checked by the layer.
func TestRequiredSubgroupSize(t *testing.T) {
	dev := vktest.Device(t)
	sub := dev.Facts().Subgroup
	if !dev.Enabled().SubgroupSizeControl || !sub.RequiredSizeCompute {
		t.Skip("the device cannot be asked for a subgroup size")
	}
	for size := sub.Min; size <= sub.Max; size *= 2 {
		info := affineInfo(2)
		info.SubgroupSize = size
		info.FullSubgroups = dev.Enabled().ComputeFullSubgroups
		p, err := dev.NewComputePipeline(info)
		require.NoError(t, err)
		require.NotZero(t, p.Handle())
	}
}

// Recording into a warm stream and executing it: what one dispatch with bind, push constants and barrier costs the host.
func BenchmarkExecute(b *testing.B) {
	dev := vktest.Open(b, vktest.Options{NoValidation: true})
	r := newRig(b, dev, 64, 1)
	push := args(64, 1)
	const dispatches = 64
	b.ReportAllocs()
	for b.Loop() {
		r.stream.Reset()
		for range dispatches {
			r.stream.Bind(r.pipeline, r.set)
			r.stream.Push(push)
			r.stream.Dispatch(1, 1, 1)
			r.stream.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageCompute, vk.AccessShaderRead)
		}
		if r.cmd.Begin(true) != nil || r.cmd.Execute(&r.stream) != nil || r.cmd.End() != nil {
			b.Fatal("recording failed")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/dispatches, "ns/dispatch")
}
