package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestMeasureBlockSparse: rows with a block mask are checked against attention with that mask, and count its operations and bytes.
func TestMeasureBlockSparse(t *testing.T) {
	dev := testDevice(t)
	d := quick(dev, result.Peaks{})
	c := result.Case{DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 300, N: 300, D: 16, Dv: 16}
	shape, err := d.Shape(context.Background(), c, result.Passes{})
	require.NoError(t, err)
	defer shape.Close()
	measure := func(impl string, density float64) result.Row {
		j := result.Job{Case: c}
		j.Case.Impl, j.Case.Density = impl, density
		row := shape.Measure(context.Background(), j, true)
		require.Empty(t, row.Error)
		require.Equal(t, 2*300, row.ErrRows)
		require.InEpsilon(t, j.Case.ForwardFLOPs()/row.Fwd.Ms/1e9, row.Fwd.TFLOPS, 1e-9)
		return row
	}
	dense, whole, third := measure("flash2", 0), measure("blocksparse", 1), measure("blocksparse", 0.34)
	require.Contains(t, third.Kernel, "blocks")
	require.Positive(t, third.Fwd.Bytes)
	require.Less(t, third.Fwd.Bytes, whole.Fwd.Bytes)
	none := result.Job{Case: third.Case}
	none.Case.Density = 0.01
	empty := shape.Measure(context.Background(), none, true)
	require.Empty(t, empty.Error)
	require.Positive(t, empty.Fwd.Ms)
	require.Zero(t, empty.Fwd.TFLOPS, "nothing is computed at no rate")
	require.Contains(t, empty.Note, "no block is nonzero")
	require.Positive(t, dense.Fwd.Bytes)

	// The check tells a mask from none: with the output of one and the mask of the other it fails.
	s := shape.(*deviceShape)
	masked := third.Case
	lse, err := dev.NewLSE(1, 2, 300)
	require.NoError(t, err)
	defer lse.Close()
	problem, err := masked.Problem()
	require.NoError(t, err)
	plan, err := dev.Plan(problem)
	require.NoError(t, err)
	defer plan.Close()
	mask, err := d.masks(context.Background(), masked)
	require.NoError(t, err)
	defer mask.Close()
	pending, err := plan.SubmitForward(s.forward(0, lse, mask))
	require.NoError(t, err)
	require.NoError(t, pending.Wait(context.Background()))
	for density, wrong := range map[float64]bool{0.34: false, 0: true} {
		other := masked
		other.Density = density
		res, err := check(context.Background(), other, s.sets[0].in, s.sets[0].o, lse, sampleRows(c, 1), 0)
		require.NoError(t, err)
		require.Equal(t, wrong, res.err != nil, "density %g: %v", density, res.err)
	}

	both := result.Job{Case: masked, Passes: both}
	shapes, err := d.Shape(context.Background(), c, both.Passes)
	require.NoError(t, err)
	defer shapes.Close()
	row := shapes.Measure(context.Background(), both, true)
	require.Empty(t, row.Error)
	require.Empty(t, row.BwdFailure.Error)
	full := both
	full.Case.Density = 1
	require.Less(t, row.Bwd.Bytes, shapes.Measure(context.Background(), full, true).Bwd.Bytes)
}

// TestClassedRows: a case with a mask has its blocks classed beforehand, by the library's own kernels and where queries fill a block; the
// row tells the shares, rates count pairs that are seen, and work the blocks that a brute look finds.
func TestClassedRows(t *testing.T) {
	ctx := context.Background()
	dev := testDevice(t)
	d := quick(dev, result.Peaks{})
	d.Limit = 1
	c := result.Case{Impl: "flash2", DType: "float32", B: 1, H: 2, Hkv: 1, Nq: 300, N: 300, D: 8, Dv: 8, Causal: true, Mask: "documents=2"}
	shape, err := d.Shape(ctx, c, both)
	require.NoError(t, err)
	defer shape.Close()
	row := shape.Measure(ctx, result.Job{Case: c, Passes: both}, true)
	require.Empty(t, row.Error)
	require.Empty(t, row.BwdFailure.Error)
	// Documents of 150 in blocks of 128: of nine the causal order leaves six, of which documents leave out one and cut three.
	require.Equal(t, "empty 44.4%, full 22.2%, partial 33.3%", row.Classes)
	require.Equal(t, []bool{true, false, false, true, true, false, false, true, true}, c.SeenBlocks())
	require.Equal(t, c.SeenBlocks(), c.Call().Blocks)
	require.Equal(t, 4.0*2*8*(2*150*151/2), row.ForwardFLOPs())
	require.Positive(t, row.Fwd.Bytes)
	for _, set := range []func(*result.Case){func(c *result.Case) { c.Impl = "standard" }, func(c *result.Case) { c.Mask = "" },
		func(c *result.Case) { c.Nq = 100 }} {
		other := c
		set(&other)
		p, err := other.Problem()
		require.NoError(t, err)
		require.Zero(t, p.MaskBlocks)
		require.Nil(t, other.Call().Blocks)
	}
}
