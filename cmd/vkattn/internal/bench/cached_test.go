package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestCachedRows: rows of pages and of quantised keys are timed and checked against the numbers that their tensors hold. What a kernel has
// not learned yet is unsupported, with the reason, and a backward pass always is.
func TestCachedRows(t *testing.T) {
	ctx := context.Background()
	d := NewDevice(testDevice(t), "test", result.Peaks{CopyGBps: 1})
	d.Limit = 1
	base := result.Case{Impl: "flash2", DType: "float16", B: 3, H: 4, Hkv: 2, Nq: 1, N: 70, D: 32, Dv: 32}
	for _, set := range []func(*result.Case){
		func(c *result.Case) { c.Page = 16 },
		func(c *result.Case) { c.Page, c.Nq, c.DType = 1, 33, "float32" },
		func(c *result.Case) { c.Cache = "q8_0" },
		func(c *result.Case) { c.Cache, c.Page = "q4_0", 256 },
		func(c *result.Case) { c.Cache, c.Page, c.Nq, c.Causal = "fp8", 16, 40, true },
		func(c *result.Case) { c.Cache, c.Page = "q5_1", 16 },
		func(c *result.Case) { c.Cache, c.DType = "fp8_e5m2", "float32" },
	} {
		c := base
		set(&c)
		t.Run(c.String(), func(t *testing.T) {
			require.NoError(t, c.Validate())
			shape, err := d.Shape(ctx, c, result.Passes{Fwd: true})
			require.NoError(t, err)
			defer shape.Close()
			row := shape.Measure(ctx, result.Job{Case: c}, true)
			if row.Reason == result.ReasonUnsupported {
				t.Skip(row.Error)
			}
			require.Empty(t, row.Error)
			require.Equal(t, c.B*c.H*c.Nq, row.ErrRows)
			require.Positive(t, row.Fwd.LeastBytes)
			s := shape.(*deviceShape)
			last := s.sets[0].in
			last.k.Stream, last.v.Stream = last.v.Stream, last.k.Stream
			for i := range s.sets {
				s.sets[i].in = last
			}
			clear(s.expected)
			require.Contains(t, shape.Measure(ctx, result.Job{Case: c}, true).Error, "output is wrong")

			shape, err = d.Shape(ctx, c, both)
			require.NoError(t, err)
			defer shape.Close()
			row = shape.Measure(ctx, result.Job{Case: c, Passes: both}, false)
			require.Positive(t, row.Fwd.Ms)
			require.Equal(t, result.ReasonUnsupported, row.BwdFailure.Reason)
		})
	}
}
