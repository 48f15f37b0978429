package flash

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/vk"
)

// madeUpGPU is a device as its maker describes it; nobody here has one but the H200.
type madeUpGPU struct {
	name, family    string
	vendor          uint32
	multiprocessors uint32 // that the driver tells
	subgroups       uint32 // the same, of a multiprocessor
	sharedKiB       uint32
	lanes           uint32
	invocations     uint32   // of a workgroup
	fragments       [][3]int // of fp16
	form            int      // what the layout of fragments allows
	held            int      // times that a subgroup holds an element of an operand
	words           int      // of a lane's registers; 0: not looked at
	wordsUpTo       int      // head dimensions up to which tiles are to fit them
}

var (
	nvidiaFragments = [][3]int{{16, 16, 16}, {16, 8, 16}, {16, 8, 8}}
	cube            = [][3]int{{16, 16, 16}}
)

var madeUpGPUs = []madeUpGPU{
	{"H100 PCIe", "hopper", 0x10de, 114, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"H200", "hopper", 0x10de, 132, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"B200", "hopper", 0x10de, 148, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"A100", "ampere", 0x10de, 108, 64, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 3060", "ampere", 0x10de, 28, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 4090", "ampere", 0x10de, 128, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"RTX 5090", "ampere", 0x10de, 170, 48, 48, 32, 1024, nvidiaFragments, kernel.FormRegisters, 1, 255, 256},
	{"T4", "turing", 0x10de, 40, 32, 48, 32, 1024, [][3]int{{16, 8, 8}, {16, 16, 16}}, kernel.FormRegisters, 1, 255, 256},
	{"T4, an older driver", "turing", 0x10de, 40, 32, 48, 32, 1024, [][3]int{{16, 8, 8}}, kernel.FormRegisters, 1, 255, 256},
	{"GTX 1080", "turing", 0x10de, 20, 64, 48, 32, 1024, nil, 0, 1, 0, 0},
	{"RX 7900 XTX, Mesa", "rdna", 0x1002, 96, 0, 64, 64, 1024, cube, kernel.FormRows, 4, 256, 256},
	{"RX 7600, AMD", "rdna", 0x1002, 32, 0, 32, 32, 1024, cube, kernel.FormRows, 2, 256, 256},
	{"A770, 8 lanes", "arc", 0x8086, 0, 0, 64, 8, 1024, [][3]int{{8, 8, 16}}, kernel.FormShared, 1, 128, 64},
	{"A770, 16 lanes", "arc", 0x8086, 0, 0, 64, 16, 1024, [][3]int{{8, 16, 16}}, kernel.FormShared, 1, 64, 64},
	{"A770, 32 lanes", "arc", 0x8086, 0, 0, 64, 32, 1024, [][3]int{{8, 16, 16}}, kernel.FormShared, 1, 32, 64},
	{"M2", "apple", 0x106b, 0, 0, 32, 32, 1024, nil, 0, 1, 0, 0},
	{"RX 6800", "generic", 0x1002, 60, 0, 64, 64, 1024, nil, 0, 1, 0, 0},
	{"Mali", "generic", 0x13b5, 10, 0, 32, 16, 512, nil, 0, 1, 0, 0},
	{"UHD 770", "generic", 0x8086, 0, 0, 64, 32, 1024, nil, 0, 1, 0, 0},
	{"the least that Vulkan asks", "generic", 0xffff, 0, 0, 16, 4, 128, nil, 0, 1, 0, 0},
}

func (g *madeUpGPU) caps() *kernel.Capabilities {
	f := &vk.Facts{Name: g.name, VendorID: g.vendor, EffectiveVersion: vk.Version13, Type: vk.DeviceDiscrete,
		Multiprocessors:         g.multiprocessors,
		MultiprocessorSubgroups: g.subgroups}
	f.Limits.MaxSharedMemory, f.Limits.MaxWorkgroupInvocations = g.sharedKiB<<10, g.invocations
	f.Limits.MaxWorkgroupSize = [3]uint32{g.invocations, g.invocations, 64}
	f.Subgroup.Size, f.Subgroup.MaxWorkgroupSubgroups = g.lanes, g.invocations/g.lanes
	f.Subgroup.Compute, f.Subgroup.FullSubgroups, f.Subgroup.RequiredSizeCompute = true, true, true
	f.Subgroup.Ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
	for _, s := range g.fragments {
		for _, in := range []vk.ComponentType{vk.ComponentF16, vk.ComponentBF16} {
			f.Matrices = append(f.Matrices, vk.MatrixShape{M: uint32(s[0]), N: uint32(s[1]), K: uint32(s[2]), A: in, B: in,
				C:      vk.ComponentF32,
				Result: vk.ComponentF32, Scope: vk.ScopeSubgroup})
		}
	}
	c := &kernel.Capabilities{Facts: f}
	c.Enabled.ComputeFullSubgroups, c.Enabled.SubgroupSizeControl, c.Enabled.Storage16 = true, true, true
	return c
}

