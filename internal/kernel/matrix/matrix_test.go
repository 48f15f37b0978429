package matrix

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/tiles"
)

// TestRefusals: what each kernel cannot compute it refuses by name, and computes the rest.
func TestRefusals(t *testing.T) {
	kerneltest.Refuses(t, &Forward.Offer, attn.Problem{}, "block mask", "lists of keys")
	kerneltest.Refuses(t, &Flash1.Offer, attn.Problem{}, "block mask", "pages of keys and values", "quantised keys or values",
		"packed sequences", "lists of keys")
	kerneltest.Refuses(t, &BlockSparse.Offer, attn.Problem{Blocks: attn.Blocks{Queries: 16, Keys: 16}}, "pages of keys and values",
		"quantised keys or values", "lists of keys")
	kerneltest.Refuses(t, &ForwardWide.Offer, attn.Problem{HeadDim: 300}, "dropout", "block mask", "lengths of keys or queries",
		"pages of keys and values",
		"quantised keys or values", "packed sequences", "lists of keys")
	kerneltest.Refuses(t, &ForwardSplit.Offer, attn.Problem{}, "block mask", "pages of keys and values", "quantised keys or values",
		"lists of keys")
	kerneltest.Refuses(t, &Backward.Offer, attn.Problem{}, "pages of keys and values", "quantised keys or values",
		"largest score of each head", "lists of keys")

	require.False(t, ForwardWide.Exists(kerneltest.Problem(attn.Problem{HeadDim: 256})), "another kernel does as many columns for less")
	require.True(t, ForwardWide.Exists(kerneltest.Problem(attn.Problem{HeadDim: 8, ValueDim: 257})))
	require.Contains(t, Forward.Unsupported(kerneltest.Hopper(), kerneltest.Problem(attn.Problem{})),
		"rounding fp32 to them would not be exact")
	require.True(t, ForwardSplit.Exists(kerneltest.Problem(attn.Problem{})))
	require.False(t, ForwardSplit.Exists(kerneltest.Problem(attn.Problem{DType: attn.BF16})), "matrices take it as it is")
	require.Equal(t, "the device lacks the feature cooperativeMatrix", ForwardSplit.Unsupported(kerneltest.Hopper(),
		kerneltest.Problem(attn.Problem{})))
	require.Equal(t, "the device lacks the feature cooperativeMatrix",
		Forward.Unsupported(kerneltest.Hopper(), kerneltest.Problem(attn.Problem{DType: attn.F16})))
	require.Contains(t, Forward.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{DType: attn.F16})), "1.3 is needed")
	require.Empty(t, Forward.Reserved(kerneltest.Hopper(), kerneltest.Problem(attn.Problem{DType: attn.F16})))
	require.Contains(t, Forward.Reserved(kerneltest.CPU(), kerneltest.Problem(attn.Problem{DType: attn.F16})),
		"WithTier(TierMatrix) insists")
}

// fragmented is a device with a fragment that it offers.
type fragmented struct {
	name     string
	caps     *kernel.Capabilities
	fragment kernel.Fragment
}

var devices = []fragmented{
	{"hopper", kerneltest.Hopper(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}},
	{"hopper, narrow", kerneltest.Hopper(), kernel.Fragment{M: 16, N: 8, K: 16, Lanes: 32}},
	{"cpu", kerneltest.CPU(), kernel.Fragment{M: 8, N: 8, K: 8, Lanes: 8}},
}

// everyProblem calls f with problems of all sizes of heads from least to most, on every device, in every form.
func everyProblem(least, most int, f func(d fragmented, form int, p *attn.Problem, what string)) {
	for _, d := range devices {
		for _, dim := range []int{1, 8, 20, 64, 96, 128, 256, 257, 333, 512, 576} {
			if dim < least || dim > most {
				continue
			}
			for _, queries := range []int{1, 40, 5000} {
				for form := kernel.FormRegisters; form <= kernel.FormShared; form++ {
					for _, causal := range []attn.Causal{attn.CausalNone, attn.CausalBottomRight} {
						p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 16, KeyHeads: 8, QueryLen: queries, KeyLen: queries + 100,
							HeadDim: dim, DType: attn.F16, ByPosition: attn.ByPosition{Causal: causal}})
						f(d, form, p, fmt.Sprintf("%s, form %d: %d, %d queries, causal %v", d.name, form, dim, queries, causal))
					}
				}
			}
		}
	}
}

