package flash

import (
	"encoding/binary"
	"maps"
	"math"
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
	dev := &Device{caps: *c}
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	fragment, v := matrixShape{16, 16, 16, 32}, variant{lse: true}
	parts := &combiner{dev: dev, problem: p}

	scalar, err := chooseScalarTile(c, &p, newTuning(nil))
	require.NoError(t, err)
	flash1, err := chooseFlash1Tile(c, &p, newTuning(nil))
	require.NoError(t, err)
	matrix, err := chooseMatrixTile(c, &p, fragment, formRegisters, newTuning(nil))
	require.NoError(t, err)
	scalarOf := func(p Problem, parts *combiner) constants {
		out, _ := (&scalarProgram{dev: dev, problem: p, shape: scalar, combine: parts}).describe(v)
		return out
	}
	matrixOf := func(p Problem, parts *combiner) constants {
		out, _ := (&matrixProgram{problem: p, shape: matrix, combine: parts}).describe(v)
		return out
	}
	scalarFlash1, _ := (&flash1Program{dev: dev, problem: p, shape: flash1}).describe(v)
	matrixFlash1, _ := (&matrixFlash1Program{problem: p, shape: matrix}).describe(v)
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
	standard, err := chooseStandardTile(c, &p, newTuning(nil))
	require.NoError(t, err)
	standardMatrix, err := chooseStandardMatrixTile(c, &p, fragment, newTuning(nil))
	require.NoError(t, err)
	product := func(name string) constants {
		return standardMatrix.kernel(name, &standardMatrix.productTile, 64, 1, &p, true, false, false).spec
	}
	return map[string]constants{
		"scalar_forward": scalarOf(p, nil), "scalar_forward_subgroup": scalarOf(p, nil),
		"scalar_forward_parts": scalarOf(p, parts), "scalar_forward_parts_subgroup": scalarOf(p, parts),
		"scalar_flash1": scalarFlash1, "scalar_flash1_subgroup": scalarFlash1,
		"scalar_decode": decode, "combine_parts": parts.constants(v),
		"matrix_forward": matrixOf(p, nil), "matrix_forward_parts": matrixOf(p, parts),
		"matrix_flash1":      matrixFlash1,
		"backward_delta":     (&deltaProgram{}).constants(true, true),
		"scalar_backward_kv": back.constants(&back.kv, true, false), "scalar_backward_q": back.constants(&back.q, true, false),
		"matrix_backward_kv": backMatrix.constants(&backMatrix.kv, 3, true, false),
		"matrix_backward_q":  backMatrix.constants(&backMatrix.q, 3, true, false),
		"standard_scores":    standard.scores(&p, true).spec, "standard_softmax": standard.softmax(&p, true).spec,
		"standard_product": standard.product(&p, true).spec, "standard_backward_product": standard.sums("", &p, 64, true, false, true).spec,
		"standard_scores_matrix":             standardMatrix.scores(&p, true).spec,
		"standard_softmax_subgroup":          standardMatrix.softmax(&p, true).spec,
		"standard_product_matrix":            product("standard_product_matrix"),
		"standard_backward_product_matrix":   product("standard_backward_product_matrix"),
		"standard_backward_softmax":          backwardSoftmaxSpec(&p, gradientVariant{}, 32, 1, 64, 0),
		"standard_backward_softmax_subgroup": backwardSoftmaxSpec(&p, gradientVariant{}, 32, 1, 64, 32),
		"matrix_probe":                       probeConstants(fragment),
		"measure_fma":                        {{"WG", 1}},
		"measure_copy":                       {{"WG", 1}},
		"measure_matrix":                     {{"WG", 1}, {"M", 1}, {"N", 1}, {"K", 1}},
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
	got, err := constants{{"BC", 32}, {"BR", 64}}.number("m", in)
	require.NoError(t, err)
	require.Equal(t, uint32(1), got[0].ID)
	require.Equal(t, uint32(64), got[0].Value)
	require.Equal(t, uint32(32), got[1].Value)
	for want, c := range map[string]constants{
		"m declares no constant MR; it declares BC, BR": {{"BR", 1}, {"BC", 1}, {"MR", 1}},
		"constants of m are not set: BC":                {{"BR", 1}},
		"constant BR of m is set twice":                 {{"BR", 1}, {"BR", 1}},
	} {
		_, err := c.number("m", in)
		require.ErrorContains(t, err, want)
	}
}

// TestPushConstantsOfAPass: every module of a pass declares the same push constants.
func TestPushConstantsOfAPass(t *testing.T) {
	all, err := layouts()
	require.NoError(t, err)
	require.Equal(t, forwardPushBytes, all.standard.size())
	require.LessOrEqual(t, all.forward.size(), forwardPushBytes)
	require.Equal(t, backwardPushBytes, all.backward.size())
	require.Equal(t, all.forward.names, all.standard.names[:len(all.forward.names)], "standard attention's begin as the others'")
	for _, name := range shaders.Names() {
		info, err := shaders.Describe(name)
		require.NoError(t, err)
		push := info.Interface.Push
		switch {
		case strings.HasPrefix(name, "measure_"), strings.HasPrefix(name, "matrix_probe"):
			require.NotContains(t, push, "base", name)
		case strings.HasPrefix(name, "standard_"):
			require.Equal(t, all.standard.names, push, name)
		case strings.Contains(name, "backward_"):
			require.Equal(t, all.backward.names, push, name)
		default:
			require.Equal(t, all.forward.names, push, name)
		}
		require.NoError(t, checkLayout(name, push))
	}
	require.ErrorContains(t, checkLayout("scalar_forward.f32", []string{"nq", "nk"}), "those of no pass")
	_, err = newArgsLayout([]string{"nq", "pace"})
	require.ErrorContains(t, err, "nobody writes")
	_, err = newArgsLayout([]string{"q_sb", "q_sn", "q_sh"})
	require.ErrorContains(t, err, "nobody writes")
}

// TestPushConstantsAreWritten: what a pass fills in lies where its modules look, and no word is left out.
func TestPushConstantsAreWritten(t *testing.T) {
	p, err := Problem{Batch: 2, Heads: 6, KeyHeads: 3, QueryLen: 5, KeyLen: 9, HeadDim: 64, DType: F16, Causal: CausalBottomRight, Dropout: 0.25}.Normalize()
	require.NoError(t, err)
	next := uint32(1)
	tensor := func() operand {
		next += 10
		return operand{offset: next, strides: [3]uint32{next + 1, next + 2, next + 3}}
	}
	d := draw{seed: 7<<32 | 8, offset: 9}
	f := operands{q: tensor(), k: tensor(), v: tensor(), o: tensor(), lse: tensor(), drop: d}
	g := gradients{q: tensor(), k: tensor(), v: tensor(), lse: tensor(), do: tensor(), dk: tensor(), dv: tensor(), drop: d}
	delta := tensor()
	shared := map[string]uint32{"nq": 5, "nk": 9, "causal_shift": 4, "seed_hi": 7, "seed_lo": 8, "drop_offset": 9, "base": 100, "total": 200, "heads_large": 3}
	check := func(l *argsLayout, at int, w *pushes, want map[string]uint32, tensors map[string]*operand) {
		t.Helper()
		w.set(at, 100)
		w.set(at+4, 200)
		maps.Copy(want, shared)
		for name, o := range tensors {
			for i, s := range []string{"_sb", "_sh", "_sn"} {
				want[name+s] = o.strides[i]
			}
		}
		got := map[string]uint32{}
		for i, name := range l.names {
			got[name] = binary.NativeEndian.Uint32(w.bytes()[4*i:])
		}
		require.Equal(t, want, got)
	}
	all, err := layouts()
	require.NoError(t, err)
	var w pushes
	at := w.forward(&p, &f)
	check(&all.forward, at, &w, map[string]uint32{
		"offsets": 11 | 21<<8 | 31<<16 | 41<<24, "bytes": 64 | 51<<8 | 2<<16, "score_scale": math.Float32bits(float32(p.Scale * math.Log2E)),
	}, map[string]*operand{"q": &f.q, "k": &f.k, "v": &f.v, "o": &f.o})
	at = w.backward(&p, &g, &delta, &g.dk, &g.dv)
	check(&all.backward, at, &w, map[string]uint32{
		"offsets": 61 | 71<<8 | 81<<16 | 101<<24, "more_offsets": 91 | 131<<8 | 111<<16 | 121<<24, "bytes": 64 | 2<<16,
		"scale": math.Float32bits(float32(p.Scale)),
	}, map[string]*operand{"q": &g.q, "k": &g.k, "v": &g.v, "g": &g.do, "x": &g.dk, "y": &g.dv})
	s := &standardProgram{problem: p, pitch: 16}
	at = w.rows(s, &slab{head0: 2, heads: 3, row0: 4, rows: 1}, &f.lse, &d)
	var none operand
	check(&all.standard, at, &w, map[string]uint32{
		"offsets": 0, "bytes": 64 | 51<<8 | 2<<16, "score_scale": math.Float32bits(float32(p.Scale)),
		"bh0": 2, "slab_heads": 3, "row0": 4, "rows": 1, "pitch": 16,
	}, map[string]*operand{"q": &none, "k": &none, "v": &none, "o": &none})
}

// TestPackHeads: heads of any number within the limits come out as they went in.
func TestPackHeads(t *testing.T) {
	for _, x := range [][2]int{{1, 1}, {8, 4}, {4, 8}, {1, math.MaxInt32 / 2}, {math.MaxInt32 / 2, 1}, {32767, 32768}, {32768, 32767}} {
		large, small := packHeads(x[0], x[1])
		keyHeads, group := large, small>>16
		if large>>31 != 0 {
			keyHeads, group = small>>16, large&math.MaxInt32
		}
		require.Equal(t, [2]uint32{uint32(x[0]), uint32(x[1])}, [2]uint32{keyHeads, group})
		require.Zero(t, small&0xffff)
	}
}
