package flash

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/vk"
)

// A device is closed while goroutines do everything that can be done with one. Each of them gets results until then, and
// ErrClosed after; the layers have nothing to say, and the race detector, where it is on, nothing either.
func TestCloseBesideUse(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	var done [16]atomic.Int64
	for round := range rounds {
		d := testDevice(t)
		p, err := Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: 9, HeadDim: 8}.Normalize()
		require.NoError(t, err)
		plan := mustPlan(t, d, p, WithTier(TierScalar))
		standard := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar))
		s := newSample(t, p)
		var sets [6]Forward
		for i := range sets {
			sets[i] = s.tensors(t, d, plainly(t, d))
		}
		gradients := Backward{Forward: sets[4], DO: plainly(t, d)(F32, p.OShape()), DQ: plainly(t, d)(F32, p.QShape()),
			DK: plainly(t, d)(F32, p.KShape()), DV: plainly(t, d)(F32, p.VShape())}
		require.NoError(t, gradients.DO.Upload(bg, s.q))
		rec, err := plan.NewRecording(WithTimestamps())
		require.NoError(t, err)
		timed, err := plan.NewRecording()
		require.NoError(t, err)
		require.NoError(t, timed.Forward(sets[2]))

		q := p
		q.KeyLengths = true
		padded, err := mustPlan(t, d, q, WithTier(TierScalar)).NewRecording()
		require.NoError(t, err)
		lengths := sets[2]
		lengths.KeyLengths = plainly(t, d)(Int32, [4]int{1, 1, 1, 1})

		values := make([]float32, sets[0].O.Elements())
		uses := []func(i int) error{
			func(i int) error { return sets[0].Q.Upload(bg, s.q) },
			func(i int) error { return sets[0].O.Download(bg, values) },
			func(i int) error {
				return plan.Forward(bg, Forward{Q: sets[1].Q, K: sets[1].K, V: sets[1].V, O: sets[1].O, LSE: sets[1].LSE})
			},
			func(i int) error {
				f := sets[3]
				if i%2 == 0 {
					f.LSE = nil
				}
				if err := rec.Forward(f); err != nil {
					return err
				}
				pending, err := rec.Submit()
				if err != nil {
					return err
				}
				if _, err := pending.Done(); err != nil {
					return err
				}
				err = pending.Wait(bg)
				pending.GPUTime()
				rec.Timings()
				return err
			},
			func(i int) error { return TuneHooks.TimeRuns(bg, d, []*Recording{timed}, 1+i%3) },
			func(i int) error { return plan.Backward(bg, gradients) },
			func(i int) error {
				w, err := standard.NewWeights()
				if err != nil {
					return err
				}
				f := sets[5]
				f.Weights = w
				pending, err := standard.SubmitForward(f)
				if err == nil {
					err = pending.Wait(bg)
				}
				return errors.Join(err, w.Close())
			},
			func(i int) error {
				q := p
				q.QueryLen = 5 + i%2
				other, err := d.Plan(q, WithTier(TierScalar))
				if err != nil {
					return err
				}
				r, err := other.NewRecording()
				if err == nil {
					err = r.Close()
				}
				return errors.Join(err, other.Close())
			},
			func(i int) error {
				x, err := d.NewTensorBNHD(F16, 1, 2, 3, 8)
				if err != nil {
					return err
				}
				_ = x.Buffer()
				return errors.Join(x.Upload(bg, make([]float32, 48)), x.Close())
			},
			func(i int) error { _, err := d.Attention(bg, s.q, s.k, s.v, p); return err },
			func(i int) error { d.Usage(); d.ResetPeak(); _, err := d.Heaps(); return err },
			func(i int) error {
				if i == 0 {
					return d.WaitIdle()
				}
				_, err := TuneHooks.SelfCheck(context.Background(), d, []Implementation{Flash}, []Tier{TierScalar})
				return err
			},
			func(i int) error { return padded.Forward(lengths) }, // the host writes arguments
		}
		for u, use := range uses { // once alone, so that kernels are compiled
			require.NoError(t, use(0), u)
		}
		var wait sync.WaitGroup
		errs := make([]error, len(uses))
		for u, use := range uses {
			wait.Go(func() {
				for i := 1; errs[u] == nil; i++ {
					if errs[u] = use(i); errs[u] == nil {
						done[u].Add(1)
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		if round%2 == 0 {
			wait.Go(func() { plan.Close() })
		}
		require.NoError(t, d.Close())
		wait.Wait()
		for u, err := range errs {
			require.ErrorIs(t, err, ErrClosed, u)
		}
		require.Zero(t, d.Usage().Current)
	}
	for u := range 13 {
		t.Logf("use %d: %d times", u, done[u].Load())
	}
}

// TestArgumentsClosed: where the device's Close was faster than a pass that is prepared, the memory of its arguments is gone, and that is
// ErrClosed.
func TestArgumentsClosed(t *testing.T) {
	d := testDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: 9, HeadDim: 8}.Normalize()
	require.NoError(t, err)
	s, mk := newSample(t, p), plainly(t, d)
	f := s.tensors(t, d, mk)
	for name, c := range map[string]struct {
		problem func(*Problem)
		opts    []RecordingOption
		prepare func(*Recording) error
	}{
		"forward": {func(p *Problem) { p.KeyLengths = true }, nil, func(r *Recording) error {
			f := f
			f.KeyLengths = mk(Int32, [4]int{1, 1, 1, 1})
			return r.Forward(f)
		}},
		"largest": {func(p *Problem) { p.MaxLogit = true }, nil, func(r *Recording) error {
			f := f
			f.MaxLogit = mk(F32, [4]int{1, 1, 1, 2})
			return r.Forward(f)
		}},
		"jvp": {func(*Problem) {}, []RecordingOption{ForJVP()}, func(r *Recording) error {
			return r.JVP(JVP{Forward: f, QTangent: mk(F32, p.QShape()), OTangent: mk(F32, p.OShape())})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			c.problem(&p)
			r, err := mustPlan(t, d, p, WithTier(TierScalar)).NewRecording(c.opts...)
			require.NoError(t, err)
			require.NoError(t, c.prepare(r))
			r.writer.More.Close()
			require.ErrorIs(t, c.prepare(r), ErrClosed)
		})
	}
}

// TestSmallPlanCloseBesideUse: a plan that is closed between a call's first look and its recording makes none, which nobody would close.
func TestSmallPlanCloseBesideUse(t *testing.T) {
	d := testDevice(t)
	p, err := d.PlanAccumulate(AccumulateProblem{Shape: [4]int{1, 1, 1, 8}})
	require.NoError(t, err)
	a := Accumulate{X: plainly(t, d)(F32, [4]int{1, 1, 1, 8}), Y: plainly(t, d)(F32, [4]int{1, 1, 1, 8})}
	done := make(chan error)
	d.mu.Lock() // where the call waits after it has found the plan open
	before := len(d.live)
	go func() { done <- p.Accumulate(bg, a) }()
	time.Sleep(50 * time.Millisecond)
	err = p.release() // of Close, which waits too
	d.mu.Unlock()
	require.NoError(t, err)
	require.ErrorIs(t, <-done, ErrClosed)
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Len(t, d.live, before)
}

// TestTensorCloseBesideSubmit: a tensor that is closed while a recording that uses it is submitted was either in time, and the submission
// fails, or is waited for. The validation layer tells of a buffer that is freed in use.
func TestTensorCloseBesideSubmit(t *testing.T) {
	d := testDevice(t)
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 5, KeyLen: 9, HeadDim: 8}.Normalize()
	require.NoError(t, err)
	plan, s := mustPlan(t, d, p, WithTier(TierScalar)), newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	for range 100 {
		f.O = plainly(t, d)(p.DType, p.OShape())
		rec, err := plan.NewRecording()
		require.NoError(t, err)
		require.NoError(t, rec.Forward(f))
		closed := make(chan error)
		go func() { closed <- f.O.Close() }()
		pending, err := rec.Submit()
		if err == nil {
			err = pending.Wait(bg)
		} else {
			require.ErrorIs(t, err, ErrClosed)
			err = nil
		}
		require.NoError(t, err)
		require.NoError(t, <-closed)
		require.NoError(t, rec.Close())
	}
}

// A tensor is closed while copies to and from it are under way: each of them ends as if it had come before, or has not begun.
func TestTensorCloseBesideTransfers(t *testing.T) {
	d := testDevice(t)
	const n = 2*transferElements + 5 // three copies each
	up := make([]float32, n)
	for i := range up {
		up[i] = float32(i % 1000)
	}
	var whole, refused atomic.Int64
	// Longer and longer, until some came before and some not.
	for round := 0; round < 12 || round < 200 && (whole.Load() == 0 || refused.Load() == 0); round++ {
		x, err := d.NewTensor(F16, 1, 1, 1, n)
		require.NoError(t, err)
		require.NoError(t, x.Upload(bg, up))
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() {
				down := make([]float32, n)
				err := x.Download(bg, down)
				if err == nil {
					whole.Add(1)
					assert.Equal(t, up, down)
					err = x.Upload(bg, up)
				}
				if err != nil {
					refused.Add(1)
					assert.ErrorIs(t, err, ErrClosed)
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		require.NoError(t, x.Close())
		wait.Wait()
	}
	require.NotZero(t, whole.Load())
	require.NotZero(t, refused.Load())
}

// A tensor is closed after a copy that could not be waited for: whoever closes it waits for the device.
func TestTensorCloseAfterUnendedCopy(t *testing.T) {
	f := vk.NewFaults()
	d, err := Attach(testDevice(t).External(), WithoutDiskCache(), WithFaults(f))
	require.NoError(t, err)
	values := make([]float32, 16)
	for _, copies := range []func(*Tensor) error{
		func(x *Tensor) error { return x.Upload(bg, values) },
		func(x *Tensor) error { return x.Download(bg, values) },
	} {
		x, err := d.NewTensor(F32, 1, 1, 1, 16)
		require.NoError(t, err)
		require.NoError(t, x.Upload(bg, values))
		require.NoError(t, f.Arm("wait", 1, 0))
		require.NoError(t, f.Arm("idle", 1, 0))
		require.ErrorIs(t, copies(x), vk.ErrOutOfHostMemory)
		f.Disarm()
		require.NoError(t, f.Arm("idle", 1, 0))
		require.ErrorIs(t, x.Close(), vk.ErrOutOfHostMemory, "it may be in use")
		f.Disarm()
		require.NoError(t, x.Close())
	}
	require.NoError(t, d.Close())
}
