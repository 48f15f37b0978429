package vk_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// objections opens a device that is validated as the options say, and gives the layer's version and the messages since it was last called.
func objections(t *testing.T, o vk.InstanceOptions) (*vk.Device, vk.Version, func() []vk.Message) {
	t.Helper()
	t.Setenv(vk.ValidationEnv, "") // the options alone
	var mu sync.Mutex
	var got []vk.Message
	o.AppName = t.Name()
	o.OnMessage = func(m vk.Message) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
	}
	in, err := vk.NewInstance(o)
	if err != nil {
		vktest.Device(t) // skips or fails as the environment says
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	dev, err := vktest.PhysicalDevice(t, in).Open(vk.DeviceOptions{})
	require.NoError(t, err)
	return dev, in.LayerVersion(), func() []vk.Message {
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}
}

// needs14 skips a test of what layers of Vulkan 1.4 look for: those of 2023 (1.3.239) see no access beyond a binding, and name their
// advice differently.
func needs14(t *testing.T, layer vk.Version) {
	t.Helper()
	if layer < vk.Version14 {
		t.Skipf("the validation layer is of %v: 1.4 is the least that looks for this", layer)
	}
}

// With GPUValidation, shaders notice what they read and write beyond a binding.
func TestGPUValidation(t *testing.T) {
	dev, layer, objected := objections(t, vk.InstanceOptions{GPUValidation: true})
	needs14(t, layer)
	r := newRig(t, dev, 1024, 1)
	r.upload(t)
	r.encode(args(r.n, 5))
	require.NoError(t, r.run())
	r.check(t, 1, 5)
	require.NoError(t, dev.WaitIdle())
	require.Empty(t, objected())

	// A binding of a part of y, and a kernel that is told of all of it.
	require.NoError(t, dev.UpdateDescriptors(r.set, []vk.BufferBinding{{Buffer: r.x, Size: 4096}, {Buffer: r.y, Size: 2048}}))
	r.encode(args(r.n, 5))
	require.NoError(t, r.run())
	require.NoError(t, dev.WaitIdle()) // by then the layer has looked
	messages := objected()
	require.NotEmpty(t, messages)
	require.True(t, strings.HasPrefix(messages[0].ID, "VUID-vkCmdDispatch-"), messages[0].ID)
	require.Contains(t, messages[0].Text, "2048")
}

// With BestPractices, the layer gives advice, and what the library has decided otherwise is not among it.
func TestBestPractices(t *testing.T) {
	dev, layer, objected := objections(t, vk.InstanceOptions{BestPractices: true})
	needs14(t, layer)
	r := newRig(t, dev, 100, 1)
	r.upload(t)
	r.encode(args(r.n, 5))
	require.NoError(t, r.run())
	require.Empty(t, objected())

	vk.KeepAdvice(t)
	small, err := dev.NewBuffer(16, vk.DeviceLocal)
	require.NoError(t, err)
	require.NoError(t, small.Close())
	messages := objected()
	require.NotEmpty(t, messages)
	require.True(t, strings.HasPrefix(messages[0].ID, "BestPractices-"), messages[0].ID)
}

// TestLayerDoesNotLoad: a layer that is installed and whose library is missing is ErrLayerMissing, and the error says which and why.
func TestLayerDoesNotLoad(t *testing.T) {
	t.Setenv(vk.ValidationEnv, "")
	vktest.Device(t) // or there is none
	vktest.BreakLayer(t)
	_, err := vk.NewInstance(vk.InstanceOptions{Validation: true})
	require.ErrorIs(t, err, vk.ErrLayerMissing)
	require.ErrorIs(t, err, vk.ErrLayerNotPresent)
	var call *vk.CallError
	require.ErrorAs(t, err, &call)
	require.ErrorContains(t, err, "VK_LAYER_KHRONOS_validation was found (1.4.309), but did not load: vkCreateInstance: "+
		"VK_ERROR_LAYER_NOT_PRESENT")
	require.ErrorContains(t, err, "libVkLayer_missing.so")
	require.NotContains(t, err.Error(), "is not installed")
	in, err := vk.NewInstance(vk.InstanceOptions{})
	require.NoError(t, err)
	require.Zero(t, in.LayerVersion())
	require.NoError(t, in.Close())
}
