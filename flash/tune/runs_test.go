package tune

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

func TestTimeRuns(t *testing.T) {
	d := testDevice(t)
	plan := mustPlan(t, d, few, flash.WithTier(flash.TierScalar))
	p := plan.Problem()
	expected := inputs(t, d, p)
	require.NoError(t, plan.Forward(bg, expected))
	want := download(t, expected.O)
	require.NotZero(t, want[0])
	var recs []*flash.Recording
	var outs []flash.Forward
	for range 2 {
		f := inputs(t, d, p)
		r, err := plan.NewRecording()
		require.NoError(t, err)
		require.NoError(t, r.Forward(f))
		recs, outs = append(recs, r), append(outs, f)
	}
	res, err := TimeRuns(bg, d, recs, 5)
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
		require.Equal(t, want, download(t, f.O))
	}
	// The recordings are as good as before, for timing and for submitting.
	require.NoError(t, outs[1].O.Upload(bg, make([]float32, len(want))))
	_, err = TimeRuns(bg, d, recs[1:], 1)
	require.NoError(t, err)
	require.Equal(t, want, download(t, outs[1].O))

	_, err = TimeRuns[Commands](bg, d, nil, 1)
	require.ErrorContains(t, err, "TimeRuns runs is empty")
	for _, n := range []int{0, MaxTimedRuns + 1} {
		_, err = TimeRuns(bg, d, recs, n)
		require.ErrorIs(t, err, flash.ErrArgument)
	}
	cancelled, cancel := context.WithCancel(bg)
	cancel()
	_, err = TimeRuns(cancelled, d, recs, 1)
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