// everything is the same with every feature of kernels on matrices enabled, and room for arguments.
func (g *madeUpGPU) everything() *kernel.Capabilities {
	c := g.caps()
	c.Facts.Limits.MaxPushConstants = 256
	e := &c.Enabled
	e.CooperativeMatrix, e.VulkanMemoryModel, e.Float16, e.Int16, e.BFloat16Type, e.BFloat16CooperativeMatrix = true, true, true,
		true, true, true
	return c
}

// words is what a lane holds of Q, O, the scores of a chunk and the next tile, in words of 32 bits.
func (g *madeUpGPU) wordsOf(t *matrix.Tile, p *Problem) int {
	f := &t.Fragment
	sum := attn.CeilDiv(f.M*f.N, f.Lanes)
	operand := attn.CeilDiv(f.M*f.K*g.held, 2*f.Lanes)
	n := t.RM * (min(t.QReg, attn.CeilDiv(p.HeadDim, f.K))*operand + (attn.CeilDiv(p.ValueDim, f.N)+attn.CeilDiv(t.CK, f.N))*sum)
	if t.Prefetch == 1 || t.Prefetch == 5 {
		n += 4 * attn.CeilDiv(t.BC*attn.CeilDiv(p.HeadDim+p.ValueDim, 8), t.Threads())
	}
	return n
}

// TestFamilies: every device has the family that is for it, and every kernel a tile within the device's limits, forward and backward. Where
// the family has rows for a kernel, one of those is taken, and none of another's; and no derived row is there in vain.
func TestFamilies(t *testing.T) {
	problems := goldenProblems(t)
	for _, dim := range []int{64, 128} { // rows for few queries, or few keys
		for _, n := range [][2]int{{12, 6}, {50, 12}} {
			p, err := Problem{Batch: 1, Heads: 8, QueryLen: n[0], KeyLen: n[1], HeadDim: dim, DType: F16}.Normalize()
			require.NoError(t, err)
			problems = append(problems, p)
		}
	}
	for _, dim := range []int{160, 224, 256} { // rows for a bias
		for _, value := range []int{dim, 256} {
			p, err := Problem{Batch: 1, Heads: 8, QueryLen: 4096, HeadDim: dim, ValueDim: value, DType: F16,
				Bias: PerScore{DType: F16, Batch: 1, Heads: 8, Queries: 4096, Keys: 4096}}.Normalize()
			require.NoError(t, err)
			problems = append(problems, p)
		}
	}
	reached := map[*tiles.Row]bool{}
	families := map[string]bool{}
	for i := range madeUpGPUs {
		g := &madeUpGPUs[i]
		families[g.family] = true
		t.Run(g.name, func(t *testing.T) {
			c := g.caps()
			require.Equal(t, g.family, c.Family().Name)
			for j := range problems {
				g.requireTiles(t, c, &problems[j], reached)
			}
		})
	}
	for _, f := range tiles.Families() {
		for _, r := range f.Own() {
			// generic's last rows are for what devices nobody knows lack
			if families[f.Name] && f.Name != "generic" && r.Source == tiles.Derived && !reached[r] {
				t.Errorf("%s: %s: no device of the family takes this row: %v", r.Place(), r.Kernel, r)
			}
		}
	}
}

