package vk

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// ErrNoArea is returned by NewSwapchain for a surface without a pixel, as a minimised window's may be. It passes when the window has
// an area again.
var ErrNoArea = errors.New("vk: the surface has no area now")

// SwapchainInfo describes a swapchain.
type SwapchainInfo struct {
	Surface       *Surface    // that the device was opened for, or that it can present to
	Width, Height uint32      // in pixels, of the window; a surface that knows its own size has its way
	Mode          PresentMode // FIFO where the surface does not offer it
	Old           *Swapchain  // that it replaces on the same surface, which presents nothing more and is still to be closed; may be nil
}

// Swapchain is a VkSwapchainKHR: images of four 8-bit channels that take turns on a surface. A frame acquires one, copies its pixels
// to it in a stream between two changes of its layout, and presents it:
//
//	i, _, err := chain.Acquire(acquired, time.Second)                     // ErrOutOfDate: make another
//	stream.ImageBarrier(chain.Image(i), vk.LayoutUndefined, vk.LayoutTransferDst,
//		vk.StageTransfer, 0, vk.StageTransfer, vk.AccessTransferWrite)
//	stream.CopyToImage(chain.Image(i), pixels, 0)
//	stream.ImageBarrier(chain.Image(i), vk.LayoutTransferDst, vk.LayoutPresent,
//		vk.StageTransfer, vk.AccessTransferWrite, vk.StageBottom, 0)
//	err = queue.Submit(vk.Submission{Commands: …, WaitBinary: acquired, SignalBinary: drawn[i], Fence: …})
//	_, err = queue.Present(chain, i, drawn[i])                            // ErrOutOfDate: make another
//
// Acquiring and presenting belong to one goroutine at a time; closing is safe beside them.
type Swapchain struct {
	object
	surface       *Surface
	images        []uintptr
	width, height uint32
	bgra          bool
	readable      bool
	mode          PresentMode
	retired       atomic.Bool // another took its place
}

// NewSwapchain makes a swapchain for a surface. The error is ErrNoArea while the surface has no pixel, ErrUnsupported where the device was
// opened without that in mind or the surface takes no pixels that are copied to it, and [ErrSurfaceLost] where the surface itself must be
// made anew.
func (d *Device) NewSwapchain(i SwapchainInfo) (*Swapchain, error) {
	const call = "NewSwapchain"
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if !d.presents || !d.table.hasSwapchains() {
		return nil, fmt.Errorf("vk: %s: the device was opened without %s (DeviceOptions.Surface): %w", call, extSwapchain, ErrUnsupported)
	}
	if i.Surface == nil || (d.parent != nil && i.Surface.instance != d.parent) || i.Surface.instance.handle != d.external.Instance {
		return nil, argErr(call, "Surface", "nil or of another instance", "it must be an open surface of the device's instance")
	}
	if i.Old != nil {
		if i.Old.dev != d || i.Old.surface != i.Surface {
			return nil, argErr(call, "Old", "of another device or surface", "it must be a swapchain of the same device and surface")
		}
		i.Old.use.Lock() // no call on it beside this one
		defer i.Old.use.Unlock()
		if i.Old.handle.Load() == 0 || i.Old.retired.Load() {
			return nil, argErr(call, "Old", "closed or replaced before", "it must be open")
		}
	}
	i.Surface.mu.Lock()
	defer i.Surface.mu.Unlock()
	if i.Surface.handle == 0 {
		return nil, fmt.Errorf("vk: %s: Surface: %w", call, ErrClosed)
	}
	f, err := d.askSurface(i.Surface.handle)
	if err != nil {
		return nil, err
	}
	s, info, err := describeSwapchain(d.facts.Name, &i, &f)
	if err != nil {
		return nil, err
	}
	var h uintptr
	r := d.table.createSwapchain(&info, &h)
	if i.Old != nil {
		i.Old.retired.Store(true) // even where making its successor failed
	}
	if err := d.checkFor("vkCreateSwapchainKHR", r, fmt.Sprintf("%d × %d pixels", s.width, s.height)); err != nil {
		return nil, err
	}
	images, err := list("vkGetSwapchainImagesKHR", func(out []uintptr) int32 {
		return d.table.swapchainImages(h, out)
	})
	if err != nil {
		d.table.destroyHandle(callDestroySwapchainKHR, h)
		return nil, err
	}
	s.images = images
	s.init(d, h)
	i.Surface.swapchains++
	d.track(s)
	return s, nil
}

