package vk

import "github.com/vkattn/vkattn/vk/internal/abi"

// table holds the addresses of an instance's or a device's functions. Calls go through C's calling convention alone: what is written in C
// as d->CreateFence(device, &info, NULL, &fence) is d.call(f, callCreateFence, d.handle, abi.Address(info), 0, abi.Address(fence)), with
// structures in the frame f. Non-dispatchable handles are 64 bits wide, dispatchable ones pointers; both fit a uintptr.
type table struct {
	handle    uintptr // VkInstance or VkDevice
	functions [entries]uintptr
	hook      *hook // of tests; nil otherwise
}

// call returns a function's VkResult, and nothing of use where it has none. It allocates nothing.
func (t *table) call(f *abi.Frame, e entry, args ...uintptr) int32 {
	if t.hook != nil {
		return t.hook.call(f, t, e, args)
	}
	return int32(f.Call(t.functions[e], args...))
}

// queueCall has a function called that records a command: it has no result and cannot fail. See [abi.Frame.Queue].
func (t *table) queueCall(f *abi.Frame, e entry, args ...uintptr) { f.Queue(t.functions[e], args...) }

// has says whether all of some functions were found.
func (t *table) has(all ...entry) bool {
	for _, e := range all {
		if t.functions[e] == 0 {
			return false
		}
	}
	return true
}

// load looks functions up, from one to before another, and returns the first that is missing, 0 for none.
func (t *table) load(from, before entry, address func(name string) uintptr) (missing entry) {
	for e := before - 1; e >= from; e-- {
		if t.functions[e] = address(e.String()); t.functions[e] == 0 {
			missing = e
		}
	}
	return missing
}

type instanceTable struct {
	table
	gipa uintptr // vkGetInstanceProcAddr
}

type deviceTable struct {
	table
	families []uint32 // of queues that buffers are shared by; none where there is one alone
}

// procAddr looks a function up with vkGetInstanceProcAddr or vkGetDeviceProcAddr.
func procAddr(get, handle uintptr, name string) uintptr {
	f := abi.NewFrame()
	defer f.Free()
	return f.Call(get, handle, f.String(name))
}

// loadInstanceTable returns the table, or the first function that the instance must have and has not.
func loadInstanceTable(gipa, instance uintptr) (*instanceTable, entry) {
	t := &instanceTable{table: table{handle: instance}, gipa: gipa}
	address := func(name string) uintptr { return procAddr(gipa, instance, name) }
	if missing := t.load(firstInstanceEntry, firstInstanceOptional, address); missing != 0 {
		return nil, missing
	}
	t.load(firstInstanceOptional, firstDeviceEntry, address)
	return t, 0
}

// loadDeviceTable returns the table, or the first function that the device must have and has not. core12: the device may be used as
// Vulkan 1.2, so that promoted functions have their core names.
func loadDeviceTable(t *instanceTable, device uintptr, core12 bool) (*deviceTable, entry) {
	d := &deviceTable{table: table{handle: device}}
	address := func(name string) uintptr { return procAddr(t.functions[callGetDeviceProcAddr], device, name) }
	if missing := d.load(firstDeviceEntry, firstPromoted, address); missing != 0 {
		return nil, missing
	}
	d.load(firstPromoted, firstDeviceOptional, func(name string) uintptr {
		first, second := name, name+"KHR"
		if !core12 {
			first, second = second, first
		}
		if p := address(first); p != 0 {
			return p
		}
		return address(second)
	})
	d.load(firstDeviceOptional, entries, address)
	return d, 0
}

// fill calls a function that fills an array and says how much there is; an empty array asks for that alone. An array that did not hold all
// counts as full, whatever the driver wrote: the caller makes a larger one and asks again. The result is negative where it is a failure.
func fill[T any](out []T, ask func(f *abi.Frame, n, array uintptr) int32) int32 {
	f := abi.NewFrame()
	defer f.Free()
	n := abi.New[uint32](f)
	*n = uint32(len(out))
	switch r := ask(f, abi.Address(n), abi.Pin(f, out)); {
	case r < 0:
		return r
	case Result(r) == Incomplete:
		return max(int32(*n), int32(len(out)))
	}
	return int32(*n)
}

// flag is a VkBool32, or a bit where it is on.
func flag(on bool, bit uint32) uint32 {
	if on {
		return bit
	}
	return 0
}
