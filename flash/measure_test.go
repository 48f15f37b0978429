package flash

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

func TestTimeRuns(t *testing.T) {
	d := testDevice(t)
	s := newSample(t, usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F16, Causal: CausalBottomRight}))
	plan := mustPlan(t, d, s.p)
	var recs []*Recording
	var outs []Forward
	for range 2 {
		f := s.tensors(t, d, plainly(t, d))
		r, err := plan.NewRecording()
		require.NoError(t, err)
		require.NoError(t, r.Forward(f))
		recs, outs = append(recs, r), append(outs, f)
	}
	res, err := d.TimeRuns(bg, recs, 5)
	require.NoError(t, err)
	require.Equal(t, 5, res.N)
	require.Len(t, res.Runs, 5)
	var sum time.Duration
	for _, r := range res.Runs {
		require.Positive(t, r)
		sum += r
	}
	require.LessOrEqual(t, sum, res.Wall+time.Millisecond, "the runs lie within the submission")
	require.Equal(t, d.Info().Timestamps(), res.OnDevice)
	require.Equal(t, sum/5, res.Mean())
	for _, f := range outs { // every recording ran
		s.check(t, plan, f)
	}
	// The recordings are as good as before, for timing and for submitting.
	s.poison(t, outs[1])
	_, err = d.TimeRuns(bg, recs[1:], 1)
	require.NoError(t, err)
	s.check(t, plan, outs[1])

	_, err = d.TimeRuns(bg, nil, 1)
	require.ErrorContains(t, err, "TimeRuns recs is empty")
	for _, n := range []int{0, MaxTimedRuns + 1} {
		_, err = d.TimeRuns(bg, recs, n)
		require.ErrorIs(t, err, ErrArgument)
	}
	cancelled, cancel := context.WithCancel(bg)
	cancel()
	_, err = d.TimeRuns(cancelled, recs, 1)
	require.ErrorIs(t, err, context.Canceled)
}

func TestMeasurePeaks(t *testing.T) {
	d := testDevice(t)
	p, err := d.MeasurePeaks(bg)
	require.NoError(t, err)
	// Any machine since 2005 computes a GFLOP/s and copies 100 MB/s; none computes an EFLOP/s yet.
	require.Greater(t, p.FP32, 1e9)
	require.Less(t, p.FP32, 1e18)
	require.Greater(t, p.Copy, 1e8)
	require.Less(t, p.Copy, 1e15)
	require.Equal(t, p.Matrix > 0, p.MatrixShape != "")
	require.Zero(t, d.Usage().ByLabel[peakLabel].Current, "nothing is left allocated")
	cancelled, cancel := context.WithCancel(bg)
	cancel()
	_, err = d.MeasurePeaks(cancelled)
	require.ErrorIs(t, err, context.Canceled)
}

// A device that copies fast records many copies, up to the most that a measurement may have.
func TestCeilingOfManyDispatches(t *testing.T) {
	d := testDevice(t)
	const most = 64
	b, err := d.env.Ctx.Alloc(peakLabel, 1024, vk.DeviceLocal)
	require.NoError(t, err)
	defer b.Close()
	half := func(at uint64) pipeline.Binding { return pipeline.Binding{Buffer: b.Buffer, Offset: at, Size: 512} }
	rounds := 0
	rate, err := d.ceiling(bg, most, most, func(rec *pipeline.Recording, n int) error {
		rounds = n
		for range n {
			if err := rec.Copy(half(512), half(0), "copy"); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, rate)
	require.Equal(t, most, rounds, "copies of 512 bytes take less than %v", peakTime)
}
