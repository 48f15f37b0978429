//go:build view && cgo

package window

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"github.com/go-gl/glfw/v3.3/glfw"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/render"
	"github.com/vkattn/vkattn/vk"
)

// ErrNoDisplay is wrapped by the error of Open where there is no display to open a window on.
var ErrNoDisplay = errors.New("there is no display to open a window on")

// Options say what is opened.
type Options struct {
	Title         string
	Width, Height int                // of the window, in the units of the window system
	Instance      vk.InstanceOptions // without the extensions of surfaces, which are added
	Choose        func([]*vk.PhysicalDevice) (*vk.PhysicalDevice, error)
	Render        render.Options
}

// Window is a window with a subject in it. It belongs to the goroutine that opened it, which must be locked to its thread: on macOS the
// program's first.
type Window struct {
	State *view.State

	glfw     *glfw.Window
	instance *vk.Instance
	surface  *vk.Surface
	dev      *vk.Device
	renderer *render.Renderer
	chain    *vk.Swapchain
	frames   []frame         // in flight by turns
	drawn    []*vk.Semaphore // of each image
	turn     int
	stale    bool // the swapchain must be made anew
	dirty    bool // the picture is not what the state says
	shown    view.Facts
	Frames   int // presented so far
}

// frame is what a frame in flight has for itself.
type frame struct {
	slot     *render.Slot
	acquired *vk.Semaphore
}

// framesInFlight lets the host prepare one frame while the device draws the other.
const framesInFlight = 2

