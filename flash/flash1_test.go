package flash

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/vk"
)

// TestFlash1TileFitsAnyDevice: every head dimension has a tile on every device that Vulkan allows, and its areas of shared
// memory, which are all in use at once, lie side by side.
func TestFlash1TileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		p := drawScalarProblem(t)
		tile, err := scalar.ChooseFlash1Tile(c, attnOf(p), kernel.NewTuning(nil))
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		if why := tile.Check(p.HeadDim, p.ValueDim, p.DType.Size(), &c.Facts.Limits); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		s := tile.Shared(p.HeadDim, p.ValueDim)
		for _, area := range []struct {
			name         string
			length, room int
		}{
			{"q", tile.BR * (tile.DK/4 | 1), s.KAt},
			{"k", tile.BC * (attn.CeilDiv(p.HeadDim, tile.DK)*tile.DK/4 | 1), s.VAt - s.KAt},
			{"v", tile.VC * tile.Tx() * attn.CeilDiv(attn.CeilDiv(p.ValueDim, 4), tile.Tx()), s.PAt - s.VAt},
			{"p", tile.BR * (tile.BC/4 | 1), s.Length - s.PAt},
		} {
			if area.length > area.room {
				t.Fatalf("%s takes %d of %d in %+v", area.name, area.length, area.room, tile)
			}
		}
		if tile.Subgroup && (int(c.Facts.Subgroup.Size)%tile.Tx() != 0 || tile.Threads()%int(c.Facts.Subgroup.Size) != 0 ||
			!c.Facts.Subgroup.FullSubgroups) {
			t.Fatalf("%+v does not go with subgroups of %d", tile, c.Facts.Subgroup.Size)
		}
	})
}

// TestFlash1TilesOfOtherDevices forces shapes that the device at hand would not choose, V in pieces among them.
func TestFlash1TilesOfOtherDevices(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 70, HeadDim: 40, ValueDim: 24, DType: F16, Causal: CausalBottomRight}
	s := newSample(t, p)
	for i, tile := range []map[string]int{
		{"br": 64, "bc": 32, "mr": 4, "mc": 4, "dk": 16},
		{"br": 16, "bc": 16, "mr": 1, "mc": 4, "vc": 8, "dk": 8},
		{"br": 16, "bc": 8, "mr": 1, "mc": 4, "vc": 4},
		{"br": 16, "bc": 64, "mr": 4, "mc": 8, "subgroup": 0},
	} {
		if testing.Short() && i == 2 { // V in pieces, as in the one before
			continue
		}
		s.runTile(t, d, tile, WithImplementation(Flash1))
	}
	for _, bad := range []map[string]int{{"br": 7}, {"bc": 12}, {"mc": 3}, {"mr": 0}, {"dk": 7}, {"vc": 5}, {"br": 1 << 14}, {"br": 1024}} {
		_, err := d.Plan(p, WithImplementation(Flash1), WithTier(TierScalar), WithTuning(bad))
		require.ErrorIs(t, err, ErrArgument, "%v", bad)
	}
}

// flash1Kernels are the tiers of flash1 that a device has, with the storage types that they take.
func flash1Kernels(d *Device) (out []struct {
	tier  Tier
	dtype DType
}) {
	for _, k := range catalogue.Forward {
		for _, dtype := range []DType{F32, F16, BF16} {
			if k.Implementation == kernel.Flash1 && k.Unsupported(&d.env.Caps, &attn.Problem{DType: attn.DType(dtype)}) == "" {
				out = append(out, struct {
					tier  Tier
					dtype DType
				}{Tier(k.Tier), dtype})
			}
		}
	}
	return out
}

// TestFlash1Parts: O, m and l pass from one dispatch to the next as they do from one block of keys to the next, bit for bit.
func TestFlash1Parts(t *testing.T) {
	d := testDevice(t)
	for _, kernel := range flash1Kernels(d) {
		if testing.Short() && kernel.dtype != F16 {
			continue
		}
		p := narrowed(Problem{Batch: 1, Heads: 3, QueryLen: 100, KeyLen: 150, HeadDim: 16, DType: kernel.dtype, Causal: CausalTopLeft})
		s := newSample(t, p)
		var want []float32
		for _, cut := range []map[string]int{{}, {"max_key_blocks": 1}, {"max_key_blocks": 2, "max_groups": 2}} {
			plan := mustPlan(t, d, p, WithImplementation(Flash1), WithTier(kernel.tier), WithTuning(cut))
			f := s.tensors(t, d, plainly(t, d))
			r, err := plan.NewRecording()
			require.NoError(t, err)
			require.NoError(t, r.Forward(f))
			blocks, dispatches := attn.CeilDiv(p.KeyLen, plan.ForwardInfo().Tuning["bc"]), 1
			if n := cut["max_key_blocks"]; n > 0 {
				dispatches = attn.CeilDiv(blocks, n)
			}
			if n := cut["max_groups"]; n > 0 {
				dispatches = attn.CeilDiv(p.Heads*dispatches, n)
			}
			require.Equal(t, dispatches, r.Dispatches())
			pending, err := r.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			got := s.check(t, plan, f)
			if want != nil {
				require.Equal(t, want, got, "%v", cut)
			}
			want = got
			require.NoError(t, r.Close())
			require.NoError(t, plan.Close())
		}
	}
}

