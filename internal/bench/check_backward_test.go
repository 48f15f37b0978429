package bench

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBackwardRow: backward is timed, its gradients are checked, and gradients that are not those of the inputs are noticed.
func TestBackwardRow(t *testing.T) {
	ctx := context.Background()
	d := NewDevice(testDevice(t), "test", Peaks{})
	d.Passes = Passes{Fwd: true, Bwd: true}
	for _, c := range []Case{
		{DType: "float16", B: 2, H: 4, Hkv: 2, Nq: 33, N: 40, D: 16, Dv: 24, Causal: true},
		{DType: "float32", B: 1, H: 4, Hkv: 2, Nq: 400, N: 400, D: 16, Dv: 16, Dropout: 0.2},
	} {
		shape, err := d.Shape(ctx, c)
		require.NoError(t, err)
		s := shape.(*deviceShape)
		row := shape.Measure(ctx, "flash2", true)
		require.Empty(t, row.Error)
		require.Positive(t, row.Fwd.Ms)
		require.Positive(t, row.Bwd.Ms)
		require.InEpsilon(t, s.problem.BackwardFLOPs()/row.Bwd.Ms/1e9, row.Bwd.TFLOPS, 1e-9)
		require.Contains(t, row.BwdKernel, "backward")
		require.InDelta(t, float64(4*c.B*c.H*c.Nq)/(1<<20), *row.Bwd.PeakMiB, 1e-3, "delta and nothing else")
		if full := c.B*c.H*c.Nq + c.B*c.Hkv*c.N; c.N < 100 {
			require.Equal(t, full, row.BwdErrRows)
		} else {
			require.GreaterOrEqual(t, row.BwdErrRows, 16)
			require.Less(t, row.BwdErrRows, full)
		}
		data, err := json.Marshal(row)
		require.NoError(t, err)
		var back Row
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, row.Case, back.Case)
		require.Equal(t, *row.BwdMaxErr, *back.BwdMaxErr)
		require.InEpsilon(t, row.Bwd.Ms, back.Bwd.Ms, 1e-5)
		require.True(t, d.Passes.Done(back))

		res, err := s.checkGradients(ctx, 0)
		require.NoError(t, err)
		require.NoError(t, res.err)
		set := &s.sets[0]
		set.grad.dk, set.grad.dv = set.grad.dv, set.grad.dk
		if c.D == c.Dv {
			res, err = s.checkGradients(ctx, 0)
			require.NoError(t, err)
			require.ErrorContains(t, res.err, "dk is wrong")
		}
		set.grad.dk, set.grad.dv = set.grad.dv, set.grad.dk
		require.NoError(t, poison(ctx, set.grad.dq))
		res, err = s.checkGradients(ctx, 0)
		require.NoError(t, err)
		require.ErrorContains(t, res.err, "dq is wrong")
		require.NoError(t, shape.Close())
	}
	// Backward alone; and of an implementation that has none.
	d.Passes = Passes{Bwd: true}
	shape, err := d.Shape(ctx, Case{DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 20, N: 20, D: 16, Dv: 16})
	require.NoError(t, err)
	row := shape.Measure(ctx, "flash2", true)
	require.Empty(t, row.Error)
	require.Zero(t, row.Fwd.Ms)
	require.Positive(t, row.Bwd.Ms)
	if row = shape.Measure(ctx, "standard", true); row.Bwd.Ms == 0 {
		require.Equal(t, ReasonUnsupported, row.Reason)
	}
	require.NoError(t, shape.Close())
}

func TestParsePasses(t *testing.T) {
	for _, c := range []struct {
		list []string
		want Passes
	}{{nil, Passes{Fwd: true}}, {[]string{"fwd"}, Passes{Fwd: true}}, {[]string{"bwd"}, Passes{Bwd: true}}, {[]string{"both"}, Passes{true, true}}, {[]string{"fwd", " BWD"}, Passes{true, true}}} {
		got, err := ParsePasses(c.list)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := ParsePasses([]string{"sideways"})
	require.ErrorContains(t, err, "sideways")
}
