package vk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// Drivers that are unloaded and loaded again and again stop loading (NVIDIA 580: about the thirtieth time).
func TestManyInstances(t *testing.T) {
	require.NoError(t, vktest.Instance(t, vktest.Options{}).Close()) // skips where there is none
	for i := range 100 {
		in, err := vk.NewInstance(vk.InstanceOptions{AppName: "many"})
		require.NoError(t, err, "instance %d", i+1)
		devices, err := in.PhysicalDevices()
		require.NoError(t, err)
		require.NotEmpty(t, devices, "instance %d", i+1)
		require.NoError(t, in.Close())
	}
}
