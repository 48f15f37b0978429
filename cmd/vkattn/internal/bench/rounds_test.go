package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestRoundsOfPeers: a peer's row is made of all its rounds too, and not the percentiles of the first.
func TestRoundsOfPeers(t *testing.T) {
	answer := func(ms, p20, p80 float64) result.Row {
		return result.Row{Origin: result.Origin{Library: "torch"}, Fwd: result.Pass{Ms: ms, P20: p20, P80: p80, TFLOPS: 6 / ms}}
	}
	row := result.MergeRounds([]result.Row{answer(9, 8, 10), answer(2, 1.9, 2.1), answer(3, 2.8, 3.3)})
	require.Equal(t, result.Pass{Ms: 3, P20: 2.8, P80: 3.3, TFLOPS: 2, Rounds: []float64{9, 2, 3}}, row.Fwd)
	row = result.MergeRounds([]result.Row{answer(9, 8, 10), answer(2, 1.9, 2.1)})
	require.Equal(t, result.Pass{Ms: 2, P20: 1.9, P80: 2.1, TFLOPS: 3, Rounds: []float64{9, 2}}, row.Fwd)

	// Through a sweep, with a peer that takes longer each time.
	b := &fakeBench{ms: func(result.Case, int) float64 { return 1 }}
	var rows []result.Row
	p := startFake(t, "good")
	s := Sweep{Bench: b, Jobs: twoShapes(t)[:1], Rounds: 3, OnRow: collect(&rows), PeerImpls: []string{"fa2"}, Peer: p}
	require.NoError(t, s.Run(context.Background()))
	require.NoError(t, p.Close())
	require.Len(t, rows, 2)
	require.Len(t, rows[1].Fwd.Rounds, 3)
	second := rows[1].Fwd.Rounds[1]
	require.Equal(t, 2*rows[1].Fwd.Rounds[0], second)
	require.Equal(t, [3]float64{second, 0.75 * second, 1.25 * second}, [3]float64{rows[1].Fwd.Ms, rows[1].Fwd.P20, rows[1].Fwd.P80})
}
