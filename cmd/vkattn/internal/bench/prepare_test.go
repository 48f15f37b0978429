package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// preparingBench notes what it is asked to prepare.
type preparingBench struct {
	fakeBench
	jobs []result.Job
}

func (b *preparingBench) Prepare(_ context.Context, jobs []result.Job, done func()) {
	b.jobs = append(b.jobs, jobs...)
	for range jobs {
		done()
	}
}

// TestSweepPreparesWhatItMeasures: all rows to be measured, before the first, but not rows that are there already; and not one row alone,
// which is as fast without.
func TestSweepPreparesWhatItMeasures(t *testing.T) {
	jobs := twoShapes(t)
	for have := range len(jobs) {
		b := &preparingBench{fakeBench: fakeBench{ms: func(result.Case, int) float64 { return 1 }}}
		var told []string
		s := Sweep{Bench: b, Jobs: jobs, Have: func(c result.Case) bool {
			for _, j := range jobs[:have] {
				if j.Case == c {
					return true
				}
			}
			return false
		}, Progress: func(_, _ int, what string) { told = append(told, what) }}
		require.NoError(t, s.Run(context.Background()))
		want := jobs[have:]
		if len(want) < 2 {
			require.Empty(t, b.jobs)
			continue
		}
		require.Equal(t, want, b.jobs)
		require.Len(t, b.log, len(want))
		require.Contains(t, told[0], "kernels of 0 of ")
	}
}

// TestDevicePreparesTogether: every job is done with, those that cannot be planned too, and where nothing is to be done any more.
func TestDevicePreparesTogether(t *testing.T) {
	d := testDevice(t)
	cases, err := result.Grid{Batch: []int{1}, Heads: []int{1}, Seq: []int{16, 32}, HeadDim: []int{8}, Impls: []string{"flash2", "flash1"},
		Causal: no}.Expand()
	require.NoError(t, err)
	jobs := result.JobsOf(cases, result.Passes{Fwd: true, Bwd: true}) // flash1 has no backward pass
	bad := jobs[0]
	bad.Case.Tuning = "br=7"
	jobs = append(jobs, bad)
	b := NewDevice(d, "test", result.Peaks{})
	b.cpu = false
	done := 0
	b.Prepare(context.Background(), jobs, func() { done++ })
	require.Equal(t, len(jobs), done)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cancel()
	b.Prepare(ctx, jobs, func() { done++ })
	require.Equal(t, 2*len(jobs), done)
}
