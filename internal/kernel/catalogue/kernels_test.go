package catalogue

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/vk"
)

// place is what the choice of a tile looks at of a device.
type place struct {
	c        *kernel.Capabilities
	fragment kernel.Fragment
	layout   *kernel.FragmentLayout
	form     int
}

// chooser takes the tile of a kernel, or of one of its steps, for a problem.
type chooser struct {
	name   string
	on     int                        // what it needs
	rows   int                        // of tables that a tile is made of; 0: as many as there are
	takes  func(p *attn.Problem) bool // which problems it is asked about
	choose func(at *place, p *attn.Problem, t *kernel.Tuning) chosen
}

// chosen is a tile, and what of it is beyond the device, "" for nothing.
type chosen struct {
	tile fmt.Stringer
	why  string
	err  error
}

// What tiles need: nothing, matrices, or matrices, of which there is a tile in any form.
const (
	anywhere = iota
	matrices
	everyForm
)

// tuning is what a tile is taken with where nobody asks for numbers.
func (k *chooser) tuning() *kernel.Tuning {
	if strings.Contains(k.name, "backward") {
		return kernel.NewBackwardTuning(nil)
	}
	return kernel.NewTuning(nil)
}

// Problems that kernels take.
func every(*attn.Problem) bool    { return true }
func wide(p *attn.Problem) bool   { return kernel.IsWide(p) }
func plain(p *attn.Problem) bool  { return !wide(p) && p.Blocks.None() }
func halves(p *attn.Problem) bool { return plain(p) && p.DType != attn.F32 }
func dense(p *attn.Problem) bool  { return p.Blocks.None() }

