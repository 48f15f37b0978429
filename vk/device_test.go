package vk_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
	"github.com/vkattn/vkattn/vk/internal/abi"
)

// What Vulkan requires of every device, and what must agree with itself.
func TestFacts(t *testing.T) {
	dev := vktest.Device(t)
	f := dev.Facts()
	t.Logf("%s, %s, driver %s %s, Vulkan %v", f.Name, f.Type, f.DriverName, f.DriverInfo, f.APIVersion)
	t.Logf("%+v", f.Limits)
	t.Logf("%+v", f.Subgroup)
	t.Logf("%+v", f.Features)
	t.Logf("%+v", f.FloatControls)
	t.Log(f.Matrices)
	require.NotEmpty(t, f.Name)
	require.GreaterOrEqual(t, f.APIVersion, f.EffectiveVersion)
	require.GreaterOrEqual(t, f.EffectiveVersion, vk.Version11)
	l := f.Limits
	require.GreaterOrEqual(t, l.MaxSharedMemory, uint32(16384))
	require.GreaterOrEqual(t, l.MaxWorkgroupInvocations, uint32(128))
	require.GreaterOrEqual(t, l.MaxPushConstants, uint32(128))
	require.GreaterOrEqual(t, l.MaxStorageBufferRange, uint64(1<<27))
	require.GreaterOrEqual(t, l.MaxAllocationSize, uint64(1<<30))
	require.GreaterOrEqual(t, l.MaxBufferSize, uint64(1<<27))
	require.NotZero(t, l.MinStorageBufferAlignment)
	require.NotZero(t, l.NonCoherentAtomSize)
	for i := range 3 {
		require.GreaterOrEqual(t, l.MaxWorkgroupCount[i], uint32(65535))
		require.GreaterOrEqual(t, l.MaxWorkgroupSize[i], uint32(64))
	}
	s := f.Subgroup
	require.NotZero(t, s.Size)
	require.LessOrEqual(t, s.Min, s.Size)
	require.GreaterOrEqual(t, s.Max, s.Size)
	require.NotZero(t, s.Ops&vk.SubgroupBasic)
	require.True(t, s.Compute)
	require.Equal(t, f.Features.CooperativeMatrix, len(f.Matrices) > 0)
	for _, m := range f.Matrices {
		require.NotZero(t, m.M*m.N*m.K, m)
		require.NotContains(t, m.String(), "(", "an unknown type or scope")
	}
	require.NotEmpty(t, f.Heaps)
	require.True(t, f.Heaps[dev.DeviceHeap()].DeviceLocal)
	for _, m := range f.MemoryTypes {
		require.Less(t, int(m.Heap), len(f.Heaps))
	}
	require.NotEmpty(t, f.Queues)
	require.Equal(t, f.Queues[dev.Queue().Family()].TimestampValidBits, dev.Queue().TimestampValidBits())
	require.True(t, f.HasExtension(f.Extensions[0]))
	require.False(t, f.HasExtension("VK_KHR_no_such_thing"))

	heaps, err := dev.HeapBudget()
	require.NoError(t, err)
	require.Len(t, heaps, len(f.Heaps))
	for i, h := range heaps {
		require.Equal(t, f.Heaps[i].Size, h.Size)
		require.NotZero(t, h.Budget)
	}

	e := dev.Enabled()
	require.False(t, e.RobustBufferAccess)
	e.RobustBufferAccess, e.CooperativeMatrixRobust = f.Features.RobustBufferAccess, f.Features.CooperativeMatrixRobust
	require.Equal(t, f.Features, e, "everything supported is enabled, but the robust accesses")
}

func TestWithoutFeatures(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{Device: vk.DeviceOptions{Without: vk.Features{
		TimelineSemaphore: true, SubgroupSizeControl: true, CooperativeMatrix: true, PipelineExecutableInfo: true,
		BufferDeviceAddress: true,
	}}})
	e := dev.Enabled()
	require.False(t, e.TimelineSemaphore || e.SubgroupSizeControl || e.ComputeFullSubgroups || e.CooperativeMatrix ||
		e.BFloat16CooperativeMatrix)
	_, err := dev.NewTimelineSemaphore(0)
	require.ErrorIs(t, err, vk.ErrUnsupported)
	i, sub := affineInfo(1), dev.Facts().Subgroup
	i.SubgroupSize = sub.Size
	p, err := dev.NewComputePipeline(i)
	if sub.Single() {
		require.NoError(t, err, "the only size there is needs no control")
		require.NoError(t, p.Close())
		i.SubgroupSize = 2 * sub.Size
		_, err = dev.NewComputePipeline(i)
		require.Error(t, err)
	} else {
		require.ErrorIs(t, err, vk.ErrUnsupported)
	}
	i = affineInfo(1)
	i.FullSubgroups = true
	_, err = dev.NewComputePipeline(i)
	require.ErrorIs(t, err, vk.ErrUnsupported)
	b, err := dev.NewBuffer(64, vk.DeviceLocal)
	require.NoError(t, err)
	_, err = b.DeviceAddress()
	require.ErrorIs(t, err, vk.ErrUnsupported)
	r := newRig(t, dev, 100, 3)
	r.upload(t)
	r.encode(args(100, 1))
	require.NoError(t, r.run())
	r.check(t, 3, 1)
}

