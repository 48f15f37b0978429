package flash

import (
	"context"
	"io"
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

// together is several recordings as one run.
type together []Commands

func (all together) Record(cmd uintptr) error {
	for _, c := range all {
		if err := c.Record(cmd); err != nil {
			return err
		}
	}
	return nil
}

// TestTimeCommands: an append, a merge, and both as one run are executed and timed like attention; what cannot be is refused by name.
func TestTimeCommands(t *testing.T) {
	d := testDevice(t)
	mk := func(d *Device, dtype DType, shape [4]int, values ...float32) *Tensor {
		x := plainly(t, d)(dtype, shape)
		if values != nil {
			require.NoError(t, x.Upload(t.Context(), values))
		}
		return x
	}
	appending := func(d *Device) (*RowRecording, *Tensor) {
		plan, err := d.PlanAppend(AppendProblem{Batch: 1, KeyHeads: 1, Rows: 1, CacheRows: 2, HeadDim: 2, DType: F32, KeysOnly: true})
		require.NoError(t, err)
		t.Cleanup(func() { plan.Close() })
		r, err := plan.NewRecording()
		require.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		cache := mk(d, F32, [4]int{1, 1, 2, 2}, 1, 2, 3, 4)
		at := mk(d, Int32, [4]int{1, 1, 1, 1})
		require.NoError(t, at.UploadBytes(t.Context(), []byte{1, 0, 0, 0}))
		require.NoError(t, r.Append(Append{K: mk(d, F32, [4]int{1, 1, 1, 2}, 7, 8), KeyCache: cache, At: at}))
		return r, cache
	}
	row, cache := appending(d)
	plan, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: 1, Heads: 1, QueryLen: 1, ValueDim: 2, DType: F32})
	require.NoError(t, err)
	defer plan.Close()
	merge, err := plan.NewRecording()
	require.NoError(t, err)
	defer merge.Close()
	o, one := mk(d, F32, [4]int{1, 1, 1, 2}, 0, 0), [4]int{1, 1, 1, 1}
	require.NoError(t, merge.Merge(Merge{O: o, Parts: []Part{{O: mk(d, F32, [4]int{1, 1, 1, 2}, 1, 3), LSE: mk(d, F32, one, 5)},
		{O: mk(d, F32, [4]int{1, 1, 1, 2}, 3, 5), LSE: mk(d, F32, one, 5)}}}))

	for name, runs := range map[string][]Commands{"in turn": {row, merge}, "together": {together{row, merge}}} {
		require.NoError(t, cache.Upload(t.Context(), []float32{1, 2, 3, 4}))
		require.NoError(t, o.Upload(t.Context(), []float32{0, 0}))
		res, err := d.TimeCommands(bg, runs, 4)
		require.NoError(t, err, name)
		require.Equal(t, 4, res.N)
		require.Len(t, res.Runs, 4)
		for _, run := range res.Runs {
			require.Positive(t, run)
		}
		require.Equal(t, d.Info().Timestamps(), res.OnDevice)
		got := make([]float32, 4)
		require.NoError(t, cache.Download(t.Context(), got))
		require.Equal(t, []float32{1, 2, 7, 8}, got, name)
		require.NoError(t, o.Download(t.Context(), got[:2]))
		require.InDeltaSlice(t, []float32{2, 4}, got[:2], 1e-6, name)
	}

	fresh, err := plan.NewRecording()
	require.NoError(t, err)
	defer fresh.Close()
	foreign, _ := appending(testDevice(t))
	for argument, runs := range map[string][]Commands{
		"TimeCommands runs": nil, "TimeCommands runs[1]": {row, nil}, "TimeCommands runs[0]": {foreign, row},
		"MergeRecording": {row, fresh}, "RowRecording": {(*RowRecording)(nil)},
	} {
		_, err = d.TimeCommands(bg, runs, 2)
		requireRefused(t, argument, err)
	}
	_, err = d.TimeCommands(bg, []Commands{row}, 0)
	requireRefused(t, "TimeCommands n", err)
	require.NoError(t, fresh.Close())
	_, err = d.TimeCommands(bg, []Commands{fresh}, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = (*Device)(nil).TimeCommands(bg, []Commands{row}, 1)
	require.ErrorIs(t, err, ErrArgument)
}

// TestCommandsOfAnotherDevice: commands of every kind are refused where they are another device's, and by their place.
func TestCommandsOfAnotherDevice(t *testing.T) {
	d, other := testDevice(t), testDevice(t)
	closed := func(c io.Closer) { t.Cleanup(func() { require.NoError(t, c.Close()) }) }
	plan := mustPlan(t, other, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}, WithTier(TierScalar))
	recording, err := plan.NewRecording()
	require.NoError(t, err)
	closed(recording)
	maps, err := plan.NewMapRecording()
	require.NoError(t, err)
	closed(maps)
	rows, err := other.PlanRotate(RotateProblem{Batch: 1, Heads: 1, Rows: 1, HeadDim: 8})
	require.NoError(t, err)
	closed(rows)
	rotation, err := rows.NewRecording()
	require.NoError(t, err)
	closed(rotation)
	merges, err := other.PlanMerge(MergeProblem{Parts: 2, Batch: 1, Heads: 1, QueryLen: 1, ValueDim: 2})
	require.NoError(t, err)
	closed(merges)
	merge, err := merges.NewRecording()
	require.NoError(t, err)
	closed(merge)
	sums, err := other.PlanAccumulate(AccumulateProblem{Shape: [4]int{1, 1, 1, 8}})
	require.NoError(t, err)
	closed(sums)
	sum, err := sums.NewRecording()
	require.NoError(t, err)
	closed(sum)
	cache, err := other.NewCache(CacheOptions{Layers: 1, KeyHeads: 1, HeadDim: 8, Page: 16, Pages: 2, MaxSequences: 1, MaxLength: 16})
	require.NoError(t, err)
	closed(cache)
	batch, err := cache.NewBatch(1, 1)
	require.NoError(t, err)
	closed(batch)
	for _, c := range []Commands{recording, maps, rotation, merge, sum, batch} {
		_, err := d.TimeCommands(bg, []Commands{c}, 1)
		requireRefused(t, "TimeCommands runs[0]", err)
		require.ErrorContains(t, err, "is of another device", "%T", c)
	}
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
