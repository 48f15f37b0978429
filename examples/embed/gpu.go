//go:build cgo

package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	vulkan "github.com/vulkan-go/vulkan"

	"github.com/vkattn/vkattn/vk"
)

// The program's own shaders, compiled by tools/glslc.sh: glslc -O --target-env=vulkan1.1 project.comp -o project.spv, and the same
// for residual.comp.
var (
	//go:embed project.spv
	projectSPIRV []byte
	//go:embed residual.spv
	residualSPIRV []byte
)

const (
	apiVersion      = 1<<22 | 1<<12 // Vulkan 1.1
	validationLayer = "VK_LAYER_KHRONOS_validation\x00"
	groupSize       = 64 // local_size_x of both shaders
)

// gpu is the program's own Vulkan: nothing of it knows vkattn.
type gpu struct {
	name     string
	instance vulkan.Instance
	physical vulkan.PhysicalDevice
	device   vulkan.Device
	queue    vulkan.Queue
	family   uint32
	commands vulkan.CommandPool

	destroy []func() // in order of making

	mu       sync.Mutex
	messages []string // of the validation layer
}

type buffer struct {
	handle vulkan.Buffer
	memory unsafe.Pointer // mapped when visible to the host
}

type kernel struct {
	pipeline vulkan.Pipeline
	layout   vulkan.PipelineLayout
	set      vulkan.DescriptorSet
}

var errNoDevice = errors.New("no Vulkan 1.1 device with a compute queue")

func check(call string, r vulkan.Result) error {
	if err := vulkan.Error(r); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}

// newGPU makes an instance and a device with one compute queue and no features.
func newGPU(validate bool) (g *gpu, err error) {
	g = &gpu{}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	// vulkan-go looks for libvulkan.so, which only development packages have; vk.Load finds the loader that is there and
	// hands it to vulkan-go. A program with GLFW would use vulkan.SetGetInstanceProcAddr instead.
	if err := vk.Load(); err != nil {
		return g, err
	}
	if err := g.newInstance(validate); err != nil {
		return g, err
	}
	if err := g.choosePhysical(); err != nil {
		return g, err
	}
	return g, g.newDevice()
}

func (g *gpu) newInstance(validate bool) error {
	info := vulkan.InstanceCreateInfo{
		SType: vulkan.StructureTypeInstanceCreateInfo,
		PApplicationInfo: &vulkan.ApplicationInfo{
			SType: vulkan.StructureTypeApplicationInfo, PApplicationName: "embed\x00", ApiVersion: apiVersion,
		},
	}
	if validate {
		info.EnabledLayerCount, info.PpEnabledLayerNames = 1, []string{validationLayer}
		info.EnabledExtensionCount, info.PpEnabledExtensionNames = 1, []string{vulkan.ExtDebugReportExtensionName + "\x00"}
	}
	var instance vulkan.Instance
	if err := check("vkCreateInstance", vulkan.CreateInstance(&info, nil, &instance)); err != nil {
		return err
	}
	g.instance = instance
	g.destroy = append(g.destroy, func() { vulkan.DestroyInstance(instance, nil) })
	if err := vulkan.InitInstance(instance); err != nil {
		return err
	}
	if !validate {
		return nil
	}
	var callback vulkan.DebugReportCallback
	err := check("vkCreateDebugReportCallbackEXT", vulkan.CreateDebugReportCallback(instance, &vulkan.DebugReportCallbackCreateInfo{
		SType:       vulkan.StructureTypeDebugReportCallbackCreateInfo,
		Flags:       vulkan.DebugReportFlags(vulkan.DebugReportErrorBit | vulkan.DebugReportWarningBit),
		PfnCallback: g.message,
	}, nil, &callback))
	if err == nil {
		g.destroy = append(g.destroy, func() { vulkan.DestroyDebugReportCallback(instance, callback, nil) })
	}
	return err
}