// TestTimeRunsOfAnyKind: an append, a merge, and both as one run are executed and timed like attention; what cannot be is refused by name.
func TestTimeRunsOfAnyKind(t *testing.T) {
	d := testDevice(t)
	appending := func(d *flash.Device) (*rows.Recording, *flash.Tensor) {
		plan, err := rows.PlanAppend(d, rows.AppendProblem{Batch: 1, KeyHeads: 1, Rows: 1, CacheRows: 2, HeadDim: 2, DType: flash.F32,
			KeysOnly: true})
		require.NoError(t, err)
		t.Cleanup(func() { plan.Close() })
		r, err := plan.NewRecording()
		require.NoError(t, err)
		t.Cleanup(func() { r.Close() })
		cache := tensor(t, d, flash.F32, [4]int{1, 1, 2, 2}, 1, 2, 3, 4)
		at, err := d.NewTensor(flash.Int32, 1, 1, 1, 1)
		require.NoError(t, err)
		require.NoError(t, at.UploadBytes(t.Context(), []byte{1, 0, 0, 0}))
		require.NoError(t, r.Append(rows.Append{K: tensor(t, d, flash.F32, [4]int{1, 1, 1, 2}, 7, 8), KeyCache: cache, At: at}))
		return r, cache
	}
	row, cache := appending(d)
	plan, err := d.PlanMerge(flash.MergeProblem{Parts: 2, Batch: 1, Heads: 1, QueryLen: 1, ValueDim: 2, DType: flash.F32})
	require.NoError(t, err)
	defer plan.Close()
	merge, err := plan.NewRecording()
	require.NoError(t, err)
	defer merge.Close()
	o, one := tensor(t, d, flash.F32, [4]int{1, 1, 1, 2}, 0, 0), [4]int{1, 1, 1, 1}
	require.NoError(t,
		merge.Merge(flash.Merge{O: o, Parts: []flash.Part{{O: tensor(t, d, flash.F32, [4]int{1, 1, 1, 2}, 1, 3),
			LSE: tensor(t, d, flash.F32, one, 5)},
			{O: tensor(t, d, flash.F32, [4]int{1, 1, 1, 2}, 3, 5), LSE: tensor(t, d, flash.F32, one, 5)}}}))

	for name, runs := range map[string][]Commands{"in turn": {row, merge}, "together": {together{row, merge}}} {
		require.NoError(t, cache.Upload(t.Context(), []float32{1, 2, 3, 4}))
		require.NoError(t, o.Upload(t.Context(), []float32{0, 0}))
		res, err := TimeRuns(bg, d, runs, 4)
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
	for _, x := range []struct {
		argument string
		runs     []Commands
	}{
		{"TimeRuns runs", nil}, {"TimeRuns runs[1]", []Commands{row, nil}}, {"TimeRuns runs[0]", []Commands{foreign, row}},
		{"Recording", []Commands{row, fresh}}, {"Recording", []Commands{(*rows.Recording)(nil)}},
	} {
		_, err = TimeRuns(bg, d, x.runs, 2)
		requireRefused(t, x.argument, err)
	}
	_, err = TimeRuns(bg, d, []Commands{row}, 0)
	requireRefused(t, "TimeRuns n", err)
	require.NoError(t, fresh.Close())
	_, err = TimeRuns(bg, d, []Commands{fresh}, 1)
	require.ErrorIs(t, err, flash.ErrClosed)
	_, err = TimeRuns(bg, nil, []Commands{row}, 1)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestCommandsOfAnotherDevice: commands of every kind are refused where they are another device's, and by their place.
func TestCommandsOfAnotherDevice(t *testing.T) {
	d, other := testDevice(t), testDevice(t)
	closed := func(c io.Closer) { t.Cleanup(func() { require.NoError(t, c.Close()) }) }
	plan := mustPlan(t, other, flash.Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}, flash.WithTier(flash.TierScalar))
	recording, err := plan.NewRecording()
	require.NoError(t, err)
	closed(recording)
	maps, err := plan.NewMapRecording()
	require.NoError(t, err)
	closed(maps)
	turns, err := rows.PlanRotate(other, rows.RotateProblem{Batch: 1, Heads: 1, Rows: 1, HeadDim: 8})
	require.NoError(t, err)
	closed(turns)
	rotation, err := turns.NewRecording()
	require.NoError(t, err)
	closed(rotation)
	merges, err := other.PlanMerge(flash.MergeProblem{Parts: 2, Batch: 1, Heads: 1, QueryLen: 1, ValueDim: 2})
	require.NoError(t, err)
	closed(merges)
	merge, err := merges.NewRecording()
	require.NoError(t, err)
	closed(merge)
	sums, err := other.PlanAccumulate(flash.AccumulateProblem{Shape: [4]int{1, 1, 1, 8}})
	require.NoError(t, err)
	closed(sums)
	sum, err := sums.NewRecording()
	require.NoError(t, err)
	closed(sum)
	cache, err := kvcache.New(other, kvcache.Options{Layers: 1, KeyHeads: 1, HeadDim: 8, Page: 16, Pages: 2, MaxSequences: 1,
		MaxLength: 16})
	require.NoError(t, err)
	closed(cache)
	batch, err := cache.NewBatch(1, 1)
	require.NoError(t, err)
	closed(batch)
	for _, c := range []Commands{recording, maps, rotation, merge, sum, batch} {
		_, err := TimeRuns(bg, d, []Commands{c}, 1)
		requireRefused(t, "TimeRuns runs[0]", err)
		require.ErrorContains(t, err, "is of another device", "%T", c)
	}
}

func TestMeasurePeaks(t *testing.T) {
	d := testDevice(t)
	p, err := MeasurePeaks(bg, d)
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
	_, err = MeasurePeaks(cancelled, d)
	require.ErrorIs(t, err, context.Canceled)
}

// A device that copies fast records many copies, up to the most that a measurement may have.
func TestCeilingOfManyDispatches(t *testing.T) {
	env, err := within.Env(testDevice(t))
	require.NoError(t, err)
	const most = 64
	b, err := env.Ctx.Alloc(peakLabel, 1024, vk.DeviceLocal)
	require.NoError(t, err)
	defer b.Close()
	half := func(at uint64) pipeline.Binding { return pipeline.Binding{Buffer: b.Buffer, Offset: at, Size: 512} }
	rounds := 0
	rate, err := meter{env}.ceiling(bg, most, most, func(rec *pipeline.Recording, n int) error {
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
