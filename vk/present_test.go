package vk_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// headless are the extensions of surfaces without a window.
var headless = []string{"VK_KHR_surface", vk.HeadlessSurface}

// screen is what a program has that presents.
type screen struct {
	dev      *vk.Device
	surface  *vk.Surface
	chain    *vk.Swapchain
	acquired *vk.Semaphore
	drawn    []*vk.Semaphore // of each image
	pixels   *vk.Buffer
	back     *vk.Buffer
	commands *vk.CommandPool
	cmd      *vk.CommandBuffer
	fence    *vk.Fence
	stream   vk.Stream
}

const screenWidth, screenHeight = 70, 33

func newScreen(p *vk.PhysicalDevice, surface *vk.Surface) (s *screen, err error) {
	s = &screen{surface: surface}
	if s.dev, err = p.Open(vk.DeviceOptions{Surface: surface}); err != nil {
		return s, err
	}
	if s.acquired, err = s.dev.NewSemaphore(); err != nil {
		return s, err
	}
	if s.pixels, err = s.dev.NewBuffer(4*screenWidth*screenHeight, vk.Upload); err != nil {
		return s, err
	}
	if s.back, err = s.dev.NewBuffer(4*screenWidth*screenHeight, vk.Readback); err != nil {
		return s, err
	}
	if s.commands, err = s.dev.NewCommandPool(); err != nil {
		return s, err
	}
	if s.cmd, err = s.commands.Allocate(); err != nil {
		return s, err
	}
	if s.fence, err = s.dev.NewFence(false); err != nil {
		return s, err
	}
	return s, s.remake()
}

// remake makes the swapchain, anew where there was one.
func (s *screen) remake() error {
	old := s.chain
	chain, err := s.dev.NewSwapchain(vk.SwapchainInfo{Surface: s.surface, Width: screenWidth, Height: screenHeight, Old: old})
	if err != nil {
		return err
	}
	s.chain = chain
	if old != nil {
		if err := errors.Join(s.dev.Queue().WaitIdle(), old.Close()); err != nil {
			return err
		}
	}
	for len(s.drawn) < chain.Len() {
		d, err := s.dev.NewSemaphore()
		if err != nil {
			return err
		}
		s.drawn = append(s.drawn, d)
	}
	return nil
}

// frame shows pixels of one byte, and reads them back.
func (s *screen) frame(value byte) error {
	copy(s.pixels.Mapped(), bytes.Repeat([]byte{value}, 4*screenWidth*screenHeight))
	if err := s.pixels.Flush(0, vk.WholeSize); err != nil {
		return err
	}
	if err := s.present(); err != nil {
		return err
	}
	for at, b := range s.back.Mapped()[:4*screenWidth*screenHeight] {
		if b != value {
			return fmt.Errorf("byte %d of the image is %d, want %d", at, b, value)
		}
	}
	return nil
}

