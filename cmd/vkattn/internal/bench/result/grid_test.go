package result

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGridDefaults(t *testing.T) {
	cases, err := Grid{}.Expand()
	require.NoError(t, err)
	require.Len(t, cases, 3*2*2) // seq × causal × impl
	require.Equal(t, Case{Impl: "standard", DType: "float16", B: 16, H: 32, Hkv: 32, Nq: 512, N: 512, D: 64, Dv: 64}, cases[0])
	require.Equal(t, "flash2", cases[1].Impl)
	require.Equal(t, cases[0].Shape(), cases[1].Shape(), "implementations of one shape stand together")
	require.True(t, cases[2].Causal)
}

func TestGridTiesHeadsAndEmbedding(t *testing.T) {
	one := Grid{Impls: []string{"flash2"}, Causal: no, Seq: []int{64}, Batch: []int{1}}
	for _, test := range []struct {
		name                string
		emb, heads, headDim []int
		want                [][2]int // heads, head dimension
		err                 string
	}{
		{"heads alone", nil, []int{8}, nil, [][2]int{{8, 64}}, ""},
		{"head dimension alone", nil, nil, []int{128}, [][2]int{{32, 128}}, ""},
		{"embedding alone", []int{1024}, nil, nil, [][2]int{{16, 64}}, ""},
		{"embedding and heads", []int{1024, 2048}, []int{16}, nil, [][2]int{{16, 64}, {16, 128}}, ""},
		{"embedding and head dimension", []int{2048}, nil, []int{16, 256}, [][2]int{{128, 16}, {8, 256}}, ""},
		{"all three that agree", []int{2048}, []int{32}, []int{64}, [][2]int{{32, 64}}, ""},
		{"all three that disagree", []int{2048}, []int{16}, []int{64}, nil,
			"emb-dim is 2048: it must be heads × head-dim, which is 16 × 64 = 1024"},
		{"not a multiple of heads", []int{1000}, []int{16}, nil, nil, "emb-dim is 1000: it must be a multiple of heads, which is 16"},
		{"not a multiple of head-dim", []int{1000}, nil, []int{64}, nil, "emb-dim is 1000: it must be a multiple of head-dim, which is 64"},
		{"too wide a head", nil, nil, []int{577}, nil, "head-dim is 577: it must be between 1 and 576"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := one
			g.EmbDim, g.Heads, g.HeadDim = test.emb, test.heads, test.headDim
			cases, err := g.Expand()
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var got [][2]int
			for _, c := range cases {
				got = append(got, [2]int{c.H, c.D})
				require.Equal(t, c.D, c.Dv)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestGridTokens(t *testing.T) {
	g := Grid{Tokens: 16384, Seq: []int{512, 16384}, Impls: []string{"flash2"}, Causal: yes}
	cases, err := g.Expand()
	require.NoError(t, err)
	require.Len(t, cases, 2)
	require.Equal(t, 32, cases[0].B)
	require.Equal(t, 1, cases[1].B)

	g.Seq = []int{1000}
	_, err = g.Expand()
	require.ErrorContains(t, err, "seq is 1000: it must divide tokens, which is 16384")
	g.Batch = []int{1}
	_, err = g.Expand()
	require.ErrorContains(t, err, "batch and tokens are both given")
}

func TestGridErrorsNameTheCase(t *testing.T) {
	_, err := Grid{Heads: []int{32}, KVHeads: []int{5}}.Expand()
	require.ErrorContains(t, err, "kv-heads is 5: it must divide heads, which is 32")
	require.ErrorContains(t, err, "float16 B16 H32/5 N512 D64")
	_, err = Grid{DTypes: []string{"int4"}}.Expand()
	require.ErrorContains(t, err, `dtype "int4"`)
}

func TestGridQueryLengthAndValueDim(t *testing.T) {
	cases, err := Grid{QueryLen: []int{1}, KVHeads: []int{8}, ValueDim: []int{128}, HeadDim: []int{192},
		Impls: []string{"flash2"}, Causal: no, Seq: []int{4096}}.Expand()
	require.NoError(t, err)
	require.Equal(t, []Case{{Impl: "flash2", DType: "float16", B: 16, H: 32, Hkv: 8, Nq: 1, N: 4096, D: 192, Dv: 128}}, cases)
}

func TestOverride(t *testing.T) {
	papers, err := FindSuite("papers")
	require.NoError(t, err)
	all, err := papers.Jobs(false, Grid{})
	require.NoError(t, err)
	require.Len(t, all, 3*6*2*2)
	for _, j := range all {
		c := j.Case
		require.Equal(t, Passes{Fwd: true}, j.Passes)
		require.Equal(t, 16384, c.B*c.N)
		require.Equal(t, 2048, c.EmbDim())
	}
	some, err := papers.Jobs(false, Grid{HeadDim: []int{128}, Causal: yes, Impls: []string{"flash2"}, Batch: []int{2}, Passes: both,
		Dropout: []float64{0.1}})
	require.NoError(t, err)
	require.Len(t, some, 6)
	for _, j := range some {
		c := j.Case
		require.Equal(t, both, j.Passes)
		require.Equal(t, 0.1, c.Dropout)
		require.Equal(t, 2, c.B)
		require.Equal(t, 16, c.H)
	}
}

func TestSuitesExpand(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Suites() {
		require.False(t, names[s.Name], "suite %s twice", s.Name)
		names[s.Name] = true
		for _, cpu := range []bool{false, true} {
			jobs, err := s.Jobs(cpu, Grid{})
			require.NoError(t, err, s.Name)
			require.NotEmpty(t, jobs, s.Name)
			for _, j := range jobs {
				_, err := j.Case.Problem()
				require.NoError(t, err, "%s: %s", s.Name, j.Case)
			}
			require.Equal(t, len(jobs), len(DistinctJobs(jobs)))
		}
	}
	_, err := FindSuite("everything")
	require.ErrorContains(t, err, `suite "everything": it must be one of quick, seq,`)
}

// TestReportsHaveEverySweep: no row of a part is lost, and a case of several parts is measured once, with the passes of all.
func TestReportsHaveEverySweep(t *testing.T) {
	find := func(name string) map[Case]Passes {
		s, err := FindSuite(name)
		require.NoError(t, err)
		jobs, err := s.Jobs(false, Grid{})
		require.NoError(t, err)
		out := map[Case]Passes{}
		for _, j := range jobs {
			out[j.Case] = j.Passes
		}
		return out
	}
	reports := find("reports")
	for _, part := range reportsParts {
		for c, p := range find(part) {
			got, ok := reports[c]
			require.True(t, ok, "%s: %s", part, c)
			require.Equal(t, got, got.And(p), "%s: %s", part, c)
		}
	}
	for c, p := range find("forward-backward") {
		require.Equal(t, both, p)
		require.True(t, c.Causal)
	}
	tuned, dropped := 0, 0
	for c := range reports {
		if c.Tuning != "" {
			tuned++
			require.Equal(t, [4]int{64, 16, 1024, 64}, [4]int{c.B, c.H, c.N, c.D})
		}
		if c.Dropout > 0 {
			dropped++
		}
	}
	require.Equal(t, 12, tuned)
	require.Equal(t, 2*2, dropped)
	require.Len(t, find("dropout"), 2*2*2)
	for _, p := range find("long") {
		require.Equal(t, both, p)
	}
}

func TestGridDropoutAndTuning(t *testing.T) {
	cases, err := Grid{Batch: []int{1}, Seq: []int{64}, Causal: no, Dropout: []float64{0, 0.1},
		Tunings: []Tuning{"", "bc=32,br=64"}}.Expand()
	require.NoError(t, err)
	var got []string
	for _, c := range cases {
		got = append(got, c.String())
	}
	require.Equal(t, []string{"standard float16 B1 H32 N64 D64", "flash2 float16 B1 H32 N64 D64",
		"flash2 float16 B1 H32 N64 D64 bc=32,br=64",
		"standard float16 B1 H32 N64 D64 dropout 0.1", "flash2 float16 B1 H32 N64 D64 dropout 0.1",
		"flash2 float16 B1 H32 N64 D64 dropout 0.1 bc=32,br=64"}, got)
	require.Equal(t, cases[1].Shape(), cases[2].Shape(), "a tile is no other shape")
	require.NotEqual(t, cases[1].Shape(), cases[4].Shape(), "dropout is")

	tuning, err := ParseTuning(" br=64,bc=32")
	require.NoError(t, err)
	require.Equal(t, Tuning("bc=32,br=64"), tuning)
	require.Equal(t, map[string]int{"br": 64, "bc": 32}, tuning.Values())
	require.Nil(t, Tuning("").Values())
	for _, bad := range []string{"", "br", "br=", "=3", "br=x", "br=-1", "br=1,br=2"} {
		_, err := ParseTuning(bad)
		require.ErrorContains(t, err, fmt.Sprintf("tuning %q", bad))
	}
	_, err = ParseDropouts([]string{"0.1", "1"})
	require.ErrorContains(t, err, `dropout "1": it must be at least 0 and below 511/512`)
}

func TestDistinctJobs(t *testing.T) {
	a, b := Case{Impl: "a"}, Case{Impl: "b"}
	require.Equal(t, []Job{{a, both}, {b, Passes{Fwd: true}}},
		DistinctJobs([]Job{{a, Passes{}}, {b, Passes{Fwd: true}}, {a, Passes{Bwd: true}}}))
	require.Equal(t, []Job{{a, Passes{Bwd: true}}}, DistinctJobs([]Job{{a, Passes{Bwd: true}}, {a, Passes{Bwd: true}}}))
}

func TestParse(t *testing.T) {
	v, err := ParseInts("seq", []string{"512", "4k", " 1M"})
	require.NoError(t, err)
	require.Equal(t, []int{512, 4096, 1 << 20}, v)
	for _, bad := range []string{"", "0", "-1", "x", "1.5", "k", "99999999999999999999", "9999999999m"} {
		_, err := ParseInts("seq", []string{bad})
		require.ErrorContains(t, err, "seq", bad)
	}
	for in, want := range map[string]string{"FP16": "float16", "half": "float16", "bf16": "bfloat16", "float": "float32"} {
		got, err := ParseDType(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for in, want := range map[string][]bool{"true": yes, "False": no, "both": yesNo} {
		got, err := ParseCausal(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = ParseCausal("maybe")
	require.ErrorContains(t, err, "true, false or both")
}

// TestImplementations: every implementation of the library is one that --impl takes under its own name.
func TestImplementations(t *testing.T) {
	require.Len(t, Implementations(), 4)
	for _, name := range Implementations() {
		got, err := ParseImpl(name)
		require.NoError(t, err)
		require.Equal(t, name, got)
	}
	got, err := ParseImpl("flash")
	require.NoError(t, err)
	require.Equal(t, "flash2", got)
	_, err = ParseImpl("flash9")
	require.EqualError(t, err, `impl "flash9": it must be standard, flash1, flash (flash2) or blocksparse`)
}

// TestGuardHasEveryFamily: a dozen shapes or so, of whatever a kernel, a storage type or a feature has of its own; both passes where there
// are two.
func TestGuardHasEveryFamily(t *testing.T) {
	s, err := FindSuite("guard")
	require.NoError(t, err)
	for _, cpu := range []bool{false, true} {
		jobs, err := s.Jobs(cpu, Grid{})
		require.NoError(t, err)
		require.Len(t, jobs, map[bool]int{false: 14, true: 13}[cpu])
		seen := map[string]bool{}
		for _, j := range jobs {
			c := j.Case
			seen[c.Impl], seen[c.DType], seen[c.Cache] = true, true, true
			for name, has := range map[string]bool{"window": c.Window > 0, "score": c.Score != "", "dropout": c.Dropout > 0,
				"packed": c.Packed != "", "page": c.Page > 0,
				"density": c.Density > 0, "one query": c.Nq == 1, "few queries": c.Nq > 1 && c.Nq < c.N, "grouped": c.H != c.Hkv} {
				seen[name] = seen[name] || has
			}
			require.Equal(t, c.Nq == c.N, j.Passes.Bwd, c.String())
		}
		for _, want := range []string{"flash2", "standard", BlockSparse, "float16", "bfloat16", "float32", "q8_0", "window", "score",
			"dropout", "packed", "page", "density",
			"one query", "few queries", "grouped"} {
			require.True(t, seen[want], want)
		}
	}
}