// TestTiles: every device gets a tile for every form, whose shared memory and subgroups it has, and whose numbers are those that pipelines
// are specialized with.
func TestTiles(t *testing.T) {
	everyProblem(1, Forward.MostDim, func(d fragmented, form int, p *attn.Problem, what string) {
		tile, err := ChooseTile(d.caps, p, d.fragment, form, kernel.NewTuning(nil))
		require.NoError(t, err, what)
		require.Empty(t, tile.Check(p.HeadDim, p.ValueDim, d.caps), what)
		require.LessOrEqual(t, tile.Shared(p.HeadDim, p.ValueDim).Bytes(), int(d.caps.Facts.Limits.MaxSharedMemory), what)
		env, tuning := &kernel.Env{Caps: *d.caps}, kernel.NewTuning(nil)
		made, err := tile.fused("matrix_forward", "matrix_forward", p.DType, p, &kernel.FragmentLayout{}).Pass(env, p, tuning,
			pass.Variant{LSE: true})
		require.NoError(t, err, what)
		require.NoError(t, made.Check(), what)
		c := made.Stages[0].Constants
		require.Equal(t, []int{tile.W * d.fragment.Lanes, tile.W * tile.RM * d.fragment.M, tile.BC, form, d.fragment.M, d.fragment.N,
			d.fragment.K},
			[]int{c["WG"], c["BR"], c["BC"], c["FORM"], c["FM"], c["FN"], c["FK"]}, what)
		require.Equal(t, kernel.BoolInt(p.Causal != attn.CausalNone), c["UPPER_BOUND"], what)
		require.Equal(t, uint32(d.fragment.Lanes), made.Stages[0].Made.SubgroupSize, what)
		require.Equal(t, tile.Parts > 1, len(made.Scratch) > 0, what+": keys in one piece need no workspace")

		outside, err := ChooseFlash1Tile(d.caps, p, d.fragment, form, kernel.NewTuning(nil))
		require.NoError(t, err, what)
		require.True(t, outside.KeysOutside, what)
		require.Empty(t, outside.Check(p.HeadDim, p.ValueDim, d.caps), what)
		made, err = outside.flash1(p, &kernel.FragmentLayout{RowOfSlot: []int{0}}).Pass(env, p, tuning, pass.Variant{})
		require.NoError(t, err, what)
		require.NoError(t, made.Check(), what)

		for _, prefix := range []string{"kv_", "q_"} {
			back, err := ChooseBackwardTile(d.caps, p, &kernel.FragmentLayout{}, d.fragment, form, prefix, kernel.NewBackwardTuning(nil))
			require.NoError(t, err, what)
			require.Equal(t, prefix == "kv_", back.Keys, what)
			require.Empty(t, back.Check(prefix, p, d.caps), what)
		}
	})
}

// TestSplitTiles: every device gets a tile of two and of three terms for every form that there is, if its shared memory holds one of whole
// fragments; three terms of 256 columns are more than 48 KiB.
func TestSplitTiles(t *testing.T) {
	everyProblem(1, ForwardSplit.MostDim, func(d fragmented, form int, p *attn.Problem, what string) {
		p.DType = attn.F32
		for _, terms := range []int{2, 3} {
			for _, scaled := range []bool{false, true} {
				what := fmt.Sprintf("%s, %d terms, scaled %v", what, terms, scaled)
				tile, err := ChooseSplitTile(d.caps, p, terms, scaled, d.fragment, form, kernel.NewTuning(nil))
				if scaled && form == kernel.FormShared {
					require.ErrorContains(t, err, "form 3", what)
					continue
				}
				if terms == 3 && p.HeadDim > 240 && d.fragment.K == 16 {
					require.ErrorContains(t, err, "bytes of shared memory pass", what)
					continue
				}
				require.NoError(t, err, what)
				require.Empty(t, tile.Check(p.HeadDim, p.ValueDim, d.caps), what)
				c := tile.Constants(p, &kernel.FragmentLayout{}, kernel.Variant{LSE: true})
				require.Equal(t, [2]int{terms, kernel.BoolInt(scaled)}, [2]int{c["TERMS"], c["SCALED"]}, what)
				planes := tile.tilesShared() * tile.BC * (c["K_PITCH"] + c["V_PITCH"])
				require.GreaterOrEqual(t, c["KV_LEN"], terms*planes, what)
				require.GreaterOrEqual(t, c["KV_LEN"], tile.W*tile.Fragment.M*(c["PATCH"]|1), "%s: a row of Q is whole in the patch", what)
				require.GreaterOrEqual(t, c["PATCH"]*8, p.HeadDim, what)
				if scaled {
					require.Equal(t, tile.Rows()+2*tile.BC*tile.tilesShared(), c["E_LEN"], what)
				}
			}
		}
	})
}

