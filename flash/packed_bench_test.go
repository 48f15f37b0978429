package flash

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPackedRoom measures, on the device, what it costs to start workgroups of packed sequences that there are no rows for, and what
// it costs to have them counted: 32 sequences of one length that fill their rows, a half or a sixteenth of them.
func BenchmarkPackedRoom(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	const sequences = 32
	longest, heads, dim := 2048, 16, 64
	if slowCompiler(d) {
		longest, heads, dim = 64, 2, 32
	}
	p := Problem{Batch: sequences, Heads: heads, QueryLen: longest, HeadDim: dim, DType: F16, Causal: CausalBottomRight,
		Packed: Packed{sequences * longest, sequences * longest}}
	random := rand.New(rand.NewPCG(1, 2)) // kernels on zeros run at higher clocks
	tensor := func(dtype DType, shape [4]int) *Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(b, err)
		values := make([]float32, x.Elements())
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		require.NoError(b, x.Upload(b.Context(), values))
		return x
	}
	starts, err := d.NewTensor(Int32, 1, 1, 1, sequences+1)
	require.NoError(b, err)
	f := Forward{Q: tensor(F16, p.QShape()), K: tensor(F16, p.KShape()), V: tensor(F16, p.VShape()), O: tensor(F16, p.OShape()),
		LSE:         tensor(F32, p.LSEShape()),
		QueryStarts: starts, KeyStarts: starts}
	g := Backward{Forward: f, DO: tensor(F16, p.OShape()), DQ: tensor(F16, p.QShape()), DK: tensor(F16, p.KShape()),
		DV: tensor(F16, p.VShape())}
	for _, share := range []int{1, 2, 16} {
		values := make([]float32, sequences+1)
		for i := range values {
			values[i] = float32(i * longest / share)
		}
		require.NoError(b, starts.Upload(b.Context(), values))
		for indirect := range 2 {
			plan, err := d.Plan(p, WithTuning(map[string]int{"indirect": indirect}),
				WithBackwardTuning(map[string]int{"kv_indirect": indirect, "q_indirect": indirect}))
			require.NoError(b, err)
			for _, pass := range []string{"forward", "backward"} {
				opts := []RecordingOption{WithTimestamps()}
				if pass == "backward" {
					opts = append(opts, ForBackward())
				}
				rec, err := plan.NewRecording(opts...)
				require.NoError(b, err)
				if pass == "backward" {
					err = rec.Backward(g)
				} else {
					err = rec.Forward(f)
				}
				require.NoError(b, err)
				b.Run(fmt.Sprintf("%s/full-%d/indirect-%d", pass, share, indirect), func(b *testing.B) {
					var device float64
					for range b.N {
						pending, err := rec.Submit()
						require.NoError(b, err)
						require.NoError(b, pending.Wait(b.Context()))
						if t, ok := rec.GPUTime(); ok {
							device += float64(t.Nanoseconds()) / 1e3
						}
					}
					b.ReportMetric(device/float64(b.N), "device-µs/op")
				})
				require.NoError(b, rec.Close())
			}
			require.NoError(b, plan.Close())
		}
	}
}
