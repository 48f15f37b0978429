package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRecordAndSubmit measures what one attention costs the host when a plan is used again: recording, with other
// tensors than the last time so that nothing can be reused, and submission; waiting for the device is not counted.
func BenchmarkRecordAndSubmit(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	r, sets := steadyState(b, d)
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Forward(sets[i%2]); err != nil {
			b.Fatal(err)
		}
		pending, err := r.Submit()
		host += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if err := pending.Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
}

// BenchmarkRecordMerge measures the same of a merge of two parts.
func BenchmarkRecordMerge(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	plan, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: 1, Heads: 2, QueryLen: 8, ValueDim: 16, DType: F16})
	require.NoError(b, err)
	r, err := plan.NewRecording()
	require.NoError(b, err)
	tensors := func() Part {
		var p Part
		p.O = plainly(b, d)(F16, [4]int{1, 2, 8, 16})
		p.LSE, err = d.NewLSE(1, 2, 8)
		require.NoError(b, err)
		return p
	}
	sets := [2]Merge{}
	for i := range sets {
		to := tensors()
		sets[i] = Merge{Parts: []Part{tensors(), tensors()}, O: to.O, LSE: to.LSE}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Merge(sets[i%2]); err != nil {
			b.Fatal(err)
		}
		pending, err := r.Submit()
		host += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if err := pending.Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
}

// TestSteadyStateAllocatesNothing: recording, submitting and waiting again leave the garbage collector alone.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	d := testDevice(t)
	r, sets := steadyState(t, d)
	i := 0
	n := testing.AllocsPerRun(50, func() {
		i++
		if err := r.Forward(sets[i%2]); err != nil {
			t.Fatal(err)
		}
		pending, err := r.Submit()
		if err != nil {
			t.Fatal(err)
		}
		if err := pending.Wait(bg); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
	plan := r.pass.plan
	f := sets[0]
	n = testing.AllocsPerRun(50, func() {
		if err := plan.Forward(bg, f); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
}

func steadyState(t testing.TB, d *Device) (*Recording, [2]Forward) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 16, DType: F16}
	s := newSample(t, p)
	plan := mustPlan(t, d, p)
	r, err := plan.NewRecording()
	require.NoError(t, err)
	return r, [2]Forward{s.tensors(t, d, plainly(t, d)), s.tensors(t, d, plainly(t, d))}
}

// BenchmarkScalarTiles times scalar_forward's candidate shapes, on whatever device there is; TFLOP/s by device timestamps.
// On a GPU the problem is large; on a CPU it is cut down.
func BenchmarkScalarTiles(b *testing.B) {
	d, err := Open()
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	cpu := typeRank(d.info.Facts.Type) == 4
	shapes := [][4]int{{64, 64, 8, 8}, {64, 32, 8, 4}, {64, 64, 8, 4}, {128, 64, 8, 8}, {128, 64, 8, 4}, {32, 64, 4, 4}, {64, 64, 4, 4},
		{64, 128, 8, 8}, {32, 64, 4, 8}, {64, 32, 4, 4}}
	if cpu {
		shapes = [][4]int{{16, 32, 4, 4}, {8, 32, 2, 4}, {8, 32, 2, 8}, {32, 32, 4, 4}, {16, 64, 4, 8}, {16, 16, 4, 4}, {64, 64, 8, 8}}
	}
	for _, dim := range []int{64, 128, 256} {
		p := Problem{Batch: 4, Heads: 16, QueryLen: 2048, HeadDim: dim, DType: F32}
		if cpu {
			p.Batch, p.Heads, p.QueryLen = 1, 2, 256
		}
		for _, s := range shapes {
			b.Run(fmt.Sprintf("D%d/%dx%d_%dx%d", dim, s[0], s[1], s[2], s[3]), func(b *testing.B) {
				plan, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"br": s[0], "bc": s[1], "mr": s[2], "mc": s[3]}))
				if err != nil {
					b.Skip(err)
				}
				defer plan.Close()
				make := plainly(b, d)
				f := Forward{Q: make(F32, p.QShape()), K: make(F32, p.KShape()), V: make(F32, p.VShape()), O: make(F32, p.OShape())}
				for _, x := range []*Tensor{f.Q, f.K, f.V} {
					if err := x.Upload(bg, randomValues(rand.New(rand.NewPCG(1, 2)), F32, x.Shape())); err != nil {
						b.Fatal(err)
					}
					defer x.Close()
				}
				defer f.O.Close()
				r, err := plan.NewRecording(WithTimestamps())
				if err == nil {
					err = r.Forward(f)
				}
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				best := time.Duration(math.MaxInt64)
				for range b.N {
					pending, err := r.Submit()
					if err == nil {
						err = pending.Wait(bg)
					}
					if err != nil {
						b.Fatal(err)
					}
					if gpu, ok := pending.GPUTime(); ok {
						best = min(best, gpu)
					}
				}
				b.ReportMetric(p.ForwardFLOPs()/best.Seconds()/1e12, "TFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