// TestFlash1Grid: the fewer heads, the more dispatches; none covers a head twice, and together they cover every block of keys.
func TestFlash1Grid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		p := Problem{Batch: rapid.IntRange(1, 4).Draw(t, "batch"), Heads: rapid.SampledFrom([]int{1, 3, 64, 70000}).Draw(t, "heads"),
			QueryLen: rapid.IntRange(1, 1<<17).Draw(t, "nq"), HeadDim: 64}
		p.KeyLen, p.ValueDim = p.QueryLen, p.HeadDim
		g, keyBlocks, err := kernel.Flash1Grid(c, attnOf(p), 32, p.ForwardFLOPs(), kernel.ScalarPace, kernel.NewTuning(nil))
		if err != nil { // more workgroups than a grid can number
			require.ErrorIs(t, err, ErrArgument)
			return
		}
		heads, blocks := p.Batch*p.Heads, attn.CeilDiv(p.KeyLen, 32)
		if int(g.Step) > heads {
			t.Fatalf("%d workgroups in a dispatch of %d heads", g.Step, heads)
		}
		if parts := attn.CeilDiv(blocks, keyBlocks); int(g.Total) != heads*parts {
			t.Fatalf("%d workgroups for %d heads × %d parts", g.Total, heads, parts)
		}
		if c.Facts.Type == vk.DeviceDiscrete && heads >= 64 {
			flops := p.ForwardFLOPs() * min(1, float64(keyBlocks)/float64(blocks)) // of a dispatch at most
			if keyBlocks > 1 && flops > 1.01*kernel.SecondsPerDispatch*kernel.ScalarPace.Discrete {
				t.Fatalf("a dispatch of %.3g operations", flops)
			}
		}
	})
}

// TestFlash1Workspace: what passes from block to block is m, l and, below 32 bits, O: linear in the number of queries.
func TestFlash1Workspace(t *testing.T) {
	d := testDevice(t)
	for _, n := range []int{100, 200} {
		for dtype, bytes := range map[DType]int{F32: 8, F16: 8 + 4*12, BF16: 8 + 4*12} {
			plan := mustPlan(t, d, Problem{Batch: 2, Heads: 3, QueryLen: n, KeyLen: 5000, HeadDim: 16, ValueDim: 11, DType: dtype},
				WithImplementation(Flash1), WithTier(TierScalar))
			info := plan.ForwardInfo()
			require.EqualValues(t, 6*n*bytes, info.WorkspaceBytes, "%v", dtype)
			require.Equal(t, traffic.KeysOutside{Label: "scalar_flash1", Rows: info.Tuning["br"], Keys: info.Tuning["bc"],
				RowReaders: info.Tuning["bc"] / info.Tuning["mc"]}, plan.program.Model())
			require.NoError(t, plan.Close())
		}
	}
	c := &kernel.Capabilities{Facts: &vk.Facts{}}
	c.Facts.Limits.MaxStorageBufferRange = 1 << 27
	statistics, sums := scalar.Flash1Rows(&attn.Problem{Batch: 16, Heads: 32, QueryLen: 16384, ValueDim: 64, DType: attn.F16})
	var m *MemoryError
	require.ErrorAs(t, c.Holds([]uint64{statistics, sums}), &m)
	require.EqualValues(t, 16*32*16384*64*4, m.Needed)
}

// TestFlash1Dropout drops what the definition says.
func TestFlash1Dropout(t *testing.T) {
	d := testDevice(t)
	for i, kernel := range flash1Kernels(d) {
		if testing.Short() && kernel.dtype != F16 {
			continue
		}
		p := narrowed(Problem{Batch: 2, Heads: 2, QueryLen: 40, KeyLen: 150, HeadDim: 16, DType: kernel.dtype, Dropout: 0.3,
			Causal: Causal(i % 3)})
		s := newSample(t, p)
		tensor := func(shape [4]int, data []float32) ref.Tensor {
			x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
			copy(x.Data, data)
			return x
		}
		rp := ref.Problem{Q: tensor(s.p.QShape(), s.q), K: tensor(s.p.KShape(), s.k), V: tensor(s.p.VShape(), s.v)}
		rp.Scale, rp.Dropout = s.p.Scale, &ref.Dropout{P: p.Dropout, Seed: 1<<40 + 5, Offset: 3}
		rp.Causal = [...]ref.Causal{ref.NotCausal, ref.BottomRight, ref.TopLeft}[p.Causal]
		o, lse, err := ref.Forward(rp)
		require.NoError(t, err)
		plain, _, err := ref.PlainForward(rp, ref.DType(kernel.dtype))
		require.NoError(t, err)
		require.NotEqual(t, s.o, o.Data, "nothing was dropped")
		s.o, s.lse, s.plain = o.Data, lse.Data, plain.Data
		plan := mustPlan(t, d, p, WithImplementation(Flash1), WithTier(kernel.tier))
		f := s.tensors(t, d, plainly(t, d))
		f.Seed, f.Offset = rp.Dropout.Seed, rp.Dropout.Offset
		pending, err := plan.SubmitForward(f)
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		s.check(t, plan, f)
		require.NoError(t, plan.Close())
	}
}

// TestFlash1IsForwardOnly: no backward pass of another algorithm stands in for it.
func TestFlash1IsForwardOnly(t *testing.T) {
	d := testDevice(t)
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}, WithImplementation(Flash1))
	defer plan.Close()
	_, err := plan.BackwardInfo()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, fmt.Sprint(Flash1))
}

// drawScalarProblem draws what the choice of a scalar tile looks at: lengths, head dimensions and type.
func drawScalarProblem(t *rapid.T) Problem {
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
		HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
		DType: DType(rapid.IntRange(0, 2).Draw(t, "dtype"))}.Normalize()
	require.NoError(t, err)
	return p
}