// present is a frame without a look at memory.
func (s *screen) present() error {
	i, _, err := s.chain.Acquire(s.acquired, time.Minute)
	if err != nil {
		return err
	}
	image, st := s.chain.Image(i), &s.stream
	st.Reset()
	st.ImageBarrier(image, vk.LayoutUndefined, vk.LayoutTransferDst, vk.StageTransfer, 0, vk.StageTransfer, vk.AccessTransferWrite)
	st.CopyToImage(image, s.pixels, 0)
	st.ImageBarrier(image, vk.LayoutTransferDst, vk.LayoutTransferSrc, vk.StageTransfer, vk.AccessTransferWrite, vk.StageTransfer,
		vk.AccessTransferRead)
	st.CopyFromImage(s.back, 0, image)
	st.Barrier(vk.StageTransfer, vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
	st.ImageBarrier(image, vk.LayoutTransferSrc, vk.LayoutPresent, vk.StageTransfer, 0, vk.StageBottom, 0)
	for _, do := range []func() error{
		func() error { return s.cmd.Begin(true) },
		func() error { return s.cmd.Execute(st) },
		s.cmd.End,
		func() error {
			return s.dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{s.cmd}, Fence: s.fence,
				WaitBinary: []*vk.Semaphore{s.acquired}, SignalBinary: []*vk.Semaphore{s.drawn[i]}})
		},
		func() error { _, err := s.dev.Queue().Present(s.chain, i, s.drawn[i]); return err },
		func() error { return s.fence.Wait(time.Minute) },
		s.fence.Reset,
		func() error { return s.back.Invalidate(0, vk.WholeSize) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Frames are presented, on one swapchain and on others that take its place, with nothing to say for the validation of synchronisation, and
// nothing is left behind.
func TestPresent(t *testing.T) {
	f := vk.NewFaults()
	in := vktest.Instance(t, vktest.Options{SyncValidation: true, Extensions: headless, Faults: f})
	before := f.Live()
	surface, err := in.NewHeadlessSurface()
	require.NoError(t, err)
	require.NotZero(t, surface.Handle())
	s, err := newScreen(vktest.PhysicalDevice(t, in), surface)
	require.NoError(t, err)
	w, h := s.chain.Size()
	require.Equal(t, [2]int{screenWidth, screenHeight}, [2]int{w, h})
	require.GreaterOrEqual(t, s.chain.Len(), 2)
	require.True(t, s.chain.Readable())
	require.Contains(t, s.dev.External().Extensions, "VK_KHR_swapchain")
	for i := range byte(20) {
		if i%7 == 6 {
			require.NoError(t, s.remake())
		}
		require.NoError(t, s.frame(10*i), i)
	}
	refuses(t, "surface", surface.Close())
	require.NoError(t, s.dev.Close())
	require.NoError(t, surface.Close())
	require.Zero(t, surface.Handle())
	require.NoError(t, surface.Close())
	require.Equal(t, before, f.Live())
}

// What breaks a rule is refused before the driver sees it.
func TestPresentRefusals(t *testing.T) {
	in := vktest.Instance(t, vktest.Options{Extensions: headless})
	p := vktest.PhysicalDevice(t, in)
	surface, err := in.NewHeadlessSurface()
	require.NoError(t, err)
	s, err := newScreen(p, surface)
	require.NoError(t, err)
	d := s.dev

	_, err = in.AdoptSurface(0)
	refuses(t, "handle", err)
	_, err = d.NewSwapchain(vk.SwapchainInfo{})
	refuses(t, "Surface", err)
	other, err := in.NewHeadlessSurface()
	require.NoError(t, err)
	_, err = d.NewSwapchain(vk.SwapchainInfo{Surface: other, Width: 8, Height: 8, Old: s.chain})
	refuses(t, "Old", err)
	require.NoError(t, other.Close())
	_, err = d.NewSwapchain(vk.SwapchainInfo{Surface: other})
	require.ErrorIs(t, err, vk.ErrClosed)
	_, err = p.Open(vk.DeviceOptions{Surface: other})
	refuses(t, "Surface", err)
	_, err = d.NewSwapchain(vk.SwapchainInfo{Surface: surface, Width: 8})
	require.ErrorIs(t, err, vk.ErrNoArea)
	old := s.chain
	require.NoError(t, s.remake())
	_, _, err = old.Acquire(s.acquired, 0)
	require.ErrorIs(t, err, vk.ErrClosed)
	_, _, err = s.chain.Acquire(nil, 0)
	refuses(t, "semaphore", err)
	_, err = d.Queue().Present(nil, 0, s.acquired)
	refuses(t, "s", err)
	_, err = d.Queue().Present(s.chain, s.chain.Len(), s.acquired)
	refuses(t, "index", err)
	_, err = d.Queue().Present(s.chain, 0, nil)
	refuses(t, "wait", err)
	err = d.Queue().Submit(vk.Submission{WaitBinary: []*vk.Semaphore{nil}})
	refuses(t, "WaitBinary[0]", err)
	for name, encode := range map[string]func(st *vk.Stream){
		"image":              func(st *vk.Stream) { st.CopyToImage(s.chain.Image(99), s.pixels, 0) },
		"buffer":             func(st *vk.Stream) { st.CopyToImage(s.chain.Image(0), s.pixels, 4096) },
		"to":                 func(st *vk.Stream) { st.ImageBarrier(s.chain.Image(0), 0, 0, vk.StageTop, 0, vk.StageTop, 0) },
		"srcStage, dstStage": func(st *vk.Stream) { st.ImageBarrier(s.chain.Image(0), 0, 7, 0, 0, vk.StageTop, 0) },
	} {
		var st vk.Stream
		encode(&st)
		refuses(t, name, st.Err())
	}
	require.NoError(t, s.chain.Close())
	_, _, err = s.chain.Acquire(s.acquired, 0)
	require.ErrorIs(t, err, vk.ErrClosed)
	require.Zero(t, s.chain.Image(0).Handle())
}

// An instance and a device that were not made for it have no surfaces and no swapchains, and say what to do.
func TestWithoutPresenting(t *testing.T) {
	in := vktest.Instance(t, vktest.Options{})
	_, err := in.NewHeadlessSurface()
	require.ErrorIs(t, err, vk.ErrUnsupported)
	require.ErrorContains(t, err, "VK_KHR_surface")
	_, err = in.AdoptSurface(1)
	require.ErrorIs(t, err, vk.ErrUnsupported)
	d, err := vktest.PhysicalDevice(t, in).Open(vk.DeviceOptions{})
	require.NoError(t, err)
	_, err = d.NewSwapchain(vk.SwapchainInfo{})
	require.ErrorIs(t, err, vk.ErrUnsupported)
	require.NotContains(t, d.External().Extensions, "VK_KHR_swapchain")
	_, err = vk.NewInstance(vk.InstanceOptions{Extensions: []string{"VK_KHR_no_such_thing"}})
	require.ErrorIs(t, err, vk.ErrUnsupported)
	require.ErrorContains(t, err, "VK_KHR_no_such_thing")
}

// Every call of presenting fails in turn, in each way: the error is the call's, and nothing is left behind.
func TestFaultWalkPresent(t *testing.T) {
	f := vk.NewFaults()
	in := vktest.Instance(t, vktest.Options{Faults: f, Extensions: headless})
	p := vktest.PhysicalDevice(t, in)
	show := func() (err error) {
		surface, err := in.NewHeadlessSurface()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, surface.Close()) }()
		s, err := newScreen(p, surface)
		if s.dev != nil {
			defer func() { err = errors.Join(err, s.dev.Close()) }()
		}
		for i := 0; err == nil && i < 2; i++ {
			if err = s.frame(byte(i)); err == nil {
				err = s.remake()
			}
		}
		return err
	}
	require.NoError(t, show())
	before := f.Live()
	for kind, results := range map[string][]vk.Result{
		"surface": {0, vk.Incomplete}, "swapchain": {0, vk.ErrDeviceLost, vk.Incomplete, vk.ErrWindowInUse}, "semaphore": {0},
		"acquire": {0, vk.ErrSurfaceLost, vk.ErrDeviceLost, vk.Timeout, vk.Suboptimal}, "present": {0, vk.ErrSurfaceLost, vk.ErrDeviceLost,
			vk.Suboptimal},
	} {
		for _, r := range results {
			fired := vktest.Walk{Faults: f, Kind: kind, Result: r, Run: show, Check: func(t testing.TB, n int, call string, err error) {
				switch r {
				case vk.Incomplete, vk.Timeout, vk.Suboptimal: // asked again, waited on, and presented all the same
					require.NoError(t, err, "%s gave %v", call, r)
				default:
					require.ErrorContains(t, err, call)
				}
				require.Empty(t, vktest.Leaked(before, f.Live()), "left behind by %s, %v", call, err)
			}}.Do(t)
			require.Positive(t, fired, "%s %v", kind, r)
		}
	}
	require.NoError(t, show())
}