// describeSwapchain chooses what the surface leaves open.
func describeSwapchain(device string, i *SwapchainInfo, f *surfaceFacts) (*Swapchain, abi.SwapchainCreateInfoKHR, error) {
	c := &f.capabilities
	size := c.CurrentExtent
	info := abi.SwapchainCreateInfoKHR{
		Surface: uint64(i.Surface.handle), ImageFormat: f.format, ImageColorSpace: abi.ColorSpaceSrgbNonlinearKHR,
		ImageArrayLayers: 1, ImageSharingMode: abi.SharingModeExclusive, PreTransform: c.CurrentTransform,
		Clipped: 0, // whoever reads images back reads all of them
	}
	if size.Width == ^uint32(0) { // the surface has the size of its images
		if i.Width == 0 || i.Height == 0 {
			return nil, info, ErrNoArea
		}
		size.Width = min(max(i.Width, c.MinImageExtent.Width), c.MaxImageExtent.Width)
		size.Height = min(max(i.Height, c.MinImageExtent.Height), c.MaxImageExtent.Height)
	}
	if size.Width == 0 || size.Height == 0 || c.MaxImageExtent.Width == 0 || c.MaxImageExtent.Height == 0 {
		return nil, info, ErrNoArea
	}
	info.ImageExtent = size
	// One more than the driver needs itself, so that acquiring does not wait for it.
	if info.MinImageCount = c.MinImageCount + 1; c.MaxImageCount != 0 {
		info.MinImageCount = min(info.MinImageCount, c.MaxImageCount)
	}
	if info.ImageUsage = abi.ImageUsageTransferDstBit; c.SupportedUsageFlags&info.ImageUsage == 0 {
		return nil, info, fmt.Errorf("vk: the surface takes no pixels that device %q copies to it: %w", device, ErrUnsupported)
	}
	info.ImageUsage |= c.SupportedUsageFlags & abi.ImageUsageTransferSrcBit
	for _, alpha := range []uint32{abi.CompositeAlphaOpaqueBitKHR, abi.CompositeAlphaInheritBitKHR,
		abi.CompositeAlphaPreMultipliedBitKHR, abi.CompositeAlphaPostMultipliedBitKHR} {
		if c.SupportedCompositeAlpha&alpha != 0 {
			info.CompositeAlpha = alpha
			break
		}
	}
	mode := i.Mode
	if !slices.Contains(f.modes, mode.native()) {
		mode = PresentFIFO
	}
	info.PresentMode = mode.native()
	if i.Old != nil {
		info.OldSwapchain = uint64(i.Old.handle.Load())
	}
	return &Swapchain{
		surface: i.Surface, width: size.Width, height: size.Height, bgra: f.format == formatBGRA,
		readable: info.ImageUsage&abi.ImageUsageTransferSrcBit != 0, mode: mode,
	}, info, nil
}

// Len returns the number of images.
func (s *Swapchain) Len() int { return len(s.images) }

// Size returns the images' width and height in pixels.
func (s *Swapchain) Size() (width, height int) { return int(s.width), int(s.height) }

// BGRA says in which order a pixel's bytes lie: blue, green, red, alpha, or else red, green, blue, alpha.
func (s *Swapchain) BGRA() bool { return s.bgra }

// Readable says whether Stream.CopyFromImage can read the images.
func (s *Swapchain) Readable() bool { return s.readable }

// Mode returns the mode of presenting.
func (s *Swapchain) Mode() PresentMode { return s.mode }

// Handle returns the VkSwapchainKHR, 0 after Close.
func (s *Swapchain) Handle() uintptr { return s.handle.Load() }

// Image is one of a swapchain's images.
type Image struct {
	chain *Swapchain
	index int
}

// Image returns the image that Acquire gave the index of.
func (s *Swapchain) Image(index int) Image { return Image{s, index} }

// Handle returns the VkImage, 0 of an image that there is not.
func (i Image) Handle() uintptr {
	if i.chain == nil || i.index < 0 || i.index >= len(i.chain.images) || i.chain.handle.Load() == 0 {
		return 0
	}
	return i.chain.images[i.index]
}

