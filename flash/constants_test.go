package flash

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/shaders/counting"
)

// hostConstants are the constants that Go sets for each module, by the module's name without its type. No device is needed: names do
// not depend on values.
func hostConstants(t *testing.T) map[string]constants {
	c := largeGPU()
	env := &environment{caps: *c}
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	masked := p
	masked.Blocks = Blocks{Queries: 64, Keys: 64}
	fragment, v := matrixShape{M: 16, N: 16, K: 16, Lanes: 32}, variant{lse: true}
	parts := &combiner{env: env, problem: p}

	inFP32, err := chooseScalarTile(c, &p, newTuning(nil))
	require.NoError(t, err)
	flash1, err := chooseFlash1Tile(c, &p, newTuning(nil))
	require.NoError(t, err)
	onMatrices, err := chooseMatrixTile(c, &p, fragment, formRegisters, newTuning(nil))
	require.NoError(t, err)
	scalarOf := func(p Problem, parts *combiner) constants {
		out, _ := (&scalarProgram{env: env, problem: p, shape: inFP32, combine: parts}).describe(v)
		return out
	}
	matrixOf := func(p Problem, parts *combiner) constants {
		out, _ := (&matrixProgram{problem: p, shape: onMatrices, combine: parts}).describe(v)
		return out
	}
	scalarFlash1, _ := (&flash1Program{env: env, problem: p, shape: flash1}).describe(v)
	matrixFlash1, _ := (&matrixFlash1Program{problem: p, shape: onMatrices}).describe(v)
	decode, _ := (&decodeProgram{problem: p, shape: decodeTile{Lanes: 32, LPR: 8}}).describe(v)
	back := &scalarBackwardProgram{problem: p}
	for _, part := range []*backwardPart{&back.kv, &back.q} {
		part.tile = backwardTile{BR: 32, BC: 32, MR: 4, MC: 4, DK: 16, VC: 16, PC: 16}
	}
	backMatrix := &matrixBackwardProgram{problem: p, kv: matrixBackwardPart{keys: true}}
	for part, prefix := range map[*matrixBackwardPart]string{&backMatrix.kv: "kv_", &backMatrix.q: "q_"} {
		part.tile, err = chooseMatrixBackwardTile(c, &p, &backMatrix.layout, fragment, formRegisters, prefix, newBackwardTuning(nil))
		require.NoError(t, err)
	}
	inThree, err := chooseStandardTile(c, &p, newTuning(nil))
	require.NoError(t, err)
	standardMatrix, err := chooseStandardMatrixTile(c, &p, fragment, newTuning(nil))
	require.NoError(t, err)
	product := func(name string) constants {
		return standardMatrix.kernel(name, &standardMatrix.productTile, 64, 1, &p, true, false, false).spec
	}
	return map[string]constants{
		"scalar_forward": scalarOf(p, nil), "scalar_forward_subgroup": scalarOf(p, nil),
		"scalar_forward_blocks": scalarOf(masked, nil), "scalar_forward_blocks_subgroup": scalarOf(masked, nil),
		"scalar_forward_parts": scalarOf(p, parts), "scalar_forward_parts_subgroup": scalarOf(p, parts),
		"scalar_flash1": scalarFlash1, "scalar_flash1_subgroup": scalarFlash1,
		"scalar_decode": decode, "combine_parts": parts.constants(v),
		"matrix_forward": matrixOf(p, nil), "matrix_forward_blocks": matrixOf(masked, nil), "matrix_forward_parts": matrixOf(p, parts),
		"matrix_flash1":      matrixFlash1,
		"backward_delta":     (&deltaProgram{}).constants(true, true),
		"scalar_backward_kv": back.constants(&back.kv, true, false), "scalar_backward_q": back.constants(&back.q, true, false),
		"matrix_backward_kv": backMatrix.constants(&backMatrix.kv, 3, true, false),
		"matrix_backward_q":  backMatrix.constants(&backMatrix.q, 3, true, false),
		"standard_scores":    inThree.scores(&p, true).spec, "standard_softmax": inThree.softmax(&p, true).spec,
		"standard_product": inThree.product(&p, true).spec, "standard_backward_product": inThree.sums("", &p, 64, true, false, true).spec,
		"standard_scores_matrix":             standardMatrix.scores(&p, true).spec,
		"standard_softmax_subgroup":          standardMatrix.softmax(&p, true).spec,
		"standard_product_matrix":            product("standard_product_matrix"),
		"standard_backward_product_matrix":   product("standard_backward_product_matrix"),
		"standard_backward_softmax":          backwardSoftmaxSpec(&p, gradientVariant{}, 32, 1, 64, 0),
		"standard_backward_softmax_subgroup": backwardSoftmaxSpec(&p, gradientVariant{}, 32, 1, 64, 32),
		"matrix_probe":                       probeConstants(fragment),
		"measure_fma":                        {"WG": 1},
		"measure_copy":                       {"WG": 1},
		"measure_matrix":                     {"WG": 1, "M": 1, "N": 1, "K": 1},
	}
}

