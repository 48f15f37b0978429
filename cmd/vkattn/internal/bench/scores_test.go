package bench

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestSeenKeys: the keys of a row, which rates are counted by, are those that the reference lets a query see.
func TestSeenKeys(t *testing.T) {
	for _, c := range []result.Case{
		{Nq: 24, N: 24, Mask: "documents=4"}, {Nq: 24, N: 24, Mask: "documents=5", Causal: true},
		{Nq: 7, N: 20, Mask: "documents=3", Causal: true, Window: 3},
		{Nq: 20, N: 7, Mask: "documents=7"}, {Nq: 20, N: 7, Mask: "documents=2", Causal: true}, {Nq: 9, N: 30, Mask: "prefix=4", Window: 5},
		{Nq: 30, N: 30, Mask: "prefix=11"}, {Nq: 12, N: 5, Mask: "prefix=2"}, {Nq: 6, N: 9, Window: 2}, {Nq: 6, N: 9, Causal: true},
	} {
		c.DType, c.B, c.H, c.Hkv, c.D, c.Dv = "float32", 2, 3, 1, 8, 16
		in := newInputs(c, 1)
		pairs := 0
		for i, r := range sampleRows(c, 1)[:c.Nq] {
			p, _ := in.head(c, sampleRows(c, 1)[:c.Nq], 0)
			require.NoError(t, p.Check())
			first, end := c.Seen(r.I)
			pairs += end - first
			for j := range c.N {
				require.Equal(t, j >= first && j < end, p.Allows(0, 0, i, j), "%s: query %d, key %d", c, i, j)
			}
		}
		if c.Mask != "" {
			require.Equal(t, float64(2*2*3*(8+16)*pairs), c.ForwardFLOPs())
			require.Equal(t, 2.5*c.ForwardFLOPs(), c.BackwardFLOPs())
		}
	}
}

// TestHostScores: what the gradients' check makes of a score is what the reference of a single head makes of it.
func TestHostScores(t *testing.T) {
	for _, c := range []result.Case{
		{Score: "alibi"}, {Score: "softcap=2"}, {Score: "t5"}, {Score: "t5", Causal: true}, {Bias: "full"}, {Bias: "heads"},
		{Bias: "batch"}, {Bias: "pairs"}, {Bias: "keys"},
		{Score: "softcap=2", Bias: "full"},
	} {
		c.DType, c.B, c.H, c.Hkv, c.Nq, c.N, c.D, c.Dv = "float32", 2, 6, 3, 5, 9, 8, 8
		in := newInputs(c, 3)
		s, err := newScoring(c, in)
		require.NoError(t, err)
		for bh := range c.B * c.H {
			rows := sampleRows(c, 1)[bh*c.Nq : (bh+1)*c.Nq]
			p, _ := in.head(c, rows, 0)
			e, err := p.Score.Bind(nil)
			require.NoError(t, err)
			for i := range c.Nq {
				for j := range c.N {
					const x = 1.25
					want, wantSlope := e.Slope(score.Point{S: x, Query: i, Key: j, Position: i + c.N - c.Nq})
					if p.Bias != nil {
						want += float64(p.Bias.Row(0, 0, min(i, p.Bias.N-1))[j])
					}
					got, slope, plain, plainSlope := s.of(bh, i, j, x, func(x float64) float64 { return x })
					require.Equal(t, [4]float64{want, wantSlope, want, wantSlope}, [4]float64{got, slope, plain, plainSlope}, "%s", c)
				}
			}
		}
	}
}

// TestScoredRows: rows of every kind are timed and checked forward and backward, the gradients with respect to bias and sinks too, and
// gradients that are wrong are noticed.
func TestScoredRows(t *testing.T) {
	vktest.Long(t, "rows without scores in TestMeasure, and scores in the conformance suite")
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{})
	d.Limit = 1
	wide := result.Case{B: 2, H: 4, Hkv: 2, Nq: 33, N: 40, D: 16, Dv: 16, DType: "float16"}
	long := result.Case{B: 2, H: 4, Hkv: 2, Nq: 256, N: 320, D: 16, Dv: 16, DType: "float16"} // checked by samples
	for _, x := range []struct {
		on  result.Case
		set func(*result.Case)
	}{
		{wide, func(c *result.Case) { c.Score = "alibi" }},
		{wide, func(c *result.Case) { c.Score, c.Causal = "t5", true }},
		{wide, func(c *result.Case) { c.Score, c.Bias, c.Sinks, c.DType = "softcap=2", "full", true, "float32" }},
		{wide, func(c *result.Case) { c.Bias, c.Mask, c.Causal = "keys", "documents=3", true }},
		{long, func(c *result.Case) { c.Bias, c.Sinks, c.Mask = "heads", true, "prefix=50" }},
		{long, func(c *result.Case) { c.Bias, c.Window, c.Causal = "batch", 100, true }},
		{long, func(c *result.Case) { c.Bias, c.Score = "pairs", "softcap=3" }},
		{long, func(c *result.Case) { c.Bias = "keys" }},
	} {
		c := x.on
		c.Impl = "flash2"
		x.set(&c)
		if testing.Short() && c.N > 100 && c.Bias != "heads" {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			require.NoError(t, c.Validate())
			shape, err := d.Shape(ctx, c, both)
			require.NoError(t, err)
			defer shape.Close()
			row := shape.Measure(ctx, result.Job{Case: c, Passes: both}, true)
			require.Empty(t, row.Error)
			require.Empty(t, row.BwdFailure.Error)
			require.Positive(t, row.Fwd.Ms)
			require.Positive(t, row.Bwd.Ms)
			require.InEpsilon(t, c.BackwardFLOPs()/row.Bwd.Ms/1e9, row.Bwd.TFLOPS, 1e-9)
			require.Equal(t, c.Bias == "", row.Fwd.Bytes > 0, "bytes are not known of a bias")
			s := shape.(*deviceShape)
			rows := c.B * (c.H*c.Nq + c.Hkv*c.N)
			if c.Bias != "" {
				b := c.BiasShape()
				rows += b[0] * b[1] * b[2]
			}
			if c.Sinks {
				rows += c.H
			}
			if c.N < 100 {
				require.Equal(t, rows, row.BwdCheck.ErrRows)
			} else {
				require.Less(t, row.BwdCheck.ErrRows, rows)
			}
			set := &s.sets[0]
			wrong := "dq is wrong"
			switch {
			case c.Sinks:
				wrong = "dsinks is wrong"
				require.NoError(t, poison(ctx, set.grad.dsinks))
			case c.Bias != "":
				wrong = "dbias is wrong"
				require.NoError(t, poison(ctx, set.grad.dbias))
			default:
				require.NoError(t, poison(ctx, set.grad.dq))
			}
			res, err := s.checkGradients(ctx, 0, nil)
			require.NoError(t, err)
			require.ErrorContains(t, res.err, wrong)
			require.True(t, math.IsNaN(res.maxErr))
		})
	}
}
