package result

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

func TestParseCache(t *testing.T) {
	for in, want := range map[string]string{"": "", "none": "", "Q8_0": "q8_0", " q4_0": "q4_0", "fp8": "fp8", "IQ4_NL": "iq4_nl"} {
		got, err := ParseCache(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := ParseCache("q5_2")
	require.EqualError(t, err, `cache "q5_2": it must be one of none, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, fp8, fp8_e5m2`)

	_, err = fromZero("page")([]string{"0", "x"})
	require.ErrorContains(t, err, `page "x"`)
	_, err = Grid{Pages: []int{-1}}.Expand()
	require.ErrorContains(t, err, "page is -1: it must be at least 0")
	cases, err := Grid{Impls: []string{"flash2"}, Batch: []int{2}, Seq: []int{100}, Causal: no, Pages: []int{0, 16},
		Caches: []string{"", "q8_0"}}.Expand()
	require.NoError(t, err)
	var got []string
	for _, c := range cases {
		got = append(got, c.String())
	}
	require.Equal(t, []string{"flash2 float16 B2 H32 N100 D64", "flash2 float16 B2 H32 N100 D64 q8_0",
		"flash2 float16 B2 H32 N100 D64 page 16", "flash2 float16 B2 H32 N100 D64 page 16 q8_0"}, got)
	p, err := cases[3].Problem()
	require.NoError(t, err)
	require.Equal(t, flash.Pages{Size: 16, Count: 14, PerSequence: 7}, p.Pages)
	require.Equal(t, [2]flash.DType{flash.Q8_0, flash.Q8_0}, [2]flash.DType{p.KeyType, p.ValueType})
	plain, costs := cases[3].Plain()
	require.True(t, costs)
	require.Equal(t, cases[0], plain, "what pages and types cost is told against neither")
}
