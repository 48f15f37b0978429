package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

func (d *deviceTable) createCommandPool(family uint32, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.CommandPoolCreateInfo](f)
	info.Flags, info.QueueFamilyIndex = abi.CommandPoolCreateResetCommandBufferBit, family
	return d.create(f, callCreateCommandPool, abi.Address(info), out)
}

func (d *deviceTable) resetCommandPool(pool uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callResetCommandPool, d.handle, pool, 0)
}

func (d *deviceTable) allocateCommand(pool uintptr, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.CommandBufferAllocateInfo](f)
	info.CommandPool, info.Level, info.CommandBufferCount = uint64(pool), abi.CommandBufferLevelPrimary, 1
	handle := abi.New[uintptr](f)
	r := d.call(f, callAllocateCommandBuffers, d.handle, abi.Address(info), abi.Address(handle))
	*out = *handle
	return r
}

func (d *deviceTable) freeCommand(pool, command uintptr) {
	f := abi.NewFrame()
	defer f.Free()
	c := abi.New[uintptr](f)
	*c = command
	d.call(f, callFreeCommandBuffers, d.handle, pool, 1, abi.Address(c))
}

func (d *deviceTable) beginCommand(command uintptr, oneTime bool) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.CommandBufferBeginInfo](f)
	info.Flags = flag(oneTime, abi.CommandBufferUsageOneTimeSubmitBit)
	return d.call(f, callBeginCommandBuffer, command, abi.Address(info))
}

func (d *deviceTable) endCommand(command uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callEndCommandBuffer, command)
}

func (d *deviceTable) resetCommand(command uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callResetCommandBuffer, command, 0)
}

// execute decodes a stream and records it; it returns the index of the first word that it could not read, or -1.
func (d *deviceTable) execute(command uintptr, words []uint64) int {
	f := abi.NewFrame()
	defer f.Free()
	for at := 0; at < len(words); {
		n := int(words[at] >> 8)
		if n == 0 || n > len(words)-at {
			return at
		}
		f.Settle()
		if !d.record(f, command, words[at]&0xff, words[at+1:at+n]) {
			return at
		}
		at += n
	}
	return -1
}

// record records one command of a stream: see the opcodes.
func (d *deviceTable) record(f *abi.Frame, c uintptr, op uint64, w []uint64) bool {
	switch op {
	case opBind:
		d.queueCall(f, callCmdBindPipeline, c, abi.PipelineBindPointCompute, uintptr(w[0]))
		if w[2] != 0 {
			set := abi.New[uint64](f)
			*set = w[2]
			d.queueCall(f, callCmdBindDescriptorSets, c, abi.PipelineBindPointCompute, uintptr(w[1]), 0, 1, abi.Address(set), 0, 0)
		}
	case opPush:
		d.queueCall(f, callCmdPushConstants, c, uintptr(w[0]), abi.ShaderStageComputeBit, 0, uintptr(w[1]), words(f, w[2:]))
	case opDispatch:
		d.queueCall(f, callCmdDispatch, c, uintptr(w[0]), uintptr(w[1]), uintptr(w[2]))
	case opBarrier:
		d.barrier(f, c, w)
	case opCopy:
		r := abi.New[abi.BufferCopy](f)
		*r = abi.BufferCopy{SrcOffset: w[2], DstOffset: w[3], Size: w[4]}
		d.queueCall(f, callCmdCopyBuffer, c, uintptr(w[0]), uintptr(w[1]), 1, abi.Address(r))
	case opFill:
		d.queueCall(f, callCmdFillBuffer, c, uintptr(w[0]), uintptr(w[1]), uintptr(w[2]), uintptr(w[3]))
	case opTimestamp:
		d.queueCall(f, callCmdWriteTimestamp, c, uintptr(w[2]), uintptr(w[0]), uintptr(w[1]))
	case opResetQueries:
		d.queueCall(f, callCmdResetQueryPool, c, uintptr(w[0]), uintptr(w[1]), uintptr(w[2]))
	case opLabel:
		if d.has(callCmdBeginDebugUtilsLabelEXT) {
			l := abi.Struct[abi.DebugUtilsLabelEXT](f)
			l.PLabelName = words(f, w)
			d.queueCall(f, callCmdBeginDebugUtilsLabelEXT, c, abi.Address(l))
		}
	case opEndLabel:
		if d.has(callCmdEndDebugUtilsLabelEXT) {
			d.queueCall(f, callCmdEndDebugUtilsLabelEXT, c)
		}
	case opImageBarrier:
		d.imageBarrier(f, c, w)
	case opCopyToImage, opCopyFromImage:
		d.imageCopy(f, c, w, op == opCopyToImage)
	case opDispatchIndirect:
		d.queueCall(f, callCmdDispatchIndirect, c, uintptr(w[0]), uintptr(w[1]))
	default:
		return false
	}
	return true
}

