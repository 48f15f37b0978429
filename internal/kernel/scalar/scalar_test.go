package scalar

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/tiles"
)

// TestRefusals: what each kernel cannot compute it refuses by name, and computes the rest.
func TestRefusals(t *testing.T) {
	blocks := attn.Problem{Blocks: attn.Blocks{Queries: 16, Keys: 16}}
	kerneltest.Refuses(t, &Forward.Offer, attn.Problem{}, "block mask", "lists of keys")
	kerneltest.Refuses(t, &Flash1.Offer, attn.Problem{}, "block mask", "pages of keys and values", "quantised keys or values",
		"packed sequences", "lists of keys")
	kerneltest.Refuses(t, &BlockSparse.Offer, blocks, "lists of keys")
	kerneltest.Refuses(t, &Decode.Offer, attn.Problem{QueryLen: 4}, "dropout", "block mask")
	kerneltest.Refuses(t, &Backward.Offer, attn.Problem{}, "pages of keys and values", "quantised keys or values",
		"largest score of each head", "lists of keys")
	kerneltest.Refuses(t, &BackwardLists.Offer, attn.Problem{}, "dropout", "block mask", "pages of keys and values",
		"quantised keys or values", "packed sequences", "largest score of each head")
	require.False(t, BackwardLists.Exists(kerneltest.Problem(attn.Problem{})))
	require.False(t, BlockSparse.Exists(kerneltest.Problem(attn.Problem{})), "without a block mask another kernel does the same")

	require.Contains(t, Decode.Refuses(kerneltest.Problem(attn.Problem{QueryLen: 5})), "10 rows for each key head: it takes up to 8")
	require.Empty(t, Decode.Refuses(kerneltest.Problem(attn.Problem{QueryLen: 5000, Lists: attn.Lists{Keys: 40}})),
		"rows of a workgroup are those of a query")
	require.Contains(t, Decode.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{QueryLen: 1})), "no subgroup shuffles")
	require.Empty(t, Forward.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{})),
		"fp32 needs nothing that a device may lack")
	require.Contains(t, Forward.Unsupported(kerneltest.Least(), kerneltest.Problem(attn.Problem{DType: attn.F16})),
		"storageBuffer16BitAccess")
}

// everyProblem calls f with problems of all sizes of heads that kernels take, on every device.
func everyProblem(t *testing.T, mostDim int, f func(c *kernel.Capabilities, p *attn.Problem, what string)) {
	for name, c := range kerneltest.Devices() {
		for _, dim := range []int{1, 3, 8, 20, 64, 80, 128, 256, 333, 576} {
			if dim > mostDim {
				continue
			}
			for _, queries := range []int{1, 7, 100, 5000} {
				for _, dtype := range []attn.DType{attn.F32, attn.F16} {
					p := kerneltest.Problem(attn.Problem{QueryLen: queries, KeyLen: queries + 90, HeadDim: dim, ValueDim: max(1, dim-2),
						DType: dtype})
					f(c, p, fmt.Sprintf("%s: %d of %v, %d queries", name, dim, dtype, queries))
				}
			}
		}
	}
}

// TestForwardTiles: every device gets a tile that keeps to its limits, and whose numbers are those that pipelines are specialized with.
func TestForwardTiles(t *testing.T) {
	everyProblem(t, Forward.MostDim, func(c *kernel.Capabilities, p *attn.Problem, what string) {
		tile, err := ChooseForwardTile(c, p, kernel.NewTuning(nil))
		require.NoError(t, err, what)
		l := &c.Facts.Limits
		require.Empty(t, tile.Check(p.HeadDim, p.ValueDim, p.DType.Size(), l), what)
		require.LessOrEqual(t, tile.Threads(), int(l.MaxWorkgroupInvocations), what)
		sh := tile.Shared(p.HeadDim, p.ValueDim)
		require.LessOrEqual(t, 16*sh.Length+4*sh.reduce, int(l.MaxSharedMemory), what)
		require.False(t, tile.Subgroup, what+": no device here has shuffles")
		require.Equal(t, tile.BR*tile.Tx(), sh.reduce, what)
		env, tuning := &kernel.Env{Caps: *c}, kernel.NewTuning(nil)
		k, err := fusedForward("scalar_forward", env, p, tuning)
		require.NoError(t, err, what)
		made, err := k.Pass(env, p, tuning, pass.Variant{LSE: true})
		require.NoError(t, err, what)
		require.NoError(t, made.Check(), what)
		constants := made.Stages[0].Constants
		require.Equal(t, []int{tile.Threads(), sh.KAt, sh.VAt, sh.PAt, sh.Length, p.HeadDim, p.ValueDim, 1},
			[]int{constants["WG"], constants["K_AT"], constants["V_AT"], constants["P_AT"], constants["SHARED_V4"], constants["D"],
				constants["DV"], constants["WRITE_LSE"]}, what)
		require.Equal(t, max(tile.Parts, 2)-1, max(constants["PARTS"], 2)-1, what)
		require.Equal(t, tile.Parts > 1, len(made.Scratch) > 0, what+": keys in one piece need no workspace")
	})
}