// choosers are all of them: of a kernel whose tiles are from tables, or of each of its steps.
func choosers() (all []chooser) {
	add := func(name string, on, rows int, takes func(*attn.Problem) bool, choose func(*place, *attn.Problem, *kernel.Tuning) chosen) {
		all = append(all, chooser{name, on, rows, takes, choose})
	}
	limits := func(at *place) *vk.Limits { return &at.c.Facts.Limits }
	add("scalar_forward", anywhere, 1, every, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := scalar.ChooseForwardTile(at.c, p, tn)
		return checked(&t, err, func() string { return t.Check(p.HeadDim, p.ValueDim, p.DType.Size(), limits(at)) })
	})
	add("scalar_map", anywhere, 1, every, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := scalar.ChooseMapTile(at.c, p, tn)
		return checked(&t, err, func() string { return t.Check(p.DType.Size(), limits(at)) })
	})
	add("scalar_decode", anywhere, 1, func(p *attn.Problem) bool {
		return p.QueryLen*p.Group() <= scalar.DecodeRows && p.Features() == 0
	}, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := scalar.ChooseDecodeTile(at.c, p, tn)
		return checked(&t, err, func() string { _, why := t.Check(p, limits(at)); return why })
	})
	add("scalar_flash1", anywhere, 1, plain, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := scalar.ChooseFlash1Tile(at.c, p, tn)
		return checked(&t, err, func() string { return t.Check(p.HeadDim, p.ValueDim, p.DType.Size(), limits(at)) })
	})
	add("standard_scalar", anywhere, 1, plain, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := standard.ChooseScalarTile(at.c, p, tn)
		return checked(&t, err, func() string { return t.Check(p, limits(at)) })
	})
	for _, prefix := range []string{"kv_", "q_"} {
		add("scalar_backward "+prefix, anywhere, 1, dense, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
			t, err := scalar.ChooseBackwardTile(at.c, p, prefix, tn)
			return checked(&t, err, func() string { return t.Check(prefix, max(p.HeadDim, p.ValueDim), p.DType.Size(), limits(at)) })
		})
		add("matrix_backward "+prefix, everyForm, 1, halves, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
			t, err := matrix.ChooseBackwardTile(at.c, p, at.layout, at.fragment, at.form, prefix, tn)
			return checked(&t, err, func() string { return t.Check(prefix, p, at.c) })
		})
	}
	add("matrix_jvp", everyForm, 0, halves, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := matrix.ChooseJVPTile(at.c, p, at.layout, at.fragment, at.form, tn)
		if declines(at, err) { // four tensors' rows of a fragment of keys, 256 wide
			return checked(&t, nil, func() string { return "" })
		}
		return checked(&t, err, func() string { return t.Check("q_", p, at.c) })
	})
	for name, k := range map[string]struct {
		takes  func(*attn.Problem) bool
		choose func(*kernel.Capabilities, *attn.Problem, kernel.Fragment, int, *kernel.Tuning) (matrix.Tile, error)
	}{
		"matrix_forward": {halves, matrix.ChooseTile}, "matrix_flash1": {halves, matrix.ChooseFlash1Tile},
		"matrix_forward_blocks": {func(p *attn.Problem) bool { return !wide(p) && !p.Blocks.None() && p.DType != attn.F32 },
			matrix.ChooseBlockTile},
	} {
		add(name, everyForm, 1, k.takes, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
			t, err := k.choose(at.c, p, at.fragment, at.form, tn)
			return checked(&t, err, func() string { return t.Check(p.HeadDim, p.ValueDim, at.c) })
		})
	}
	add("matrix_forward_wide", everyForm, 1, func(p *attn.Problem) bool {
		return wide(p) && p.DType != attn.F32 && matrix.ForwardWide.Can&p.Features() == p.Features()
	}, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := matrix.ChooseWideTile(at.c, p, at.fragment, at.layout, at.form, tn)
		return checked(&t, err, func() string { return t.Check(p.HeadDim, p.ValueDim, at.c) })
	})
	add("matrix_latent", matrices, 0, func(p *attn.Problem) bool {
		return wide(p) && p.DType != attn.F32 && matrix.Latent.Can&p.Features() == p.Features()
	}, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := matrix.ChooseLatentTile(at.c, p, at.fragment, at.layout, tn)
		if at.fragment.N != at.fragment.K { // for which there is none
			return checked(&t, nil, func() string { return "" })
		}
		return checked(&t, err, func() string { return t.Check(p, at.c) })
	})
	add("matrix_forward_split", matrices, 1, func(p *attn.Problem) bool { return plain(p) && p.DType == attn.F32 },
		func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
			t, err := matrix.ChooseSplitTile(at.c, p, 3, false, at.fragment, at.form, tn)
			return checked(&t, err, func() string { return t.Check(p.HeadDim, p.ValueDim, at.c) })
		})
	stored := func(p *attn.Problem) bool { return dense(p) && p.DType != attn.F32 }
	add("matrix_backward_weights", matrices, 1, stored, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		w, taken, err := matrix.ChooseWeights(at.c, p, at.layout, at.fragment, at.form, tn)
		if err != nil {
			return chosen{err: err}
		}
		tn.Get(kernel.SlabsParameter, kernel.BoolInt(taken))
		return checked(&w.Tile, nil, func() string { return w.Tile.Check("weights_", p, at.c) })
	})
	add("matrix_backward_keeping", matrices, 1, func(p *attn.Problem) bool {
		return stored(p) && max(p.HeadDim, p.ValueDim) <= 128 && p.Bias.None() &&
			p.Features()&^(attn.WithDropout|attn.OfScores|attn.WithSinks) == 0
	}, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		k, taken, err := matrix.ChooseKeys(at.c, p, at.layout, at.fragment, at.form, tn)
		if err != nil {
			return chosen{err: err}
		}
		tn.Get(kernel.KeepDSParameter, kernel.BoolInt(taken))
		return checked(&k.Tile, nil, func() string { return k.Tile.Check("kv_", p, at.c) })
	})
	add("standard_matrix", matrices, 2, halves, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := standard.ChooseMatrixTile(at.c, p, at.fragment, tn)
		return checked(&t, err, func() string { return t.Check(p, at.c) })
	})
	add("standard_backward_matrix", matrices, 0, halves, func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
		t, err := standard.ChooseMatrixGradients(at.c, p, at.fragment, tn)
		return checked(t, err, func() string { return "" })
	})
	add("products of wide heads", matrices, 0, func(p *attn.Problem) bool { return wide(p) && stored(p) },
		func(at *place, p *attn.Problem, tn *kernel.Tuning) chosen {
			s, err := standard.ChooseProducts(at.c, p, at.fragment, tn)
			if declines(at, err) { // fewer rows in fp32 than a fragment has
				s, err = new(standard.Products), nil
			}
			return checked(s, err, func() string { return "" })
		})
	return all
}