func (g *gpu) message(_ vulkan.DebugReportFlags, _ vulkan.DebugReportObjectType, _ uint64, _ uint, _ int32,
	_, text string, _ unsafe.Pointer) vulkan.Bool32 {
	if (vk.Message{Text: text}).NotOurs(0) != "" { // what old loaders cause in every program
		return vulkan.False
	}
	g.mu.Lock()
	g.messages = append(g.messages, strings.Clone(text)) // it lies in memory of the layer
	g.mu.Unlock()
	return vulkan.False
}

// choosePhysical takes the first GPU with a compute queue, or the first device with one.
func (g *gpu) choosePhysical() error {
	var count uint32
	if err := check("vkEnumeratePhysicalDevices", vulkan.EnumeratePhysicalDevices(g.instance, &count, nil)); err != nil {
		return err
	}
	devices := make([]vulkan.PhysicalDevice, count)
	if err := check("vkEnumeratePhysicalDevices", vulkan.EnumeratePhysicalDevices(g.instance, &count, devices)); err != nil {
		return err
	}
	for _, device := range devices {
		var properties vulkan.PhysicalDeviceProperties
		vulkan.GetPhysicalDeviceProperties(device, &properties)
		properties.Deref()
		family, ok := computeFamily(device)
		isCPU := properties.DeviceType == vulkan.PhysicalDeviceTypeCpu
		if !ok || properties.ApiVersion < apiVersion || (g.physical != nil && isCPU) {
			continue
		}
		g.physical, g.family, g.name = device, family, vulkan.ToString(properties.DeviceName[:])
		if !isCPU {
			break
		}
	}
	if g.physical == nil {
		return errNoDevice
	}
	return nil
}

func computeFamily(device vulkan.PhysicalDevice) (uint32, bool) {
	var count uint32
	vulkan.GetPhysicalDeviceQueueFamilyProperties(device, &count, nil)
	families := make([]vulkan.QueueFamilyProperties, count)
	vulkan.GetPhysicalDeviceQueueFamilyProperties(device, &count, families)
	i := slices.IndexFunc(families, func(f vulkan.QueueFamilyProperties) bool {
		f.Deref()
		return f.QueueFlags&vulkan.QueueFlags(vulkan.QueueComputeBit) != 0
	})
	return uint32(i), i >= 0
}

func (g *gpu) newDevice() error {
	var device vulkan.Device
	err := check("vkCreateDevice", vulkan.CreateDevice(g.physical, &vulkan.DeviceCreateInfo{
		SType:                vulkan.StructureTypeDeviceCreateInfo,
		QueueCreateInfoCount: 1,
		PQueueCreateInfos: []vulkan.DeviceQueueCreateInfo{{
			SType: vulkan.StructureTypeDeviceQueueCreateInfo, QueueFamilyIndex: g.family, QueueCount: 1, PQueuePriorities: []float32{1},
		}},
	}, nil, &device))
	if err != nil {
		return err
	}
	g.device = device
	g.destroy = append(g.destroy, func() { vulkan.DestroyDevice(device, nil) })
	var queue vulkan.Queue
	vulkan.GetDeviceQueue(device, g.family, 0, &queue)
	g.queue = queue

	var pool vulkan.CommandPool
	err = check("vkCreateCommandPool", vulkan.CreateCommandPool(device, &vulkan.CommandPoolCreateInfo{
		SType: vulkan.StructureTypeCommandPoolCreateInfo, QueueFamilyIndex: g.family,
	}, nil, &pool))
	if err == nil {
		g.commands = pool
		g.destroy = append(g.destroy, func() { vulkan.DestroyCommandPool(device, pool, nil) })
	}
	return err
}