// TestDefaultOfFP32: attention of fp32 goes to matrices unasked where that was measured to be faster, in three terms of bf16: on the Hopper
// family, up to head dimension 128, where queries fill a workgroup. Whoever asks for the tier has it elsewhere too, and plans say why it is
// not taken.
func TestDefaultOfFP32(t *testing.T) {
	choose := func(c *kernel.Capabilities, p Problem, tier Tier) (name, why string) {
		p, err := p.Normalize()
		require.NoError(t, err)
		k, _, reasons, err := pick(&Device{env: &kernel.Env{Caps: *c}}, attnOf(p), catalogue.Forward, "", Flash, tier,
			func(k *kernel.Kernel) (*kernel.Tuning, string, error) {
				return kernel.NewTuning(nil), "", nil
			})
		require.NoError(t, err)
		if at := slices.IndexFunc(reasons, func(r string) bool { return strings.HasPrefix(r, "matrix_forward_split: ") }); at >= 0 {
			why = strings.TrimPrefix(reasons[at], "matrix_forward_split: ")
		}
		return k.Name, why
	}
	sized := func(dim, queries int) Problem {
		return Problem{Batch: 4, Heads: 16, QueryLen: queries, KeyLen: 2048, HeadDim: dim, DType: F32}
	}
	const notMeasured = "it was not measured to be faster than the scalar tier"
	for i := range madeUpGPUs {
		g := &madeUpGPUs[i]
		t.Run(g.name, func(t *testing.T) {
			c := g.everything()
			for _, dim := range []int{8, 64, 72, 128, 136, 256} {
				for _, queries := range []int{64, 65, 2048} {
					for _, causal := range []Causal{CausalNone, CausalBottomRight} {
						p := sized(dim, queries)
						p.Causal = causal
						name, why := choose(c, p, "")
						switch {
						case g.family == "hopper" && dim <= 128 && queries > 64:
							require.Equal(t, "matrix_forward_split", name, "%v", p)
							require.Empty(t, why)
							continue
						case g.family == "hopper" && dim == 256: // three terms do not fit
							require.Contains(t, why, "bytes of shared memory pass the device's 49152")
						case len(g.fragments) > 0:
							require.True(t, strings.Contains(why, notMeasured) || strings.Contains(why, "bytes of shared memory pass"),
								"%v: %s", p, why)
						default:
							require.NotEmpty(t, why)
						}
						require.Equal(t, "scalar_forward", name, "%v", p)
						if len(g.fragments) > 0 {
							name, _ = choose(c, p, TierMatrix)
							require.Equal(t, "matrix_forward_split", name, "%v", p)
						}
					}
				}
			}
		})
	}
	without := madeUpGPUs[1].everything() // two terms of fp16 are not fp32
	without.Enabled.BFloat16CooperativeMatrix = false
	name, why := choose(without, sized(64, 2048), "")
	require.Equal(t, "scalar_forward", name)
	require.Contains(t, why, "for three of bf16 the device lacks the feature shaderBFloat16CooperativeMatrix; WithTier(TierMatrix) insists")
	name, _ = choose(without, sized(64, 2048), TierMatrix)
	require.Equal(t, "matrix_forward_split", name)
}

