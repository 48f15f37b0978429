package vk_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// refuses checks that err names the argument, and that it was refused rather than passed on to the driver.
func refuses(t *testing.T, name string, err error) {
	t.Helper()
	var arg *vk.ArgumentError
	require.ErrorAs(t, err, &arg)
	require.Equal(t, name, arg.Name)
	require.NotEmpty(t, arg.Rule)
}

func TestBadBuffers(t *testing.T) {
	dev := vktest.Device(t)
	_, err := dev.NewBuffer(0, vk.DeviceLocal)
	refuses(t, "size", err)
	_, err = dev.NewBuffer(math.MaxUint64, vk.DeviceLocal)
	refuses(t, "size", err)
	_, err = dev.NewBuffer(dev.Facts().Limits.MaxAllocationSize+1, vk.Upload)
	refuses(t, "size", err)
	_, err = dev.NewBuffer(16, vk.MemoryKind(7))
	refuses(t, "kind", err)
	_, err = dev.WrapBuffer(0, 16)
	refuses(t, "handle", err)
	_, err = dev.WrapBuffer(1, 0)
	refuses(t, "size", err)

	b, err := dev.NewBuffer(17, vk.Upload)
	require.NoError(t, err)
	require.EqualValues(t, 17, b.Size())
	require.EqualValues(t, 32, b.Capacity())
	require.Len(t, b.Mapped(), 32)
	require.GreaterOrEqual(t, b.AllocatedBytes(), uint64(32))
	require.NoError(t, b.Flush(0, 32))
	require.NoError(t, b.Flush(5, vk.WholeSize))
	refuses(t, "range", b.Flush(0, 33))
	refuses(t, "range", b.Invalidate(33, 0))
	local, err := dev.NewBuffer(16, vk.DeviceLocal)
	require.NoError(t, err)
	require.Nil(t, local.Mapped())
	refuses(t, "buffer", local.Flush(0, 16))
}

func TestBadPipelines(t *testing.T) {
	dev := vktest.Device(t)
	other := vktest.Device(t)
	foreign, err := other.NewPipelineCache(nil)
	require.NoError(t, err)
	f := dev.Facts()
	for name, change := range map[string]func(*vk.PipelineInfo){
		"Code":      func(i *vk.PipelineInfo) { i.Code = []uint32{1, 2, 3, 4, 5, 6} },
		"Bindings":  func(i *vk.PipelineInfo) { i.Bindings = -1 },
		"PushBytes": func(i *vk.PipelineInfo) { i.PushBytes = int(f.Limits.MaxPushConstants) + 4 },
		"Spec":      func(i *vk.PipelineInfo) { i.Spec = append(i.Spec, i.Spec[0]) },
		"Cache":     func(i *vk.PipelineInfo) { i.Cache = foreign },
	} {
		i := affineInfo(1)
		change(&i)
		_, err := dev.NewComputePipeline(i)
		refuses(t, name, err)
	}
	if dev.Enabled().SubgroupSizeControl {
		i := affineInfo(1)
		i.SubgroupSize = 3
		_, err := dev.NewComputePipeline(i)
		refuses(t, "SubgroupSize", err)
		i.SubgroupSize = 2 * f.Subgroup.Max
		_, err = dev.NewComputePipeline(i)
		refuses(t, "SubgroupSize", err)
	}
	if !dev.Enabled().PipelineExecutableInfo {
		i := affineInfo(1)
		i.CaptureStats = true
		_, err := dev.NewComputePipeline(i)
		require.ErrorIs(t, err, vk.ErrUnsupported)
	}
}

