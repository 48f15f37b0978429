package bench

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestFiguresFollowFromTheTime: operations a second are the papers' count of operations over the median, in both passes.
func TestFiguresFollowFromTheTime(t *testing.T) {
	d := NewDevice(testDevice(t), "test", Peaks{})
	d.Limit = 1
	c := Case{DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 64, N: 64, D: 16, Dv: 16}
	passes := Passes{Fwd: true, Bwd: true}
	shape, err := d.Shape(context.Background(), c, passes)
	require.NoError(t, err)
	j := job(c, "flash2")
	j.Passes = passes
	row := shape.Measure(context.Background(), j, false)
	require.Empty(t, row.Error)
	require.Empty(t, row.BwdError)
	const forward = 4 * 2 * 64 * 64 * 16 // two products of two heads, a multiply-add two operations
	require.InEpsilon(t, forward, row.Fwd.TFLOPS*row.Fwd.Ms*1e9, 1e-9)
	require.InEpsilon(t, 2.5*forward, row.Bwd.TFLOPS*row.Bwd.Ms*1e9, 1e-9)
	require.NoError(t, shape.Close())
}

// TestFaultsAreNoSkips: a row whose output is wrong, or that failed, reports a fault; one that does not fit or would take too long does not.
func TestFaultsAreNoSkips(t *testing.T) {
	for reason, fault := range map[Reason]bool{ReasonCheck: true, ReasonFailed: true, ReasonMemory: false, ReasonLimit: false, ReasonUnsupported: false} {
		row := Row{Error: "why", Reason: reason}
		require.Equal(t, fault, row.Failed(), reason)
		require.Equal(t, !fault, row.Skipped(), reason)
		require.Equal(t, fault, Row{BwdError: "why", BwdReason: reason}.Failed(), "%s, backward", reason)
	}
	require.False(t, Row{}.Failed())
	require.False(t, Row{}.Skipped())
}

// TestWorkThatIsNotCounted: a model that gives no bytes, for walks too long to count, costs a row nothing but the bytes, and is said.
func TestWorkThatIsNotCounted(t *testing.T) {
	var row Row
	var m flash.Model
	require.NoError(t, m.UnmarshalJSON([]byte(`{"kind":"queries outside","rows":1,"keys":1}`)))
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 1 << 29, HeadDim: 1}.Normalize()
	require.NoError(t, err)
	require.NoError(t, row.count(&row.Fwd, m, p))
	require.Zero(t, row.Fwd.Bytes)
	require.Equal(t, m, row.Fwd.Model)
	require.Contains(t, row.Note, "bytes are not counted: flash: QueriesOutside is ")
	p.QueryLen, p.KeyLen = 8, 8
	require.NoError(t, row.count(&row.Fwd, m, p))
	require.Positive(t, row.Fwd.Bytes)
}
