package flash

import (
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
	plan := r.plan
	f := sets[0]
	n = testing.AllocsPerRun(50, func() {
		if err := plan.Forward(bg, f.Q, f.K, f.V, f.O, f.LSE); err != nil {
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
