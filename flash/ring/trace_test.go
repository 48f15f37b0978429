package ring

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// copiedBytes adds up the bytes of one activity.
func copiedBytes(events []Event, what Activity) (n float64) {
	for _, e := range events {
		if e.What == what {
			n += float64(e.Bytes)
		}
	}
	return n
}

// checkLanes: what shares a lane follows one another, between two moments.
func checkLanes(t *testing.T, events []Event, from, to time.Time) {
	t.Helper()
	var last [activities]time.Time
	for _, e := range events {
		lane := e.What
		if lane == Sums {
			lane = Kernels
		}
		require.False(t, e.End.Before(e.Begin), "%+v", e)
		require.False(t, e.Begin.Before(last[lane]), "%v overlaps with what was before: %+v", lane, e)
		require.False(t, e.Begin.Before(from) || e.End.After(to), "%+v is outside of its pass", e)
		last[lane] = e.End
	}
}

// TestTrace: every step's kernels and every byte that the model counts are in the trace, lanes do one thing at a time, and results are
// those of a plan that notes nothing.
func TestTrace(t *testing.T) {
	const ranks = 3
	for _, over := range []Over{Keys, Heads} {
		if over == Heads && testing.Short() {
			continue
		}
		p := flash.Problem{Batch: 1, Heads: 3, QueryLen: 390, HeadDim: 16, DType: flash.F16, Causal: flash.CausalBottomRight}
		s := newSample(t, rand.New(rand.NewPCG(3, uint64(over))), p)
		devices := sharedDevices(t, ranks)
		model, err := NewModel(p, Shard{Over: over}, ranks)
		require.NoError(t, err)
		comms, err := Local(ranks)
		require.NoError(t, err)
		var mu sync.Mutex
		var traces [ranks][2][]Event
		var spans [ranks][3]time.Time
		var outputs [ranks][2][]float32
		ctx := soon(t)
		require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) (err error) {
			r, err := New(c, devices[rank])
			if err != nil {
				return err
			}
			plan, err := r.Plan(ctx, p, Shard{Over: over})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, plan.Close()) }()
			x, err := s.place(ctx, devices[rank], plan)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, x.close()) }()
			forward := flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse}
			var notes Trace
			for i := range 2 {
				if i == 1 {
					plan.Trace(&notes)
				}
				begin := time.Now()
				if err := plan.Forward(ctx, forward); err != nil {
					return err
				}
				mu.Lock()
				traces[rank][0] = notes.Take()
				mu.Unlock()
				between := time.Now()
				if err := plan.Backward(ctx, flash.Backward{Forward: forward, DO: x.do, DQ: x.dq, DK: x.dk, DV: x.dv}); err != nil {
					return err
				}
				values := make([]float32, x.dk.Elements())
				if err := x.dk.Download(ctx, values); err != nil {
					return err
				}
				mu.Lock()
				traces[rank][1] = notes.Take()
				spans[rank] = [3]time.Time{begin, between, time.Now()}
				outputs[rank][i] = values
				mu.Unlock()
				if i == 0 && len(traces[rank][0])+len(traces[rank][1]) > 0 {
					return errors.New("what was not asked for was noted")
				}
			}
			plan.Trace(nil)
			if err := plan.Forward(ctx, forward); err != nil {
				return err
			}
			if len(notes.Take()) > 0 {
				return errors.New("what was ended goes on")
			}
			return nil
		})...))
		for rank := range ranks {
			require.Equal(t, outputs[rank][0], outputs[rank][1])
			moved := model.Moved(rank)
			for pass, want := range [2]float64{moved.ForwardReceived, moved.BackwardReceived} {
				events := traces[rank][pass]
				checkLanes(t, events, spans[rank][pass], spans[rank][pass+1])
				require.Equal(t, want, copiedBytes(events, CopyIn))
				if over == Heads { // what goes to each of the others is another thing
					require.Equal(t, [2]float64{moved.ForwardSent, moved.BackwardSent}[pass], copiedBytes(events, CopyOut))
				} else {
					require.Positive(t, copiedBytes(events, CopyOut))
				}
				steps := map[int]bool{}
				sums := 0
				for _, e := range events {
					if e.What == Kernels {
						steps[e.Step] = true
					}
					if e.What == Sums {
						sums++
					}
				}
				require.Positive(t, sums)
				require.Len(t, steps, len(model.Steps(rank)))
				for _, x := range model.Steps(rank) {
					require.True(t, steps[x.Number], "step %d of rank %d", x.Number, rank)
				}
			}
		}
	}
}

// TestTakePutsLanesInOrder: waits that return in another order than the device has ended, and calls that wait for one another, become one
// after the other.
func TestTakePutsLanesInOrder(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, int64(ms)*1e6) }
	var x Trace
	x.add(Event{What: Sums, Begin: at(5), End: at(19)}, 2) // submitted second, and seen first
	x.add(Event{What: Kernels, Begin: at(1), End: at(20)}, 1)
	x.late(Event{What: Kernels, Begin: at(25), End: at(30)}, 3, at(6)) // its block came late
	x.add(Event{What: Waiting, Begin: at(22), End: at(24)}, 0)         // for another
	x.add(Event{What: CopyIn, Begin: at(2), End: at(9)}, 0)
	x.add(Event{What: CopyIn, Begin: at(1), End: at(4)}, 0)
	x.add(Event{What: CopyOut, Begin: at(1), End: at(9)}, 0)
	require.Equal(t, []Event{
		{What: CopyIn, Begin: at(1), End: at(4)}, {What: CopyOut, Begin: at(1), End: at(9)}, {What: Kernels, Begin: at(1), End: at(19)},
		{What: CopyIn, Begin: at(4), End: at(9)}, {What: Sums, Begin: at(19), End: at(19)}, {What: Waiting, Begin: at(19), End: at(25)},
		{What: Kernels, Begin: at(25), End: at(30)},
	}, x.Take())
	require.Empty(t, x.Take())
	require.Empty(t, (*Trace)(nil).Take())
}