func (g *gpu) newBuffer(size int, visible bool) (buffer, error) {
	var b buffer
	var handle vulkan.Buffer
	err := check("vkCreateBuffer", vulkan.CreateBuffer(g.device, &vulkan.BufferCreateInfo{
		SType: vulkan.StructureTypeBufferCreateInfo, Size: vulkan.DeviceSize(size),
		Usage: vulkan.BufferUsageFlags(vulkan.BufferUsageStorageBufferBit),
	}, nil, &handle))
	if err != nil {
		return b, err
	}
	g.destroy = append(g.destroy, func() { vulkan.DestroyBuffer(g.device, handle, nil) })

	var needs vulkan.MemoryRequirements
	vulkan.GetBufferMemoryRequirements(g.device, handle, &needs)
	needs.Deref()
	kind := vulkan.MemoryPropertyFlags(vulkan.MemoryPropertyDeviceLocalBit)
	if visible {
		kind = vulkan.MemoryPropertyFlags(vulkan.MemoryPropertyHostVisibleBit | vulkan.MemoryPropertyHostCoherentBit)
	}
	index, err := g.memoryType(needs.MemoryTypeBits, kind)
	if err != nil {
		return b, err
	}
	var memory vulkan.DeviceMemory
	err = check("vkAllocateMemory", vulkan.AllocateMemory(g.device, &vulkan.MemoryAllocateInfo{
		SType: vulkan.StructureTypeMemoryAllocateInfo, AllocationSize: needs.Size, MemoryTypeIndex: index,
	}, nil, &memory))
	if err != nil {
		return b, err
	}
	g.destroy = append(g.destroy, func() { vulkan.FreeMemory(g.device, memory, nil) })
	if err := check("vkBindBufferMemory", vulkan.BindBufferMemory(g.device, handle, memory, 0)); err != nil {
		return b, err
	}
	b.handle = handle
	if visible {
		var mapped unsafe.Pointer
		if err := check("vkMapMemory", vulkan.MapMemory(g.device, memory, 0, vulkan.DeviceSize(size), 0, &mapped)); err != nil {
			return b, err
		}
		b.memory = mapped
	}
	return b, nil
}

