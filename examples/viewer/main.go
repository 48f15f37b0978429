//go:build view && cgo

// Command viewer is the smallest program that draws attention in a window: it owns a Vulkan device, attaches vkattn to it, and one command
// buffer a frame has attention's map, a shader of its own that colours it, and the copy to the swapchain. Nothing passes through the host.
//
//	make view && tools/run.sh bin/viewer
package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"github.com/go-gl/glfw/v3.3/glfw"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

//go:embed color.spv
var colorSPIRV []byte

const length, dim, cells = 512, 32, 512 // queries and keys of one head; cells of its map down and across

func init() { runtime.LockOSThread() } // windows belong to the first thread

func main() {
	if err := run(-1, vk.InstanceOptions{AppName: "viewer"}, nil); err != nil {
		fmt.Fprintln(os.Stderr, "viewer:", err)
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](x T, err error) T { check(err); return x }

// run shows so many frames, or with less than 0 as many as there are until the window is closed. After each it calls back.
func run(frames int, options vk.InstanceOptions, after func(*glfw.Window)) (err error) {
	defer func() {
		if p := recover(); p != nil { // of check
			failed, ok := p.(error)
			if !ok {
				failed = fmt.Errorf("%v", p)
			}
			err = errors.Join(err, failed)
		}
	}()
	check(glfw.Init())
	defer glfw.Terminate()
	glfw.WindowHint(glfw.ClientAPI, glfw.NoAPI)
	window := must(glfw.CreateWindow(640, 640, "attention", nil, nil))

	// The program's own instance, surface and device, as it would have them without attention. Closing the instance closes all of it.
	options.Extensions = window.GetRequiredInstanceExtensions()
	instance := must(vk.NewInstance(options))
	defer func() { err = errors.Join(err, instance.Close()) }()
	surface := newSurface(window, instance)
	dev := must(must(instance.PhysicalDevices())[0].Open(vk.DeviceOptions{Surface: surface}))

	// vkattn on the same device: attention once, for lse, and commands that make its map in a buffer of the program's.
	attention := must(flash.Attach(dev.External()))
	defer func() { err = errors.Join(err, attention.Close()) }()
	plan := must(attention.Plan(flash.Problem{Batch: 1, Heads: 1, QueryLen: length, HeadDim: dim, Causal: flash.CausalBottomRight}))
	picture := must(dev.NewBuffer(4*cells*cells, vk.DeviceLocal))
	buffer := flash.BufferRef{Handle: picture.Handle(), Size: picture.Size()}
	out := must(attention.TensorOn(buffer, 0, flash.F32, [4]int{1, 1, cells, cells}, [4]int{}))
	q := must(attention.NewTensor(flash.F32, 1, 1, length, dim))
	o, lse := must(attention.NewTensor(flash.F32, 1, 1, length, dim)), must(attention.NewLSE(1, 1, length))
	values := make([]float32, length*dim)
	for i := range values {
		values[i] = float32(rand.NormFloat64())
		if i >= 8*dim {
			values[i] += 0.5 * values[i-8*dim] // so that there is something to see
		}
	}
	ctx := context.Background()
	check(q.Upload(ctx, values))
	pass := flash.Forward{Q: q, K: q, V: q, O: o, LSE: lse}
	check(plan.Forward(ctx, pass))
	maps := must(plan.NewMapRecording())
	check(maps.Map(flash.Map{Forward: pass, Out: out, Pool: flash.PoolMax}))

	code := make([]uint32, len(colorSPIRV)/4)
	for i := range code {
		code[i] = binary.LittleEndian.Uint32(colorSPIRV[4*i:])
	}
	color := must(dev.NewComputePipeline(vk.PipelineInfo{Name: "color", Code: code, Bindings: 2, PushBytes: 20}))
	sets, fence, acquired := must(dev.NewDescriptorPool(1, 2)), must(dev.NewFence(true)), must(dev.NewSemaphore())
	cmd := must(must(dev.NewCommandPool()).Allocate())
	var s vk.Stream
	var screen *screen
	for shown := 0; shown != frames && !window.ShouldClose(); {
		glfw.PollEvents()
		if screen, err = screen.fit(dev, surface, window); errors.Is(err, vk.ErrNoArea) { // minimised
			glfw.WaitEventsTimeout(0.1)
			continue
		}
		check(err)
		check(fence.Wait(time.Minute)) // one frame is in flight
		i, suboptimal, err := screen.chain.Acquire(acquired, 10*time.Second)
		if screen.stale = errors.Is(err, vk.ErrOutOfDate); screen.stale { // resized
			continue
		}
		check(err)
		check(fence.Reset())
		check(cmd.Begin(true))
		check(maps.Record(cmd.Handle())) // what follows on the compute stage may read the map
		s.Reset()
		screen.draw(&s, dev, sets, color, picture)
		image := screen.chain.Image(i)
		s.ImageBarrier(image, vk.LayoutUndefined, vk.LayoutTransferDst, vk.StageTransfer, 0, vk.StageTransfer, vk.AccessTransferWrite)
		s.CopyToImage(image, screen.pixels, 0)
		s.ImageBarrier(image, vk.LayoutTransferDst, vk.LayoutPresent, vk.StageTransfer, vk.AccessTransferWrite, vk.StageBottom, 0)
		check(cmd.Execute(&s))
		check(cmd.End())
		check(dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}, Fence: fence,
			WaitBinary: []*vk.Semaphore{acquired}, SignalBinary: []*vk.Semaphore{screen.drawn[i]}}))
		more, err := dev.Queue().Present(screen.chain, i, screen.drawn[i])
		if screen.stale = suboptimal || more || errors.Is(err, vk.ErrOutOfDate); !screen.stale {
			check(err)
		}
		if shown++; after != nil {
			after(window)
		}
	}
	return nil
}

