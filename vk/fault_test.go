package vk_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

func TestParseFaults(t *testing.T) {
	for _, s := range []string{"alloc:7", "submit:3=device_lost", " wait:1=timeout , query:2,any:900=OUT_OF_HOST_MEMORY",
		"enumerate:2=incomplete"} {
		_, err := vk.ParseFaults(s)
		require.NoError(t, err, s)
	}
	for _, s := range []string{"alloc", "alloc:", "alloc:0", "alloc:-1", "alloc:x", "nothing:1", "alloc:1=", "alloc:1=lost",
		"alloc:1=timeout",
		"alloc:1,", ",", "submit:1=incomplete", "any:1=success", strings.Repeat("any:1,", 16) + "any:1"} {
		_, err := vk.ParseFaults(s)
		refuses(t, vk.FaultEnv, err)
		require.ErrorContains(t, err, "descriptorset", s)
		require.ErrorContains(t, err, "device_lost", s)
	}
	f := vk.NewFaults()
	refuses(t, "kind", f.Arm("nothing", 1, 0))
	refuses(t, "n", f.Arm("alloc", 0, 0))
	refuses(t, "result", f.Arm("alloc", 1, vk.Timeout))
	refuses(t, "result", f.Arm("alloc", 1, 17))
}

// A malformed VKATTN_FAULT is refused when something is opened; a good one counts in the process, so that what failed once
// succeeds when it is tried again.
func TestFaultEnvironment(t *testing.T) {
	vktest.Device(t) // or skip
	t.Setenv(vk.FaultEnv, "alloc")
	_, err := vk.NewInstance(vk.InstanceOptions{})
	refuses(t, vk.FaultEnv, err)

	t.Setenv(vk.FaultEnv, "instance:1,alloc:2=out_of_host_memory")
	_, err = vk.NewInstance(vk.InstanceOptions{})
	require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
	require.ErrorContains(t, err, "vkCreateInstance")
	dev := vktest.Device(t)
	for i := range 3 {
		// One heap of memory after the other is tried, so that a device with several may still do.
		b, err := dev.NewBuffer(64, vk.DeviceLocal)
		if i == 1 && err != nil {
			require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, b.Close())
	}
}

// everything makes an object of each kind on a new device, runs a dispatch and a timeline, reads what can be read, and closes all.
func everything(open func() (*vk.Device, error)) (err error) {
	dev, err := open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	keep := func(e error) bool {
		if err == nil {
			err = e
		}
		return err == nil
	}
	cache, e := dev.NewPipelineCache(nil)
	if !keep(e) {
		return err
	}
	other, e := dev.NewPipelineCache(nil)
	if !keep(e) || !keep(cache.Merge(other)) {
		return err
	}
	r, e := makeRig(dev, 64, 3, cache)
	if !keep(e) {
		return err
	}
	_, e = cache.Data()
	if !keep(e) || !keep(r.up.Flush(0, vk.WholeSize)) {
		return err
	}
	for i := range uint32(2) {
		r.encode(args(64, i))
		if !keep(r.run()) {
			return err
		}
		var ticks [2]uint64
		if r.queries != nil && !keep(r.queries.Results(0, ticks[:])) {
			return err
		}
		if !keep(r.cmd.Reset()) {
			return err
		}
	}
	_, e = r.fence.Signaled()
	if !keep(e) || !keep(r.commands.Reset()) || !keep(r.pool.Reset()) || !keep(r.down.Invalidate(0, vk.WholeSize)) {
		return err
	}
	if dev.Enabled().PipelineExecutableInfo {
		if _, e := r.pipeline.Stats(); !keep(e) {
			return err
		}
	}
	if dev.Enabled().TimelineSemaphore {
		s, e := dev.NewTimelineSemaphore(0)
		if !keep(e) {
			return err
		}
		if !keep(dev.Queue().Submit(vk.Submission{Signal: []vk.TimelinePoint{{Semaphore: s, Value: 1}}})) ||
			!keep(s.Wait(1, time.Minute)) || !keep(s.Signal(2)) {
			return err
		}
		if _, e := s.Value(); !keep(e) {
			return err
		}
	}
	if !keep(dev.Queue().WaitIdle()) || !keep(dev.WaitIdle()) {
		return err
	}
	for i, w := range words(r.down)[:64] {
		if w != 3*uint32(i)+1 {
			return errors.New("a wrong result")
		}
	}
	return err
}

