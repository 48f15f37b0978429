package vk

import (
	"math"
	"runtime"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

func (d *deviceTable) createCache(data []byte, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.PipelineCacheCreateInfo](f)
	info.InitialDataSize, info.PInitialData = uintptr(len(data)), abi.Pin(f, data)
	return d.create(f, callCreatePipelineCache, abi.Address(info), out)
}

// cacheData fills data, or asks for the size where there is none.
func (d *deviceTable) cacheData(cache uintptr, data []byte, size *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	n := abi.New[uintptr](f)
	*n = uintptr(len(data))
	r := d.call(f, callGetPipelineCacheData, d.handle, cache, abi.Address(n), abi.Pin(f, data))
	*size = *n
	return r
}

func (d *deviceTable) mergeCache(into, from uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	c := abi.New[uint64](f)
	*c = uint64(from)
	return d.call(f, callMergePipelineCaches, d.handle, into, 1, abi.Address(c))
}

// nativePipeline is a VkPipeline with its layouts.
type nativePipeline struct{ pipeline, layout, sets uintptr }

// createSetLayout makes the layout of set 0: n storage buffers at bindings 0..n-1.
func (d *deviceTable) createSetLayout(f *abi.Frame, n int, out *uintptr) int32 {
	bindings := abi.Slice[abi.DescriptorSetLayoutBinding](f, n)
	for i := range bindings {
		bindings[i] = abi.DescriptorSetLayoutBinding{Binding: uint32(i), DescriptorType: abi.DescriptorTypeStorageBuffer,
			DescriptorCount: 1, StageFlags: abi.ShaderStageComputeBit}
	}
	info := abi.Struct[abi.DescriptorSetLayoutCreateInfo](f)
	info.BindingCount, info.PBindings = uint32(n), abi.AddressOf(bindings)
	return d.create(f, callCreateDescriptorSetLayout, abi.Address(info), out)
}

// createPipeline makes a pipeline with its layouts. failed is the function that gave a result other than 0.
func (d *deviceTable) createPipeline(i *PipelineInfo, cache uintptr, out *nativePipeline) (failed entry, r int32) {
	f := abi.NewFrame()
	defer f.Free()
	defer announceModule(declared(i.Code))()
	var p nativePipeline
	defer func() {
		if r != 0 {
			d.destroyPipeline(&p)
			if r > 0 {
				r = int32(ErrUnknown)
			}
			return
		}
		*out = p
	}()

	code := abi.Struct[abi.ShaderModuleCreateInfo](f)
	code.CodeSize, code.PCode = uintptr(4*len(i.Code)), abi.Pin(f, i.Code)
	var module uintptr
	if r := d.create(f, callCreateShaderModule, abi.Address(code), &module); r != 0 {
		return callCreateShaderModule, r
	}
	defer d.destroyHandle(callDestroyShaderModule, module)

	sets := abi.New[uint64](f)
	if i.Bindings > 0 {
		if r := d.createSetLayout(f, i.Bindings, &p.sets); r != 0 {
			return callCreateDescriptorSetLayout, r
		}
		*sets = uint64(p.sets)
	}

	push := abi.New[abi.PushConstantRange](f)
	push.StageFlags, push.Size = abi.ShaderStageComputeBit, uint32(i.PushBytes)
	layout := abi.Struct[abi.PipelineLayoutCreateInfo](f)
	layout.SetLayoutCount, layout.PSetLayouts = flag(i.Bindings > 0, 1), abi.Address(sets)
	layout.PushConstantRangeCount, layout.PPushConstantRanges = flag(i.PushBytes > 0, 1), abi.Address(push)
	if r := d.create(f, callCreatePipelineLayout, abi.Address(layout), &p.layout); r != 0 {
		return callCreatePipelineLayout, r
	}

	info := abi.Struct[abi.ComputePipelineCreateInfo](f)
	info.Flags = flag(i.CaptureStats, abi.PipelineCreateCaptureStatisticsBitKHR)
	info.Layout, info.BasePipelineIndex = uint64(p.layout), -1
	stage := &info.Stage
	stage.Init()
	if i.SubgroupSize > 0 {
		size := abi.Struct[abi.PipelineShaderStageRequiredSubgroupSizeCreateInfo](f)
		size.RequiredSubgroupSize = i.SubgroupSize
		stage.PNext = abi.Address(size)
	}
	stage.Flags = flag(i.FullSubgroups, abi.PipelineShaderStageCreateRequireFullSubgroupsBit)
	stage.Stage, stage.Module, stage.PName = abi.ShaderStageComputeBit, uint64(module), f.String(i.Entry)
	stage.PSpecializationInfo = specialization(f, i.Spec)
	pipeline := abi.New[uintptr](f)
	r = d.call(f, callCreateComputePipelines, d.handle, cache, 1, abi.Address(info), 0, abi.Address(pipeline))
	p.pipeline = *pipeline
	return callCreateComputePipelines, r
}

// specialization is a VkSpecializationInfo of constants, 0 of none.
func specialization(f *abi.Frame, spec []SpecConstant) uintptr {
	if len(spec) == 0 {
		return 0
	}
	entries, values := abi.Slice[abi.SpecializationMapEntry](f, len(spec)), abi.Slice[uint32](f, len(spec))
	for i, s := range spec {
		entries[i] = abi.SpecializationMapEntry{ConstantID: s.ID, Offset: uint32(4 * i), Size: 4}
		values[i] = s.Value
	}
	info := abi.New[abi.SpecializationInfo](f)
	info.MapEntryCount, info.PMapEntries = uint32(len(entries)), abi.AddressOf(entries)
	info.DataSize, info.PData = uintptr(4*len(values)), abi.AddressOf(values)
	return abi.Address(info)
}

