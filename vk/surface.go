package vk

import (
	"fmt"
	"slices"
	"sync"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// HeadlessSurface is the instance extension of surfaces without a window, [Instance.NewHeadlessSurface]; it comes with VK_KHR_surface.
const HeadlessSurface = "VK_EXT_headless_surface"

const extSwapchain = "VK_KHR_swapchain"

// Surface is a VkSurfaceKHR, which a window shows what is presented to. It must outlive the swapchains made for it.
type Surface struct {
	instance   *Instance
	mu         sync.Mutex
	handle     uintptr // 0 once destroyed
	swapchains int
}

// AdoptSurface takes over the surface that a window's library made on the instance, whose extensions for surfaces must have been
// enabled: InstanceOptions.Extensions. The Close of the Surface or of the instance destroys it.
func (in *Instance) AdoptSurface(handle uintptr) (*Surface, error) {
	if handle == 0 {
		return nil, argErr("AdoptSurface", "handle", 0, "it must be a VkSurfaceKHR")
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.forSurfaces("AdoptSurface"); err != nil {
		return nil, err
	}
	in.faults.count("SurfaceKHR", 1)
	return in.newSurface(handle), nil
}

// NewHeadlessSurface makes a surface that nobody sees, for tests and for machines without a display. The instance must have been made with
// the extensions VK_KHR_surface and [HeadlessSurface].
func (in *Instance) NewHeadlessSurface() (*Surface, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := in.forSurfaces("NewHeadlessSurface"); err != nil {
		return nil, err
	}
	if !in.headless {
		return nil, fmt.Errorf("vk: NewHeadlessSurface: the instance was made without the extension %s: %w", HeadlessSurface,
			ErrUnsupported)
	}
	var h uintptr
	if err := callErr("vkCreateHeadlessSurfaceEXT", Result(in.table.createHeadlessSurface(&h)), ""); err != nil {
		return nil, err
	}
	return in.newSurface(h), nil
}

// forSurfaces says why there can be no surface; in.mu is held.
func (in *Instance) forSurfaces(call string) error {
	if in.closed {
		return ErrClosed
	}
	if !in.table.hasSurfaces() {
		return fmt.Errorf("vk: %s: the instance was made without the extension VK_KHR_surface: %w", call, ErrUnsupported)
	}
	return nil
}

func (in *Instance) newSurface(handle uintptr) *Surface {
	s := &Surface{instance: in, handle: handle}
	in.surfaces[s] = struct{}{}
	return s
}

// destroySurfaces destroys those left, when no device is.
func (in *Instance) destroySurfaces() {
	for s := range in.surfaces {
		s.mu.Lock()
		in.table.destroySurface(s.handle)
		s.handle = 0
		s.mu.Unlock()
	}
	in.surfaces = nil
}

// Close destroys the surface. It is refused while a swapchain made for it is open. A second call does nothing, nor does one after the
// Close of the instance.
func (s *Surface) Close() error {
	if s == nil {
		return nil
	}
	in := s.instance
	in.mu.Lock()
	defer in.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle == 0 || in.closed {
		return nil
	}
	if s.swapchains > 0 {
		return argErr("Surface.Close", "surface", fmt.Sprintf("with %d open swapchains", s.swapchains), "they must be closed first")
	}
	in.table.destroySurface(s.handle)
	s.handle = 0
	delete(in.surfaces, s)
	return nil
}

// Handle returns the VkSurfaceKHR, 0 after Close.
func (s *Surface) Handle() uintptr {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handle
}

// family is the queue family to open: one that presents to the surface, if there is any.
func (p *PhysicalDevice) family(s *Surface) (uint32, error) {
	if s == nil {
		return computeFamily(p.facts)
	}
	const call = "PhysicalDevice.Open"
	handle := s.Handle()
	if handle == 0 || s.instance != p.instance {
		return 0, argErr(call, "Surface", "closed or of another instance", "it must be an open surface of this instance")
	}
	if !p.facts.HasExtension(extSwapchain) {
		return 0, fmt.Errorf("vk: device %q has no %s, so that it cannot show anything: %w", p.facts.Name, extSwapchain, ErrUnsupported)
	}
	i, err := familyWhere(p.facts, func(family uint32) (bool, error) {
		var yes bool
		r := p.instance.table.surfaceSupport(p.handle, family, handle, &yes)
		return yes, callErr("vkGetPhysicalDeviceSurfaceSupportKHR", Result(r), p.facts.Name)
	})
	if err == nil && i < 0 {
		err = fmt.Errorf("vk: device %q has no queue family that computes and presents to this surface: %w", p.facts.Name, ErrUnsupported)
	}
	return uint32(i), err
}

// PresentMode says what becomes of images that are presented faster than the display shows them.
type PresentMode int

// The modes that every program can ask for; a surface without one gets PresentFIFO, which all have.
const (
	PresentFIFO      PresentMode = iota // one image each refresh, in order
	PresentMailbox                      // the latest image each refresh
	PresentImmediate                    // at once, torn as may be
)

// String returns the mode's name.
func (m PresentMode) String() string {
	switch m {
	case PresentFIFO:
		return "FIFO"
	case PresentMailbox:
		return "mailbox"
	case PresentImmediate:
		return "immediate"
	}
	return fmt.Sprintf("PresentMode(%d)", int(m))
}

// native is the VkPresentModeKHR.
func (m PresentMode) native() uint32 {
	switch m {
	case PresentMailbox:
		return abi.PresentModeMailboxKHR
	case PresentImmediate:
		return abi.PresentModeImmediateKHR
	}
	return abi.PresentModeFifoKHR
}

// The formats whose pixels are four bytes that a display shows as they are, and how they are called.
const (
	formatRGBA = abi.FormatR8g8b8a8Unorm
	formatBGRA = abi.FormatB8g8r8a8Unorm
)

// surfaceFacts are what a swapchain is chosen by.
type surfaceFacts struct {
	capabilities abi.SurfaceCapabilitiesKHR
	format       uint32
	modes        []uint32
}

func (d *Device) askSurface(handle uintptr) (f surfaceFacts, err error) {
	if err := d.check("vkGetPhysicalDeviceSurfaceCapabilitiesKHR", d.instance.surfaceCapabilities(d.physical, handle,
		&f.capabilities)); err != nil {
		return f, err
	}
	formats, err := list("vkGetPhysicalDeviceSurfaceFormatsKHR", func(out []abi.SurfaceFormatKHR) int32 {
		return d.instance.surfaceFormats(d.physical, handle, out)
	})
	if err != nil {
		return f, err
	}
	suits := func(format uint32) bool {
		return slices.Contains(formats, abi.SurfaceFormatKHR{Format: format, ColorSpace: abi.ColorSpaceSrgbNonlinearKHR})
	}
	switch {
	case suits(formatBGRA):
		f.format = formatBGRA
	case suits(formatRGBA):
		f.format = formatRGBA
	default:
		return f, fmt.Errorf("vk: the surface takes no images of four 8-bit channels from device %q: %w", d.facts.Name, ErrUnsupported)
	}
	f.modes, err = list("vkGetPhysicalDeviceSurfacePresentModesKHR", func(out []uint32) int32 {
		return d.instance.surfaceModes(d.physical, handle, out)
	})
	return f, err
}
