package flash_test

import (
	"fmt"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// A program with a Vulkan device of its own attaches it, lays tensors over its own buffer, and records attention into its own command
// buffer, between commands of its own. Handles are plain integers, whatever the binding; this program's is package vk.
// examples/embed does the same between two shaders.
func ExampleAttach() {
	check(vk.Load())
	instance := must(vk.NewInstance(vk.InstanceOptions{AppName: "example"}))
	defer instance.Close()
	own := must(must(instance.PhysicalDevices())[0].Open(vk.DeviceOptions{}))
	defer own.Close()

	// Features and extensions count as absent unless External names them: Vulkan cannot be asked what a device was created with.
	external := own.External()
	dev := must(flash.Attach(flash.External{
		Instance: external.Instance, PhysicalDevice: external.PhysicalDevice, Device: external.Device,
		Queue: external.Queue, QueueFamily: external.QueueFamily,
		APIVersion: external.APIVersion, Enabled: external.Enabled, Extensions: external.Extensions,
	}))
	defer dev.Close() // leaves what is the program's alone
	plan := must(dev.Plan(flash.Problem{Batch: 1, Heads: 2, QueryLen: 32, HeadDim: 16}))
	shape := plan.Problem().QShape()

	const bytes = 2 * 32 * 16 * 4 // of each tensor; they stand one behind the other
	buffer := must(own.NewBuffer(4*bytes, vk.DeviceLocal))
	defer buffer.Close()
	var t [4]*flash.Tensor
	for i := range t {
		t[i] = must(dev.TensorOn(flash.BufferRef{Handle: buffer.Handle(), Size: buffer.Size()}, uint64(i)*bytes, flash.F32,
			shape, [4]int{}))
	}

	pool := must(own.NewCommandPool())
	defer pool.Close()
	cmd := must(pool.Allocate())
	fence := must(own.NewFence(false))
	defer fence.Close()
	check(cmd.Begin(true))
	var fill vk.Stream                                                        // the program's own work
	fill.Fill(vk.BufferRange{Buffer: buffer, Size: vk.WholeSize}, 0x3f800000) // 1
	check(cmd.Execute(&fill))
	rec := must(plan.RecordForward(cmd.Handle(), flash.Forward{Q: t[0], K: t[1], V: t[2], O: t[3]})) // waits for it by a barrier
	defer rec.Close()
	check(cmd.End())
	check(own.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}, Fence: fence}))
	check(fence.Wait(time.Minute))

	fmt.Println(downloaded(t[3])[:4])
	// Output:
	// [1 1 1 1]
}