// announceModule says what the module declares that this thread makes a pipeline of, for what the layers say of it meanwhile. What it
// returns ends that.
func announceModule(d declares) func() {
	if d == 0 {
		return func() {}
	}
	runtime.LockOSThread()
	thread := abi.Thread()
	modules.Store(thread, d)
	return func() {
		modules.Delete(thread)
		runtime.UnlockOSThread()
	}
}

func (d *deviceTable) destroyPipeline(p *nativePipeline) {
	for _, x := range []struct {
		e      entry
		handle uintptr
	}{{callDestroyPipeline, p.pipeline}, {callDestroyPipelineLayout, p.layout}, {callDestroyDescriptorSetLayout, p.sets}} {
		if x.handle != 0 {
			d.destroyHandle(x.e, x.handle)
		}
	}
}

// pipelineStats returns what the driver says of a pipeline's executables, or the function that failed with its result.
func (d *deviceTable) pipelineStats(pipeline uintptr) (stats []Stat, failed entry, r int32) {
	const most = 64
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.PipelineInfoKHR](f)
	info.Pipeline = uint64(pipeline)
	executables := abi.New[uint32](f)
	if r := d.call(f, callGetPipelineExecutablePropertiesKHR, d.handle, abi.Address(info), abi.Address(executables), 0); r < 0 {
		return nil, callGetPipelineExecutablePropertiesKHR, r
	}
	which := abi.Struct[abi.PipelineExecutableInfoKHR](f)
	which.Pipeline = uint64(pipeline)
	n, found := abi.New[uint32](f), abi.Slice[abi.PipelineExecutableStatisticKHR](f, most)
	for which.ExecutableIndex = range *executables {
		clear(found)
		for i := range found {
			found[i].Init()
		}
		*n = most
		if r := d.call(f, callGetPipelineExecutableStatisticsKHR, d.handle, abi.Address(which), abi.Address(n),
			abi.AddressOf(found)); r < 0 {
			return nil, callGetPipelineExecutableStatisticsKHR, r
		}
		for i := range found[:min(*n, most)] {
			s := &found[i]
			stats = append(stats, Stat{abi.Chars(s.Name[:]), abi.Chars(s.Description[:]), statValue(s)})
		}
	}
	return stats, 0, 0
}

func statValue(s *abi.PipelineExecutableStatisticKHR) float64 {
	switch s.Format {
	case abi.PipelineExecutableStatisticFormatBool32KHR:
		return float64(uint32(s.Value))
	case abi.PipelineExecutableStatisticFormatInt64KHR:
		return float64(int64(s.Value))
	case abi.PipelineExecutableStatisticFormatUint64KHR:
		return float64(s.Value)
	}
	return math.Float64frombits(s.Value)
}

func (d *deviceTable) createDescriptorPool(sets, buffers uint32, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	size := abi.New[abi.DescriptorPoolSize](f)
	size.Type, size.DescriptorCount = abi.DescriptorTypeStorageBuffer, buffers
	info := abi.Struct[abi.DescriptorPoolCreateInfo](f)
	info.MaxSets, info.PoolSizeCount, info.PPoolSizes = sets, 1, abi.Address(size)
	return d.create(f, callCreateDescriptorPool, abi.Address(info), out)
}

func (d *deviceTable) resetDescriptorPool(pool uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callResetDescriptorPool, d.handle, pool, 0)
}

func (d *deviceTable) allocateDescriptorSet(pool, sets uintptr, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	layout, set := abi.New[uint64](f), abi.New[uintptr](f)
	*layout = uint64(sets)
	info := abi.Struct[abi.DescriptorSetAllocateInfo](f)
	info.DescriptorPool, info.DescriptorSetCount, info.PSetLayouts = uint64(pool), 1, abi.Address(layout)
	r := d.call(f, callAllocateDescriptorSets, d.handle, abi.Address(info), abi.Address(set))
	*out = *set
	return r
}

// updateDescriptors points bindings 0..n-1 at buffers.
func (d *deviceTable) updateDescriptors(set uintptr, b []BufferBinding) {
	const most = 32 // at once
	f := abi.NewFrame()
	defer f.Free()
	for first := 0; first < len(b); first += most {
		f.Rewind()
		part := b[first:min(first+most, len(b))]
		buffers, writes := abi.Slice[abi.DescriptorBufferInfo](f, len(part)), abi.Slice[abi.WriteDescriptorSet](f, len(part))
		for i := range part {
			buffers[i] = abi.DescriptorBufferInfo{Buffer: uint64(part[i].Buffer.handle.Load()), Offset: part[i].Offset, Range: part[i].Size}
			w := &writes[i]
			w.Init()
			w.DstSet, w.DstBinding, w.DescriptorCount = uint64(set), uint32(first+i), 1
			w.DescriptorType, w.PBufferInfo = abi.DescriptorTypeStorageBuffer, abi.Address(&buffers[i])
		}
		d.call(f, callUpdateDescriptorSets, d.handle, uintptr(len(writes)), abi.AddressOf(writes), 0, 0)
	}
}
