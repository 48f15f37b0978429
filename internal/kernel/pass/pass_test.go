package pass

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders"
)

// someDelta is the beginning of a backward pass, whose stages need no tile.
func someDelta(t *testing.T, with attn.Problem, v Variant) *Pass {
	t.Helper()
	with.DType = attn.F16
	p := kerneltest.Problem(with)
	env := &kernel.Env{Caps: *kerneltest.Hopper()}
	d, err := kernel.NewDeltaProgram(env, p, kernel.NewTuning(nil))
	require.NoError(t, err)
	rows := kernel.RowBlocks{Rows: 32, Columns: 32}
	return BackwardOf(env, p, d, v, nil, rows, rows.Over(kernel.Grid{Total: 10, Step: 4}, 1, true))
}

// TestPassIsData: what a pass has can be counted, and its names found, without a device.
func TestPassIsData(t *testing.T) {
	plain := someDelta(t, attn.Problem{}, Variant{})
	require.NoError(t, plain.Check())
	require.Len(t, plain.Stages, 1)
	require.Equal(t, []uint64{4 * 2 * 64}, plain.Bytes())
	require.Equal(t, 1, plain.Dispatches())
	require.Empty(t, plain.proofs())
	require.Equal(t, Bind{Name: "Dlse", To: "O", Mode: pipeline.Unused}, plain.Stages[0].Bind[2])
	with := someDelta(t, attn.Problem{}, Variant{LSE: true})
	require.Equal(t, Bind{Name: "Dlse", To: "DLSE", Mode: pipeline.Read}, with.Stages[0].Bind[2])

	packed := someDelta(t, attn.Problem{Batch: 3, Packed: attn.Packed{Queries: 100, Keys: 90}}, Variant{})
	require.NoError(t, packed.Check())
	require.Equal(t, []string{"delta", "table 0", "table 1"}, []string{packed.Scratch[0].Name, packed.Scratch[1].Name,
		packed.Scratch[2].Name})
	require.Equal(t, uint64(3*kernel.CountBytes), packed.Scratch[2].Bytes-packed.Scratch[1].Bytes, "workgroups of three dispatches")
	require.Len(t, packed.Stages, 3)
	require.Equal(t, 3, packed.Dispatches())
	require.Equal(t, []uint32{1, 10}, []uint32{packed.Stages[0].Total, packed.Stages[1].Total})
	rows := kernel.RowBlocks{Rows: 32, Columns: 32}
	require.Zero(t, CountsOf(packed.Problem, rows, 1))
	rows.Counted = true
	require.Equal(t, Counts{Scratch: "table 1", At: packed.Scratch[1].Bytes}, CountsOf(packed.Problem, rows, 1))
	require.Zero(t, CountsOf(plain.Problem, rows, 1))
}

// TestProofsInOrder: a pipeline is named once, however many stages have it, and those that are to be last behind the others.
func TestProofsInOrder(t *testing.T) {
	stages := []Stage{{Module: "delta"}, {Module: "weights", Proves: true, Last: true}, {Module: "product", Proves: true,
		Made: pipeline.KernelInfo{SubgroupSize: 32}}}
	for _, s := range stages[1:] {
		s.Again = 2
		stages = append(stages, s)
	}
	var names []string
	for _, k := range (&Pass{Problem: &attn.Problem{}, Stages: stages}).proofs() {
		names = append(names, k.Module)
		require.Equal(t, k.Module == "product", k.Made.SubgroupSize == 32, "with the sizes of its subgroups")
	}
	require.Equal(t, []string{"product", "weights"}, names)
}

// TestSinks: the gradient with respect to sinks finds δ and the table of packed sequences behind a backward pass.
func TestSinks(t *testing.T) {
	for _, packed := range []attn.Packed{{}, {Queries: 100, Keys: 90}} {
		p := kerneltest.Problem(attn.Problem{Batch: 2, ByScore: attn.ByScore{Sinks: true}, KeyLengths: true, Packed: packed})
		k, err := fitSinks(&kernel.Env{Caps: *kerneltest.Hopper()}, p, []Scratch{{"totals", 8}})
		require.NoError(t, err)
		for _, v := range []Variant{{}, {Accumulate: true}} {
			made := k.Pass(v)
			require.NoError(t, made.Check())
			require.Equal(t, []string{"delta", "totals"}, []string{made.Scratch[0].Name, made.Scratch[1].Name})
			require.Equal(t, kernel.BoolInt(v.Accumulate), made.Stages[0].Constants["ACCUMULATE"])
			require.Equal(t, Bind{Name: "DSinks", To: "DSinks", Mode: v.Written()}, made.Stages[0].Bind[2])
		}
		require.False(t, (&program{Fitted: *k}).proves())
	}
}

