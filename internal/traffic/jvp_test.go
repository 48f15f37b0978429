package traffic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// Every number here was counted by hand, in rows; D = 4, Dv = 6, fp16: 8 and 12 bytes a row.
func TestTangentsBytesByHand(t *testing.T) {
	p := full(attn.Problem{Batch: 2, Heads: 3, KeyHeads: 1, QueryLen: 10, KeyLen: 7, HeadDim: 4, ValueDim: 6, DType: attn.F16})
	steps := func(m Tangents) map[string]Step { return bytesOf(t, m, p, Call{LSE: true}) }
	// Blocks of 4 queries: 3 of them walk over 7 keys each; rows of q once.
	got := steps(Tangents{BackwardTile{Label: "k", Rows: 4, Columns: 4}})
	rows, keys := 6.0*10, 6.0*3*7
	require.Equal(t, (rows+keys)*8, got[StepScoresAgain].Read)
	require.Equal(t, (rows+keys)*8, got[StepScoreTangents].Read)
	require.Equal(t, keys*12, got[StepValueMoves].Read)
	require.Equal(t, keys*12, got[StepValueTangents].Read)
	require.Equal(t, rows*12, got[StepValueMoves].Written)
	require.Equal(t, rows*12, got[StepLessOutput].Read)
	require.Equal(t, rows*4, got[StepWeightsAgain].Read)
	require.Equal(t, rows*4, got[StepWeightMoves].Written)
	require.Equal(t, 6*70*(2*4+4*4+2*6+2*6)+6*70*4+2*60*6.0, Total(stepsOf(t, Tangents{BackwardTile{Rows: 4, Columns: 4}}, p)).FLOPs)
	// Rows of q for each of 2 tiles of keys, and all of it twice for the tangents.
	got = steps(Tangents{BackwardTile{Label: "k", Rows: 4, Columns: 4, Restaged: true}})
	require.Equal(t, (2*rows+keys)*8, got[StepScoresAgain].Read)
	require.Equal(t, 2*(2*rows+keys)*8, got[StepScoreTangents].Read)
	require.Equal(t, keys*12, got[StepValueTangents].Read)
	require.Equal(t, 60*(2*8+3*12+2*4)-60*12+14*2*(8+12)+0.0, LeastJVP(p), "q, q̇, o, ȯ, lse, lsė, k, k̇, v, v̇")
}

func stepsOf(t *testing.T, m Model, p attn.Problem) []Step {
	t.Helper()
	steps, err := m.Steps(p, Call{LSE: true})
	require.NoError(t, err)
	return steps
}
