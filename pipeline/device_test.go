package pipeline

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// devices holds the device of each running test.
var devices sync.Map

// testDevice returns the test's device, opened at the first call: with synchronisation validation in tests, without any in
// benchmarks.
func testDevice(t testing.TB) *vk.Device {
	t.Helper()
	if d, ok := devices.Load(t); ok {
		return d.(*vk.Device)
	}
	// Have the synchronisation validation look at what shaders access too; it takes every binding as touched as declared.
	require.NoError(t, os.Setenv("VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC", "true"))
	_, timing := t.(*testing.B)
	d := vktest.Open(t, vktest.Options{SyncValidation: true, NoValidation: timing})
	devices.Store(t, d)
	t.Cleanup(func() { devices.Delete(t) })
	return d
}
