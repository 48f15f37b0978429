package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// TestFindingsBelongToADriver: what is known of a device, and a tuning that was measured on it, is not that of another vendor, device,
// version of the driver, or build of it.
func TestFindingsBelongToADriver(t *testing.T) {
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 16}.Normalize()
	require.NoError(t, err)
	facts := vk.Facts{Name: "a GPU", VendorID: 1, DeviceID: 2, DriverVersion: 3, PipelineCacheUUID: [16]byte{4}}
	device := func(f vk.Facts) *Device {
		return &Device{env: &kernel.Env{Caps: kernel.Capabilities{Facts: &f}}, info: describe(&kernel.Capabilities{Facts: &f})}
	}
	identity, key := device(facts).env.Identity(), device(facts).tuned().Key("scalar_forward", attnOf(p))
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
		require.NotEqual(t, identity, device(other).env.Identity(), name)
		if change.tuning {
			require.NotEqual(t, key, device(other).tuned().Key("scalar_forward", attnOf(p)), name)
		}
	}
}

// TestVerdictsBelongToAModule: the key of a self-check's verdict has the hash of what the driver compiles, and every constant.
func TestVerdictsBelongToAModule(t *testing.T) {
	const module = "matrix_forward.f16"
	d := testDevice(t)
	hash, err := d.env.ModuleHash(module)
	require.NoError(t, err)
	set := kernel.Constants{"WG": 32, "BR": 16}
	key, err := d.env.ProofKey([]kernel.Compiled{{Module: module, Constants: set}})
	require.NoError(t, err)
	require.Contains(t, key, module)
	require.Contains(t, key, hash[:16])
	set = kernel.Constants{"WG": 32, "BR": 48}
	other, err := d.env.ProofKey([]kernel.Compiled{{Module: module, Constants: set}})
	require.NoError(t, err)
	require.NotEqual(t, key, other)

	// What the pipeline asks of subgroups is the driver's business as well.
	keys := map[string]bool{other: true}
	made := []pipeline.KernelInfo{{SubgroupSize: 16}, {SubgroupSize: 32}, {FullSubgroups: true}, {SubgroupSize: 32, FullSubgroups: true}}
	for _, m := range made {
		key, err := d.env.ProofKey([]kernel.Compiled{{Module: module, Constants: set, Made: m}})
		require.NoError(t, err)
		keys[key] = true
	}
	require.Len(t, keys, 1+len(made))
}
