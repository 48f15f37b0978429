package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// TestFiguresFollowFromTheTime: operations a second are the papers' count of operations over the median, in both passes.
func TestFiguresFollowFromTheTime(t *testing.T) {
	d := quick(testDevice(t), result.Peaks{})
	d.Limit = 1
	c := result.Case{DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 64, N: 64, D: 16, Dv: 16}
	passes := result.Passes{Fwd: true, Bwd: true}
	shape, err := d.Shape(context.Background(), c, passes)
	require.NoError(t, err)
	j := job(c, "flash2")
	j.Passes = passes
	row := shape.Measure(context.Background(), j, false)
	require.Empty(t, row.Error)
	require.Empty(t, row.BwdFailure.Error)
	const forward = 4 * 2 * 64 * 64 * 16 // two products of two heads, a multiply-add two operations
	require.InEpsilon(t, forward, row.Fwd.TFLOPS*row.Fwd.Ms*1e9, 1e-9)
	require.InEpsilon(t, 2.5*forward, row.Bwd.TFLOPS*row.Bwd.Ms*1e9, 1e-9)
	require.NoError(t, shape.Close())
}

// TestWorkThatIsNotCounted: a model that gives no bytes, for walks too long to count, costs a row nothing but the bytes, and is said.
func TestWorkThatIsNotCounted(t *testing.T) {
	var row result.Row
	var m tune.Model
	require.NoError(t, m.UnmarshalJSON([]byte(`{"kind":"queries outside","rows":1,"keys":1}`)))
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 1 << 29, HeadDim: 1}.Normalize()
	require.NoError(t, err)
	require.NoError(t, count(&row, &row.Fwd, m, p))
	require.Zero(t, row.Fwd.Bytes)
	require.Equal(t, m, row.Fwd.Model)
	require.Contains(t, row.Note, "bytes are not counted: flash: QueriesOutside is ")
	p.QueryLen, p.KeyLen = 8, 8
	require.NoError(t, count(&row, &row.Fwd, m, p))
	require.Positive(t, row.Fwd.Bytes)

	// What a model would count of another problem is left out: sequences as if all were the longest, keys that nobody uses, no bias.
	for of, counted := range map[result.Case]bool{{Packed: "equal"}: true, {Packed: "mixed"}: false, {Used: "mixed"}: false,
		{Bias: "full"}: false} {
		row := result.Row{Case: of}
		require.NoError(t, count(&row, &row.Fwd, m, p))
		require.Equal(t, counted, row.Fwd.Bytes > 0, "%+v", of)
		require.Equal(t, m, row.Fwd.Model)
	}
}
