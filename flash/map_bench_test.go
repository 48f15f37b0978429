package flash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// BenchmarkMap measures pictures of 32 heads on the device: a long sequence whole and in part, cells that tiles divide and that they do
// not.
func BenchmarkMap(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	n, heads := 16384, 32
	if d.Info().Facts.Type == vk.DeviceCPU {
		n, heads = 512, 2
	}
	for _, p := range []Problem{
		{Batch: 1, Heads: heads, QueryLen: n, HeadDim: 64, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: heads, QueryLen: n, HeadDim: 128, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: heads, QueryLen: n, HeadDim: 64, DType: F16},
	} {
		s := plainly(b, d)
		plan := mustPlan(b, d, p)
		f := Forward{Q: s(F16, plan.problem.QShape()), K: s(F16, plan.problem.KShape()), V: s(F16, plan.problem.VShape()),
			O:   s(F16, plan.problem.OShape()),
			LSE: s(F32, plan.problem.LSEShape())}
		noise(b, f.Q, f.K, f.V)
		require.NoError(b, plan.Forward(bg, f))
		all := Range{0, n}
		for _, c := range []struct {
			name          string
			h, w          int
			queries, keys Range
			pool          Pool
		}{{"512x512", n / 32, n / 32, all, all, PoolMean}, {"500x500", n * 500 / 16384, n * 500 / 16384, all, all, PoolMean},
			{"largest", n / 32, n / 32, all, all, PoolMax},
			{"4096", n / 32, n / 32, Range{n / 2, n/2 + n/4}, Range{n / 8, n/8 + n/4}, PoolMean},
			{"16", n / 128, n / 128, Range{n / 2, n/2 + n/128}, Range{n / 3, n/3 + n/128}, PoolMean},
			{"1x1", 1, 1, all, all, PoolSum}} {
			b.Run(fmt.Sprintf("D%d-causal-%v/%s", p.HeadDim, p.Causal, c.name), func(b *testing.B) {
				m := Map{Forward: f, Queries: c.queries, Keys: c.keys, Pool: c.pool, Out: s(F32, [4]int{1, heads, c.h, c.w})}
				r, err := plan.NewMapRecording(WithTimestamps())
				require.NoError(b, err)
				defer r.Close()
				require.NoError(b, r.Map(m))
				var times []time.Duration
				for range max(b.N, 8) {
					require.NoError(b, finish(r.Submit()))
					if t, ok := r.GPUTime(); ok {
						times = append(times, t)
					}
				}
				slices.Sort(times)
				if len(times) > 0 {
					b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e6, "device-ms")
				}
			})
		}
		require.NoError(b, plan.Close())
	}
}

// noise fills tensors with numbers that are much alike everywhere: so many random ones, over and over.
func noise(b *testing.B, all ...*Tensor) {
	for i, t := range all {
		few := randomValues(rand.New(rand.NewPCG(1, uint64(i))), F16, [4]int{1, 1, 1, 1 << 16})
		values := make([]float32, t.Elements())
		for n := 0; n < len(values); n += len(few) - 7*i - 1 {
			copy(values[n:], few)
		}
		require.NoError(b, t.Upload(bg, values))
	}
}