// Open opens a window and a device that presents to it, and puts attention on that device.
func Open(subject *view.Subject, o Options) (w *Window, err error) {
	w = &Window{dirty: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.glfw, err = openGLFW(&o); err != nil {
		return w, fmt.Errorf("%w: %w", ErrNoDisplay, err)
	}
	if err := vk.Load(); err != nil {
		return w, err
	}
	o.Instance.Extensions = append(o.Instance.Extensions, w.glfw.GetRequiredInstanceExtensions()...)
	if w.instance, err = vk.NewInstance(o.Instance); err != nil {
		return w, err
	}
	if err := w.newSurface(); err != nil {
		return w, err
	}
	devices, err := w.instance.PhysicalDevices()
	if err != nil {
		return w, err
	}
	physical, err := o.Choose(devices)
	if err != nil {
		return w, err
	}
	if w.dev, err = physical.Open(vk.DeviceOptions{Surface: w.surface}); err != nil {
		return w, err
	}
	if w.renderer, err = render.New(w.dev, subject, o.Render); err != nil {
		return w, err
	}
	if w.State, err = view.New(subject, 1, 1); err != nil {
		return w, err
	}
	for range framesInFlight {
		var f frame
		if f.slot, err = w.renderer.NewSlot(); err != nil {
			return w, err
		}
		if f.acquired, err = w.dev.NewSemaphore(); err != nil {
			return w, err
		}
		w.frames = append(w.frames, f)
	}
	w.listen()
	w.stale = true
	return w, nil
}

// openGLFW starts GLFW and opens a window. Its binding logs some errors of the window system, and panics with others in the calls after
// them: both become an error here.
func openGLFW(o *Options) (w *glfw.Window, err error) {
	var said bytes.Buffer
	before, flags := log.Writer(), log.Flags()
	log.SetOutput(&said)
	log.SetFlags(0)
	defer func() {
		log.SetOutput(before)
		log.SetFlags(flags)
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil && said.Len() > 0 {
			err = errors.New(strings.TrimSpace(said.String()))
		}
	}()
	if err := glfw.Init(); err != nil {
		return nil, err
	}
	glfw.WindowHint(glfw.ClientAPI, glfw.NoAPI)
	glfw.WindowHint(glfw.ScaleToMonitor, glfw.True)
	return glfw.CreateWindow(o.Width, o.Height, o.Title, nil, nil)
}

// newSurface makes the window's surface.
func (w *Window) newSurface() error {
	// GLFW's binding takes the instance as some pointer, and gives the address of a handle that nothing refers to any more: no collection
	// of garbage may begin before the handle is read.
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	instance := w.instance.Handle()
	at, err := w.glfw.CreateWindowSurface(*(**byte)(unsafe.Pointer(&instance)), nil)
	if err != nil {
		return err
	}
	handle := **(**uintptr)(unsafe.Pointer(&at))
	w.surface, err = w.instance.AdoptSurface(handle)
	return err
}

// remake makes the swapchain for the window as it is now. It does nothing while the window has no area.
func (w *Window) remake() error {
	width, height := w.glfw.GetFramebufferSize()
	if width == 0 || height == 0 {
		return nil
	}
	chain, err := w.dev.NewSwapchain(vk.SwapchainInfo{Surface: w.surface, Width: uint32(width), Height: uint32(height), Old: w.chain})
	if errors.Is(err, vk.ErrNoArea) {
		return nil
	}
	if errors.Is(err, vk.ErrSurfaceLost) {
		return w.remakeSurface()
	}
	if err != nil {
		return err
	}
	if err := w.dropChain(); err != nil {
		return errors.Join(err, chain.Close())
	}
	w.chain, w.stale, w.dirty = chain, false, true
	for len(w.drawn) < chain.Len() {
		s, err := w.dev.NewSemaphore()
		if err != nil {
			return err
		}
		w.drawn = append(w.drawn, s)
	}
	scale, _ := w.glfw.GetContentScale()
	width, height = chain.Size()
	w.State.Resize(width, height, float64(scale))
	return nil
}

// remakeSurface takes another surface for one that was lost; the swapchain follows in the next step.
func (w *Window) remakeSurface() error {
	if err := w.dropChain(); err != nil {
		return err
	}
	if err := w.surface.Close(); err != nil {
		return err
	}
	w.stale = true
	return w.newSurface()
}

// dropChain closes the swapchain when nothing uses it.
func (w *Window) dropChain() error {
	if w.chain == nil {
		return nil
	}
	if err := w.dev.Queue().WaitIdle(); err != nil {
		return err
	}
	err := w.chain.Close()
	w.chain = nil
	return err
}

// Step takes the events that there are, or waits for some up to a time where there is nothing to draw, and draws where the picture has
// changed. It is false when the window is to close.
func (w *Window) Step(wait time.Duration) (bool, error) {
	if w.dirty || w.stale || w.State.Running {
		glfw.PollEvents()
	} else if told, err := w.settle(); err != nil {
		return false, err
	} else if told {
		w.dirty = true
		glfw.PollEvents()
	} else if wait > 0 {
		glfw.WaitEventsTimeout(wait.Seconds())
	} else {
		glfw.PollEvents()
	}
	if w.State.Quit || w.glfw.ShouldClose() {
		return false, nil
	}
	if w.stale {
		if err := w.remake(); err != nil {
			return false, err
		}
		if w.chain == nil || w.stale { // no area, or a surface that has just been made
			if wait > 0 {
				glfw.WaitEventsTimeout(min(wait, 50*time.Millisecond).Seconds())
			}
			return true, nil
		}
	}
	if w.dirty || w.State.Running {
		return true, w.draw()
	}
	return true, nil
}

// settle waits for frames in flight, and says whether they told something that is not shown yet.
func (w *Window) settle() (bool, error) {
	for _, f := range w.frames {
		if err := f.slot.Wait(); err != nil {
			return false, err
		}
	}
	now, before := w.renderer.Facts(), w.shown
	return now.Peak != before.Peak || now.Weight != before.Weight || now.Entropy != before.Entropy || now.HasWeight != before.HasWeight ||
		now.Attention != before.Attention || now.Map != before.Map, nil
}

// waitForImage is how long a display may keep all images before the window counts as stuck.
const waitForImage = 10 * time.Second

// draw draws a frame and presents it. What the surface no longer takes is made anew in the next step.
func (w *Window) draw() error {
	f := &w.frames[w.turn]
	if err := f.slot.Wait(); err != nil { // its semaphore has been waited for, too
		return err
	}
	i, suboptimal, err := w.chain.Acquire(f.acquired, waitForImage)
	if again, err := w.again(err); again || err != nil {
		return err
	}
	w.shown = w.renderer.Facts()
	w.dirty = false
	if err := f.slot.Begin(w.State, w.chain.BGRA()); err != nil {
		return err
	}
	image, s := w.chain.Image(i), f.slot.Stream()
	s.ImageBarrier(image, vk.LayoutUndefined, vk.LayoutTransferDst, vk.StageTransfer, 0, vk.StageTransfer, vk.AccessTransferWrite)
	s.CopyToImage(image, f.slot.Pixels, 0)
	s.ImageBarrier(image, vk.LayoutTransferDst, vk.LayoutPresent, vk.StageTransfer, vk.AccessTransferWrite, vk.StageBottom, 0)
	if err := f.slot.Submit([]*vk.Semaphore{f.acquired}, []*vk.Semaphore{w.drawn[i]}); err != nil {
		return err
	}
	w.turn = (w.turn + 1) % len(w.frames)
	more, err := w.dev.Queue().Present(w.chain, i, w.drawn[i])
	if again, err := w.again(err); again || err != nil {
		return err
	}
	w.Frames++
	w.stale = w.stale || suboptimal || more
	return nil
}

// again says whether an error is over when the swapchain, or its surface, is made anew; others it gives back.
func (w *Window) again(err error) (bool, error) {
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, vk.ErrOutOfDate):
		w.stale, w.dirty = true, true
		return true, nil
	case errors.Is(err, vk.ErrSurfaceLost):
		w.dirty = true
		return true, w.remakeSurface()
	}
	return false, err
}

// Run steps until the window is closed, or the context ends.
func (w *Window) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, glfw.PostEmptyEvent)()
	for ctx.Err() == nil {
		if on, err := w.Step(time.Second); !on || err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close closes the window and frees everything, the device among it.
func (w *Window) Close() error {
	var err error
	if w.dev != nil {
		err = errors.Join(w.renderer.Close(), w.dev.Close())
	}
	if w.surface != nil {
		err = errors.Join(err, w.surface.Close())
	}
	if w.instance != nil {
		err = errors.Join(err, w.instance.Close())
	}
	if w.glfw != nil {
		w.glfw.Destroy()
	}
	w.glfw, w.dev, w.instance, w.renderer, w.surface = nil, nil, nil, nil, nil
	terminate()
	return err
}

// terminate ends GLFW, whether it was started or not.
func terminate() {
	defer func() { _ = recover() }()
	glfw.Terminate()
}