// words copies part of a stream into the frame.
func words(f *abi.Frame, w []uint64) uintptr {
	s := abi.Slice[uint64](f, len(w))
	copy(s, w)
	return abi.AddressOf(s)
}

const queueFamilyIgnored = ^uint32(0) // VK_QUEUE_FAMILY_IGNORED

// barrier records one memory barrier, or buffer barriers some at a time: each call has the same scopes, so that together they say
// what one call with all of them would.
func (d *deviceTable) barrier(f *abi.Frame, c uintptr, w []uint64) {
	const most = 32
	src, srcAccess, dst, dstAccess, ranges := uintptr(w[0]), uint32(w[1]), uintptr(w[2]), uint32(w[3]), w[4:]
	if len(ranges) == 0 {
		m := abi.Struct[abi.MemoryBarrier](f)
		m.SrcAccessMask, m.DstAccessMask = srcAccess, dstAccess
		d.queueCall(f, callCmdPipelineBarrier, c, src, dst, 0, 1, abi.Address(m), 0, 0, 0, 0)
		return
	}
	for len(ranges) > 0 {
		f.Settle()
		b := abi.Slice[abi.BufferMemoryBarrier](f, min(len(ranges)/3, most))
		for i := range b {
			b[i].Init()
			b[i].SrcAccessMask, b[i].DstAccessMask = srcAccess, dstAccess
			b[i].SrcQueueFamilyIndex, b[i].DstQueueFamilyIndex = queueFamilyIgnored, queueFamilyIgnored
			b[i].Buffer, b[i].Offset, b[i].Size = ranges[0], ranges[1], ranges[2]
			ranges = ranges[3:]
		}
		d.queueCall(f, callCmdPipelineBarrier, c, src, dst, 0, 0, 0, uintptr(len(b)), abi.AddressOf(b), 0, 0)
	}
}

func (d *deviceTable) imageBarrier(f *abi.Frame, c uintptr, w []uint64) {
	b := abi.Struct[abi.ImageMemoryBarrier](f)
	b.SrcAccessMask, b.DstAccessMask = uint32(w[1]), uint32(w[3])
	b.OldLayout, b.NewLayout = uint32(w[4]), uint32(w[5])
	b.SrcQueueFamilyIndex, b.DstQueueFamilyIndex = queueFamilyIgnored, queueFamilyIgnored
	b.Image = w[6]
	b.SubresourceRange = abi.ImageSubresourceRange{AspectMask: abi.ImageAspectColorBit, LevelCount: 1, LayerCount: 1}
	d.queueCall(f, callCmdPipelineBarrier, c, uintptr(w[0]), uintptr(w[2]), 0, 0, 0, 0, 0, 1, abi.Address(b))
}

func (d *deviceTable) imageCopy(f *abi.Frame, c uintptr, w []uint64, toImage bool) {
	r := abi.New[abi.BufferImageCopy](f)
	r.BufferOffset = w[2]
	r.ImageSubresource = abi.ImageSubresourceLayers{AspectMask: abi.ImageAspectColorBit, LayerCount: 1}
	r.ImageExtent = abi.Extent3D{Width: uint32(w[3]), Height: uint32(w[4]), Depth: 1}
	image, buffer := uintptr(w[0]), uintptr(w[1])
	if toImage {
		d.queueCall(f, callCmdCopyBufferToImage, c, buffer, image, abi.ImageLayoutTransferDstOptimal, 1, abi.Address(r))
	} else {
		d.queueCall(f, callCmdCopyImageToBuffer, c, image, abi.ImageLayoutTransferSrcOptimal, buffer, 1, abi.Address(r))
	}
}
