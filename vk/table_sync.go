package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

func (d *deviceTable) createFence(signaled bool, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.FenceCreateInfo](f)
	info.Flags = flag(signaled, abi.FenceCreateSignaledBit)
	return d.create(f, callCreateFence, abi.Address(info), out)
}

func (d *deviceTable) resetFence(fence uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	x := abi.New[uint64](f)
	*x = uint64(fence)
	return d.call(f, callResetFences, d.handle, 1, abi.Address(x))
}

func (d *deviceTable) fenceStatus(fence uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.call(f, callGetFenceStatus, d.handle, fence)
}

func (d *deviceTable) waitFence(fence uintptr, nanoseconds uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	x := abi.New[uint64](f)
	*x = uint64(fence)
	return d.call(f, callWaitForFences, d.handle, 1, abi.Address(x), 1, uintptr(nanoseconds))
}

// createSemaphore makes a binary semaphore.
func (d *deviceTable) createSemaphore(out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	return d.create(f, callCreateSemaphore, abi.Address(abi.Struct[abi.SemaphoreCreateInfo](f)), out)
}

func (d *deviceTable) createTimeline(initial uint64, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	kind := abi.Struct[abi.SemaphoreTypeCreateInfo](f)
	kind.SemaphoreType, kind.InitialValue = abi.SemaphoreTypeTimeline, initial
	info := abi.Struct[abi.SemaphoreCreateInfo](f)
	info.PNext = abi.Address(kind)
	return d.create(f, callCreateSemaphore, abi.Address(info), out)
}

func (d *deviceTable) timelineValue(semaphore uintptr, out *uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	v := abi.New[uint64](f)
	r := d.call(f, callGetSemaphoreCounterValue, d.handle, semaphore, abi.Address(v))
	*out = *v
	return r
}

func (d *deviceTable) waitTimeline(semaphore uintptr, value, nanoseconds uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	s, v := abi.New[uint64](f), abi.New[uint64](f)
	*s, *v = uint64(semaphore), value
	info := abi.Struct[abi.SemaphoreWaitInfo](f)
	info.SemaphoreCount, info.PSemaphores, info.PValues = 1, abi.Address(s), abi.Address(v)
	return d.call(f, callWaitSemaphores, d.handle, abi.Address(info), uintptr(nanoseconds))
}

func (d *deviceTable) signalTimeline(semaphore uintptr, value uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.SemaphoreSignalInfo](f)
	info.Semaphore, info.Value = uint64(semaphore), value
	return d.call(f, callSignalSemaphore, d.handle, abi.Address(info))
}

// maxSemaphores is how many waits, and signals, one submission has at most.
const maxSemaphores = 32

// submission is what vkQueueSubmit gets. The semaphores of waits and signals are followed by as many values.
type submission struct {
	commands, waits, signals []uint64
	timeline                 bool // some of the semaphores have values; those of binary ones are ignored
	fence                    uintptr
}

func (d *deviceTable) submit(queue uintptr, s *submission) int32 {
	f := abi.NewFrame()
	defer f.Free()
	wait, signal := uint32(len(s.waits)/2), uint32(len(s.signals)/2)
	waits, signals := abi.Slice[uint64](f, len(s.waits)), abi.Slice[uint64](f, len(s.signals))
	copy(waits, s.waits)
	copy(signals, s.signals)
	stages := abi.Slice[uint32](f, int(wait))
	for i := range stages {
		stages[i] = abi.PipelineStageAllCommandsBit
	}
	info := abi.Struct[abi.SubmitInfo](f)
	info.WaitSemaphoreCount, info.PWaitSemaphores, info.PWaitDstStageMask = wait, abi.AddressOf(waits), abi.AddressOf(stages)
	info.CommandBufferCount, info.PCommandBuffers = uint32(len(s.commands)), words(f, s.commands)
	info.SignalSemaphoreCount, info.PSignalSemaphores = signal, abi.AddressOf(signals)
	if s.timeline {
		values := abi.Struct[abi.TimelineSemaphoreSubmitInfo](f)
		values.WaitSemaphoreValueCount, values.PWaitSemaphoreValues = wait, abi.AddressOf(waits[wait:])
		values.SignalSemaphoreValueCount, values.PSignalSemaphoreValues = signal, abi.AddressOf(signals[signal:])
		info.PNext = abi.Address(values)
	}
	return d.call(f, callQueueSubmit, queue, 1, abi.Address(info), s.fence)
}

func (d *deviceTable) createQueryPool(count uint32, out *uintptr) int32 {
	f := abi.NewFrame()
	defer f.Free()
	info := abi.Struct[abi.QueryPoolCreateInfo](f)
	info.QueryType, info.QueryCount = abi.QueryTypeTimestamp, count
	return d.create(f, callCreateQueryPool, abi.Address(info), out)
}

// queryResults reads as many timestamps as there is room for.
func (d *deviceTable) queryResults(pool uintptr, first uint32, out []uint64) int32 {
	f := abi.NewFrame()
	defer f.Free()
	results := abi.Slice[uint64](f, len(out))
	r := d.call(f, callGetQueryPoolResults, d.handle, pool, uintptr(first), uintptr(len(out)), uintptr(8*len(out)),
		abi.AddressOf(results), 8, abi.QueryResult64Bit)
	copy(out, results)
	return r
}