func TestBadDescriptors(t *testing.T) {
	dev := vktest.Device(t)
	r := newRig(t, dev, 64, 1)
	_, err := dev.NewDescriptorPool(0, 1)
	refuses(t, "sets", err)
	_, err = dev.NewDescriptorPool(1, 0)
	refuses(t, "storageBuffers", err)
	_, err = r.pool.Allocate(nil)
	refuses(t, "pipeline", err)
	full := vk.BufferBinding{Buffer: r.x, Size: 256}
	update := func(b ...vk.BufferBinding) error { return dev.UpdateDescriptors(r.set, b) }
	require.NoError(t, update(full, full))
	refuses(t, "len(b)", update(full))
	refuses(t, "b[1].Buffer", update(full, vk.BufferBinding{Size: 4}))
	refuses(t, "b[0].Offset", update(vk.BufferBinding{Buffer: r.x, Offset: 1, Size: 4}, full))
	refuses(t, "b[0].Offset", update(vk.BufferBinding{Buffer: r.x, Offset: 256, Size: 4}, full))
	refuses(t, "b[1].Size", update(full, vk.BufferBinding{Buffer: r.x, Size: 257}))
	refuses(t, "b[1].Size", update(full, vk.BufferBinding{Buffer: r.x}))
	refuses(t, "set", dev.UpdateDescriptors(vk.DescriptorSet{}, nil))
	require.NoError(t, r.pool.Reset())
	refuses(t, "set", update(full, full))
}

func TestBadStreams(t *testing.T) {
	dev := vktest.Device(t)
	r := newRig(t, dev, 64, 1)
	for _, c := range []struct {
		name string
		do   func(*vk.Stream)
	}{
		{"pipeline", func(s *vk.Stream) { s.Bind(nil, r.set) }},
		{"set", func(s *vk.Stream) { s.Bind(r.pipeline, vk.DescriptorSet{}) }},
		{"pipeline", func(s *vk.Stream) { s.Push(args(1, 1)) }},
		{"pipeline", func(s *vk.Stream) { s.Dispatch(1, 1, 1) }},
		{"x, y, z", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.Dispatch(1, 0, 1) }},
		{"x, y, z", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.Dispatch(1, math.MaxUint32, 1) }},
		{"pipeline", func(s *vk.Stream) { s.DispatchIndirect(r.x, 0) }},
		{"groups", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.DispatchIndirect(nil, 0) }},
		{"groups", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.DispatchIndirect(r.x, 2) }},
		{"groups", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.DispatchIndirect(r.x, r.x.Capacity()-8) }},
		{"groups", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.DispatchIndirect(r.x, math.MaxUint64-3) }},
		{"len(data)", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.Push(make([]byte, 12)) }},
		{"len(data)", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.Push(make([]byte, 3)) }},
		{"len(data)", func(s *vk.Stream) { s.Bind(r.pipeline, r.set); s.Push(nil) }},
		{"srcStage, dstStage", func(s *vk.Stream) { s.Barrier(0, 0, vk.StageCompute, vk.AccessShaderRead) }},
		{"dst", func(s *vk.Stream) { s.Copy(nil, 0, r.x, 0, 4) }},
		{"src", func(s *vk.Stream) { s.Copy(r.y, 0, r.x, 250, 8) }},
		{"dst", func(s *vk.Stream) { s.Copy(r.y, math.MaxUint64, r.x, 0, 8) }},
		{"dstOffset", func(s *vk.Stream) { s.Copy(r.x, 4, r.x, 0, 8) }},
		{"size", func(s *vk.Stream) { s.Copy(r.y, 0, r.x, 0, vk.WholeSize) }},
		{"range", func(s *vk.Stream) { s.Fill(vk.BufferRange{Buffer: r.x, Offset: 2, Size: 4}, 0) }},
		{"range", func(s *vk.Stream) { s.Fill(vk.BufferRange{Buffer: r.x, Size: 0}, 0) }},
		{"query", func(s *vk.Stream) { s.ResetQueries(r.queries, 1, 2) }},
		{"pool", func(s *vk.Stream) { s.WriteTimestamp(nil, 0, vk.StageCompute) }},
		{"label", func(s *vk.Stream) { s.EndLabel() }},
	} {
		var s vk.Stream
		c.do(&s)
		refuses(t, c.name, s.Err())
		n := s.Len()
		first := s.Err()
		s.Fill(vk.BufferRange{Buffer: r.x, Size: 4}, 0)
		s.Bind(r.pipeline, r.set)
		s.Dispatch(1, 1, 1)
		s.Copy(nil, 0, nil, 0, 0)
		require.Same(t, first, s.Err(), "the first error sticks")
		require.LessOrEqual(t, s.Len(), n+8)
		require.NoError(t, r.cmd.Begin(true))
		require.Same(t, first, r.cmd.Execute(&s))
		s.Reset()
		require.NoError(t, s.Err())
		require.NoError(t, r.cmd.End())
	}
	var s vk.Stream
	s.Label("open")
	require.NoError(t, r.cmd.Begin(true))
	refuses(t, "stream", r.cmd.Execute(&s))
}

