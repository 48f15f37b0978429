package traffic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
)

// TestListsBytesByHand: with lists a block of query heads loads every key of its query's list, with the number that says which.
func TestListsBytesByHand(t *testing.T) {
	p := attn.Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 5, KeyLen: 70, HeadDim: 4, ValueDim: 6, DType: attn.F16,
		Lists: attn.Lists{Keys: 9}}
	by := func(m Model, c Call) map[string]Step {
		steps, err := m.Steps(full(p), c)
		require.NoError(t, err)
		out := map[string]Step{}
		for _, s := range steps {
			out[s.Kernel+" "+s.Name] = s
		}
		return out
	}
	// Five queries of two entries and key heads; of three rows, in blocks of two, there are two.
	w := by(QueriesOutside{Label: "f", Rows: 2, Keys: 1, Packed: true, QReaders: 2}, Call{LSE: true})
	require.Equal(t, 2*60*rowD+20*2*9*(rowD+4.0), w["f "+StepScores].Read)
	require.Equal(t, 20*2*9*rowDv, w["f "+StepValues].Read)
	require.Equal(t, 60*rowDv, w["f "+StepValues].Written)
	require.Equal(t, 60*4.0, w["f "+StepSoftmax].Written)
	require.Equal(t, 2*60*9*4.0, w["f "+StepScores].FLOPs)

	// A key's workgroup loads q and do of each pair; a query's block of heads the keys of its list.
	g := by(BackwardLists{Delta: "d", Invert: "i", Keys: "k", Queries: "q", Rows: 2}, Call{Accumulate: true})
	const pairs, keys, queries, visits = 60 * 9, 280, 60, 20 * 9 * 2
	require.Equal(t, 2*10*9*4.0, g["i "+StepInvert].Read)
	require.Equal(t, 10*9*4.0, g["i "+StepInvert].Written)
	require.Equal(t, (keys+pairs)*rowD+pairs*4, g["k "+StepScoresAgain].Read)
	require.Equal(t, (keys+pairs)*rowDv, g["k "+StepWeightGrads].Read)
	require.Equal(t, keys*rowD, g["k "+StepKeyGrads].Written)
	require.Equal(t, keys*rowDv, g["k "+StepValueGrads].Read)
	require.Equal(t, queries*rowD+visits*(rowD+4), g["q "+StepScoresAgain].Read)
	require.Equal(t, (queries+visits)*rowDv, g["q "+StepWeightGrads].Read)
	require.Equal(t, queries*rowD, g["q "+StepQueryGrads].Written)
	require.Equal(t, 2*pairs*6.0, g["k "+StepValueGrads].FLOPs)

	// No more of keys and values can be needed than there are, nor than lists have.
	with, without := LeastForward(p, false), attn.Problem(p)
	without.Lists = attn.Lists{}
	lists := 4 * 2 * 5 * 9.0
	require.Equal(t, LeastForward(without, false)+lists-(1-45/70.0)*280*(rowD+rowDv), with)
	p.Lists.PerHead = true
	require.Equal(t, 2*20*9*4.0, by(BackwardLists{Invert: "i", Rows: 3}, Call{})["i "+StepInvert].Read)

	_, err := BackwardLists{}.Steps(full(p), Call{})
	require.ErrorContains(t, err, "BackwardLists is 0x1")
}
