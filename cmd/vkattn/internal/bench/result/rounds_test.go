package result

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMiddle(t *testing.T) {
	require.Zero(t, Middle(nil))
	require.Equal(t, 4.0, Middle([]float64{4}))
	require.Equal(t, 1.0, Middle([]float64{5, 1}), "the lower one of two, not their mean")
	require.Equal(t, 2.0, Middle([]float64{3, 1, 2}))
	require.Equal(t, 2.0, Middle([]float64{9, 3, 1, 2}))
	given := []float64{3, 1, 2}
	Middle(given)
	require.Equal(t, []float64{3, 1, 2}, given, "it stays as it was")
}

// roundOf is a row of one round with runs as the device times them.
func roundOf(runs []float64) Row {
	p := Pass{WallMs: 2 * Median(runs), TFLOPS: 6 / Median(runs)}
	p.Timed(runs)
	return Row{Origin: Origin{Library: "vkattn test"}, Fwd: p, Bwd: p, JVP: p}
}

// TestRoundsMiddle: the time of several rounds is that of one of them, whatever the rounds disagree by, and lies between the percentiles.
func TestRoundsMiddle(t *testing.T) {
	// The first of two rounds was disturbed: neither its time counts, nor the mean with it.
	row := MergeRounds([]Row{roundOf([]float64{1.4, 1.46, 1.5}), roundOf([]float64{0.3, 0.31, 0.31, 0.31, 0.32})})
	for _, p := range []Pass{row.Fwd, row.Bwd, row.JVP} {
		require.Equal(t, 0.31, p.Ms)
		require.Equal(t, 0.62, p.WallMs)
		require.Equal(t, []float64{1.46, 0.31}, p.Rounds)
		require.InDelta(t, 6/0.31, p.TFLOPS, 1e-9)
		require.Equal(t, 8, p.N)
		require.LessOrEqual(t, p.P20, 0.31)
		require.Equal(t, 1.46, p.P80, "both rounds count half, so that the disturbed one shows")
	}

	// A round of many runs does not outvote the others: of all runs alike, 80 % take 1 ms, and the middle round 2.
	many := slices.Repeat([]float64{1}, 100)
	row = MergeRounds([]Row{roundOf(many), roundOf([]float64{2, 2}), roundOf([]float64{3, 3})})
	require.Equal(t, [3]float64{2, 1, 3}, [3]float64{row.Fwd.Ms, row.Fwd.P20, row.Fwd.P80})

	rng := rand.New(rand.NewPCG(7, 11))
	for range 2000 {
		rounds := make([]Row, 1+rng.IntN(7))
		peers := make([]Row, len(rounds))
		for i := range rounds {
			level := 0.1 + 10*rng.Float64()*rng.Float64()
			runs := make([]float64, 1+rng.IntN(40))
			for k := range runs {
				runs[k] = level * (1 + 0.3*rng.Float64())
			}
			rounds[i] = roundOf(runs)
			peers[i] = rounds[i]
			peers[i].Fwd.runs, peers[i].Bwd.runs, peers[i].JVP.runs = nil, nil, nil // a peer tells figures alone
		}
		for _, of := range [][]Row{rounds, peers} {
			for _, p := range []Pass{MergeRounds(of).Fwd, MergeRounds(of).Bwd, MergeRounds(of).JVP} {
				require.LessOrEqual(t, p.P20, p.Ms)
				require.GreaterOrEqual(t, p.P80, p.Ms)
				require.True(t, slices.ContainsFunc(of, func(r Row) bool { return r.Fwd.Ms == p.Ms }), "a round took it")
			}
		}
	}
}

// TestRoundsThatFail: what fails in a later round fails the row, or the pass alone where the others stand.
func TestRoundsThatFail(t *testing.T) {
	good := roundOf([]float64{1, 1, 1})
	failure := Failure{Error: "lost", Reason: ReasonFailed}
	backward, forwardMode, whole := good, good, good
	backward.Bwd, backward.BwdFailure = Pass{}, failure
	forwardMode.JVP, forwardMode.JVPFailure = Pass{}, failure
	whole.Failure = failure

	row := MergeRounds([]Row{good, backward, good})
	require.Equal(t, failure, row.BwdFailure)
	require.Equal(t, [3]float64{1, 0, 1}, [3]float64{row.Fwd.Ms, row.Bwd.Ms, row.JVP.Ms})
	row = MergeRounds([]Row{good, forwardMode, good})
	require.Equal(t, failure, row.JVPFailure)
	require.Equal(t, [3]float64{1, 1, 0}, [3]float64{row.Fwd.Ms, row.Bwd.Ms, row.JVP.Ms})
	row = MergeRounds([]Row{good, whole})
	require.Equal(t, failure, row.Failure)
	require.Equal(t, [3]Pass{}, [3]Pass{row.Fwd, row.Bwd, row.JVP})
}
