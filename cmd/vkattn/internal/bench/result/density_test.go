package result

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlockMaskHasItsShare: the share of nonzero blocks is the density but for less than one block, and of a causal problem none is
// chosen that nothing could be attended to in.
func TestBlockMaskHasItsShare(t *testing.T) {
	for _, c := range []Case{
		{Nq: 4096, N: 4096, Density: 1}, {Nq: 4096, N: 4096, Density: 0.05}, {Nq: 1000, N: 3000, Density: 0.3},
		{Nq: 4096, N: 4096, Density: 0.25, Causal: true},
		{Nq: 1000, N: 500, Density: 1, Causal: true}, {Nq: 1, N: 5000, Density: 0.5, Causal: true},
	} {
		m := c.BlockMask()
		require.Len(t, m.Data, m.Rows*m.Cols)
		could, are := 0, 0
		for r := range m.Rows {
			for col := range m.Cols {
				last := min((r+1)*maskBlock, c.Nq) - 1 + c.N - c.Nq
				possible := !c.Causal || col*maskBlock <= last
				if possible {
					could++
				}
				if m.Data[r*m.Cols+col] {
					are++
					require.True(t, possible, "%v: block %d, %d", c, r, col)
				}
			}
		}
		require.InDelta(t, c.Density*float64(could), float64(are), 1, "%v", c)
		require.Equal(t, m.Data, c.BlockMask().Data, "the same again")
	}
	require.Nil(t, Case{Nq: 100, N: 100}.BlockMask())
}

// TestDensityIsAnAxisOfBlockSparse: each share is a case of blocksparse, and the others have one each.
func TestDensityIsAnAxisOfBlockSparse(t *testing.T) {
	cases, err := Grid{Impls: []string{"flash2", "blocksparse"}, Batch: []int{1}, Seq: []int{1024}, Causal: no,
		Density: []float64{1, 0.25}}.Expand()
	require.NoError(t, err)
	require.Len(t, cases, 3)
	require.Zero(t, cases[0].Density)
	require.Equal(t, []float64{1, 0.25}, []float64{cases[1].Density, cases[2].Density})
	for _, c := range cases {
		require.Equal(t, cases[0].Shape(), c.Shape(), "they are compared with one another")
		data, err := json.Marshal(Row{Origin: Origin{Library: "vkattn"}, Case: c})
		require.NoError(t, err)
		var back Row
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, c, back.Case)
	}
	require.InEpsilon(t, cases[0].ForwardFLOPs()/4, cases[2].ForwardFLOPs(), 1e-12)

	got, err := ParseDensities([]string{"5%", "0.25", " 100% "})
	require.NoError(t, err)
	require.InDeltaSlice(t, []float64{0.05, 0.25, 1}, got, 1e-12)
	for _, bad := range []string{"0", "-1", "101%", "x", "", "NaN"} {
		_, err := ParseDensities([]string{bad})
		require.ErrorContains(t, err, "density")
	}
}