// newSurface makes the window's surface. No garbage may be collected until the handle is read: nothing refers to it before.
func newSurface(window *glfw.Window, instance *vk.Instance) *vk.Surface {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	handle := instance.Handle()
	at := must(window.CreateWindowSurface(*(**byte)(unsafe.Pointer(&handle)), nil))
	return must(instance.AdoptSurface(**(**uintptr)(unsafe.Pointer(&at))))
}

// screen is what the window's size decides.
type screen struct {
	chain  *vk.Swapchain
	drawn  []*vk.Semaphore // of each image
	pixels *vk.Buffer
	stale  bool // the surface takes another size now
}

// fit makes a screen for the window as it is, where there is none or it is stale.
func (old *screen) fit(dev *vk.Device, surface *vk.Surface, window *glfw.Window) (*screen, error) {
	if old != nil && !old.stale {
		return old, nil
	}
	check(dev.Queue().WaitIdle())
	if old != nil {
		old.chain.Close()
		old.pixels.Close()
		for _, d := range old.drawn {
			d.Close()
		}
	}
	width, height := window.GetFramebufferSize()
	chain, err := dev.NewSwapchain(vk.SwapchainInfo{Surface: surface, Width: uint32(width), Height: uint32(height)})
	if err != nil {
		return nil, err
	}
	n := &screen{chain: chain}
	width, height = chain.Size()
	n.pixels = must(dev.NewBuffer(uint64(4*width*height), vk.DeviceLocal))
	for range chain.Len() {
		n.drawn = append(n.drawn, must(dev.NewSemaphore()))
	}
	return n, nil
}

// draw colours the map, after what wrote it and before what copies the pixels.
func (n *screen) draw(s *vk.Stream, dev *vk.Device, sets *vk.DescriptorPool, color *vk.ComputePipeline, picture *vk.Buffer) {
	check(sets.Reset())
	set := must(sets.Allocate(color))
	check(dev.UpdateDescriptors(set, []vk.BufferBinding{{Buffer: picture, Size: picture.Capacity()},
		{Buffer: n.pixels, Size: n.pixels.Capacity()}}))
	width, height := n.chain.Size()
	args := [5]uint32{cells, cells, uint32(width), uint32(height), 0}
	if n.chain.BGRA() {
		args[4] = 1
	}
	s.Bind(color, set)
	s.Push(unsafe.Slice((*byte)(unsafe.Pointer(&args)), unsafe.Sizeof(args)))
	s.Dispatch(uint32(width+7)/8, uint32(height+7)/8, 1)
	s.Barrier(vk.StageCompute, vk.AccessShaderWrite, vk.StageTransfer, vk.AccessTransferRead)
}