// TestForwardTuning: what a caller gives is taken as it is or refused by the rule that it breaks, and a cache is not cut into parts.
func TestForwardTuning(t *testing.T) {
	c, p := kerneltest.Hopper(), kerneltest.Problem(attn.Problem{QueryLen: 200})
	tile, err := ChooseForwardTile(c, p, kernel.NewTuning(map[string]int{"br": 24, "bc": 16, "mr": 3, "mc": 4, "parts": 2}))
	require.NoError(t, err)
	require.Equal(t, [5]int{24, 16, 3, 4, 2}, [5]int{tile.BR, tile.BC, tile.MR, tile.MC, tile.Parts})
	for rule, given := range map[string]map[string]int{
		"br = 25 must be a multiple of mr":     {"br": 25, "mr": 4},
		"bc/mc = 3 must be even":               {"bc": 24, "mc": 8},
		"passes the device's 1024":             {"br": 512, "bc": 512, "mr": 1, "mc": 4},
		"needs full subgroups of a known size": {"subgroup": 1},
	} {
		_, err := ChooseForwardTile(c, p, kernel.NewTuning(given))
		require.ErrorContains(t, err, rule)
	}
	cached := *p
	cached.Pages = attn.Pages{Size: 16, Count: 99, PerSequence: 20}
	_, err = ChooseForwardTile(c, &cached, kernel.NewTuning(map[string]int{"parts": 2}))
	require.ErrorContains(t, err, "parts = 2 must be 1 where keys and values lie in a cache")
}

// TestBlockTiles: with a block mask a tile that lies in one block goes before faster ones that do not.
func TestBlockTiles(t *testing.T) {
	for _, blocks := range []attn.Blocks{{Queries: 32, Keys: 32}, {Queries: 64, Keys: 128}, {Queries: 128, Keys: 128}} {
		p := kerneltest.Problem(attn.Problem{QueryLen: 1000, Blocks: blocks})
		tile, err := ChooseForwardTile(kerneltest.Hopper(), p, kernel.NewTuning(nil))
		require.NoError(t, err)
		require.Zero(t, [2]int{blocks.Queries % tile.BR, blocks.Keys % tile.BC}, "%v: %v", blocks, &tile)
	}
}

// TestBackwardTiles: both kernels of a backward pass keep to the limits of every device.
func TestBackwardTiles(t *testing.T) {
	everyProblem(t, Backward.MostDim, func(c *kernel.Capabilities, p *attn.Problem, what string) {
		env := &kernel.Env{Caps: *c}
		fitted, err := fitBackward(env, p, kernel.NewBackwardTuning(nil))
		require.NoError(t, err, what)
		made := fitted.pass(pass.Variant{Aligned: true, Accumulate: true})
		require.NoError(t, made.Check(), what)
		for i, prefix := range []string{"kv_", "q_"} {
			tile, err := ChooseBackwardTile(c, p, prefix, kernel.NewBackwardTuning(nil))
			require.NoError(t, err, what)
			require.Empty(t, tile.Check(prefix, max(p.HeadDim, p.ValueDim), p.DType.Size(), &c.Facts.Limits), what)
			constants := made.Stages[len(made.Stages)-2+i].Constants
			require.Equal(t, [3]int{tile.threads(), 1, 1}, [3]int{constants["WG"], constants["ALIGNED"], constants["ACCUMULATE"]}, what)
			require.LessOrEqual(t, 16*constants["SHARED_V4"], int(c.Facts.Limits.MaxSharedMemory), what)
			require.Greater(t, constants["SHARED_V4"], max(constants["C_AT"], constants["P_AT"]), what)
		}
	})
	_, err := ChooseBackwardTile(kerneltest.Hopper(), kerneltest.Problem(attn.Problem{}), "q_",
		kernel.NewBackwardTuning(map[string]int{"q_br": 33, "q_mr": 2}))
	require.ErrorContains(t, err, "q_br = 33 must be a multiple of q_mr = 2")
}

