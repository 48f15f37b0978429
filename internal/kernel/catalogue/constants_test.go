package catalogue

import (
	"encoding/binary"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/shaders/counting"
)

// viewModules begins the names of modules that draw, of which cmd/vkattn/internal/view/render's tests know what they declare.
const viewModules = "view_"

// TestConstantsAreThoseOfModules: what a module declares is what the host sets, for every module.
func TestConstantsAreThoseOfModules(t *testing.T) {
	host := hostConstants(t)
	for _, set := range []*shaders.Set{shaders.Shipped, counting.Modules} {
		for _, name := range set.Names() {
			if strings.HasPrefix(name, viewModules) {
				continue
			}
			family, _, _ := strings.Cut(name, ".")
			require.Contains(t, host, family, "no constants stand in this test for %s", name)
			info, err := set.Describe(name)
			require.NoError(t, err)
			numbered, err := host[family].Number(name, &info.Interface)
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
	got, err := kernel.Constants{"BC": 32, "BR": 64}.Number("m", in)
	require.NoError(t, err)
	require.Equal(t, uint32(1), got[0].ID)
	require.Equal(t, uint32(64), got[0].Value)
	require.Equal(t, uint32(32), got[1].Value)
	for want, c := range map[string]kernel.Constants{
		"m declares no constant MR; it declares BC, BR": {"BR": 1, "BC": 1, "MR": 1},
		"constants of m are not set: BC":                {"BR": 1},
		"m declares no constant BR, set twice,":         kernel.Constants{"BR": 1, "BC": 1}.And(kernel.Constants{"BR": 1}),
	} {
		_, err := c.Number("m", in)
		require.ErrorContains(t, err, want)
	}
}

// TestPushConstantsOfAPass: every module of a pass declares the same push constants.
func TestPushConstantsOfAPass(t *testing.T) {
	all, err := kernel.Layouts()
	require.NoError(t, err)
	require.LessOrEqual(t, all.Standard.Size(), 128, "what every device allows")
	require.Less(t, all.Forward.Size(), all.Standard.Size())
	require.LessOrEqual(t, all.Backward.Size(), 128, "what every device allows")
	require.LessOrEqual(t, all.Rows.Size(), 128, "what every device allows")
	require.LessOrEqual(t, all.Merge.Size(), 128, "what every device allows")
	require.LessOrEqual(t, all.Map.Size(), 128, "what every device allows")
	require.Equal(t, all.Forward.Names, all.Standard.Names[:len(all.Forward.Names)], "standard attention's begin as the others'")
	for _, name := range shaders.Names() {
		if strings.HasPrefix(name, viewModules) {
			continue
		}
		info, err := shaders.Describe(name)
		require.NoError(t, err)
		push := info.Interface.Push
		switch {
		case strings.HasPrefix(name, "measure_"), strings.HasPrefix(name, "matrix_probe"):
			require.NotContains(t, push, "base", name)
		case name == "cache_step":
			require.Empty(t, push, "what it does stands in memory, so that its commands are the same for every step")
		case strings.HasPrefix(name, kernel.RowsLabel+"."), strings.HasPrefix(name, kernel.RowsLabel+"_"):
			require.Equal(t, all.Rows.Names, push, name)
		case strings.HasPrefix(name, kernel.MergeLabel+"."):
			require.Equal(t, all.Merge.Names, push, name)
		case strings.Contains(name, "_map.") || strings.Contains(name, "_map_cache.") || name == "map_ends":
			require.Equal(t, all.Map.Names, push, name)
		case strings.HasPrefix(name, kernel.AccumulateLabel+"."):
			require.Equal(t, all.Accumulate.Names, push, name)
		case strings.HasPrefix(name, "standard_"):
			require.Equal(t, all.Standard.Names, push, name)
		case strings.Contains(name, "backward_"), strings.Contains(name, "_jvp."):
			require.Equal(t, all.Backward.Names, push, name)
		default:
			require.Equal(t, all.Forward.Names, push, name)
		}
		require.NoError(t, kernel.CheckLayout(name, push))
	}
	require.ErrorContains(t, kernel.CheckLayout("scalar_forward.f32", []string{"nq", "nk"}), "those of no pass")
	_, err = kernel.NewArgsLayout([]string{"nq", "pace"})
	require.ErrorContains(t, err, "nobody writes")
	_, err = kernel.NewArgsLayout([]string{"q_sb", "q_sn", "q_sh"})
	require.ErrorContains(t, err, "nobody writes")
}

// TestPushConstantsAreWritten: what a pass fills in lies where its modules look, and no word is left out.
func TestPushConstantsAreWritten(t *testing.T) {
	p := kerneltest.Problem(attn.Problem{Batch: 2, Heads: 6, KeyHeads: 3, QueryLen: 5, KeyLen: 9, DType: attn.F16,
		ByPosition: attn.ByPosition{Causal: attn.CausalBottomRight, Window: attn.NewWindow(6, -1)}, Dropout: 0.25})
	next := uint32(1)
	tensor := func() kernel.Operand {
		next += 10
		return kernel.Operand{Offset: next, Strides: [3]uint32{next + 1, next + 2, next + 3}}
	}
	d := kernel.Draw{Seed: 7<<32 | 8, Offset: 9}
	f := kernel.Operands{Q: tensor(), K: tensor(), V: tensor(), O: tensor(), LSE: tensor(), Drop: d}
	g := kernel.Gradients{Operands: kernel.Operands{Q: tensor(), K: tensor(), V: tensor(), LSE: tensor(), Drop: d}, DO: tensor(),
		DK: tensor(), DV: tensor()}
	delta := tensor()
	shared := map[string]uint32{"nq": 5, "nk": 9, "first_shift": 1<<32 - 2, "last_shift": 4, "seed_hi": 7, "seed_lo": 8, "drop_offset": 9,
		"base": 100, "total": 200, "heads_large": 3}
	check := func(l *kernel.ArgsLayout, at int, w *kernel.Pushes, want map[string]uint32, tensors map[string]*kernel.Operand) {
		t.Helper()
		w.Set(at, 100)
		w.Set(at+4, 200)
		maps.Copy(want, shared)
		for name, o := range tensors {
			for i, s := range []string{"_sb", "_sh", "_sn"} {
				want[name+s] = o.Strides[i]
			}
		}
		got := map[string]uint32{}
		for i, name := range l.Names {
			got[name] = binary.NativeEndian.Uint32(w.Bytes()[4*i:])
		}
		require.Equal(t, want, got)
	}
	all, err := kernel.Layouts()
	require.NoError(t, err)
	var w kernel.Pushes
	at := w.Forward(p, &f)
	check(&all.Forward, at, &w, map[string]uint32{
		"offsets": 11 | 21<<8 | 31<<16 | 41<<24, "bytes": 64 | 51<<8 | 2<<16,
		"score_scale": math.Float32bits(float32(p.Scale * math.Log2E)),
	}, map[string]*kernel.Operand{"q": &f.Q, "k": &f.K, "v": &f.V, "o": &f.O})
	at = w.Backward(p, &g, &delta, &g.DK, &g.DV)
	check(&all.Backward, at, &w, map[string]uint32{
		"offsets": 61 | 71<<8 | 81<<16 | 101<<24, "more_offsets": 91 | 131<<8 | 111<<16 | 121<<24, "bytes": 64 | 2<<16,
		"scale": math.Float32bits(float32(p.Scale)),
	}, map[string]*kernel.Operand{"q": &g.Q, "k": &g.K, "v": &g.V, "g": &g.DO, "x": &g.DK, "y": &g.DV})
	j := kernel.Tangents{Operands: f, OTangent: tensor(), LSETangent: tensor()}
	at = w.JVP(p, &j)
	check(&all.Backward, at, &w, map[string]uint32{
		"offsets": 11 | 21<<8 | 31<<16 | 41<<24, "more_offsets": 51 | 151<<8 | 141<<16, "bytes": 64 | 2<<16,
		"scale": math.Float32bits(float32(p.Scale)), "y_sb": 0, "y_sh": 0, "y_sn": 0,
	}, map[string]*kernel.Operand{"q": &f.Q, "k": &f.K, "v": &f.V, "g": &f.O, "x": &j.OTangent})
	rows := pass.Args{As: pass.AsRows, Problem: p, Slab: pass.Slab{Head0: 2, Heads: 3, Row0: 4, Rows: 1}, Pitch: 16}
	var none kernel.Operand
	at = rows.OfSlab(&w, &f.LSE, &none, &d)
	check(&all.Standard, at, &w, map[string]uint32{
		"offsets": 0, "bytes": 64 | 51<<8 | 2<<16, "score_scale": math.Float32bits(float32(p.Scale)),
		"bh0": 2, "slab_heads": 3, "row0": 4, "rows": 1, "pitch": 16,
	}, map[string]*kernel.Operand{"q": &none, "k": &none, "v": &none, "o": &none})
}

// TestPackHeads: heads of any number within the limits come out as they went in.
func TestPackHeads(t *testing.T) {
	for _, x := range [][2]int{{1, 1}, {8, 4}, {4, 8}, {1, math.MaxInt32 / 2}, {math.MaxInt32 / 2, 1}, {32767, 32768}, {32768, 32767}} {
		large, small := kernel.PackHeads(x[0], x[1])
		keyHeads, group := large, small>>16
		if large>>31 != 0 {
			keyHeads, group = small>>16, large&math.MaxInt32
		}
		require.Equal(t, [2]uint32{uint32(x[0]), uint32(x[1])}, [2]uint32{keyHeads, group})
		require.Zero(t, small&0xffff)
	}
}
