package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/vk"
)

// drawCapabilities makes up a device within what Vulkan promises of any.
func drawCapabilities(t *rapid.T) *capabilities {
	f := &vk.Facts{EffectiveVersion: vk.Version11, Type: vk.DeviceType(rapid.IntRange(0, 4).Draw(t, "type"))}
	f.VendorID = rapid.SampledFrom([]uint32{0x1002, 0x10de, 0x8086}).Draw(t, "vendor")
	f.Limits.MaxSharedMemory = uint32(rapid.SampledFrom([]int{16 << 10, 32 << 10, 48 << 10, 64 << 10, 100 << 10}).Draw(t, "shared"))
	f.Limits.MaxWorkgroupInvocations = uint32(rapid.SampledFrom([]int{128, 256, 1024}).Draw(t, "invocations"))
	f.Limits.MaxWorkgroupSize = [3]uint32{f.Limits.MaxWorkgroupInvocations, 128, 64}
	f.Limits.MaxPushConstants = 128
	f.Subgroup.Size = uint32(rapid.SampledFrom([]int{1, 4, 8, 16, 32, 64}).Draw(t, "subgroup"))
	f.Subgroup.Compute = true
	f.Subgroup.Ops = vk.SubgroupBasic | vk.SubgroupShuffle
	f.Subgroup.FullSubgroups = rapid.Bool().Draw(t, "full")
	f.Subgroup.RequiredSizeCompute = f.Subgroup.FullSubgroups
	c := &capabilities{facts: f}
	c.enabled.ComputeFullSubgroups, c.enabled.SubgroupSizeControl = f.Subgroup.FullSubgroups, f.Subgroup.FullSubgroups
	return c
}

// drawScalarProblem draws what the choice of a scalar tile looks at: lengths, head dimensions and type.
func drawScalarProblem(t *rapid.T) Problem {
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
		HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
		DType: DType(rapid.IntRange(0, 2).Draw(t, "dtype"))}.Normalize()
	require.NoError(t, err)
	return p
}

// TestScalarTileFitsAnyDevice: every head dimension has a tile on every device, and it keeps the device's limits and the
// shader's rules.
func TestScalarTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		p := drawScalarProblem(t)
		tile, err := chooseScalarTile(c, &p, newTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.check(p.HeadDim, p.ValueDim, p.DType.Size(), &c.facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		s := tile.shared(p.HeadDim, p.ValueDim)
		dk4, chunks := tile.DK/4, ceilDiv(p.HeadDim, tile.DK)
		// The areas that the shader uses at one time must not overlap and must lie within the array.
		q := [2]int{0, tile.BR * (dk4 | 1)}
		if tile.QResident {
			q[1] = tile.BR * (chunks*dk4 | 1)
		}
		k := [2]int{s.kAt, s.kAt + tile.BC*(dk4|1)}
		rows := tile.VC
		if tile.VEarly {
			rows = tile.BC
		}
		v := [2]int{s.vAt, s.vAt + rows*tile.tx()*ceilDiv(ceilDiv(p.ValueDim, 4), tile.tx())}
		pr := [2]int{s.pAt, s.pAt + tile.BR*(tile.PC/4|1)}
		disjoint := func(name string, a, b [2]int) {
			if a[0] < b[1] && b[0] < a[1] {
				t.Fatalf("%s overlap: %v %v in %+v", name, a, b, tile)
			}
		}
		disjoint("q k", q, k)
		disjoint("v p", v, pr)
		if tile.QResident {
			disjoint("q v", q, v)
			disjoint("q p", q, pr)
		}
		if tile.VEarly {
			disjoint("k v", k, v)
			disjoint("k p", k, pr)
		}
		for _, area := range [][2]int{q, k, v, pr} {
			if area[1] > s.length {
				t.Fatalf("%v passes the array's %d", area, s.length)
			}
		}
		if tile.Subgroup && (int(c.facts.Subgroup.Size)%tile.tx() != 0 || tile.threads()%int(c.facts.Subgroup.Size) != 0 || !c.facts.Subgroup.FullSubgroups) {
			t.Fatalf("%+v does not go with subgroups of %d", tile, c.facts.Subgroup.Size)
		}
	})
}

func TestTuningErrors(t *testing.T) {
	c := &capabilities{facts: &vk.Facts{}}
	c.facts.Limits.MaxSharedMemory = 32 << 10
	c.facts.Limits.MaxWorkgroupInvocations = 256
	c.facts.Limits.MaxWorkgroupSize = [3]uint32{256, 256, 64}
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64}.Normalize()
	require.NoError(t, err)
	for _, given := range []map[string]int{
		{"br": 7}, {"br": 0}, {"bc": 12}, {"mc": 3}, {"mr": 0}, {"br": 4096}, {"dk": 7}, {"pc": 5}, {"subgroup": 1}, {"q_resident": 1, "br": 512},
	} {
		_, err := chooseScalarTile(c, &p, newTuning(given))
		require.ErrorIs(t, err, ErrArgument, "%v", given)
	}
	tn := newTuning(map[string]int{"br": 32, "nonsense": 3})
	tile, err := chooseScalarTile(c, &p, tn)
	require.NoError(t, err)
	require.Equal(t, 32, tile.BR)
	require.ErrorContains(t, tn.unknown(&scalarForward.offer), "nonsense")
	require.ErrorContains(t, tn.unknown(&scalarForward.offer), "v_early")
}

// TestStandardTileFitsAnyDevice is the same for standard attention.
func TestStandardTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		p, err := Problem{Batch: 1, Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"), KeyLen: rapid.IntRange(1, 70000).Draw(t, "nk"),
			HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType: DType(rapid.IntRange(0, 2).Draw(t, "dtype"))}.Normalize()
		require.NoError(t, err)
		tile, err := chooseStandardTile(c, &p, newTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.check(&p, &c.facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		if k := tile.rowKeep; k != 0 && 4*tile.rowThreads*k < p.KeyLen {
			t.Fatalf("%+v does not keep a row of %d", tile, p.KeyLen)
		}
	})
}