func (g *gpu) memoryType(allowed uint32, kind vulkan.MemoryPropertyFlags) (uint32, error) {
	var properties vulkan.PhysicalDeviceMemoryProperties
	vulkan.GetPhysicalDeviceMemoryProperties(g.physical, &properties)
	properties.Deref()
	for i := range properties.MemoryTypeCount {
		t := properties.MemoryTypes[i]
		t.Deref()
		if allowed&(1<<i) != 0 && t.PropertyFlags&kind == kind {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no memory type with flags %#x", kind)
}

// newKernel makes a compute pipeline with the given storage buffers at bindings 0, 1, ….
func (g *gpu) newKernel(spirv []byte, buffers ...buffer) (kernel, error) {
	var k kernel
	code := make([]uint32, len(spirv)/4)
	for i := range code {
		code[i] = binary.LittleEndian.Uint32(spirv[4*i:])
	}
	var module vulkan.ShaderModule
	err := check("vkCreateShaderModule", vulkan.CreateShaderModule(g.device, &vulkan.ShaderModuleCreateInfo{
		SType: vulkan.StructureTypeShaderModuleCreateInfo, CodeSize: uint(len(spirv)), PCode: code,
	}, nil, &module))
	if err != nil {
		return k, err
	}
	defer vulkan.DestroyShaderModule(g.device, module, nil)

	setLayout, layout, err := g.newLayout(len(buffers))
	if err != nil {
		return k, err
	}
	pipelines := make([]vulkan.Pipeline, 1)
	err = check("vkCreateComputePipelines", vulkan.CreateComputePipelines(g.device, nil, 1, []vulkan.ComputePipelineCreateInfo{{
		SType: vulkan.StructureTypeComputePipelineCreateInfo,
		Stage: vulkan.PipelineShaderStageCreateInfo{
			SType: vulkan.StructureTypePipelineShaderStageCreateInfo, Stage: vulkan.ShaderStageComputeBit, Module: module,
			PName: "main\x00",
		},
		Layout: layout,
	}}, nil, pipelines))
	if err != nil {
		return k, err
	}
	g.destroy = append(g.destroy, func() { vulkan.DestroyPipeline(g.device, pipelines[0], nil) })
	set, err := g.newSet(setLayout, buffers)
	return kernel{pipeline: pipelines[0], layout: layout, set: set}, err
}

func (g *gpu) newLayout(bindings int) (vulkan.DescriptorSetLayout, vulkan.PipelineLayout, error) {
	list := make([]vulkan.DescriptorSetLayoutBinding, bindings)
	for i := range list {
		list[i] = vulkan.DescriptorSetLayoutBinding{
			Binding: uint32(i), DescriptorType: vulkan.DescriptorTypeStorageBuffer, DescriptorCount: 1,
			StageFlags: vulkan.ShaderStageFlags(vulkan.ShaderStageComputeBit),
		}
	}
	var setLayout vulkan.DescriptorSetLayout
	err := check("vkCreateDescriptorSetLayout", vulkan.CreateDescriptorSetLayout(g.device, &vulkan.DescriptorSetLayoutCreateInfo{
		SType: vulkan.StructureTypeDescriptorSetLayoutCreateInfo, BindingCount: uint32(bindings), PBindings: list,
	}, nil, &setLayout))
	if err != nil {
		return nil, nil, err
	}
	g.destroy = append(g.destroy, func() { vulkan.DestroyDescriptorSetLayout(g.device, setLayout, nil) })
	var layout vulkan.PipelineLayout
	err = check("vkCreatePipelineLayout", vulkan.CreatePipelineLayout(g.device, &vulkan.PipelineLayoutCreateInfo{
		SType: vulkan.StructureTypePipelineLayoutCreateInfo, SetLayoutCount: 1, PSetLayouts: []vulkan.DescriptorSetLayout{setLayout},
	}, nil, &layout))
	if err == nil {
		g.destroy = append(g.destroy, func() { vulkan.DestroyPipelineLayout(g.device, layout, nil) })
	}
	return setLayout, layout, err
}

func (g *gpu) newSet(layout vulkan.DescriptorSetLayout, buffers []buffer) (vulkan.DescriptorSet, error) {
	var pool vulkan.DescriptorPool
	err := check("vkCreateDescriptorPool", vulkan.CreateDescriptorPool(g.device, &vulkan.DescriptorPoolCreateInfo{
		SType: vulkan.StructureTypeDescriptorPoolCreateInfo, MaxSets: 1, PoolSizeCount: 1,
		PPoolSizes: []vulkan.DescriptorPoolSize{{Type: vulkan.DescriptorTypeStorageBuffer, DescriptorCount: uint32(len(buffers))}},
	}, nil, &pool))
	if err != nil {
		return nil, err
	}
	g.destroy = append(g.destroy, func() { vulkan.DestroyDescriptorPool(g.device, pool, nil) })
	var set vulkan.DescriptorSet
	err = check("vkAllocateDescriptorSets", vulkan.AllocateDescriptorSets(g.device, &vulkan.DescriptorSetAllocateInfo{
		SType: vulkan.StructureTypeDescriptorSetAllocateInfo, DescriptorPool: pool, DescriptorSetCount: 1,
		PSetLayouts: []vulkan.DescriptorSetLayout{layout},
	}, &set))
	if err != nil {
		return nil, err
	}
	writes := make([]vulkan.WriteDescriptorSet, len(buffers))
	for i, b := range buffers {
		writes[i] = vulkan.WriteDescriptorSet{
			SType: vulkan.StructureTypeWriteDescriptorSet, DstSet: set, DstBinding: uint32(i), DescriptorCount: 1,
			DescriptorType: vulkan.DescriptorTypeStorageBuffer,
			PBufferInfo:    []vulkan.DescriptorBufferInfo{{Buffer: b.handle, Range: vulkan.DeviceSize(vulkan.WholeSize)}},
		}
	}
	vulkan.UpdateDescriptorSets(g.device, uint32(len(writes)), writes, 0, nil)
	return set, nil
}

func (g *gpu) begin() (vulkan.CommandBuffer, error) {
	cmds := make([]vulkan.CommandBuffer, 1)
	err := check("vkAllocateCommandBuffers", vulkan.AllocateCommandBuffers(g.device, &vulkan.CommandBufferAllocateInfo{
		SType: vulkan.StructureTypeCommandBufferAllocateInfo, CommandPool: g.commands,
		Level: vulkan.CommandBufferLevelPrimary, CommandBufferCount: 1,
	}, cmds))
	if err != nil {
		return nil, err
	}
	return cmds[0], check("vkBeginCommandBuffer", vulkan.BeginCommandBuffer(cmds[0], &vulkan.CommandBufferBeginInfo{
		SType: vulkan.StructureTypeCommandBufferBeginInfo, Flags: vulkan.CommandBufferUsageFlags(vulkan.CommandBufferUsageOneTimeSubmitBit),
	}))
}

// dispatch runs a kernel on n elements.
func (g *gpu) dispatch(cmd vulkan.CommandBuffer, k kernel, n uint32) {
	vulkan.CmdBindPipeline(cmd, vulkan.PipelineBindPointCompute, k.pipeline)
	vulkan.CmdBindDescriptorSets(cmd, vulkan.PipelineBindPointCompute, k.layout, 0, 1, []vulkan.DescriptorSet{k.set}, 0, nil)
	vulkan.CmdDispatch(cmd, (n+groupSize-1)/groupSize, 1, 1)
}

// barrierToHost makes what shaders wrote visible to the host once it has waited for the fence.
func (g *gpu) barrierToHost(cmd vulkan.CommandBuffer) {
	vulkan.CmdPipelineBarrier(cmd, vulkan.PipelineStageFlags(vulkan.PipelineStageComputeShaderBit),
		vulkan.PipelineStageFlags(vulkan.PipelineStageHostBit), 0, 1, []vulkan.MemoryBarrier{{
			SType:         vulkan.StructureTypeMemoryBarrier,
			SrcAccessMask: vulkan.AccessFlags(vulkan.AccessShaderWriteBit), DstAccessMask: vulkan.AccessFlags(vulkan.AccessHostReadBit),
		}}, 0, nil, 0, nil)
}

func (g *gpu) submitAndWait(cmd vulkan.CommandBuffer) error {
	if err := check("vkEndCommandBuffer", vulkan.EndCommandBuffer(cmd)); err != nil {
		return err
	}
	var fence vulkan.Fence
	err := check("vkCreateFence", vulkan.CreateFence(g.device, &vulkan.FenceCreateInfo{SType: vulkan.StructureTypeFenceCreateInfo},
		nil, &fence))
	if err != nil {
		return err
	}
	defer vulkan.DestroyFence(g.device, fence, nil)
	err = check("vkQueueSubmit", vulkan.QueueSubmit(g.queue, 1, []vulkan.SubmitInfo{{
		SType: vulkan.StructureTypeSubmitInfo, CommandBufferCount: 1, PCommandBuffers: []vulkan.CommandBuffer{cmd},
	}}, fence))
	if err != nil {
		return err
	}
	return check("vkWaitForFences", vulkan.WaitForFences(g.device, 1, []vulkan.Fence{fence}, vulkan.True, vulkan.MaxUint64))
}

// close destroys everything, last made first. Its error holds what the validation layer had to say.
func (g *gpu) close() error {
	if g.device != nil {
		vulkan.DeviceWaitIdle(g.device)
	}
	for _, destroy := range slices.Backward(g.destroy) {
		destroy()
	}
	g.destroy = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.messages) > 0 {
		return fmt.Errorf("the validation layer says:\n%s", strings.Join(g.messages, "\n"))
	}
	return nil
}