// Every call of every kind fails in turn, in each way: the error names the call, nothing is left behind, and a device made
// afterwards works.
func TestFaultWalk(t *testing.T) {
	f := vk.NewFaults()
	in := vktest.Instance(t, vktest.Options{Faults: f})
	p := vktest.PhysicalDevice(t, in)
	opening := func() (*vk.Device, error) { return p.Open(vk.DeviceOptions{}) }
	require.NoError(t, everything(opening))
	before := f.Live()
	require.Equal(t, 1, before["Instance"])
	require.Zero(t, before["Device"])
	// A GPU's driver takes a tenth of a second and more to open a device, so calls that are not of opening one fail on a single VkDevice.
	owner := vktest.Device(t).External()
	attaching := func() (*vk.Device, error) { return vk.AttachWithFaults(owner, f) }
	require.NoError(t, everything(attaching))

	check := func(want vk.Result) func(t testing.TB, n int, call string, err error) {
		return func(t testing.TB, n int, call string, err error) {
			switch {
			case call == "vkAllocateMemory" && err == nil: // another kind of memory did
			case want == vk.Timeout && err == nil: // waited on
			case want == vk.Incomplete && err == nil: // asked again
			case call == "vkDeviceWaitIdle" && err == nil: // of Close, which tries again, and of a lost device has nothing to add
			case !errors.Is(err, want):
				t.Errorf("%s gave %v, and the error is %v", call, want, err)
			case !strings.Contains(err.Error(), call):
				t.Errorf("%s failed, and the error is %v", call, err)
			}
			if leaked := vktest.Leaked(before, f.Live()); len(leaked) > 0 {
				t.Errorf("left behind: %v", leaked)
			}
		}
	}
	met := map[string]bool{}
	for _, k := range vk.FaultKinds() {
		results := []vk.Result{k.Result, vk.ErrDeviceLost}
		switch k.Name {
		case "wait":
			results = append(results, vk.Timeout)
		case "cachedata":
			results = append(results, vk.Incomplete)
		case "status":
			results = append(results, vk.NotReady)
		case "any":
			results = []vk.Result{vk.ErrUnknown, vk.ErrDeviceLost}
		}
		open := attaching
		if slices.Contains([]string{"device", "idle", "any"}, k.Name) { // idle: of closing too
			open = opening
		}
		for i, r := range results {
			stride := 1
			if testing.Short() {
				if k.Name == "any" {
					continue
				}
				if stride = 2; i > 0 {
					stride = 8
				}
			}
			c := check(r)
			fired := vktest.Walk{Faults: f, Kind: k.Name, Result: r, Stride: stride, Run: func() error { return everything(open) },
				Check: func(t testing.TB, n int, call string, err error) {
					met[call] = true
					if r == vk.NotReady && call == "vkGetFenceStatus" {
						require.NoError(t, err, "the fence is not signaled, which is no error")
						return
					}
					c(t, n, call, err)
				}}.Do(t)
			// Calls of the instance and of presenting are walked elsewhere, and coherent memory is not flushed.
			if fired == 0 && !slices.Contains([]string{"instance", "messenger", "enumerate", "flush", "statistics", "surface", "swapchain",
				"acquire", "present"}, k.Name) {
				t.Errorf("%s never failed", k.Name)
			}
		}
	}
	t.Log(len(met), "calls failed")
	require.NoError(t, everything(opening))
}

// A device that was opened here and never got work is not waited for, since a driver without hardware cannot; one that did is.
func TestIdleDeviceIsNotWaitedFor(t *testing.T) {
	vktest.Device(t) // or skip
	for _, works := range []bool{false, true} {
		f := vk.NewFaults()
		in, err := vk.NewInstance(vk.InstanceOptions{Faults: f})
		require.NoError(t, err)
		all, err := in.PhysicalDevices()
		require.NoError(t, err)
		dev, err := all[0].Open(vk.DeviceOptions{})
		require.NoError(t, err)
		if works {
			require.NoError(t, dev.Queue().Submit(vk.Submission{}))
		}
		require.NoError(t, f.Arm("idle", 1, vk.ErrOutOfHostMemory))
		err = dev.WaitIdle()
		if works {
			require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
		} else {
			require.NoError(t, err)
		}
		f.Disarm()
		require.NoError(t, dev.Close())
		require.NoError(t, in.Close())
	}
}