// TestSplitThatDoesNotFit: a kernel of which no tile fits declines, whatever terms and form it is asked for; numbers of a tile that do not
// fit are the caller's mistake.
func TestSplitThatDoesNotFit(t *testing.T) {
	d := devices[0]
	choose := func(dim int, given map[string]int) error {
		p := kerneltest.Problem(attn.Problem{HeadDim: dim, QueryLen: 1000})
		_, err := ChooseSplitTile(d.caps, p, 3, false, d.fragment, kernel.FormRegisters, kernel.NewTuning(given))
		return err
	}
	terms := map[string]int{"terms": 3, "form": kernel.FormRegisters, kernel.DecodeParameter: 0}
	var no *kernel.Declined
	require.NoError(t, choose(240, terms))
	require.ErrorAs(t, choose(256, terms), &no)
	require.Contains(t, no.Why, "bytes of shared memory pass the device's 49152")
	for _, given := range []map[string]int{{"terms": 3, "bc": 64}, {"q_reg": 7, "w": 8}, {"parts": 2}} {
		err := choose(256, given)
		require.NotErrorAs(t, err, &no, "%v", given)
		require.ErrorIs(t, err, attn.ErrArgument, "%v", given)
	}
}

// TestSplitIsCutByItsOwnPace: where a device would not be full, keys are cut into parts before subgroups share the splitting of a tile with
// fewer.
func TestSplitIsCutByItsOwnPace(t *testing.T) {
	d := devices[0]
	for dim, keys := range map[int]int{64: 32, 128: 16} {
		for _, c := range []struct{ heads, queries, parts int }{{64, 2048, 1}, {8, 1024, 2}, {8, 512, 2}, {8, 128, 1}} {
			p := kerneltest.Problem(attn.Problem{DType: attn.F32, HeadDim: dim, Heads: c.heads, KeyHeads: c.heads, QueryLen: c.queries})
			tile, err := ChooseSplitTile(d.caps, p, 3, false, d.fragment, kernel.FormRegisters, kernel.NewTuning(nil))
			require.NoError(t, err)
			require.Equal(t, [4]int{8, 1, keys, c.parts}, [4]int{tile.W, tile.RM, tile.BC, tile.Parts}, "%d: %+v", dim, c)
		}
	}
}

// TestWideTiles: heads wider than a row of O in registers is are spread over a team of subgroups, on every device.
func TestWideTiles(t *testing.T) {
	everyProblem(ForwardWide.LeastDim, ForwardWide.MostDim, func(d fragmented, form int, p *attn.Problem, what string) {
		tile, err := ChooseWideTile(d.caps, p, d.fragment, &kernel.FragmentLayout{}, form, kernel.NewTuning(nil))
		require.NoError(t, err, what)
		made, err := tile.fused(p, &kernel.FragmentLayout{}).Pass(&kernel.Env{Caps: *d.caps}, p, kernel.NewTuning(nil), pass.Variant{})
		require.NoError(t, err, what)
		require.NoError(t, made.Check(), what)
		c := made.Stages[0].Constants
		require.LessOrEqual(t, c["WG"], int(d.caps.Facts.Limits.MaxWorkgroupInvocations), what)
		require.Equal(t, 0, c["WRITE_LSE"], what)
	})
}