func TestBadStates(t *testing.T) {
	dev := vktest.Device(t)
	r := newRig(t, dev, 64, 1)
	r.upload(t)
	r.encode(args(64, 0))
	submit := func() error {
		return dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{r.cmd}, Fence: r.fence})
	}
	refuses(t, "command buffer", r.cmd.Execute(&r.stream))
	refuses(t, "command buffer", r.cmd.End())
	refuses(t, "Commands[0]", submit())
	require.NoError(t, r.cmd.Begin(true))
	refuses(t, "command buffer", r.cmd.Begin(true))
	refuses(t, "Commands[0]", submit())
	require.NoError(t, r.cmd.Execute(&r.stream))
	require.NoError(t, r.cmd.End())
	require.NoError(t, submit())
	require.NoError(t, r.fence.Wait(-1))
	require.NoError(t, r.fence.Reset())
	refuses(t, "Commands[0]", submit()) // begun for one submission
	require.NoError(t, r.cmd.Begin(false))
	require.NoError(t, r.cmd.Execute(&r.stream))
	require.NoError(t, r.cmd.End())
	for range 2 {
		require.NoError(t, submit())
		require.NoError(t, r.fence.Wait(time.Minute))
		require.NoError(t, r.fence.Reset())
	}
	require.ErrorIs(t, r.fence.Wait(0), vk.Timeout)
	require.ErrorIs(t, r.fence.Wait(30*time.Millisecond), vk.Timeout)
	signaled, err := r.fence.Signaled()
	require.NoError(t, err)
	require.False(t, signaled)
	require.NoError(t, r.cmd.Reset())
	refuses(t, "Commands[0]", submit())
	refuses(t, "Commands[0]", dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{nil}}))
	refuses(t, "Signal[0]", dev.Queue().Submit(vk.Submission{Signal: make([]vk.TimelinePoint, 1)}))
	refuses(t, "len(Wait), len(Signal)", dev.Queue().Submit(vk.Submission{Wait: make([]vk.TimelinePoint, 33)}))

	if r.queries != nil {
		refuses(t, "first, len(dst)", r.queries.Results(1, make([]uint64, 2)))
		_, err = dev.NewQueryPool(0)
		refuses(t, "timestamps", err)
	}
}