// TestConstantsAreThoseOfModules: what a module declares is what the host sets, for every module.
func TestConstantsAreThoseOfModules(t *testing.T) {
	host := hostConstants(t)
	for _, set := range []*shaders.Set{shaders.Shipped, counting.Modules} {
		for _, name := range set.Names() {
			family, _, _ := strings.Cut(name, ".")
			require.Contains(t, host, family, "no constants stand in this test for %s", name)
			info, err := set.Describe(name)
			require.NoError(t, err)
			numbered, err := host[family].number(name, &info.Interface)
			require.NoError(t, err)
			for _, c := range numbered {
				require.Contains(t, info.Interface.Constants, nameOf(&info.Interface, c.ID))
			}
		}
	}
}

func nameOf(in *shaders.Interface, id uint32) string {
	for name, n := range in.Constants {
		if n == id {
			return name
		}
	}
	return ""
}

// TestConstantsThatDoNotFit: a name too many, too few or twice is an error that says which.
func TestConstantsThatDoNotFit(t *testing.T) {
	in := &shaders.Interface{Constants: map[string]uint32{"BR": 1, "BC": 2}}
	got, err := constants{"BC": 32, "BR": 64}.number("m", in)
	require.NoError(t, err)
	require.Equal(t, uint32(1), got[0].ID)
	require.Equal(t, uint32(64), got[0].Value)
	require.Equal(t, uint32(32), got[1].Value)
	for want, c := range map[string]constants{
		"m declares no constant MR; it declares BC, BR": {"BR": 1, "BC": 1, "MR": 1},
		"constants of m are not set: BC":                {"BR": 1},
		"m declares no constant BR, set twice,":         constants{"BR": 1, "BC": 1}.and(constants{"BR": 1}),
	} {
		_, err := c.number("m", in)
		require.ErrorContains(t, err, want)
	}
}

// TestPushConstantsAreThoseOfModules: a pass writes as many words as its modules declare.
func TestPushConstantsAreThoseOfModules(t *testing.T) {
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	var w pushes
	var f operands
	var g gradients
	written := map[string]func(){
		"scalar_forward": func() { w.forward(&p, &f) }, "matrix_forward": func() { w.forward(&p, &f) },
		"scalar_flash1": func() { w.forward(&p, &f) }, "matrix_flash1": func() { w.forward(&p, &f) }, "scalar_decode": func() { w.forward(&p, &f) },
		"scalar_backward": func() { w.backward(&p, &g, &g.q, &g.dk, &g.dv) }, "matrix_backward": func() { w.backward(&p, &g, &g.q, &g.dk, &g.dv) },
		"backward_delta": func() { w.delta(&p, &g, &g.q) }, "combine_parts": func() { w.combine(&p, &f, 1) },
	}
	for prefix, write := range written {
		write()
		for _, name := range shaders.Names() {
			if strings.HasPrefix(name, prefix) {
				info, err := shaders.Describe(name)
				require.NoError(t, err)
				require.Equal(t, len(w.bytes()), info.Interface.PushBytes(), name)
			}
		}
	}
}