// TestTuning: numbers of a caller's are taken, or refused by the rule that they break.
func TestTuning(t *testing.T) {
	d := devices[0]
	p := kerneltest.Problem(attn.Problem{QueryLen: 1000, Heads: 8, KeyHeads: 8, DType: attn.F16})
	tile, err := ChooseTile(d.caps, p, d.fragment, kernel.FormRegisters,
		kernel.NewTuning(map[string]int{"w": 2, "rm": 3, "bc": 48, "ck": 16, "prefetch": 2, "parts": 5}))
	require.NoError(t, err)
	require.Equal(t, [7]int{2, 3, 48, 16, 2, 5, 96}, [7]int{tile.W, tile.RM, tile.BC, tile.CK, tile.Prefetch, tile.Parts, tile.Rows()})
	for rule, given := range map[string]map[string]int{
		"ck = 24 must be a multiple of the fragment's N = 16": {"ck": 24},
		"bc = 40 must be a multiple of ck = 16":               {"bc": 40, "ck": 16},
		"passes the device's 32":                              {"w": 64},
		"bytes of shared memory pass the device's":            {"bc": 1024, "ck": 16},
	} {
		_, err := ChooseTile(d.caps, p, d.fragment, kernel.FormRegisters, kernel.NewTuning(given))
		require.ErrorContains(t, err, rule)
	}
}