// requireTiles checks the tiles of every kernel for a problem, and notes the rows that they are from.
func (g *madeUpGPU) requireTiles(t *testing.T, c *kernel.Capabilities, p *Problem, reached map[*tiles.Row]bool) {
	t.Helper()
	masked, wide := p.Blocks != (Blocks{}), max(p.HeadDim, p.ValueDim) > kernel.PlainDims
	own := func(tn *kernel.Tuning, err error, kernels ...string) {
		t.Helper()
		require.NoError(t, err, "%v: %v", kernels, p)
		for _, r := range tn.Rows {
			reached[r] = true
			if masked && r.Family == "generic" { // of all rows, one that lies in a block goes first
				continue
			}
			if slices.ContainsFunc(c.Family().Own(), func(o *tiles.Row) bool {
				return o.Kernel == r.Kernel &&
					o.Source != tiles.Candidate
			}) {
				require.Equal(t, g.family, r.Family, "%s for %v is from %s", r.Kernel, p, r.Place())
			} else {
				require.Equal(t, "generic", r.Family, r.Place())
			}
		}
		require.Len(t, tn.Rows, len(kernels))
	}
	fits := func(why string) {
		t.Helper()
		require.Empty(t, why, "%v", p)
	}
	limits, elem := &c.Facts.Limits, p.DType.Size()

	tn := kernel.NewTuning(nil)
	inFP32, err := scalar.ChooseForwardTile(c, attnOf(*p), tn)
	own(tn, err, "scalar_forward")
	fits(inFP32.Check(p.HeadDim, p.ValueDim, elem, limits))
	if !masked && !wide {
		for _, prefix := range []string{"kv_", "q_"} {
			tn = kernel.NewBackwardTuning(nil)
			tile, err := scalar.ChooseBackwardTile(c, attnOf(*p), prefix, tn)
			own(tn, err, "scalar_backward_"+prefix)
			fits(tile.Check(prefix, max(p.HeadDim, p.ValueDim), elem, limits))
		}
		tn = kernel.NewTuning(nil)
		flash1, err := scalar.ChooseFlash1Tile(c, attnOf(*p), tn)
		own(tn, err, "scalar_flash1")
		fits(flash1.Check(p.HeadDim, p.ValueDim, elem, limits))
		tn = kernel.NewTuning(nil)
		inThree, err := standard.ChooseScalarTile(c, attnOf(*p), tn)
		own(tn, err, "standard_scalar")
		fits(inThree.Check(attnOf(*p), limits))
	}
	if !masked && p.QueryLen*p.attn().Group() <= scalar.DecodeRows && p.attn().Features() == 0 {
		tn = kernel.NewTuning(nil)
		tile, err := scalar.ChooseDecodeTile(c, attnOf(*p), tn)
		own(tn, err, scalar.DecodeKernel)
		_, why := tile.Check(attnOf(*p), limits)
		fits(why)
	}
	if len(g.fragments) > 0 && !masked && !wide {
		single := *p
		single.DType = F32
		tn = kernel.NewTuning(nil)
		split, err := matrix.ChooseSplitTile(c, attnOf(single), 2, g.form != kernel.FormShared, c.Fragments(attn.F16)[0], g.form, tn)
		// two terms of 16 keys of 256 columns are 33 KiB
		if err != nil && limits.MaxSharedMemory < 40<<10 && max(p.HeadDim, p.ValueDim) > 128 {
			require.ErrorContains(t, err, "bytes of shared memory pass")
		} else {
			own(tn, err, "matrix_forward_split")
			fits(split.Check(p.HeadDim, p.ValueDim, c))
		}
	}
	if len(g.fragments) == 0 || p.DType == F32 {
		return
	}
	f := c.Fragments(attn.DType(p.DType))[0]
	if wide {
		if masked || p.Dropout > 0 { // left to the scalar tier
			return
		}
		tn = kernel.NewTuning(nil)
		tile, err := matrix.ChooseWideTile(c, attnOf(*p), f, &kernel.FragmentLayout{Form: g.form}, g.form, tn)
		own(tn, err, "matrix_forward_wide")
		fits(tile.Check(p.HeadDim, p.ValueDim, c))
		return
	}
	tn = kernel.NewTuning(nil)
	choose := matrix.ChooseTile
	if masked {
		choose = matrix.ChooseBlockTile
	}
	tile, err := choose(c, attnOf(*p), f, g.form, tn)
	own(tn, err, "matrix_forward")
	fits(tile.Check(p.HeadDim, p.ValueDim, c))
	if masked {
		return
	}
	if n := g.wordsOf(&tile, p); max(p.HeadDim, p.ValueDim) <= g.wordsUpTo && n > g.words {
		t.Fatalf("%v: %d words in a lane pass %d: %v, %+v", p, n, g.words, tn.Rows[0].Place(), tile)
	}
	tn = kernel.NewTuning(nil)
	flash1, err := matrix.ChooseFlash1Tile(c, attnOf(*p), f, g.form, tn)
	own(tn, err, "matrix_flash1")
	fits(flash1.Check(p.HeadDim, p.ValueDim, c))
	for _, prefix := range []string{"kv_", "q_"} {
		tn = kernel.NewBackwardTuning(nil)
		tile, err := matrix.ChooseBackwardTile(c, attnOf(*p), &kernel.FragmentLayout{Form: g.form}, f, g.form, prefix, tn)
		own(tn, err, "matrix_backward_"+prefix)
		fits(tile.Check(prefix, attnOf(*p), c))
	}
	tn = kernel.NewBackwardTuning(nil)
	weights, _, err := matrix.ChooseWeights(c, attnOf(*p), &kernel.FragmentLayout{Form: g.form}, f, g.form, tn)
	own(tn, err, "matrix_backward_weights")
	fits(weights.Tile.Check("weights_", attnOf(*p), c))
	tn = kernel.NewTuning(nil)
	inThree, err := standard.ChooseMatrixTile(c, attnOf(*p), f, tn)
	own(tn, err, "standard_scores_matrix", "standard_product_matrix")
	fits(inThree.Check(attnOf(*p), c))
	_, err = standard.ChooseMatrixGradients(c, attnOf(*p), f, kernel.NewBackwardTuning(nil))
	require.NoError(t, err)
}