// TestWrongNames: names that nothing has are found before there is a device.
func TestWrongNames(t *testing.T) {
	for why, change := range map[string]func(*Stage){
		"no such shader module":           func(s *Stage) { s.Module = "nonsense" },
		"declares no constant NONSENSE":   func(s *Stage) { s.Constants = s.Constants.And(kernel.Constants{"NONSENSE": 1}) },
		"are not set: WG":                 func(s *Stage) { delete(s.Constants, "WG") },
		"no buffer nonsense is declared":  func(s *Stage) { s.Bind = append(s.Bind, Bind{Name: "nonsense", To: "Q"}) },
		`no operand and no scratch "sum"`: func(s *Stage) { s.Bind[0].To = "sum" },
		`no operand and no scratch "idl"`: func(s *Stage) { s.Idle = "idl" },
		`no operand and no scratch "tab"`: func(s *Stage) { s.Counts = Counts{Scratch: "tab"} },
		`no operand and no scratch "DX"`:  func(s *Stage) { s.Args.X = "DX" },
	} {
		p := someDelta(t, attn.Problem{}, Variant{})
		change(&p.Stages[0])
		require.ErrorContains(t, p.Check(), why)
	}
	p := someDelta(t, attn.Problem{}, Variant{})
	p.Stages[0].Bind = append(p.Stages[0].Bind, Bind{Name: "nonsense", To: "Q", May: true})
	require.NoError(t, p.Check(), "a module may do without")
}

// TestScores: what a problem has beside q, k and v is bound by the names of score.glsl and its like, and the table of packed sequences in
// place of lengths.
func TestScores(t *testing.T) {
	names := func(p attn.Problem) (out []string) {
		for _, b := range Scores(&p, 1) {
			require.True(t, b.May)
			out = append(out, b.Name+" "+b.To)
		}
		return out
	}
	require.Empty(t, names(attn.Problem{}))
	require.Equal(t, []string{"Bias32_ Bias", "Mask_ Mask", "Sinks_ Sinks", "KeyLengths_ KeyLengths", "More More"},
		names(attn.Problem{ByScore: attn.ByScore{Bias: attn.PerScore{In: true}, BoolMask: attn.PerScore{In: true}, Sinks: true},
			KeyLengths: true}))
	require.Equal(t, []string{"RowTable_ table 1", "More More"}, names(attn.Problem{KeyLengths: true, Packed: attn.Packed{Keys: 9}}))
}

// TestVariants: each has a place of its own.
func TestVariants(t *testing.T) {
	seen := map[int]bool{}
	for i := range variants {
		v := Variant{Aligned: i&1 > 0, Output: i&2 > 0, LSE: i&4 > 0, Accumulate: i&8 > 0, DBias: i&16 > 0, AlignedDBias: i&32 > 0,
			InKeys: i&64 > 0}
		require.Less(t, v.index(), variants)
		seen[v.index()] = true
	}
	require.Len(t, seen, variants)
}

// TestScoreBuffers: a module that can be told of a tensor that goes with scores has a buffer of the name by which it is bound, each at a
// binding of its own. A name that GLSL changed alone would leave the buffer to whatever stands in for it.
func TestScoreBuffers(t *testing.T) {
	in := attn.PerScore{In: true}
	all := Scores(&attn.Problem{ByScore: attn.ByScore{Bias: in, BoolMask: in, Sinks: true}}, 0)[:3]
	found := map[string]int{}
	for _, module := range shaders.Names() {
		info, err := shaders.Describe(module)
		require.NoError(t, err)
		bound := map[uint32]string{}
		for i, constant := range []string{"SCORE_BIAS", "SCORE_MASK", "SINKS"} {
			if _, told := info.Interface.Constants[constant]; !told {
				continue
			}
			name := all[i].Name
			at, has := info.Interface.Bindings[name]
			require.True(t, has, "%s has %s and no %s", module, constant, name)
			require.Empty(t, bound[at], "%s: %s at %d", module, name, at)
			bound[at] = name
			found[name]++
		}
	}
	require.Len(t, found, len(all))
}
