package vk

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoLoader(t *testing.T) {
	_, _, err := openFirst([]string{"libnothing-vkattn.so.7", "libc.so.6"})
	var le *LoaderError
	require.ErrorAs(t, err, &le)
	require.Equal(t, []string{"libnothing-vkattn.so.7", "libc.so.6"}, le.Tried)
	for i, reason := range le.Reason {
		require.NotEmpty(t, reason, le.Tried[i])
	}
	require.Contains(t, err.Error(), "libnothing-vkattn.so.7")
}

func TestLoaderNames(t *testing.T) {
	t.Setenv("VKATTN_LOADER", "/opt/mine/libvulkan.so")
	require.Equal(t, []string{"/opt/mine/libvulkan.so"}, loaderNames())
}

func TestWholeAtoms(t *testing.T) {
	for _, c := range []struct{ offset, size, capacity, allocated, first, n uint64 }{
		{0, 4, 256, 512, 0, 64},
		{65, 1, 256, 512, 64, 64},
		{60, 8, 256, 512, 0, 128},
		{64, WholeSize, 256, 512, 64, 192},
		{64, WholeSize, 256, 256, 64, WholeSize},
		{0, 250, 250, 250, 0, WholeSize},
		{200, 16, 250, 4096, 192, 64},
	} {
		first, n := wholeAtoms(c.offset, c.size, c.capacity, c.allocated, 64)
		require.Equal(t, [2]uint64{c.first, c.n}, [2]uint64{first, n}, "%+v", c)
	}
}

func TestLostIsSticky(t *testing.T) {
	d := &Device{facts: &Facts{}}
	require.NoError(t, d.Lost())
	require.NoError(t, d.check("vkQueueSubmit", 0))
	require.ErrorIs(t, d.check("vkCreateBuffer", -2), ErrOutOfDeviceMemory)
	require.NoError(t, d.Lost())
	err := d.check("vkQueueSubmit", -4)
	require.ErrorIs(t, err, ErrDeviceLost)
	require.Same(t, err, d.check("vkWaitForFences", -4), "the first loss is the one reported")
	require.ErrorIs(t, d.Lost(), ErrDeviceLost)
	_, err = d.NewBuffer(16, DeviceLocal)
	require.ErrorIs(t, err, ErrDeviceLost)
	_, err = d.NewFence(false)
	require.ErrorIs(t, err, ErrDeviceLost)
	var ce *CallError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "vkQueueSubmit", ce.Call)
}

// Every field of Features but MemoryBudget and ExternalMemoryHost has its place in Vulkan's structures, and only one.
func TestFeatureBits(t *testing.T) {
	typ := reflect.TypeOf(Features{})
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		var f Features
		*f.fields()[i] = true
		require.True(t, reflect.ValueOf(f).Field(i).Bool(), name)
		var c features
		toFeatures(f, &c)
		back := fromFeatures(&c)
		if name == "MemoryBudget" || name == "ExternalMemoryHost" {
			require.Equal(t, Features{}, back, name)
		} else {
			require.Equal(t, f, back, name)
		}
	}
	var all, none Features
	for _, p := range all.fields() {
		*p = true
	}
	require.Equal(t, none, without(all, all))
	require.Equal(t, all, without(all, none))
}

func TestWithoutComputeFamily(t *testing.T) {
	_, err := computeFamily(&Facts{Name: "x", Queues: []QueueFamily{{Flags: QueueTransfer, Count: 1}}})
	require.ErrorIs(t, err, ErrUnsupported)
	f, err := computeFamily(&Facts{Queues: []QueueFamily{
		{Flags: QueueTransfer, Count: 1}, {Flags: QueueCompute, Count: 1},
		{Flags: QueueCompute, Count: 1, TimestampValidBits: 36}, {Flags: QueueCompute | QueueGraphics, Count: 1, TimestampValidBits: 36},
	}})
	require.NoError(t, err)
	require.EqualValues(t, 3, f)
}

func TestMemoryTypes(t *testing.T) {
	const lazy = 1 << 4
	host := MemoryHostVisible | MemoryHostCoherent
	d := &Device{facts: &Facts{MemoryTypes: []MemoryType{
		0: {0, lazy | MemoryDeviceLocal}, 1: {1, host}, 2: {0, MemoryDeviceLocal | host}, 3: {0, MemoryDeviceLocal},
		4: {1, host | MemoryHostCached}, 5: {1, MemoryHostVisible | MemoryHostCached},
	}}}
	require.Equal(t, []int{3, 2}, d.memoryTypes(DeviceLocal, ^uint32(0)))
	require.Equal(t, []int{1, 4, 2, 5}, d.memoryTypes(Upload, ^uint32(0)))
	require.Equal(t, []int{4, 5, 1, 2}, d.memoryTypes(Readback, ^uint32(0)))
	require.Equal(t, []int{2}, d.memoryTypes(Upload, 1<<2))
	require.Empty(t, d.memoryTypes(DeviceLocal, 1<<1))
}

func TestResultNames(t *testing.T) {
	require.Equal(t, "VK_ERROR_DEVICE_LOST", ErrDeviceLost.Error())
	require.Equal(t, "VkResult(-77)", Result(-77).String())
	err := error(&CallError{Call: "vkAllocateMemory", Result: ErrOutOfDeviceMemory, Detail: "7 bytes"})
	require.ErrorIs(t, err, ErrOutOfDeviceMemory)
	require.False(t, errors.Is(err, ErrDeviceLost))
	require.EqualError(t, err, "vk: vkAllocateMemory: VK_ERROR_OUT_OF_DEVICE_MEMORY (7 bytes)")
	require.Equal(t, "1.3.204", MakeVersion(1, 3, 204).String())
}
