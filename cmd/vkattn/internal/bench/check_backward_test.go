package bench

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// TestBackwardRow: backward is timed, its gradients are checked, and gradients that are not those of the inputs are noticed.
func TestBackwardRow(t *testing.T) {
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{})
	for _, c := range []result.Case{
		{DType: "float16", B: 2, H: 4, Hkv: 2, Nq: 33, N: 40, D: 16, Dv: 24, Causal: true},
		{DType: "float32", B: 1, H: 4, Hkv: 2, Nq: 400, N: 400, D: 16, Dv: 16, Dropout: 0.2},
	} {
		c.Impl = "flash2"
		shape, err := d.Shape(ctx, c, both)
		require.NoError(t, err)
		s := shape.(*deviceShape)
		row := shape.Measure(ctx, result.Job{Case: c, Passes: both}, true)
		require.Empty(t, row.Error)
		require.Positive(t, row.Fwd.Ms)
		require.Positive(t, row.Bwd.Ms)
		require.InEpsilon(t, s.problem.BackwardFLOPs()/row.Bwd.Ms/1e9, row.Bwd.TFLOPS, 1e-9)
		require.Contains(t, row.BwdKernel, "backward")
		require.InDelta(t, float64(4*c.B*c.H*c.Nq)/(1<<20), *row.Bwd.PeakMiB, 1e-3, "delta and nothing else")
		if full := c.B*c.H*c.Nq + c.B*c.Hkv*c.N; c.N < 100 {
			require.Equal(t, full, row.BwdCheck.ErrRows)
		} else {
			require.GreaterOrEqual(t, row.BwdCheck.ErrRows, 16)
			require.Less(t, row.BwdCheck.ErrRows, full)
		}
		data, err := json.Marshal(row)
		require.NoError(t, err)
		var back result.Row
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, row.Case, back.Case)
		require.Equal(t, *row.BwdCheck.MaxErr, *back.BwdCheck.MaxErr)
		require.InEpsilon(t, row.Bwd.Ms, back.Bwd.Ms, 1e-5)
		least, err := tune.LeastBackwardBytes(s.problem, flash.Flash)
		require.NoError(t, err)
		require.Greater(t, row.Bwd.Bytes, least)
		require.InEpsilon(t, row.Bwd.Bytes, back.Bwd.Bytes, 1e-5)
		require.False(t, row.Bwd.Model.IsZero())
		require.Equal(t, row.Bwd.Model, back.Bwd.Model, "what the kernel says of its work")
		require.Equal(t, row.Fwd.Model, back.Fwd.Model)
		require.True(t, both.Done(back))

		res, err := s.checkGradients(ctx, 0, nil)
		require.NoError(t, err)
		require.NoError(t, res.err)
		set := &s.sets[0]
		set.grad.dk, set.grad.dv = set.grad.dv, set.grad.dk
		if c.D == c.Dv {
			res, err = s.checkGradients(ctx, 0, nil)
			require.NoError(t, err)
			require.ErrorContains(t, res.err, "dk is wrong")
		}
		set.grad.dk, set.grad.dv = set.grad.dv, set.grad.dk
		require.NoError(t, poison(ctx, set.grad.dq))
		res, err = s.checkGradients(ctx, 0, nil)
		require.NoError(t, err)
		require.ErrorContains(t, res.err, "dq is wrong")
		require.NoError(t, shape.Close())
	}
}

// TestBackwardAlone: the forward pass that the gradients come from is not timed, but its output and lse are checked, before
// the gradients are.
func TestBackwardAlone(t *testing.T) {
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{})
	bwd := result.Passes{Bwd: true}
	c := result.Case{Impl: "flash2", DType: "float16", B: 1, H: 2, Hkv: 2, Nq: 20, N: 20, D: 16, Dv: 16}
	shape, err := d.Shape(ctx, c, bwd)
	require.NoError(t, err)
	s := shape.(*deviceShape)
	row := shape.Measure(ctx, result.Job{Case: c, Passes: bwd}, true)
	require.Empty(t, row.Error)
	require.Zero(t, row.Fwd.Ms)
	require.Positive(t, row.Bwd.Ms)
	require.Equal(t, 2*20, row.ErrRows)
	require.NotNil(t, row.MaxErr)
	require.Less(t, *row.MaxErr, *row.ErrMax)
	require.Positive(t, row.BwdCheck.ErrRows)

	// A forward pass of other inputs than the reference's is noticed as such, and no figure is left.
	s.sets[0].in, s.sets[1].in = s.sets[1].in, s.sets[0].in
	for i := range s.sets[2:] {
		s.sets[2+i].in = s.sets[0].in
	}
	clear(s.expected)
	row = shape.Measure(ctx, result.Job{Case: c, Passes: bwd}, true)
	require.Equal(t, result.ReasonCheck, row.Reason)
	require.Contains(t, row.Error, "output is wrong")
	require.Zero(t, row.Bwd)
	require.NoError(t, shape.Close())

	// An implementation without backward: alone it is no row, beside forward it costs that nothing.
	c.Impl = "flash1"
	shape, err = d.Shape(ctx, c, both)
	require.NoError(t, err)
	row = shape.Measure(ctx, result.Job{Case: c, Passes: bwd}, true)
	require.Equal(t, result.ReasonUnsupported, row.Reason)
	row = shape.Measure(ctx, result.Job{Case: c, Passes: both}, true)
	require.Empty(t, row.Error)
	require.Positive(t, row.Fwd.Ms)
	require.Zero(t, row.Bwd)
	require.Equal(t, result.ReasonUnsupported, row.BwdFailure.Reason)
	require.Contains(t, row.BwdFailure.Error, "backward of")
	require.False(t, row.Failed())
	require.True(t, both.Done(row))
	data, err := json.Marshal(row)
	require.NoError(t, err)
	var back result.Row
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, row.BwdFailure.Error, back.BwdFailure.Error)
	require.Equal(t, row.BwdFailure.Reason, back.BwdFailure.Reason)
	require.NoError(t, shape.Close())
}

// TestBlockSparseBackwardRow: a backward pass with a block mask is timed by the operations of its nonzero blocks, its bytes are counted,
// and its gradients are compared with those of the masked reference, which those of another mask are not.
func TestBlockSparseBackwardRow(t *testing.T) {
	ctx := context.Background()
	d := quick(testDevice(t), result.Peaks{})
	c := result.Case{Impl: result.BlockSparse, DType: "float32", B: 1, H: 2, Hkv: 1, Nq: 300, N: 300, D: 16, Dv: 16, Density: 0.5}
	shape, err := d.Shape(ctx, c, both)
	require.NoError(t, err)
	s := shape.(*deviceShape)
	row := shape.Measure(ctx, result.Job{Case: c, Passes: both}, true)
	require.Empty(t, row.Error)
	require.Empty(t, row.BwdFailure.Error)
	require.Empty(t, row.Note)
	require.InEpsilon(t, 0.5*s.problem.BackwardFLOPs()/row.Bwd.Ms/1e9, row.Bwd.TFLOPS, 1e-9)
	require.Positive(t, row.Bwd.Bytes)
	require.NotNil(t, row.BwdCheck.MaxErr)
	res, err := s.checkGradients(ctx, 0, nil)
	require.NoError(t, err)
	require.Error(t, res.err, "without the mask")
	require.NoError(t, shape.Close())
}