// A swapchain that went out of date is made anew, and the next frame shows.
func TestOutOfDate(t *testing.T) {
	f := vk.NewFaults()
	in := vktest.Instance(t, vktest.Options{SyncValidation: true, Faults: f, Extensions: headless})
	surface, err := in.NewHeadlessSurface()
	require.NoError(t, err)
	s, err := newScreen(vktest.PhysicalDevice(t, in), surface)
	require.NoError(t, err)
	for i, kind := range []string{"acquire", "present", "acquire", "present"} {
		require.NoError(t, f.Arm(kind, 1, vk.ErrOutOfDate))
		require.ErrorIs(t, s.frame(1), vk.ErrOutOfDate, kind)
		require.NoError(t, s.dev.Queue().WaitIdle())
		if kind == "present" { // what was submitted signaled it
			require.NoError(t, s.fence.Reset())
		}
		require.NoError(t, s.remake())
		require.NoError(t, s.frame(byte(i)))
	}
	require.NoError(t, s.dev.Close())
}

// A device is closed while a goroutine presents: that gets ErrClosed, or an argument of it does not exist any more.
func TestCloseBesidePresent(t *testing.T) {
	in := vktest.Instance(t, vktest.Options{Extensions: headless})
	p := vktest.PhysicalDevice(t, in)
	for round := range 6 {
		surface, err := in.NewHeadlessSurface()
		require.NoError(t, err)
		s, err := newScreen(p, surface)
		require.NoError(t, err)
		ended := make(chan error)
		go func() {
			for {
				if err := s.present(); err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(time.Duration(round) * time.Millisecond)
		require.NoError(t, s.dev.Close())
		err = <-ended
		var arg *vk.ArgumentError
		require.True(t, errors.Is(err, vk.ErrClosed) || errors.As(err, &arg), "%v", err)
		require.NoError(t, surface.Close())
	}
}
