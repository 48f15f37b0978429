package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestFindingsBelongToADriver: what is known of a device, and a tuning that was measured on it, is not that of another vendor, device,
// version of the driver, or build of it.
func TestFindingsBelongToADriver(t *testing.T) {
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 16}.Normalize()
	require.NoError(t, err)
	facts := vk.Facts{Name: "a GPU", VendorID: 1, DeviceID: 2, DriverVersion: 3, PipelineCacheUUID: [16]byte{4}}
	device := func(f vk.Facts) *Device {
		return &Device{env: &environment{caps: capabilities{facts: &f}}, info: describe(&capabilities{facts: &f})}
	}
	identity, key := device(facts).env.identity(), device(facts).tuningKey("scalar_forward", &p)
	for name, change := range map[string]struct {
		do     func(f *vk.Facts)
		tuning bool // the key of tunings changes too
	}{
		"vendor":  {func(f *vk.Facts) { f.VendorID++ }, false},
		"device":  {func(f *vk.Facts) { f.DeviceID++ }, false},
		"version": {func(f *vk.Facts) { f.DriverVersion++ }, true},
		"build":   {func(f *vk.Facts) { f.PipelineCacheUUID[9]++ }, true},
	} {
		other := facts
		change.do(&other)
		require.NotEqual(t, identity, device(other).env.identity(), name)
		if change.tuning {
			require.NotEqual(t, key, device(other).tuningKey("scalar_forward", &p), name)
		}
	}
}

// TestVerdictsBelongToAModule: the key of a self-check's verdict has the hash of what the driver compiles, and every constant.
func TestVerdictsBelongToAModule(t *testing.T) {
	const module = "matrix_forward.f16"
	d := testDevice(t)
	hash, err := d.env.moduleHash(module)
	require.NoError(t, err)
	set := constants{"WG": 32, "BR": 16}
	key, err := d.env.proofKey([]compiled{{module: module, constants: set}})
	require.NoError(t, err)
	require.Contains(t, key, module)
	require.Contains(t, key, hash[:16])
	set = constants{"WG": 32, "BR": 48}
	other, err := d.env.proofKey([]compiled{{module: module, constants: set}})
	require.NoError(t, err)
	require.NotEqual(t, key, other)
}