// TestDecodeTiles: rows that a lane cannot hold are spread over lanes, and keys are cut into parts where they are many.
func TestDecodeTiles(t *testing.T) {
	for _, dtype := range []attn.DType{attn.F32, attn.F16} {
		for _, cache := range append(attn.QuantisedTypes(), dtype) {
			for _, dim := range []int{8, 64, 128, 576} {
				p := kerneltest.Problem(attn.Problem{QueryLen: 1, KeyLen: 1 << 16, Heads: 8, HeadDim: dim, DType: dtype, KeyType: cache,
					ValueType: cache})
				tile, err := ChooseDecodeTile(kerneltest.Hopper(), p, kernel.NewTuning(nil))
				require.NoError(t, err)
				name, why := tile.Check(p, &kerneltest.Hopper().Facts.Limits)
				require.Empty(t, why, name)
				require.LessOrEqual(t, tile.registers(p), decodeMostSpilled)
				require.Greater(t, tile.Parts, 8, "%v %v %d: one key head of 65,536 keys", dtype, cache, dim)
				env, tuning := &kernel.Env{Caps: *kerneltest.Hopper()}, kernel.NewTuning(nil)
				env.Caps.Facts.Subgroup.FullSubgroups, env.Caps.Enabled.ComputeFullSubgroups = true, true
				k, err := fusedDecode(env, p, tuning)
				require.NoError(t, err)
				made, err := k.Pass(env, p, tuning, pass.Variant{})
				require.NoError(t, err)
				require.NoError(t, made.Check())
				constants, info := made.Stages[0].Constants, made.Stages[0].Made
				require.Equal(t, [5]int{tile.W * 32, tile.Rows, tile.LPR, tile.U, tile.Parts},
					[5]int{constants["WG"], constants["ROWS"], constants["LPR"], constants["U"], constants["PARTS"]})
				require.Equal(t, uint32(32), info.SubgroupSize)
				require.True(t, info.FullSubgroups)
			}
		}
	}
	p := kerneltest.Problem(attn.Problem{QueryLen: 1, KeyLen: 40})
	tile, err := ChooseDecodeTile(kerneltest.Hopper(), p, kernel.NewTuning(nil))
	require.NoError(t, err)
	require.Equal(t, 1, tile.Parts, "of few keys")
	_, err = ChooseDecodeTile(kerneltest.Hopper(), p, kernel.NewTuning(map[string]int{"rows": 3}))
	require.ErrorContains(t, err, "must be from 1 to the 2 rows of a key head")
}

// TestPasses: whatever a problem has, the names in its passes are those of the modules.
func TestPasses(t *testing.T) {
	for what, with := range kerneltest.Features() {
		with.DType = attn.F16
		p := kerneltest.Problem(with)
		if Forward.Refuses(p) != "" && BlockSparse.Refuses(p) != "" {
			continue
		}
		env := &kernel.Env{Caps: *kerneltest.Hopper()}
		for _, parts := range []int{1, 2} {
			if parts > 1 && (!p.Blocks.None() || p.Cached()) {
				continue
			}
			tuning := kernel.NewTuning(map[string]int{"parts": parts})
			k, err := fusedForward("scalar_forward", env, p, tuning)
			require.NoError(t, err, what)
			for i := range 16 {
				made, err := k.Pass(env, p, tuning, pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0, Accumulate: i&8 > 0})
				require.NoError(t, err, what)
				require.NoError(t, made.Check(), what)
				require.Len(t, made.Stages, parts+kernel.BoolInt(!p.Packed.None())+kernel.BoolInt(p.MaxLogit), what)
			}
		}
		if Backward.Refuses(p) != "" {
			continue
		}
		fitted, err := fitBackward(env, p, kernel.NewBackwardTuning(nil))
		require.NoError(t, err, what)
		for i := range 16 {
			made := fitted.pass(pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0, Accumulate: i&8 > 0})
			require.NoError(t, made.Check(), what)
			require.Len(t, made.Stages, 3+2*kernel.BoolInt(!p.Packed.None()), what)
		}
	}
}

// TestListPasses: the same of lists of keys, whatever else there is. A workgroup has rows of one query alone.
func TestListPasses(t *testing.T) {
	env := &kernel.Env{Caps: *kerneltest.Hopper()}
	for what, with := range kerneltest.Features() {
		with.DType, with.QueryLen, with.Heads, with.KeyHeads, with.Lists = attn.F16, 30, 12, 2, attn.Lists{Keys: 40}
		p := kerneltest.Problem(with)
		if Decode.Refuses(p) != "" || !p.Packed.None() {
			continue
		}
		for _, parts := range []int{1, 2} {
			tuning := kernel.NewTuning(map[string]int{"parts": parts, "rows": 4})
			k, err := fusedDecode(env, p, tuning)
			require.NoError(t, err, what)
			require.EqualValues(t, 30*2*2, k.Groups(p), what)
			for i := range 8 {
				made, err := k.Pass(env, p, tuning, pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0})
				require.NoError(t, err, what)
				require.NoError(t, made.Check(), what)
				require.Len(t, made.Stages, parts+kernel.BoolInt(p.MaxLogit), what)
			}
		}
		_, err := fusedDecode(env, p, kernel.NewTuning(map[string]int{"rows": 7}))
		require.ErrorContains(t, err, "with lists of a query", what)
		if BackwardLists.Refuses(p) != "" {
			continue
		}
		fitted, err := fitBackwardLists(env, p, kernel.NewBackwardTuning(nil))
		require.NoError(t, err, what)
		for i := range 8 {
			v := pass.Variant{Aligned: i&1 > 0, Output: i&2 > 0, Accumulate: i&4 > 0}
			made := fitted.pass(v)
			require.NoError(t, made.Check(), what)
			require.Len(t, made.Stages, 6, what)
			small, err := fitted.selfCheck(v)
			require.NoError(t, err, what)
			require.NoError(t, small.Check(), what)
			for _, at := range []int{4, 5} {
				require.Equal(t, made.Stages[at].Constants, small.Stages[at].Constants, "%s: the same pipeline", what)
			}
		}
	}
}