// declines says whether a device has too little shared memory for a kernel, which is then not taken.
func declines(at *place, err error) bool {
	var declined *kernel.Declined
	return at.c.Facts.Limits.MaxSharedMemory < 48<<10 && errors.As(err, &declined)
}

// checked asks what is wrong with a tile, if there is one.
func checked(tile fmt.Stringer, err error, check func() string) chosen {
	if err != nil {
		return chosen{err: err}
	}
	return chosen{tile, check(), nil}
}

// hostConstants are the constants that Go sets for each module, by the module's name without its type. No device is needed: names do
// not depend on values.
func hostConstants(t *testing.T) map[string]kernel.Constants {
	c := kerneltest.Hopper()
	p := kerneltest.Problem(attn.Problem{KeyHeads: 2, DType: attn.F16})
	fragment, layout, v := kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}, kernel.FragmentLayout{}, kernel.Variant{LSE: true}
	parts := &kernel.Combiner{Problem: *p}

	inFP32, err := scalar.ChooseForwardTile(c, p, kernel.NewTuning(nil))
	require.NoError(t, err)
	flash1, err := scalar.ChooseFlash1Tile(c, p, kernel.NewTuning(nil))
	require.NoError(t, err)
	onMatrices, err := matrix.ChooseTile(c, p, fragment, kernel.FormRegisters, kernel.NewTuning(nil))
	require.NoError(t, err)
	scalarOf := func(p *attn.Problem, parts *kernel.Combiner) kernel.Constants {
		tile := inFP32
		if tile.Parts = 1; parts != nil {
			tile.Parts = 2
		}
		return tile.Constants(p, v)
	}
	matrixOf := func(p *attn.Problem, parts *kernel.Combiner) kernel.Constants {
		tile := onMatrices
		if tile.Parts = 1; parts != nil {
			tile.Parts = 2
		}
		return tile.Constants(p, &layout, v)
	}
	ahead := onMatrices
	ahead.Ahead = true
	splitOf := func(parts *kernel.Combiner) kernel.Constants {
		p := *p
		p.DType = attn.F32
		tile, err := matrix.ChooseSplitTile(c, &p, 2, true, fragment, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		if tile.Parts = 1; parts != nil {
			tile.Parts = 2
		}
		return tile.Constants(&p, &layout, v)
	}
	wideOf := func(p *attn.Problem, parts *kernel.Combiner) kernel.Constants {
		tile, err := matrix.ChooseWideTile(c, p, fragment, &layout, kernel.FormRegisters, kernel.NewTuning(nil))
		require.NoError(t, err)
		if tile.Parts = 1; parts != nil {
			tile.Parts = 2
		}
		return tile.Constants(p, &layout, v)
	}
	scalarFlash1 := flash1.Constants(p, v, 1)
	inPages := *p
	inPages.Pages = attn.Pages{Size: 16, Count: 9, PerSequence: 4}
	cached := &inPages
	withLists := *p
	withLists.Lists = attn.Lists{Keys: 40}
	listed := &withLists
	listTile := &scalar.ListsTile{Rows: 1, W: 4, Lanes: 32, LPR: 8, U: 2}
	inverted, err := scalar.NewInverted(&kernel.Env{Caps: *c}, listed, kernel.NewBackwardTuning(nil))
	require.NoError(t, err)
	decodeOf := func(p *attn.Problem) kernel.Constants {
		return (&scalar.DecodeTile{Lanes: 32, LPR: 8}).Constants(p, v)
	}
	fewOf := func(p *attn.Problem) kernel.Constants {
		return (&matrix.DecodeTile{Fragment: fragment, Rows: 1, W: 2, Keys: 16}).Constants(p, &layout, v)
	}
	latentOf := func(p *attn.Problem) kernel.Constants {
		return (&matrix.LatentTile{Fragment: fragment, Rows: 16, W: 2, Keys: 16}).Constants(p, &layout, v)
	}
	back := &scalar.BackwardTile{BR: 32, BC: 32, MR: 4, MC: 4, DK: 16, VC: 16, PC: 16}
	backTile := func(prefix string) matrix.BackwardTile {
		tile, err := matrix.ChooseBackwardTile(c, p, &layout, fragment, kernel.FormRegisters, prefix, kernel.NewBackwardTuning(nil))
		require.NoError(t, err)
		return tile
	}
	backKeys, backQueries := backTile("kv_"), backTile("q_")
	weights, _, err := matrix.ChooseWeights(c, p, &layout, fragment, kernel.FormRegisters, kernel.NewBackwardTuning(nil))
	require.NoError(t, err)
	latent := kerneltest.Problem(attn.Problem{HeadDim: 576, ValueDim: 512, DType: attn.F16})
	wideWeights, _, err := matrix.ChooseWeights(c, latent, &layout, fragment, kernel.FormRegisters, kernel.NewBackwardTuning(nil))
	require.NoError(t, err)
	inThree, err := standard.ChooseScalarTile(c, p, kernel.NewTuning(nil))
	require.NoError(t, err)
	standardMatrix, err := standard.ChooseMatrixTile(c, p, fragment, kernel.NewTuning(nil))
	require.NoError(t, err)
	product := func(name string) kernel.Constants {
		return standardMatrix.Kernel(name, &standardMatrix.ProductTile, 64, 1, p, true, false, false).Constants
	}
	mapTile, err := scalar.ChooseMapTile(c, p, kernel.NewTuning(nil))
	require.NoError(t, err)
	matrixMap, err := matrix.TileOfMaps(c, fragment, 64)
	require.NoError(t, err)
	overwriting := pass.Variant{Aligned: true}
	return map[string]kernel.Constants{
		"scalar_forward": scalarOf(p, nil), "scalar_forward_subgroup": scalarOf(p, nil),
		"scalar_forward_parts": scalarOf(p, parts), "scalar_forward_parts_subgroup": scalarOf(p, parts),
		"scalar_forward_cache": scalarOf(cached, nil), "scalar_forward_cache_subgroup": scalarOf(cached, nil),
		"matrix_forward_cache": matrixOf(cached, nil), "matrix_forward_cache_parts": matrixOf(cached, parts),
		"scalar_flash1": scalarFlash1, "scalar_flash1_subgroup": scalarFlash1,
		"scalar_decode": decodeOf(p), "scalar_decode_cache": decodeOf(cached),
		"scalar_decode_lists": decodeOf(listed), "combine_parts": parts.Constants(v),
		"matrix_decode": fewOf(p), "matrix_decode_cache": fewOf(cached),
		"matrix_latent": latentOf(p), "matrix_latent_cache": latentOf(cached), "matrix_latent_lists": latentOf(listed),
		"matrix_forward_bias": ahead.Constants(p, &layout, v),
		"matrix_forward":      matrixOf(p, nil), "matrix_forward_parts": matrixOf(p, parts),
		"matrix_forward_split": splitOf(nil), "matrix_forward_split_parts": splitOf(parts),
		"matrix_forward_wide": wideOf(p, nil), "matrix_forward_wide_parts": wideOf(p, parts),
		"matrix_flash1":      onMatrices.Flash1Constants(p, &layout, v, 1),
		"backward_delta":     (&kernel.DeltaProgram{Problem: p}).Constants(true, true),
		"scalar_backward_kv": back.Constants(p, true, true, false), "scalar_backward_q": back.Constants(p, false,
			true, false),
		"scalar_backward_lists_kv":     listTile.Constants(listed, true, false),
		"scalar_backward_lists_q":      listTile.Constants(listed, true, false),
		"lists_invert":                 inverted.Constants(0),
		"scalar_jvp":                   back.JVPConstants(p, pass.Variant{}),
		"matrix_jvp":                   backQueries.JVPConstants(p, &layout, pass.Variant{}),
		"matrix_backward_kv":           backKeys.Constants(p, &layout, overwriting, 3),
		"matrix_backward_q":            backQueries.Constants(p, &layout, overwriting, 3),
		"matrix_backward_weights":      weights.Constants(p, overwriting, 2, 64),
		"matrix_backward_weights_wide": wideWeights.Constants(latent, overwriting, 2, 64),
		"matrix_backward_bias":         matrix.BiasConstants(p, &backQueries, &layout, pass.Variant{Aligned: true, AlignedDBias: true}),
		"scalar_backward_bias":         scalar.BiasConstants(p, &p.Bias, back, true, false),
		"scalar_backward_captured":     scalar.CapturedConstants(p, back, true, true, 64, 3, false),
		"backward_captured":            scalar.CapturedEndsConstants(true, false, 64, 3),
		"append":                       kernel.RowConstants(&kernel.Rows{Dim: 64, ValueDim: 64}),
		"append_quantised":             kernel.RowConstants(&kernel.Rows{Dim: 64, ValueDim: 64, KeyType: attn.Q8_0}),
		"cache_step":                   kernel.CacheStepConstants(2, &kernel.CachePools{Pools: 2, PageBytes: 32, PoolBytes: 256}),
		"scalar_map":                   mapTile.Constants(p, kernel.MapVariant{}), "scalar_map_cache": mapTile.Constants(cached,
			kernel.MapVariant{}),
		"matrix_map":       matrixMap.Constants(p, &kernel.FragmentLayout{}, kernel.MapVariant{}),
		"matrix_map_cache": matrixMap.Constants(cached, &kernel.FragmentLayout{}, kernel.MapVariant{}),
		"map_ends":         kernel.MapEndsConstants(false),
		"merge":            kernel.MergeConstants(&kernel.Merge{ValueDim: 64}, true, 2),
		"mask_classes":     kernel.ClassConstants(p),
		"max_logit":        kernel.MaxLogitClears(),
		"row_table":        kernel.RowTableConstants(p, kernel.RowBlocks{Rows: 64, Columns: 64}, 128),
		"backward_sinks":   pass.SinkGradientConstants(p, false),
		"standard_scores":  inThree.Scores(p, true).Constants,
		"standard_softmax": inThree.Softmax(p, true).Constants,
		"accumulate": kernel.AccumulateConstants(&kernel.Accumulate{Rule: kernel.AccumulateJoin, Shape: [4]int{1, 1, 1, 64}},
			true),
		"standard_product":          inThree.Product(p, true).Constants,
		"standard_backward_product": inThree.Sums("", p, 64, true, false, true).Constants,
		"standard_scores_matrix":    standardMatrix.Scores(p, true).Constants,
		"standard_softmax_subgroup": standardMatrix.Softmax(p, true).Constants,
		"standard_product_matrix":   product("standard_product_matrix"),
		"standard_backward_product_matrix": product("standard_backward_product_matrix").And(
			kernel.Constants{"PLAIN_EDGES": 0, "TURNED": 0, "TOGETHER": 1}),
		"standard_backward_softmax":          standard.BackwardSoftmaxSpec(p, kernel.GradientVariant{}, 32, 1, 64, 0),
		"standard_backward_softmax_subgroup": standard.BackwardSoftmaxSpec(p, kernel.GradientVariant{}, 32, 1, 64, 32),
		"matrix_probe":                       kernel.ProbeConstants(fragment),
		"measure_fma":                        {"WG": 1},
		"measure_copy":                       {"WG": 1},
		"measure_matrix":                     {"WG": 1, "M": 1, "N": 1, "K": 1},
	}
}