// An instance of version 1.1 must get by with extensions where later versions have the feature in their core.
func TestVersion11(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{MaxAPIVersion: vk.Version11})
	require.LessOrEqual(t, dev.Facts().EffectiveVersion, vk.MakeVersion(1, 1, 4095))
	t.Logf("%+v", dev.Enabled())
	r := newRig(t, dev, 100, 3)
	r.upload(t)
	r.encode(args(100, 1))
	require.NoError(t, r.run())
	r.check(t, 3, 1)
	if dev.Enabled().TimelineSemaphore {
		useTimeline(t, dev)
	}
	if dev.Enabled().BufferDeviceAddress {
		a, err := r.x.DeviceAddress()
		require.NoError(t, err)
		require.NotZero(t, a)
	}
}

func useTimeline(t *testing.T, dev *vk.Device) {
	t.Helper()
	s, err := dev.NewTimelineSemaphore(5)
	require.NoError(t, err)
	require.ErrorIs(t, s.Wait(6, 0), vk.Timeout)
	require.ErrorIs(t, s.Wait(6, 20*time.Millisecond), vk.Timeout)
	// The queue waits for the host, and the host for the queue.
	require.NoError(t, dev.Queue().Submit(vk.Submission{
		Wait:   []vk.TimelinePoint{{Semaphore: s, Value: 7}},
		Signal: []vk.TimelinePoint{{Semaphore: s, Value: 9}},
	}))
	v, err := s.Value()
	require.NoError(t, err)
	require.EqualValues(t, 5, v)
	require.NoError(t, s.Signal(7))
	require.NoError(t, s.Wait(9, time.Minute))
	v, err = s.Value()
	require.NoError(t, err)
	require.EqualValues(t, 9, v)
	require.NoError(t, dev.WaitIdle())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Wait(1, 0), vk.ErrClosed)
}

func TestTimeline(t *testing.T) {
	dev := vktest.Device(t)
	if !dev.Enabled().TimelineSemaphore {
		t.Skip("the device has no timeline semaphores")
	}
	useTimeline(t, dev)
}

// Two instances with a device each, used in turn; closing one leaves the other alone.
func TestTwoInstances(t *testing.T) {
	a, b := vktest.Device(t), vktest.Device(t)
	ra, rb := newRig(t, a, 300, 2), newRig(t, b, 300, 5)
	for i := range uint32(3) {
		for _, r := range []*rig{ra, rb} {
			r.upload(t)
			r.encode(args(r.n, i))
			require.NoError(t, r.run())
		}
		ra.check(t, 2, i)
		rb.check(t, 5, i)
	}
	in := vktest.Instance(t, vktest.Options{}) // a third moves vulkan-go's pointers
	require.NoError(t, in.Close())
	require.NoError(t, a.Close())
	rb.encode(args(rb.n, 11))
	require.NoError(t, rb.run())
	rb.check(t, 5, 11)

	var s vk.Stream
	s.Bind(rb.pipeline, rb.set)
	s.Copy(ra.y, 0, ra.x, 0, 4)
	require.Error(t, s.Err(), "objects of two devices in one stream")
}

// A device attached to another one's handles computes, records into its command buffers, and leaves it as it was.
func TestAttach(t *testing.T) {
	owner := vktest.Device(t)
	ext := owner.External()
	var mu sync.Mutex
	ext.QueueLock = &mu
	dev, err := vk.Attach(ext)
	require.NoError(t, err)
	require.Equal(t, owner.Handle(), dev.Handle())
	require.Equal(t, owner.Enabled(), dev.Enabled())

	r := newRig(t, dev, 200, 4)
	r.upload(t)
	r.encode(args(200, 1))
	require.NoError(t, r.run())
	r.check(t, 4, 1)

	// Record into the owner's command buffer, on the owner's buffers.
	o := newRig(t, owner, 200, 6)
	o.upload(t)
	x, err := dev.WrapBuffer(o.up.Handle(), o.up.Capacity())
	require.NoError(t, err)
	y, err := dev.WrapBuffer(o.down.Handle(), o.down.Capacity())
	require.NoError(t, err)
	pool, err := dev.NewDescriptorPool(1, 2)
	require.NoError(t, err)
	set, err := pool.Allocate(r.pipeline)
	require.NoError(t, err)
	require.NoError(t, dev.UpdateDescriptors(set, []vk.BufferBinding{{Buffer: x, Size: 800}, {Buffer: y, Size: 800}}))
	cmd, err := vk.WrapCommandBuffer(dev, o.cmd.Handle())
	require.NoError(t, err)
	var s vk.Stream
	s.Bind(r.pipeline, set)
	s.Push(args(200, 9))
	s.Dispatch(4, 1, 1)
	s.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageHost, vk.AccessHostRead)
	require.NoError(t, o.cmd.Begin(true))
	require.NoError(t, cmd.Execute(&s))
	require.Error(t, cmd.End(), "the owner's business")
	require.NoError(t, cmd.Close())
	require.NoError(t, o.cmd.End())
	require.NoError(t, owner.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{o.cmd}, Fence: o.fence}))
	require.NoError(t, o.fence.Wait(time.Minute))
	require.NoError(t, o.fence.Reset())
	o.check(t, 4, 9)

	require.NoError(t, dev.Close())
	require.NotZero(t, o.x.Handle())
	o.encode(args(200, 2))
	require.NoError(t, o.run())
	o.check(t, 6, 2)
}