// Every call of making an instance fails in turn. Enumerations that are incomplete are asked again, and find what there is.
func TestFaultWalkInstance(t *testing.T) {
	vktest.Device(t) // or skip
	f := vk.NewFaults()
	var devices, extensions int
	open := func() error {
		in, err := vk.NewInstance(vk.InstanceOptions{Validation: true, OnMessage: func(vk.Message) {}, Faults: f})
		if errors.Is(err, vk.ErrLayerMissing) {
			in, err = vk.NewInstance(vk.InstanceOptions{Faults: f})
		}
		if err != nil {
			return err
		}
		all, err := in.PhysicalDevices()
		err = errors.Join(append(in.Skipped(), err, in.Close())...)
		devices, extensions = len(all), 0
		for _, p := range all {
			extensions += len(p.Facts().Extensions) + len(p.Facts().Matrices)
		}
		return err
	}
	require.NoError(t, open())
	require.Empty(t, f.Live())
	wantDevices, wantExtensions := devices, extensions
	for kind, result := range map[string]vk.Result{"instance": 0, "messenger": 0, "enumerate": 0, "any": vk.ErrUnknown} {
		fired := vktest.Walk{Faults: f, Kind: kind, Result: result, Run: open, Check: func(t testing.TB, n int, call string, err error) {
			require.ErrorContains(t, err, call)
			require.Empty(t, f.Live())
		}}.Do(t)
		require.Positive(t, fired, kind)
	}
	fired := vktest.Walk{Faults: f, Kind: "enumerate", Result: vk.Incomplete, Run: open, Check: func(t testing.TB, n int, call string,
		err error) {
		require.NoError(t, err, call)
		require.Equal(t, wantDevices, devices, call)
		require.Equal(t, wantExtensions, extensions, call)
	}}.Do(t)
	require.GreaterOrEqual(t, fired, 4)
}

// A device that is lost ends waits in other goroutines, refuses everything with the same error at once, and can be closed;
// another one of the same instance works.
func TestLostDevice(t *testing.T) {
	f := vk.NewFaults()
	in := vktest.Instance(t, vktest.Options{Faults: f})
	p := vktest.PhysicalDevice(t, in)
	before := f.Live()
	dev, err := p.Open(vk.DeviceOptions{})
	require.NoError(t, err)
	r := newRig(t, dev, 64, 1)
	never, err := dev.NewFence(false)
	require.NoError(t, err)
	var wait sync.WaitGroup
	errs := make([]error, 2)
	wait.Go(func() { errs[0] = never.Wait(-1) })
	if dev.Enabled().TimelineSemaphore {
		s, err := dev.NewTimelineSemaphore(0)
		require.NoError(t, err)
		wait.Go(func() { errs[1] = s.Wait(1, -1) })
	} else {
		errs[1] = vk.ErrDeviceLost
	}
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, f.Arm("submit", 1, vk.ErrDeviceLost))
	r.encode(args(64, 1))
	lost := r.run()
	require.ErrorIs(t, lost, vk.ErrDeviceLost)
	f.Disarm()
	began := time.Now()
	wait.Wait()
	require.Less(t, time.Since(began), time.Minute)
	for _, err := range errs {
		require.ErrorIs(t, err, vk.ErrDeviceLost)
	}
	_, err = dev.NewBuffer(64, vk.Upload)
	require.Equal(t, lost, err)
	require.Equal(t, lost, dev.Lost())
	require.Equal(t, lost, r.run())
	require.NoError(t, r.x.Close())
	require.NoError(t, dev.Close())
	require.Equal(t, before, f.Live())
	require.NoError(t, everything(func() (*vk.Device, error) { return p.Open(vk.DeviceOptions{}) }))
}

// The faults of an attached device are below its own table and leave its owner's alone.
func TestFaultsOfAttached(t *testing.T) {
	owner := vktest.Device(t)
	f := vk.NewFaults()
	require.NoError(t, f.Arm("buffer", 2, 0))
	dev, err := vk.AttachWithFaults(owner.External(), f)
	require.NoError(t, err)
	for range 3 {
		_, err := owner.NewBuffer(64, vk.Upload)
		require.NoError(t, err)
	}
	_, err = dev.NewBuffer(64, vk.Upload)
	require.NoError(t, err)
	_, err = dev.NewBuffer(64, vk.Upload)
	require.ErrorIs(t, err, vk.ErrOutOfHostMemory)
	require.Equal(t, "vkCreateBuffer", f.Fired())
	_, err = vk.AttachWithFaults(owner.External(), vk.NewFaults())
	refuses(t, "f", err)
	require.NoError(t, dev.Close())
	require.Empty(t, f.Live())
}

// A device that was lost in one's hands is lost to all who have the same faults before it.
func TestFaultLosesDeviceToAll(t *testing.T) {
	f := vk.NewFaults()
	owner := vktest.Open(t, vktest.Options{Faults: f})
	dev, err := vk.AttachWithFaults(owner.External(), f)
	require.NoError(t, err)
	fence, err := owner.NewFence(true)
	require.NoError(t, err)
	require.NoError(t, fence.Wait(0))
	require.NoError(t, f.Arm("buffer", 1, vk.ErrDeviceLost))
	_, err = dev.NewBuffer(64, vk.Upload)
	require.ErrorIs(t, err, vk.ErrDeviceLost)
	require.NoError(t, owner.Lost(), "it made no call yet")
	require.ErrorIs(t, fence.Wait(0), vk.ErrDeviceLost)
	require.ErrorIs(t, dev.Close(), vk.ErrDeviceLost)
}
