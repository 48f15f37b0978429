package flash

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// TestNothingWaitsBesideWait: while a goroutine waits for a submission, others are told at once that it is in flight, and submit what is
// not.
func TestNothingWaitsBesideWait(t *testing.T) {
	d := testDevice(t)
	if !d.env.Ctx.HasPoints() {
		t.Skip("the device has no timeline semaphores to hold its queue with")
	}
	s := newSample(t, Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: 9, HeadDim: 8})
	plan := mustPlan(t, d, s.p, WithTier(TierScalar))
	var recordings [2]*Recording
	var sets [2]Forward
	for i := range recordings {
		var err error
		recordings[i], err = plan.NewRecording()
		require.NoError(t, err)
		sets[i] = s.tensors(t, d, plainly(t, d))
		require.NoError(t, recordings[i].Forward(sets[i]))
	}
	r := recordings[0]
	earlier, err := r.Submit()
	require.NoError(t, err)
	require.NoError(t, earlier.Wait(bg))

	hold, err := d.dev.NewTimelineSemaphore(0)
	require.NoError(t, err)
	defer func() { require.NoError(t, hold.Close()) }()
	require.NoError(t, d.dev.Queue().Submit(vk.Submission{Wait: []vk.TimelinePoint{{Semaphore: hold, Value: 1}}}))
	pending, err := r.Submit()
	require.NoError(t, err)
	waited, asked := make(chan error, 1), make(chan struct{})
	go func() { waited <- pending.Wait(bg) }()
	for r.mu.TryLock() { // until it waits
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	var other Pending
	go func() {
		defer close(asked)
		done, err := pending.Done()
		assert.NoError(t, err)
		assert.False(t, done)
		done, err = earlier.Done()
		assert.NoError(t, err)
		assert.True(t, done)
		_, err = r.Submit()
		assert.ErrorIs(t, err, ErrInFlight)
		assert.ErrorIs(t, r.Forward(sets[0]), ErrInFlight)
		_, err = d.Submit(recordings[1], r)
		assert.ErrorIs(t, err, ErrInFlight)
		other, err = d.Submit(recordings[1])
		assert.NoError(t, err)
	}()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("somebody waits for the device")
	}
	require.NoError(t, hold.Signal(1))
	require.NoError(t, <-waited)
	<-asked
	require.NoError(t, other.Wait(bg))
	done, err := pending.Done()
	require.NoError(t, err)
	require.True(t, done)
	s.check(t, plan, sets[1])
}

// TestSubmitSeveral: attention over two halves of the keys and the merge of both are one submission, again and again, whose result is
// attention over all keys; the Pending speaks of all three.
func TestSubmitSeveral(t *testing.T) {
	d := testDevice(t)
	const keys = 40
	p := Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: keys, HeadDim: 8, DType: F32}
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	half := p
	half.KeyLen = keys / 2
	plan := mustPlan(t, d, half, WithTier(TierScalar))
	merging, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: 1, Heads: 2, QueryLen: 5, ValueDim: 8, DType: F32})
	require.NoError(t, err)
	merge, err := merging.NewRecording(WithTimestamps())
	require.NoError(t, err)
	var parts [2]*Recording
	m := Merge{O: f.O, LSE: f.LSE}
	for i := range parts {
		parts[i], err = plan.NewRecording(WithTimestamps())
		require.NoError(t, err)
		rows := func(x *Tensor) *Tensor {
			shape, strides := x.Shape(), x.Strides()
			shape[2] /= 2
			v, err := x.View(uint64(i*shape[2]*strides[2]*4), F32, shape, strides)
			require.NoError(t, err)
			return v
		}
		part := Forward{Q: f.Q, K: rows(f.K), V: rows(f.V), O: plainly(t, d)(F32, p.OShape())}
		part.LSE, err = d.NewLSE(1, 2, 5)
		require.NoError(t, err)
		require.NoError(t, parts[i].Forward(part))
		m.Parts = append(m.Parts, Part{O: part.O, LSE: part.LSE})
	}
	_, err = d.Submit(parts[0], merge)
	requireRefused(t, "Recording", err) // it is empty
	require.NoError(t, merge.Merge(m))

	var pending Pending
	for range 3 {
		pending, err = d.Submit(parts[0], parts[1], merge)
		require.NoError(t, err)
		_, err = d.Submit(parts[0])
		require.ErrorIs(t, err, ErrInFlight)
		_, err = merge.Submit()
		require.ErrorIs(t, err, ErrInFlight)
		require.ErrorIs(t, parts[1].Forward(Forward{}), ErrInFlight)
		require.NoError(t, pending.Wait(bg))
		done, err := pending.Done()
		require.NoError(t, err)
		require.True(t, done)
		s.check(t, plan, f)
	}
	sum, timed := pending.GPUTime()
	require.Equal(t, merge.HasTimestamps(), timed)
	if timed {
		var each time.Duration
		for _, r := range []*Recording{parts[0], parts[1], merge} {
			took, _ := r.GPUTime()
			each += took
		}
		require.Equal(t, each, sum)
		require.Equal(t, slices.Concat(parts[0].Timings(), parts[1].Timings(), merge.Timings()), pending.Timings())
		require.Len(t, pending.Timings(), 3)
	}
	again, err := merge.Submit()
	require.NoError(t, err)
	require.NoError(t, pending.Wait(bg), "ended long ago")
	require.Nil(t, pending.Timings(), "of a recording that has moved on")
	require.NoError(t, again.Wait(bg))

	require.Zero(t, testing.AllocsPerRun(20, func() {
		if finish(d.Submit(parts[0], parts[1], merge)) != nil {
			t.Fail()
		}
	}))

	// The members may be closed while they run; each waits for the submission.
	_, err = d.Submit(parts[0], parts[1], merge)
	require.NoError(t, err)
	for _, r := range []*Recording{parts[1], merge, parts[0]} {
		require.NoError(t, r.Close())
	}

	other := testDevice(t)
	foreign, err := mustPlan(t, other, half).NewRecording()
	require.NoError(t, err)
	_, err = d.Submit()
	requireRefused(t, "recordings", err)
	for _, bad := range [][]Submittable{{nil}, {(*Recording)(nil)}, {&Recording{}}, {foreign}} {
		_, err := d.Submit(bad...)
		requireRefused(t, "recordings[0]", err)
	}
	_, err = d.Submit(merge, merge)
	requireRefused(t, "recordings[1]", err)
	_, err = merging.NewRecording(ForBackward())
	requireRefused(t, "ForBackward", err)
	_, err = d.Submit(merge)
	require.ErrorIs(t, err, ErrClosed)
}
