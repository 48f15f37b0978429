package rows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// BenchmarkRecordAppend measures the time of the host for an append into quantised pages with queries that are turned.
func BenchmarkRecordAppend(b *testing.B) {
	d, err := flash.Open(flash.WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	plan, sets := appendOfAll(b, d)
	r, err := plan.NewRecording()
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Append(sets[i%2]); err != nil {
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
