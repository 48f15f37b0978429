package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/vk"
)

// drawCapabilities makes up a device within what Vulkan promises of any.
func drawCapabilities(t *rapid.T) *kernel.Capabilities {
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
	c := &kernel.Capabilities{Facts: f}
	c.Enabled.ComputeFullSubgroups, c.Enabled.SubgroupSizeControl = f.Subgroup.FullSubgroups, f.Subgroup.FullSubgroups
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
		tile, err := scalar.ChooseForwardTile(c, attnOf(p), kernel.NewTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.Check(p.HeadDim, p.ValueDim, p.DType.Size(), &c.Facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		s := tile.Shared(p.HeadDim, p.ValueDim)
		dk4, chunks := tile.DK/4, attn.CeilDiv(p.HeadDim, tile.DK)
		// The areas that the shader uses at one time must not overlap and must lie within the array.
		q := [2]int{0, tile.BR * (dk4 | 1)}
		if tile.QResident {
			q[1] = tile.BR * (chunks*dk4 | 1)
		}
		k := [2]int{s.KAt, s.KAt + tile.BC*(dk4|1)}
		rows := tile.VC
		if tile.VEarly {
			rows = tile.BC
		}
		v := [2]int{s.VAt, s.VAt + rows*tile.Tx()*attn.CeilDiv(attn.CeilDiv(p.ValueDim, 4), tile.Tx())}
		pr := [2]int{s.PAt, s.PAt + tile.BR*(tile.PC/4|1)}
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
			if area[1] > s.Length {
				t.Fatalf("%v passes the array's %d", area, s.Length)
			}
		}
		if tile.Subgroup && (int(c.Facts.Subgroup.Size)%tile.Tx() != 0 || tile.Threads()%int(c.Facts.Subgroup.Size) != 0 ||
			!c.Facts.Subgroup.FullSubgroups) {
			t.Fatalf("%+v does not go with subgroups of %d", tile, c.Facts.Subgroup.Size)
		}
	})
}

func TestTuningErrors(t *testing.T) {
	c := &kernel.Capabilities{Facts: &vk.Facts{}}
	c.Facts.Limits.MaxSharedMemory = 32 << 10
	c.Facts.Limits.MaxWorkgroupInvocations = 256
	c.Facts.Limits.MaxWorkgroupSize = [3]uint32{256, 256, 64}
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64}.Normalize()
	require.NoError(t, err)
	for _, given := range []map[string]int{
		{"br": 7}, {"br": 0}, {"bc": 12}, {"mc": 3}, {"mr": 0}, {"br": 4096}, {"dk": 7}, {"pc": 5}, {"subgroup": 1},
		{"q_resident": 1, "br": 512},
	} {
		_, err := scalar.ChooseForwardTile(c, attnOf(p), kernel.NewTuning(given))
		require.ErrorIs(t, err, ErrArgument, "%v", given)
	}
	tn := kernel.NewTuning(map[string]int{"br": 32, "nonsense": 3})
	tile, err := scalar.ChooseForwardTile(c, attnOf(p), tn)
	require.NoError(t, err)
	require.Equal(t, 32, tile.BR)
	require.ErrorContains(t, tn.Unknown(&scalar.Forward.Offer), "nonsense")
	require.ErrorContains(t, tn.Unknown(&scalar.Forward.Offer), "v_early")
}

// TestStandardTileFitsAnyDevice is the same for standard attention.
func TestStandardTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCapabilities(t)
		p, err := Problem{Batch: 1, Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
			KeyLen:  rapid.IntRange(1, 70000).Draw(t, "nk"),
			HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType: DType(rapid.IntRange(0, 2).Draw(t, "dtype"))}.Normalize()
		require.NoError(t, err)
		tile, err := standard.ChooseScalarTile(c, attnOf(p), kernel.NewTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.Check(attnOf(p), &c.Facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		if k := tile.RowKeep; k != 0 && 4*tile.RowThreads*k < p.KeyLen {
			t.Fatalf("%+v does not keep a row of %d", tile, p.KeyLen)
		}
	})
}
