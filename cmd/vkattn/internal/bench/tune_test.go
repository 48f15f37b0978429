package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

func TestRank(t *testing.T) {
	candidates := []tune.Candidate{{Tile: "built in", Default: true}, {Tile: "a"}, {Tile: "b"}, {Tile: "c"}}
	rows := func(ms ...float64) (out []result.Row) {
		for _, v := range ms {
			if v == 0 {
				out = append(out, result.Row{Failure: result.Failure{Error: "wrong", Reason: result.ReasonCheck}})
				continue
			}
			out = append(out, result.Row{Fwd: result.Pass{Ms: v}})
		}
		return out
	}
	got := tunedForward.rank(candidates, [][]result.Row{rows(10, 12, 11), rows(9, 10, 30), rows(0), rows(5, 11.9, 8)})
	require.Equal(t, []bool{false, false, false, true}, []bool{got[0].Best, got[1].Best, got[2].Best, got[3].Best})
	require.InDelta(t, 11.0/8, got[3].Gain, 1e-12)
	require.Zero(t, got[2].Gain)

	got = tunedForward.rank(candidates[:2], [][]result.Row{rows(10, 12, 11), rows(5, 20, 5)})
	require.True(t, got[0].Best, "slower in one round is not faster")

	got = tunedForward.rank(candidates[:2], [][]result.Row{rows(10), rows(9.9)})
	require.True(t, got[0].Best, "one percent is no reason to leave the built-in choice")

	got = tunedForward.rank(candidates[:2], [][]result.Row{rows(0), rows(9)})
	require.False(t, got[0].Best || got[1].Best, "without the built-in choice's time nothing is better")
}

func TestTune(t *testing.T) {
	d := quick(testDevice(t), result.Peaks{}, flash.WithTier(flash.TierScalar))
	c := result.Case{Impl: "flash2", DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 4, N: 32, D: 8, Dv: 8} // few queries: few tiles
	steps := 0
	got, err := d.Tune(context.Background(), c, 2, func(step, total int, what string) {
		steps++
		require.Equal(t, steps, step)
		require.LessOrEqual(t, step, total)
	})
	require.NoError(t, err)
	require.Greater(t, len(got), 3)
	require.Equal(t, 2*len(got), steps)
	best := 0
	for i, r := range got {
		require.Empty(t, r.Error)
		require.Positive(t, r.Fwd.Ms)
		require.Equal(t, 2*4, r.ErrRows, "every tile's output is checked")
		require.Contains(t, r.Row.Kernel, r.Tile)
		if r.Best {
			best++
			require.True(t, i == 0 || r.Gain > leastGain)
		}
	}
	require.Equal(t, 1, best)
	require.InDelta(t, 1, got[0].Gain, 1e-12)

	back, err := d.TuneBackward(context.Background(), c, 1, nil)
	require.NoError(t, err)
	require.Len(t, back, 1, "scalar kernels of the backward pass have no candidates")
	require.True(t, back[0].Default && back[0].Best)
	require.Positive(t, back[0].Bwd.Ms)
	require.Zero(t, back[0].Fwd.Ms)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = d.Tune(ctx, c, 1, nil)
	require.ErrorIs(t, err, context.Canceled)
}