// A device's Close takes everything along; after it, and after an object's own Close, every use is ErrClosed or refused.
func TestUseAfterClose(t *testing.T) {
	dev := vktest.Device(t)
	r := newRig(t, dev, 64, 1)
	r.upload(t)
	r.encode(args(64, 0))
	require.NoError(t, r.run())
	cache, err := dev.NewPipelineCache(nil)
	require.NoError(t, err)
	var sem *vk.TimelineSemaphore
	if dev.Enabled().TimelineSemaphore {
		sem, err = dev.NewTimelineSemaphore(0)
		require.NoError(t, err)
	}

	require.NoError(t, r.up.Close())
	require.NoError(t, r.up.Close())
	require.Nil(t, r.up.Mapped())
	require.Zero(t, r.up.Handle())
	require.ErrorIs(t, r.up.Flush(0, 4), vk.ErrClosed)
	var s vk.Stream
	s.Copy(r.x, 0, r.up, 0, 4)
	refuses(t, "src", s.Err())

	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close())
	for name, use := range map[string]func() error{
		"NewBuffer":            func() error { _, err := dev.NewBuffer(4, vk.Upload); return err },
		"WrapBuffer":           func() error { _, err := dev.WrapBuffer(1, 4); return err },
		"NewComputePipeline":   func() error { _, err := dev.NewComputePipeline(affineInfo(1)); return err },
		"NewPipelineCache":     func() error { _, err := dev.NewPipelineCache(nil); return err },
		"NewDescriptorPool":    func() error { _, err := dev.NewDescriptorPool(1, 1); return err },
		"NewCommandPool":       func() error { _, err := dev.NewCommandPool(); return err },
		"NewFence":             func() error { _, err := dev.NewFence(false); return err },
		"NewTimelineSemaphore": func() error { _, err := dev.NewTimelineSemaphore(0); return err },
		"NewQueryPool":         func() error { _, err := dev.NewQueryPool(1); return err },
		"HeapBudget":           func() error { _, err := dev.HeapBudget(); return err },
		"WaitIdle":             dev.WaitIdle,
		"Queue.WaitIdle":       dev.Queue().WaitIdle,
		"Submit":               func() error { return dev.Queue().Submit(vk.Submission{}) },
		"Fence.Wait":           func() error { return r.fence.Wait(-1) },
		"Fence.Reset":          r.fence.Reset,
		"Begin":                func() error { return r.cmd.Begin(true) },
		"Execute":              func() error { return r.cmd.Execute(&r.stream) },
		"CommandPool.Allocate": func() error { _, err := r.commands.Allocate(); return err },
		"CommandPool.Reset":    r.commands.Reset,
		"Pool.Allocate":        func() error { _, err := r.pool.Allocate(r.pipeline); return err },
		"UpdateDescriptors":    func() error { return dev.UpdateDescriptors(r.set, nil) },
		"Cache.Data":           func() error { _, err := cache.Data(); return err },
		"Invalidate":           func() error { return r.down.Invalidate(0, 4) },
		"Stats":                func() error { _, err := r.pipeline.Stats(); return err },
	} {
		require.ErrorIs(t, use(), vk.ErrClosed, name)
	}
	if sem != nil {
		_, err := sem.Value()
		require.ErrorIs(t, err, vk.ErrClosed)
	}
	for _, c := range []interface{ Close() error }{r.x, r.y, r.down, r.pipeline, r.pool, r.cmd, r.commands, r.fence, r.queries,
		cache, sem} {
		require.NoError(t, c.Close())
	}
	var none *vk.Buffer
	require.NoError(t, none.Close())
}

func TestInstanceClosed(t *testing.T) {
	in := vktest.Instance(t, vktest.Options{})
	p := vktest.PhysicalDevice(t, in)
	dev, err := p.Open(vk.DeviceOptions{})
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.NoError(t, in.Close())
	_, err = in.PhysicalDevices()
	require.ErrorIs(t, err, vk.ErrClosed)
	_, err = p.Open(vk.DeviceOptions{})
	require.ErrorIs(t, err, vk.ErrClosed)
	_, err = dev.NewFence(false)
	require.ErrorIs(t, err, vk.ErrClosed, "the instance closes its devices")
	_, err = vk.NewInstance(vk.InstanceOptions{MaxAPIVersion: vk.MakeVersion(1, 0, 0)})
	refuses(t, "MaxAPIVersion", err)
}

// A device that is full says so, and goes on.
func TestOutOfMemory(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{})
	lim := dev.Facts().Limits
	if lim.MaxAllocationCount < 1<<20 { // else a software device may hand out memory that it does not have
		t.Skip("needs a device whose memory can be asked for in few pieces")
	}
	heap := dev.Facts().Heaps[dev.DeviceHeap()]
	if heap.Size > 1<<38 {
		t.Skip("the heap is too large to fill")
	}
	size := lim.MaxAllocationSize &^ 15
	var buffers []*vk.Buffer
	var err error
	for range heap.Size/size + 2 {
		var b *vk.Buffer
		if b, err = dev.NewBuffer(size, vk.DeviceLocal); err != nil {
			break
		}
		buffers = append(buffers, b)
	}
	if err == nil {
		t.Skip("the device hands out more memory than it has")
	}
	require.ErrorIs(t, err, vk.ErrOutOfDeviceMemory)
	for _, b := range buffers {
		require.NoError(t, b.Close())
	}
	b, err := dev.NewBuffer(1<<20, vk.DeviceLocal)
	require.NoError(t, err)
	require.NoError(t, b.Close())
}
