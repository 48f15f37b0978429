package flash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

// TestCPUNobodyAskedFor: where there is no GPU, Open takes a CPU and says so, unless it is told not to; one that is asked for is silent.
func TestCPUNobodyAskedFor(t *testing.T) {
	infos, err := Devices()
	if err != nil || infos[0].Facts.Type != vk.DeviceCPU {
		t.Skip("there is a GPU, or nothing: ", err)
	}
	told := func(opts ...DeviceOption) bool {
		d, err := Open(append(opts, WithoutDiskCache())...)
		require.NoError(t, err)
		defer d.Close()
		return strings.Contains(strings.Join(d.Notices(), "\n"), "no GPU was found, so attention is computed on the CPU, by "+infos[0].Name)
	}
	require.True(t, told())
	require.False(t, told(WithDevice("0")))
	require.False(t, told(WithDevice(infos[0].Name), WithoutCPU()), "it is asked for")
	_, err = Open(WithoutCPU())
	require.ErrorIs(t, err, ErrNoDevice)
	require.EqualError(t, err, "flash: no usable Vulkan device: there is no GPU, and WithoutCPU refuses "+infos[0].Name)
}

// TestNilTensor: a tensor that was never made gives errors.
func TestNilTensor(t *testing.T) {
	for _, tensor := range []*Tensor{nil, {}} {
		for _, err := range []error{tensor.Upload(t.Context(), []float32{1}), tensor.Download(t.Context(), make([]float32, 1)),
			tensor.UploadBytes(t.Context(), []byte{1}), tensor.DownloadBytes(t.Context(), make([]byte, 1)),
			tensor.Upload(t.Context(), nil)} {
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, "must be a tensor made by a Device")
		}
	}
}
