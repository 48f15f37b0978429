//go:build cgo

// Command embed is a program that has a Vulkan device of its own, made with plain vulkan-go, and puts attention between its own
// compute shaders, in its own command buffer:
//
//	project.comp (the program's)   q, k, v from x
//	flash attention (vkattn's)     o = softmax(q·kᵀ/√D, causal)·v
//	residual.comp (the program's)  y = x + o
//
// It submits once, waits once, and checks y against the same computation in float64 on the CPU.
//
//	go run ./examples/embed
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"unsafe"

	"github.com/vkattn/vkattn/flash"
)

const (
	batch, heads, length, dim = 2, 4, 96, 32

	elements = batch * heads * length * dim
	size     = 4 * elements // all tensors of this program are fp32
)

func main() {
	validate := flag.Bool("validate", false, "turn on the Khronos validation layer; any message is an error")
	flag.Parse()
	if err := run(os.Stdout, *validate); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, validate bool) (err error) {
	// vulkan-go frees the C copies of some slice arguments (QueueSubmit, CmdPipelineBarrier, …) from finalizers, which may run
	// during the very call. Without garbage collection they do not. A program that lives longer makes those calls through cgo.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	g, err := newGPU(validate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	fmt.Fprintf(out, "device: %s\n", g.name)

	// From here on, what a program that embeds vkattn adds to its own.
	dev, err := attach(g)
	if err != nil {
		return err
	}
	defer dev.Close()

	plan, err := dev.Plan(flash.Problem{
		Batch: batch, Heads: heads, QueryLen: length, HeadDim: dim, DType: flash.F32, Causal: flash.CausalBottomRight,
	})
	if err != nil {
		return err
	}
	defer plan.Close()
	fmt.Fprintf(out, "kernel: %s\n", plan.ForwardInfo().Kernel)

	var buffers struct{ x, q, k, v, o, y buffer }
	for _, b := range []struct {
		at      *buffer
		visible bool // to the host
	}{{&buffers.x, true}, {&buffers.q, false}, {&buffers.k, false}, {&buffers.v, false}, {&buffers.o, false}, {&buffers.y, true}} {
		if *b.at, err = g.newBuffer(size, b.visible); err != nil {
			return err
		}
	}
	tensor := func(b buffer) *flash.Tensor { // a view of the program's own buffer
		if err != nil {
			return nil
		}
		var t *flash.Tensor
		t, err = dev.TensorOn(flash.BufferRef{Handle: uintptr(unsafe.Pointer(b.handle)), Size: size}, 0, flash.F32,
			[4]int{batch, heads, length, dim}, [4]int{heads * length * dim, length * dim, dim, 1})
		return t
	}
	attention := flash.Forward{Q: tensor(buffers.q), K: tensor(buffers.k), V: tensor(buffers.v), O: tensor(buffers.o)}
	if err != nil {
		return err
	}

	project, err := g.newKernel(projectSPIRV, buffers.x, buffers.q, buffers.k, buffers.v)
	if err != nil {
		return err
	}
	residual, err := g.newKernel(residualSPIRV, buffers.x, buffers.o, buffers.y)
	if err != nil {
		return err
	}

	x := unsafe.Slice((*float32)(buffers.x.memory), elements)
	for i := range x {
		x[i] = float32(math.Sin(float64(i) * 0.7)) // any numbers do
	}

	cmd, err := g.begin()
	if err != nil {
		return err
	}
	g.dispatch(cmd, project, elements)
	// Attention waits for compute and transfer work before it, and lets such work after it wait: those are the default uses.
	recording, err := plan.RecordForward(uintptr(unsafe.Pointer(cmd)), attention)
	if err != nil {
		return err
	}
	defer recording.Close() // it owns the descriptors: not before the commands have run
	g.dispatch(cmd, residual, elements)
	g.barrierToHost(cmd)
	if err := g.submitAndWait(cmd); err != nil {
		return err
	}

	y := unsafe.Slice((*float32)(buffers.y.memory), elements)
	worst := largestDifference(y, expected(x))
	const bound = 1e-5
	if !(worst <= bound) { // a NaN is not
		return fmt.Errorf("y differs from the float64 computation by %.3g, more than %.0e", worst, bound)
	}
	fmt.Fprintf(out, "y = x + attention(2x, x, 1-x): %d values, largest error %.2g (bound %.0e)\n", len(y), worst, bound)
	return nil
}

func attach(g *gpu) (*flash.Device, error) {
	return flash.Attach(flash.External{
		Instance:       uintptr(unsafe.Pointer(g.instance)),
		PhysicalDevice: uintptr(unsafe.Pointer(g.physical)),
		Device:         uintptr(unsafe.Pointer(g.device)),
		Queue:          uintptr(unsafe.Pointer(g.queue)),
		QueueFamily:    g.family,
		APIVersion:     apiVersion,
		// Enabled and Extensions stay empty: this program's device has neither, and fp32 attention needs neither.
	})
}
