package flash

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/vk"
)

// madeUp describes a device that is not there.
func madeUp(name string, kind vk.DeviceType, memory uint64, change func(f *vk.Facts)) DeviceInfo {
	f := &vk.Facts{Name: name, Type: kind, EffectiveVersion: vk.Version13, Heaps: []vk.Heap{{Size: memory, DeviceLocal: true}}}
	f.Limits.MaxPushConstants = 128
	f.Features.Storage16 = true
	if change != nil {
		change(f)
	}
	return describe(&kernel.Capabilities{Facts: f, Enabled: f.Features})
}

// TestDeviceOrder: usable before unusable, then kind, then memory, each with its reason.
func TestDeviceOrder(t *testing.T) {
	small := madeUp("Small GPU 4090", vk.DeviceDiscrete, 4<<30, nil)
	large := madeUp("Large GPU", vk.DeviceDiscrete, 80<<30, nil)
	cpu := madeUp("CPU", vk.DeviceCPU, 500<<30, nil)
	old := madeUp("Old GPU", vk.DeviceDiscrete, 200<<30, func(f *vk.Facts) { f.EffectiveVersion = vk.MakeVersion(1, 0, 0) })
	order := []DeviceInfo{large, small, cpu, old}
	for i := range order {
		for j := range order {
			got := compareDevices(&order[i], &order[j])
			require.Equal(t, i < j, got < 0, "%s before %s", order[i].Name, order[j].Name)
			require.Equal(t, i == j, got == 0)
		}
	}
	explain(order)
	require.True(t, order[0].Chosen)
	for _, d := range order[1:] {
		require.False(t, d.Chosen)
	}
	require.Contains(t, order[0].Reason, "best of 4")
	require.Contains(t, order[1].Reason, "less memory than Large GPU")
	require.Contains(t, order[2].Reason, "cpu")
	require.Contains(t, order[3].Reason, "Vulkan 1.0.0")

	for name, want := range map[string]int{"": 0, "1": 1, "cpu": 2, "SMALL": 1, "gpu": 0, "4090": 1} {
		got, err := choose(order, name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	for name, says := range map[string]string{"4": "Large GPU", "40": "Large GPU", "-1": "Large GPU", "tpu": "0 Large GPU, 1 Small GPU",
		"old": "1.1 is needed"} {
		_, err := choose(order, name)
		require.ErrorIs(t, err, ErrNoDevice)
		require.ErrorContains(t, err, says)
	}
}

// TestMissingFeature: a feature that the owner of an attached device did not enable is named, and told from one that the
// device lacks.
func TestMissingFeature(t *testing.T) {
	lacks := madeUp("x", vk.DeviceDiscrete, 1, func(f *vk.Facts) { f.Features.Storage16 = false })
	for _, tier := range lacks.Tiers {
		if tier.Tier == TierScalar && tier.Kernel != scalar.DecodeKernel { // which lacks more
			require.Equal(t, []DType{F32}, tier.DTypes)
			require.Contains(t, tier.Missing[0], "float16: the device lacks the feature storageBuffer16BitAccess")
		}
	}

	owner := testDevice(t)
	e := owner.External()
	if !e.Enabled.Storage16 {
		t.Skip("the device has no 16-bit storage")
	}
	e.Enabled.Storage16 = false
	d, err := Attach(e, WithoutDiskCache())
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 8, DType: F16}, WithTier(TierScalar))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "created without the feature storageBuffer16BitAccess")
	plan, err := d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 8})
	require.NoError(t, err)
	require.NoError(t, plan.Close())
}

// TestErrorsOfTheLayersBelow become this package's, with the cause kept.
func TestErrorsOfTheLayersBelow(t *testing.T) {
	var d Device
	require.NoError(t, d.fail(nil))
	lost := d.fail(fmt.Errorf("submitting: %w", &vk.CallError{Call: "vkQueueSubmit", Result: vk.ErrDeviceLost}))
	require.ErrorIs(t, lost, ErrDeviceLost)
	require.ErrorIs(t, lost, vk.ErrDeviceLost)
	require.ErrorContains(t, lost, "vkQueueSubmit")
	require.Equal(t, lost, d.fail(lost), "named once")
	require.ErrorIs(t, d.fail(vk.ErrClosed), ErrClosed)
	cause := errors.New("something else")
	require.ErrorIs(t, d.fail(cause), cause)
}

// TestForwardInfo: what a plan says of its forward pass is what it says in words and what it was asked for, and is the caller's own.
func TestForwardInfo(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F32}
	plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"br": 16, "bc": 64, "mr": 2, "mc": 4, "parts": 3}))
	info := plan.ForwardInfo()
	require.Equal(t, TierScalar, info.Tier)
	require.Equal(t, "scalar_forward", info.KernelName)
	require.Equal(t, "scalar_forward 16x64, keys in 3 parts", info.Kernel)
	require.Equal(t, 16, info.Tuning["br"])
	require.NotZero(t, info.WorkspaceBytes)
	require.NotEmpty(t, info.WhyNotFaster)
	require.Contains(t, plan.String(), fmt.Sprintf("tier scalar: %s, workspace %d bytes", info.Kernel, info.WorkspaceBytes))
	for _, why := range info.WhyNotFaster {
		require.Contains(t, plan.String(), "not chosen: "+why)
	}
	again := plan.ForwardInfo()
	require.Equal(t, info, again)
	info.Tuning["br"], info.WhyNotFaster[0] = 1, "changed"
	require.Equal(t, again, plan.ForwardInfo())
}
