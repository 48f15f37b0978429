package scalar

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/vk"
)

// drawProblem draws what the choice of a tile looks at: lengths, head dimensions and type.
func drawProblem(t *rapid.T) *attn.Problem {
	return kerneltest.Problem(attn.Problem{Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
		HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
		DType: attn.DType(rapid.IntRange(0, 2).Draw(t, "dtype"))})
}

// TestScalarTileFitsAnyDevice: every head dimension has a tile on every device, and it keeps the device's limits and the
// shader's rules.
func TestScalarTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		p := drawProblem(t)
		tile, err := ChooseForwardTile(c, p, kernel.NewTuning(nil))
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
	p := kerneltest.Problem(attn.Problem{Heads: 1})
	for _, given := range []map[string]int{
		{"br": 7}, {"br": 0}, {"bc": 12}, {"mc": 3}, {"mr": 0}, {"br": 4096}, {"dk": 7}, {"pc": 5}, {"subgroup": 1},
		{"q_resident": 1, "br": 512},
	} {
		_, err := ChooseForwardTile(c, p, kernel.NewTuning(given))
		require.ErrorIs(t, err, attn.ErrArgument, "%v", given)
	}
	tn := kernel.NewTuning(map[string]int{"br": 32, "nonsense": 3})
	tile, err := ChooseForwardTile(c, p, tn)
	require.NoError(t, err)
	require.Equal(t, 32, tile.BR)
	require.ErrorContains(t, tn.Unknown(&Forward.Offer), "nonsense")
	require.ErrorContains(t, tn.Unknown(&Forward.Offer), "v_early")
}