// ownedLock is a mutex that its owner alone may unlock, as recursive and error-checking ones of C are: a thread.
type ownedLock struct {
	sync.Mutex
	owner uintptr
	moved int // unlocked by another thread
}

func (l *ownedLock) Lock() {
	l.Mutex.Lock()
	l.owner = abi.Thread()
}

func (l *ownedLock) Unlock() {
	if abi.Thread() != l.owner {
		l.moved++
	}
	l.Mutex.Unlock()
}

// TestQueueLockThread: the thread that took the caller's lock gives it back, however goroutines move.
func TestQueueLockThread(t *testing.T) {
	ext := vktest.Device(t).External()
	lock := &ownedLock{}
	ext.QueueLock = lock
	dev, err := vk.Attach(ext)
	require.NoError(t, err)
	var submitting sync.WaitGroup
	for range 32 {
		submitting.Go(func() {
			for range 1000 {
				assert.NoError(t, dev.Queue().Submit(vk.Submission{}))
			}
		})
	}
	submitting.Wait()
	require.Zero(t, lock.moved)
	require.NoError(t, dev.WaitIdle())
	require.NoError(t, dev.Close())
}

func TestAttachRefuses(t *testing.T) {
	owner := vktest.Device(t)
	for name, change := range map[string]func(*vk.External){
		"Instance":       func(e *vk.External) { e.Instance = 0 },
		"PhysicalDevice": func(e *vk.External) { e.PhysicalDevice = 0 },
		"Device":         func(e *vk.External) { e.Device = 0 },
		"Queue":          func(e *vk.External) { e.Queue = 0 },
		"QueueFamily":    func(e *vk.External) { e.QueueFamily = 99 },
		"APIVersion":     func(e *vk.External) { e.APIVersion = vk.MakeVersion(1, 0, 0) },
	} {
		e := owner.External()
		change(&e)
		_, err := vk.Attach(e)
		var arg *vk.ArgumentError
		require.ErrorAs(t, err, &arg, name)
		require.Equal(t, name, arg.Name)
	}
	if f := owner.Facts().Features; !f.BFloat16Type {
		e := owner.External()
		e.Enabled.BFloat16Type = true
		_, err := vk.Attach(e)
		require.ErrorContains(t, err, "Enabled.BFloat16Type")
	}
}

// The layers' messages reach the callback, with the name of the rule.
func TestMessages(t *testing.T) {
	var mu sync.Mutex
	var got []vk.Message
	in, err := vk.NewInstance(vk.InstanceOptions{AppName: "messages", SyncValidation: true, OnMessage: func(m vk.Message) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	}})
	if err != nil {
		vktest.Device(t) // skips or fails as the environment says
		t.Skip(err)
	}
	defer in.Close()
	dev, err := vktest.PhysicalDevice(t, in).Open(vk.DeviceOptions{})
	require.NoError(t, err)
	r := newRig(t, dev, 100, 1)
	require.True(t, in.Validated())
	require.Empty(t, got)

	var s vk.Stream
	// A transfer stage cannot read in a shader.
	s.Barrier(vk.StageTransfer, vk.AccessShaderRead, vk.StageTransfer, vk.AccessTransferRead)
	require.NoError(t, r.cmd.Begin(true))
	require.NoError(t, r.cmd.Execute(&s))
	require.NotEmpty(t, got)
	require.Equal(t, vk.SeverityError, got[0].Severity)
	require.True(t, strings.HasPrefix(got[0].ID, "VUID-"), got[0].ID)
	require.NotEmpty(t, got[0].Text)

	// A copy reads what a fill writes, without a barrier between them.
	got = nil
	s.Reset()
	s.Fill(vk.BufferRange{Buffer: r.x, Size: vk.WholeSize}, 1)
	s.Copy(r.down, 0, r.x, 0, 400)
	require.NoError(t, r.cmd.Execute(&s))
	require.NotEmpty(t, got)
	require.Contains(t, got[0].ID, "SYNC-HAZARD-READ-AFTER-WRITE")
	require.NoError(t, r.cmd.End())
}