// TestPacks: few queries of query heads that share a key head share a tile, and many do not.
func TestPacks(t *testing.T) {
	d := devices[0]
	for queries, packs := range map[int]bool{1: true, 4: true, 4000: false} {
		p := kerneltest.Problem(attn.Problem{QueryLen: queries, KeyLen: 4000, Heads: 32, KeyHeads: 8, HeadDim: 128, DType: attn.F16})
		tile, err := ChooseTile(d.caps, p, d.fragment, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		require.Equal(t, packs, tile.Pack, "%d queries", queries)
	}
	_, err := ChooseBlockTile(d.caps, kerneltest.Problem(attn.Problem{QueryLen: 1, Heads: 8, Blocks: attn.Blocks{Queries: 16, Keys: 16},
		DType: attn.F16}), d.fragment,
		kernel.FormRegisters, kernel.NewTuning(map[string]int{"pack": 1}))
	require.ErrorContains(t, err, "must be 0 with a block mask")
}

// TestPasses: whatever a problem has, the names in its passes are those of the modules.
func TestPasses(t *testing.T) {
	d, layout := devices[0], &kernel.FragmentLayout{ColOfComp: []int{0}, RowOfSlot: []int{0}}
	env := &kernel.Env{Caps: *d.caps}
	variants := []pass.Variant{{}, {Aligned: true, Output: true, LSE: true}, {Aligned: true}, {LSE: true}}
	for what, with := range kerneltest.Features() {
		with.DType, with.QueryLen = attn.F16, 1
		p := kerneltest.Problem(with)
		if Forward.Refuses(p) != "" && BlockSparse.Refuses(p) != "" {
			continue
		}
		check := func(k *pass.Fused) {
			t.Helper()
			for _, v := range variants {
				made, err := k.Pass(env, p, kernel.NewTuning(nil), v)
				require.NoError(t, err, what)
				require.NoError(t, made.Check(), what)
				require.Len(t, made.Stages, 1+kernel.BoolInt(k.Parts > 1)+kernel.BoolInt(!p.Packed.None())+kernel.BoolInt(p.MaxLogit), what)
			}
		}
		for parts := 1; parts < 3; parts++ {
			tuning := func() *kernel.Tuning { return kernel.NewTuning(map[string]int{"parts": parts}) }
			if parts > 1 && !p.Blocks.None() {
				continue
			}
			for _, operands := range []attn.DType{attn.F16, attn.BF16} {
				split := *p
				split.DType = attn.F32
				tile, err := ChooseSplitTile(d.caps, &split, 3, false, d.fragment, kernel.FormRegisters, tuning())
				require.NoError(t, err, what)
				if ForwardSplit.Refuses(p) == "" {
					check(tile.fused("matrix_forward_split", "matrix_forward_split", operands, p, layout))
				}
			}
			tile, err := ChooseTile(d.caps, p, d.fragment, kernel.FormRegisters, tuning())
			require.NoError(t, err, what)
			check(tile.fused("matrix_forward", "matrix_forward", p.DType, p, layout))
			if Decode.Refuses(p) == "" {
				tile, err := ChooseDecodeTile(d.caps, p, d.fragment, layout, tuning())
				require.NoError(t, err, what)
				check(tile.fused(p, layout))
			}
			if ForwardWide.Refuses(p) == "" {
				tile, err := ChooseWideTile(d.caps, p, d.fragment, layout, kernel.FormRegisters, tuning())
				require.NoError(t, err, what)
				check(tile.fused(p, layout))
			}
		}
		if Flash1.Refuses(p) == "" {
			tile, err := ChooseFlash1Tile(d.caps, p, d.fragment, kernel.FormRegisters, kernel.NewTuning(nil))
			require.NoError(t, err, what)
			for _, v := range variants {
				made, err := tile.flash1(p, layout).Pass(env, p, kernel.NewTuning(nil), v)
				require.NoError(t, err, what)
				require.NoError(t, made.Check(), what)
				require.Len(t, made.Scratch, 2, what)
			}
		}
	}
}

// TestGradientPasses: the same of backward passes, and of the gradient with respect to the bias behind them.
func TestGradientPasses(t *testing.T) {
	d, layout := devices[0], &kernel.FragmentLayout{ColOfComp: []int{0}, RowOfSlot: []int{0}}
	env := &kernel.Env{Caps: *d.caps}
	for what, with := range kerneltest.Features() {
		with.DType = attn.F16
		p := kerneltest.Problem(with)
		if Backward.Refuses(p) != "" {
			continue
		}
		for split := range 2 {
			fitted, err := fitBackward(env, p, d.fragment, layout, kernel.FormRegisters,
				kernel.NewBackwardTuning(map[string]int{"kv_split": split}))
			require.NoError(t, err, what)
			for i := range 64 {
				v := pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0, Accumulate: i&8 > 0,
					DBias: i&16 > 0 && fitted.q.tile.DBias, AlignedDBias: i&32 > 0}
				made := fitted.pass(v)
				require.NoError(t, made.Check(), what)
				require.Len(t, made.Stages, 3+split+2*kernel.BoolInt(!p.Packed.None()), what)
				queries := &made.Stages[len(made.Stages)-1]
				require.Equal(t, v.DBias, queries.Args.Y == "DBias", what)
			}
		}
		if p.Bias.None() || !p.Blocks.None() {
			continue
		}
		bias, err := fitBias(env, p, d.fragment, layout, kernel.FormRegisters, kernel.NewBackwardTuning(nil))
		require.NoError(t, err, what)
		for i := range 8 {
			made := pass.Behind(p)
			made.Stages = []pass.Stage{bias.stage(pass.Variant{Aligned: i&1 > 0, Accumulate: i&2 > 0, DBias: true, AlignedDBias: i&4 > 0})}
			require.NoError(t, made.Check(), what)
		}
	}
}

// TestFieldsAreRows: what rows of tables may name is what tiles have fields for, so that no number of a row is lost.
func TestFieldsAreRows(t *testing.T) {
	named := func(kernel string, besides ...string) (out []string) {
		for name := range tiles.Ranges(kernel) {
			if !slices.Contains(besides, name) {
				out = append(out, name)
			}
		}
		return out
	}
	require.ElementsMatch(t, named("matrix_forward"), namesOf(tileFields))
	require.ElementsMatch(t, named("matrix_forward_split", "default"), namesOf(tileFields))
	require.ElementsMatch(t, named("matrix_flash1"), namesOf(tileFields))
	require.ElementsMatch(t, named(wideKernel), namesOf(wideFields))
	require.ElementsMatch(t, named(keysLabel), namesOf(backwardFields))
	require.ElementsMatch(t, named(queriesLabel), namesOf(backwardFields))
	require.ElementsMatch(t, named(weightsLabel, kernel.SlabsParameter), namesOf(backwardFields))
}

func namesOf[T any](all kernel.Fields[T]) (out []string) {
	for _, f := range all {
		out = append(out, f.Name)
	}
	return out
}
