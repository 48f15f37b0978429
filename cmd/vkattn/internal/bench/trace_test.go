package bench

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

func TestTrace(t *testing.T) {
	c := result.Case{Impl: "standard", DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 8, N: 8, D: 8, Dv: 8}
	steps := []tune.Work{{Name: "QKᵀ", Kernel: "scores", FLOPs: 1000, Read: 400, Written: 100},
		{Name: "softmax", Kernel: "softmax", FLOPs: 50, Read: 100, Written: 120}, {Name: "PV", Kernel: "product", FLOPs: 1000, Read: 300,
			Written: 60}}
	var trace Trace
	ms := time.Millisecond
	trace.add(result.Row{Case: c, Kernel: "standard_scalar 8x8"}, false, []flash.Timing{{Label: "scores", Duration: ms},
		{Label: "scores", Duration: 3 * ms}, {Label: "softmax", Duration: 2 * ms}, {Label: "product", Duration: ms}}, steps)
	c.Impl = "flash2"
	for i := range steps {
		steps[i].Kernel = "scalar_forward"
	}
	trace.add(result.Row{Case: c, Kernel: "scalar_forward 8x8"}, false,
		[]flash.Timing{{Label: "scalar_forward", Duration: 500 * time.Nanosecond}},
		steps)
	trace.add(result.Row{Case: c}, false, []flash.Timing{{Label: "unknown", Duration: ms}}, nil)
	trace.add(result.Row{Case: c, Kernel: "forward's", BwdKernel: "kv 8x8, q 8x8"}, true,
		[]flash.Timing{{Label: "backward_delta", Duration: ms},
			{Label: "scalar_backward_kv", Duration: ms}, {Label: "scalar_backward_q", Duration: ms}},
		[]tune.Work{{Name: "δ", Kernel: "backward_delta", Read: 1}, {Name: "QKᵀ again", Kernel: "scalar_backward_kv", Read: 2},
			{Name: "dK", Kernel: "scalar_backward_kv", Read: 4}, {Name: "QKᵀ again", Kernel: "scalar_backward_q", Read: 8}})
	require.Equal(t, 4, trace.Rows())
	var out bytes.Buffer
	require.NoError(t, trace.Write(&out, result.Header{Device: "GPU"}))

	var got struct {
		TraceEvents []struct {
			Name, Ph, Cat string
			TS, Dur       float64
			PID, TID      int
			Args          map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	var rows, dispatches []int
	for i, e := range got.TraceEvents {
		switch e.Cat {
		case "row":
			rows = append(rows, i)
		case "dispatch":
			dispatches = append(dispatches, i)
		default:
			require.Equal(t, "M", e.Ph)
		}
	}
	require.Len(t, rows, 4)
	require.Len(t, dispatches, 9)
	require.Equal(t, "GPU", got.TraceEvents[0].Args["name"])
	first := got.TraceEvents[rows[0]]
	require.Equal(t, "standard float16 B1 H1 N8 D8", first.Name)
	require.Equal(t, 7000.0, first.Dur, "a row is as long as its dispatches, in microseconds")

	d := got.TraceEvents[dispatches[1]]
	require.Equal(t, "scores", d.Name)
	require.Equal(t, first.TS+1000, d.TS, "one after the other")
	require.Equal(t, 3000.0, d.Dur)
	require.Equal(t, 200.0, d.Args["bytes_read"], "half of the step: the grid was split in two")
	require.Equal(t, 50.0, got.TraceEvents[dispatches[2]].Args["flops"])
	whole := got.TraceEvents[dispatches[4]]
	require.Equal(t, 0.5, whole.Dur)
	require.Equal(t, 800.0, whole.Args["bytes_read"], "a kernel that does all has the bytes of all steps")
	require.Greater(t, got.TraceEvents[rows[1]].TS, first.TS+first.Dur, "runs do not touch")
	require.NotContains(t, got.TraceEvents[dispatches[5]].Args, "bytes_read", "what the model does not know is not said")
	back := got.TraceEvents[rows[3]]
	require.Equal(t, "flash2 float16 B1 H1 N8 D8, backward", back.Name)
	require.Equal(t, "kv 8x8, q 8x8", back.Args["kernel"])
	for i, want := range []float64{1, 6, 8} {
		require.Equal(t, want, got.TraceEvents[dispatches[6+i]].Args["bytes_read"], "of its own kernel's steps")
	}
}