// Acquire gives the index of an image to draw to; the semaphore, which must be unsignaled, is signaled when the display has done with it.
// suboptimal says that the image can be presented, but that another swapchain would suit the surface better. The error is [Timeout]
// when no image is free in time (a negative timeout never ends), [ErrOutOfDate] when the swapchain must be made anew, and
// [ErrSurfaceLost] when its surface must be, too.
func (s *Swapchain) Acquire(semaphore *Semaphore, timeout time.Duration) (index int, suboptimal bool, err error) {
	if s == nil {
		return 0, false, ErrClosed
	}
	if semaphore == nil || semaphore.dev != s.dev {
		return 0, false, argErr("Swapchain.Acquire", "semaphore", "nil or of another device",
			"it must be an open semaphore of the same device")
	}
	err = waitSliced(timeout, func(ns uint64) (Result, error) {
		if err := s.enterAlone(); err != nil {
			return 0, err
		}
		defer s.leaveAlone()
		semaphore.use.RLock()
		defer semaphore.use.RUnlock()
		handle := semaphore.handle.Load()
		if handle == 0 || s.retired.Load() {
			return 0, ErrClosed
		}
		var i uint32
		r := s.dev.table.acquire(s.handle.Load(), ns, handle, &i)
		index, suboptimal = int(i), Result(r) == Suboptimal
		if Result(r) == NotReady {
			r = int32(Timeout) // what a timeout of 0 gives
		}
		return Result(r), s.dev.check("vkAcquireNextImageKHR", r)
	})
	return index, suboptimal, err
}

// Present shows an acquired image, whose layout must be LayoutPresent, once the semaphore is signaled. The results are those of Acquire;
// whatever the error, but for a lost device, the semaphore is waited for and the image given back.
func (q *Queue) Present(s *Swapchain, index int, wait *Semaphore) (suboptimal bool, err error) {
	const call = "Queue.Present"
	if s == nil || s.dev != q.dev {
		return false, argErr(call, "s", "nil or of another device", "it must be an open swapchain of this device")
	}
	if index < 0 || index >= len(s.images) {
		return false, argErr(call, "index", index, fmt.Sprintf("the swapchain has %d images", len(s.images)))
	}
	if wait == nil || wait.dev != q.dev {
		return false, argErr(call, "wait", "nil or of another device", "it must be an open semaphore of this device")
	}
	if err := s.enterAlone(); err != nil {
		return false, err
	}
	defer s.leaveAlone()
	wait.use.RLock()
	defer wait.use.RUnlock()
	if wait.handle.Load() == 0 {
		return false, ErrClosed
	}
	q.lock()
	defer q.unlock()
	r := q.dev.table.present(q.handle, s.handle.Load(), uint32(index), wait.handle.Load())
	return Result(r) == Suboptimal, q.dev.check("vkQueuePresentKHR", r)
}

// Close destroys the swapchain. Work that uses its images must be done, and what was presented be waited for: Queue.WaitIdle. A second call
// does nothing.
func (s *Swapchain) Close() error {
	if s != nil {
		s.dev.release(s)
	}
	return nil
}

func (s *Swapchain) destroy() {
	handle, done := s.take()
	defer done()
	s.dev.table.destroyHandle(callDestroySwapchainKHR, handle)
	s.surface.mu.Lock()
	s.surface.swapchains--
	s.surface.mu.Unlock()
}

// Semaphore is a binary VkSemaphore: what orders a frame's work between acquiring an image and presenting it. Each signal is
// waited for once.
type Semaphore struct{ object }

// NewSemaphore makes an unsignaled semaphore.
func (d *Device) NewSemaphore() (*Semaphore, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	var h uintptr
	if err := d.check("vkCreateSemaphore", d.table.createSemaphore(&h)); err != nil {
		return nil, err
	}
	s := &Semaphore{}
	s.init(d, h)
	d.track(s)
	return s, nil
}

// Handle returns the VkSemaphore, 0 after Close.
func (s *Semaphore) Handle() uintptr { return s.handle.Load() }

// Close destroys the semaphore, which must not be part of unfinished work. A second call does nothing.
func (s *Semaphore) Close() error {
	if s != nil {
		s.dev.release(s)
	}
	return nil
}

func (s *Semaphore) destroy() {
	handle, done := s.take()
	defer done()
	s.dev.table.destroyHandle(callDestroySemaphore, handle)
}
