package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestDriverRefusesAKernel: a module that a driver does not compile costs its kernel, and not the plan.
func TestDriverRefusesAKernel(t *testing.T) {
	p := Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 1, KeyLen: 200, HeadDim: 32}
	open := func(faults string) *Device {
		f, err := vk.ParseFaults(faults)
		require.NoError(t, err)
		d, err := Open(WithFaults(f), WithoutDiskCache())
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	d := open("pipeline:1=unknown")
	if why := d.env.Caps.LacksShuffles(); why != "" {
		t.Skip(why)
	}
	plan, err := d.Plan(p, WithTier(TierScalar))
	require.NoError(t, err)
	defer plan.Close()
	require.Contains(t, plan.ForwardInfo().Kernel, "scalar_forward")
	require.Contains(t, plan.String(), "scalar_decode: the driver refuses to compile scalar_decode.f32: ")

	_, err = open("pipeline:1=out_of_device_memory").Plan(p, WithTier(TierScalar))
	require.ErrorIs(t, err, vk.ErrOutOfDeviceMemory, "which is nothing of the kernel's")
}
