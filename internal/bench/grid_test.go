package bench

import (
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
		{"all three that disagree", []int{2048}, []int{16}, []int{64}, nil, "emb-dim is 2048: it must be heads × head-dim, which is 16 × 64 = 1024"},
		{"not a multiple of heads", []int{1000}, []int{16}, nil, nil, "emb-dim is 1000: it must be a multiple of heads, which is 16"},
		{"not a multiple of head-dim", []int{1000}, nil, []int{64}, nil, "emb-dim is 1000: it must be a multiple of head-dim, which is 64"},
		{"too wide a head", nil, nil, []int{257}, nil, "head-dim is 257: it must be between 1 and 256"},
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
	all, err := papers.Cases(false, Grid{})
	require.NoError(t, err)
	require.Len(t, all, 3*6*2*2)
	for _, c := range all {
		require.Equal(t, 16384, c.B*c.N)
		require.Equal(t, 2048, c.EmbDim())
	}
	some, err := papers.Cases(false, Grid{HeadDim: []int{128}, Causal: yes, Impls: []string{"flash2"}, Batch: []int{2}})
	require.NoError(t, err)
	require.Len(t, some, 6)
	for _, c := range some {
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
			cases, err := s.Cases(cpu, Grid{})
			require.NoError(t, err, s.Name)
			require.NotEmpty(t, cases, s.Name)
			for _, c := range cases {
				_, err := c.Problem()
				require.NoError(t, err, "%s: %s", s.Name, c)
			}
			require.Equal(t, len(cases), len(Distinct(cases)))
		}
	}
	_, err := FindSuite("everything")
	require.ErrorContains(t, err, `suite "everything": it must be one of quick, seq,`)
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
