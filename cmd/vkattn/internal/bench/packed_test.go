package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestPackedRows: packed sequences are timed and their outputs and gradients checked, in full and by samples, and outputs of other inputs
// are noticed.
func TestPackedRows(t *testing.T) {
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{})
	d.Limit = 1
	base := result.Case{Impl: "flash2", DType: "float32", B: 5, H: 4, Hkv: 2, Nq: 40, N: 40, D: 16, Dv: 16}
	for _, set := range []func(*result.Case){
		func(c *result.Case) { c.Packed = "equal" },
		func(c *result.Case) { c.Packed, c.Causal, c.Window = "mixed", true, 9 },
		func(c *result.Case) { c.Packed, c.Score, c.Sinks, c.Dropout, c.Dv = "mixed", "alibi", true, 0.2, 24 },
		func(c *result.Case) { c.Packed, c.B, c.N, c.Nq, c.Causal = "mixed", 20, 400, 400, true },
	} {
		c := base
		set(&c)
		t.Run(c.String(), func(t *testing.T) {
			if c.B > 5 {
				vktest.Long(t, "sequences of which each is checked whole")
			}
			require.NoError(t, c.Validate())
			shape, err := d.Shape(ctx, c, both)
			require.NoError(t, err)
			defer shape.Close()
			s := shape.(*deviceShape)
			row := s.measureWith(ctx, result.Job{Case: c, Passes: both}, true, flash.WithTier(flash.TierScalar))
			require.Empty(t, row.Error)
			require.Empty(t, row.BwdFailure.Error)
			require.InEpsilon(t, c.ForwardFLOPs()/row.Fwd.Ms/1e9, row.Fwd.TFLOPS, 1e-9)
			tokens := int(c.Starts()[c.B])
			if full := tokens * c.H; c.N < 100 {
				require.Equal(t, full, row.ErrRows)
				sinks := 0
				if c.Sinks {
					sinks = c.H
				}
				require.Equal(t, full+tokens*c.Hkv+sinks, row.BwdCheck.ErrRows)
			} else {
				require.Less(t, row.ErrRows, full)
				require.Positive(t, row.BwdCheck.ErrRows)
			}

			set := &s.sets[0]
			res, err := check(ctx, c, set.in, set.o, set.grad.lse, sampleRows(c, 1), 0)
			require.NoError(t, err)
			require.NoError(t, res.err)
			swapped := newInputs(c, result.InputSeed)
			swapped.k.Stream, swapped.v.Stream = swapped.v.Stream, swapped.k.Stream
			res, err = check(ctx, c, swapped, set.o, set.grad.lse, sampleRows(c, 1), 0)
			require.NoError(t, err)
			require.ErrorContains(t, res.err, "output is wrong")
		})
	}
}

// TestUsedRows: caches that are used in part are timed and checked, and gradients of padded batches: rows that nobody uses are NaN.
func TestUsedRows(t *testing.T) {
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{CopyGBps: 1})
	d.Limit = 1
	base := result.Case{Impl: "flash2", DType: "float32", B: 5, H: 4, Hkv: 2, Nq: 3, N: 40, D: 16, Dv: 16, Used: "mixed"}
	for _, set := range []func(*result.Case){
		func(c *result.Case) {},
		func(c *result.Case) { c.Page, c.Nq, c.DType = 16, 1, "float16" },
		func(c *result.Case) { c.Nq, c.Causal, c.Window, c.Score = 20, true, 9, "alibi" },
	} {
		c := base
		set(&c)
		t.Run(c.String(), func(t *testing.T) {
			require.NoError(t, c.Validate())
			passes := result.Passes{Fwd: true, Bwd: c.Page == 0}
			shape, err := d.Shape(ctx, c, passes)
			require.NoError(t, err)
			defer shape.Close()
			s := shape.(*deviceShape)
			row := s.measureWith(ctx, result.Job{Case: c, Passes: passes}, true, flash.WithTier(flash.TierScalar))
			require.Empty(t, row.Error)
			require.Empty(t, row.BwdFailure.Error)
			require.Equal(t, c.B*c.H*c.Nq, row.ErrRows)
			require.Zero(t, row.Fwd.Bytes, "models know no lengths but the longest")
			if passes.Bwd {
				keys := 0
				for _, n := range c.Lengths() {
					keys += n
				}
				require.Equal(t, c.B*c.H*c.Nq+keys*c.Hkv, row.BwdCheck.ErrRows)
			}
		})
	}
}