// TestListTiles: on every device lists are turned round by chunks none of which is empty, and tiles of gradients keep to its limits.
func TestListTiles(t *testing.T) {
	everyProblem(t, attn.MostDim, func(c *kernel.Capabilities, p *attn.Problem, what string) {
		p.Lists = attn.Lists{Keys: 40, PerHead: p.QueryLen%2 == 0}
		for _, keys := range []bool{true, false} {
			tile, err := chooseListsTile(c, p, keys)
			require.NoError(t, err, what)
			require.LessOrEqual(t, tile.Rows, p.Group(), what)
			require.Zero(t, tile.Lanes%tile.LPR, what)
			require.Empty(t, kernel.CheckLimits(tile.threads(), tile.shared(p), &c.Facts.Limits), what)
		}
		s, err := NewInverted(&kernel.Env{Caps: *c}, p, kernel.NewBackwardTuning(nil))
		require.NoError(t, err, what)
		require.Less(t, (s.chunks-1)*attn.CeilDiv(p.QueryLen, s.chunks), p.QueryLen, what)
		lists := p.Lists.Heads(p)
		require.EqualValues(t, 4*lists*s.chunks*p.KeyLen, s.scratch[0].Bytes, what)
		require.EqualValues(t, 4*lists*(p.KeyLen+1), s.scratch[1].Bytes, what)
		require.EqualValues(t, 4*lists*p.QueryLen*40, s.scratch[2].Bytes, what)
	})
}

// TestGradientPasses: the same of gradients with respect to a bias and to what functions capture.
func TestGradientPasses(t *testing.T) {
	env := &kernel.Env{Caps: *kerneltest.Hopper()}
	f := score.RelativeBias(score.Capture("bias", 8, 2), score.T5Bucket(true, 8, 64))
	by, err := f.Gradient("bias")
	require.NoError(t, err)
	for _, packed := range []attn.Packed{{}, {Queries: 100, Keys: 90}} {
		p := kerneltest.Problem(attn.Problem{Batch: 2, DType: attn.F16, Score: f,
			ByScore: attn.ByScore{Bias: attn.PerScore{In: true}}, Packed: packed})
		bias, err := fitBias(env, p, kernel.Biases[0])
		require.NoError(t, err)
		captured, err := PlanCaptured(env, p, by, kernel.Flash, true)
		require.NoError(t, err)
		for _, v := range []pass.Variant{{}, {Aligned: true, Output: true}, {Accumulate: true}} {
			made := pass.Behind(p, captured.Totals)
			made.Stages = []pass.Stage{bias.stage(v)}
			require.NoError(t, made.Check())
			made = captured.Passes(v)
			require.NoError(t, made.Check())
			require.Len(t, made.Stages, 4)
			require.Equal(t, "delta", made.Scratch[0].Name)
			require.Equal(t, captured.Totals, made.Scratch[1])
			require.Equal(t, packed != (attn.Packed{}), made.Stages[1].Counts == pass.Counts{Scratch: "table 0",
				At: captured.rows.CountsAt(p)})
			selfCheck, err := captured.selfCheck(v)
			require.NoError(t, err)
			require.NoError(t, selfCheck.Check())
			require.Equal(t, made.Stages[1].Constants, selfCheck.Stages[len(selfCheck.Stages)-3].Constants, "the same pipeline")
		}
	}
}

// TestFieldsAreRows: what rows of tables may name is what tiles have fields for, so that no number of a row is lost.
func TestFieldsAreRows(t *testing.T) {
	for name := range tiles.Ranges("scalar_forward") {
		require.True(t, slices.ContainsFunc(forwardFields, func(f kernel.Field[ForwardTile]) bool { return f.Name == name }), name)
	}
	for _, label := range []string{"scalar_backward_kv", "scalar_backward_q"} {
		for name := range tiles.Ranges(label) {
			require.True(t, slices.ContainsFunc(backwardFields, func(f kernel.Field[BackwardTile]) bool { return f.Name == name }), name)
		}
	}
	require.Len(t, forwardFields, len(tiles.Ranges("scalar_forward")))
}
