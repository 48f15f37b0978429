package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

// nativeBuffer is a VkBuffer with what it asks of memory.
type nativeBuffer struct {
	handle          uintptr
	size, alignment uint64
	typeBits        uint32
}

func (d *deviceTable) makeBuffer(f *abi.Frame, next uintptr, usage uint32, size uint64, out *nativeBuffer) int32 {
	info := abi.Struct[abi.BufferCreateInfo](f)
	info.PNext, info.Size, info.Usage, info.SharingMode = next, size, usage, abi.SharingModeExclusive
	if len(d.families) > 0 {
		families := abi.Slice[uint32](f, len(d.families))
		copy(families, d.families)
		info.SharingMode = abi.SharingModeConcurrent
		info.QueueFamilyIndexCount, info.PQueueFamilyIndices = uint32(len(families)), abi.AddressOf(families)
	}
	handle := abi.New[uintptr](f)
	if r := d.call(f, callCreateBuffer, d.handle, abi.Address(info), 0, abi.Address(handle)); r != 0 {
		return r
	}
	needs := abi.New[abi.MemoryRequirements](f)
	d.call(f, callGetBufferMemoryRequirements, d.handle, *handle, abi.Address(needs))
	*out = nativeBuffer{handle: *handle, size: needs.Size, alignment: needs.Alignment, typeBits: needs.MemoryTypeBits}
	return 0
}

func (d *deviceTable) createBuffer(size uint64, deviceAddress bool, out *nativeBuffer) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.makeBuffer(f, 0, abi.BufferUsageStorageBufferBit|abi.BufferUsageTransferSrcBit|abi.BufferUsageTransferDstBit|
		abi.BufferUsageIndirectBufferBit|flag(deviceAddress, abi.BufferUsageShaderDeviceAddressBit), size, out)
}

// createHostBuffer makes a buffer for memory of the host that is imported as memory of the device.
func (d *deviceTable) createHostBuffer(size uint64, out *nativeBuffer) int32 {
	f := abi.NewFrame()
	defer f.Free()
	external := abi.Struct[abi.ExternalMemoryBufferCreateInfo](f)
	external.HandleTypes = abi.ExternalMemoryHandleTypeHostAllocationBitEXT
	return d.makeBuffer(f, abi.Address(external), abi.BufferUsageTransferSrcBit|abi.BufferUsageTransferDstBit, size, out)
}

// hostTypes asks for the memory types that memory of the host can be imported as.
func (d *deviceTable) hostTypes(host []byte, typeBits *uint32) int32 {
	if !d.has(callGetMemoryHostPointerPropertiesEXT) {
		return int32(ErrExtensionNotPresent)
	}
	f := abi.NewFrame()
	defer f.Free()
	p := abi.Struct[abi.MemoryHostPointerPropertiesEXT](f)
	r := d.call(f, callGetMemoryHostPointerPropertiesEXT, d.handle, abi.ExternalMemoryHandleTypeHostAllocationBitEXT, abi.Pin(f, host),
		abi.Address(p))
	*typeBits = p.MemoryTypeBits
	return r
}

// importHost makes memory of the device of memory of the host, which its owner keeps in place.
func (d *deviceTable) importHost(host []byte, memoryType uint32, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	imported := abi.Struct[abi.ImportMemoryHostPointerInfoEXT](f)
	imported.HandleType, imported.PHostPointer = abi.ExternalMemoryHandleTypeHostAllocationBitEXT, abi.Pin(f, host)
	return d.allocate(f, abi.Address(imported), uint64(len(host)), memoryType, out)
}

func (d *deviceTable) allocate(f *abi.Frame, next uintptr, size uint64, memoryType uint32, out *uintptr) int32 {
	info := abi.Struct[abi.MemoryAllocateInfo](f)
	info.PNext, info.AllocationSize, info.MemoryTypeIndex = next, size, memoryType
	handle := abi.New[uintptr](f)
	r := d.call(f, callAllocateMemory, d.handle, abi.Address(info), 0, abi.Address(handle))
	*out = *handle
	return r
}

func (d *deviceTable) allocateMemory(size uint64, memoryType uint32, deviceAddress bool, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	var next uintptr
	if deviceAddress {
		flags := abi.Struct[abi.MemoryAllocateFlagsInfo](f)
		flags.Flags = abi.MemoryAllocateDeviceAddressBit
		next = abi.Address(flags)
	}
	return d.allocate(f, next, size, memoryType, out)
}

func (d *deviceTable) destroyBuffer(buffer uintptr) { d.destroyHandle(callDestroyBuffer, buffer) }

// freeMemory also unmaps it.
func (d *deviceTable) freeMemory(memory uintptr) {
	if memory != 0 {
		d.destroyHandle(callFreeMemory, memory)
	}
}

func (d *deviceTable) bindMemory(buffer, memory uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callBindBufferMemory, d.handle, buffer, memory, 0)
}

// mapMemory maps all of it and returns its address.
func (d *deviceTable) mapMemory(memory uintptr, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	const whole = ^uintptr(0) // VK_WHOLE_SIZE
	address := abi.New[uintptr](f)
	r := d.call(f, callMapMemory, d.handle, memory, 0, whole, 0, abi.Address(address))
	*out = *address
	return r
}

func (d *deviceTable) mappedRange(e entry, memory uintptr, offset, size uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	r := abi.Struct[abi.MappedMemoryRange](f)
	r.Memory, r.Offset, r.Size = uint64(memory), offset, size
	return d.call(f, e, d.handle, 1, abi.Address(r))
}

func (d *deviceTable) flushMemory(memory uintptr, offset, size uint64) int32 {
	return d.mappedRange(callFlushMappedMemoryRanges, memory, offset, size)
}

func (d *deviceTable) invalidateMemory(memory uintptr, offset, size uint64) int32 {
	return d.mappedRange(callInvalidateMappedMemoryRanges, memory, offset, size)
}

func (d *deviceTable) bufferAddress(buffer uintptr) uint64 {
	if !d.has(callGetBufferDeviceAddress) {
		return 0
	}
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.BufferDeviceAddressInfo](f)
	info.Buffer = uint64(buffer)
	// Not through call, which keeps 32 bits of the result.
	return uint64(f.Call(d.functions[callGetBufferDeviceAddress], d.handle, abi.Address(info)))
}
