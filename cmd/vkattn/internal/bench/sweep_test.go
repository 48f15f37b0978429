package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// fakeBench measures nothing: times come from a table, and it notes what was asked of it.
type fakeBench struct {
	log     []string
	ms      func(c result.Case, round int) float64
	rounds  map[result.Case]int
	fail    map[string]error // by impl
	noShape error
	open    int
	ceiling float64
	slower  float64 // backward's time over forward's; 0: there is no backward
}

func (b *fakeBench) Row(c result.Case) result.Row {
	return result.Row{Origin: result.Origin{Library: "vkattn test"}, Case: c}
}

func (b *fakeBench) Ceiling() float64 { return b.ceiling }

func (b *fakeBench) Shape(_ context.Context, c result.Case, p result.Passes) (Shape, error) {
	if b.noShape != nil {
		return nil, b.noShape
	}
	b.open++
	return &fakeShape{b, c, p}, nil
}

type fakeShape struct {
	b *fakeBench
	c result.Case
	p result.Passes
}

func (s *fakeShape) Close() error { s.b.open--; return nil }

func (s *fakeShape) Measure(_ context.Context, j result.Job, check bool) result.Row {
	c := j.Case
	s.b.log = append(s.b.log, fmt.Sprintf("%s N%d check=%t", c.Impl, c.N, check))
	row := s.b.Row(c)
	if c.Shape() != s.c.Shape() || j.Passes.Bwd && !s.p.Bwd {
		row.Fail(FailureOf(fmt.Errorf("the shape is %v for passes %v", s.c, s.p)))
		return row
	}
	if err := s.b.fail[c.Impl]; err != nil {
		row.Fail(FailureOf(err))
		return row
	}
	if s.b.rounds == nil {
		s.b.rounds = map[result.Case]int{}
	}
	ms := s.b.ms(c, s.b.rounds[c])
	s.b.rounds[c]++
	pass := func(ms float64) result.Pass {
		p := result.Pass{TFLOPS: c.ForwardFLOPs() / ms / 1e9}
		p.Timed(slices.Repeat([]float64{ms}, 10))
		return p
	}
	if j.Passes.OrDefault().Fwd {
		row.Fwd = pass(ms)
	}
	if j.Passes.Bwd {
		row.Bwd = pass(s.b.slower * ms)
		if s.b.slower == 0 {
			row.Bwd, row.BwdFailure.Error, row.BwdFailure.Reason = result.Pass{}, "no backward", result.ReasonUnsupported
		}
	}
	return row
}

func twoShapes(t *testing.T) []result.Job {
	t.Helper()
	cases, err := result.Grid{Batch: []int{1}, Heads: []int{1}, Seq: []int{64, 128}, Causal: no}.Expand()
	require.NoError(t, err)
	return result.JobsOf(cases, result.Passes{})
}

func collect(rows *[]result.Row) func(result.Row) error {
	return func(r result.Row) error { *rows = append(*rows, r); return nil }
}

func TestSweepInterleavesAndTakesMedians(t *testing.T) {
	b := &fakeBench{ms: func(c result.Case, round int) float64 { return []float64{3, 1, 2}[round] }}
	var rows []result.Row
	var steps []int
	s := Sweep{Bench: b, Jobs: twoShapes(t), Rounds: 3, OnRow: collect(&rows), Progress: func(step, total int, _ string) {
		require.Equal(t, 12, total)
		if len(steps) == 0 || steps[len(steps)-1] != step { // a step is told more than once
			steps = append(steps, step)
		}
	}}
	require.NoError(t, s.Run(context.Background()))
	require.Equal(t, []string{
		"standard N64 check=true", "flash2 N64 check=true",
		"standard N64 check=false", "flash2 N64 check=false",
		"standard N64 check=false", "flash2 N64 check=false",
	}, b.log[:6])
	require.Len(t, rows, 4)
	require.Zero(t, b.open, "every shape is closed")
	for _, r := range rows {
		require.Equal(t, 2.0, r.Fwd.Ms)
		require.Equal(t, []float64{3, 1, 2}, r.Fwd.Rounds)
		require.Equal(t, 30, r.Fwd.N)
		require.Equal(t, 1.0, r.Fwd.P20)
		require.Equal(t, 3.0, r.Fwd.P80)
		require.InDelta(t, r.ForwardFLOPs()/2e9, r.Fwd.TFLOPS, 1e-9)
	}
	require.Len(t, steps, 12)
	require.Equal(t, 12, steps[11])
}

func TestSweepFailedRowsDoNotLoseTheOthers(t *testing.T) {
	b := &fakeBench{ms: func(result.Case, int) float64 { return 1 }, fail: map[string]error{"standard": errors.New("broken")}}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: twoShapes(t), Rounds: 2, OnRow: collect(&rows)}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	require.Equal(t, "broken", rows[0].Error)
	require.True(t, rows[0].Failed())
	require.Zero(t, rows[0].Fwd)
	require.Empty(t, rows[1].Error)
	require.Equal(t, 1.0, rows[1].Fwd.Ms)
	require.Len(t, b.log, 2*(1+2), "a failed row is not tried again in the next round")
}

func TestSweepInputsThatDoNotFit(t *testing.T) {
	b := &fakeBench{noShape: errors.New("no room")}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: twoShapes(t), OnRow: collect(&rows)}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	for _, r := range rows {
		require.Equal(t, "no room", r.Error)
	}
}

func TestSweepLeavesOutWhatIsThere(t *testing.T) {
	b := &fakeBench{ms: func(result.Case, int) float64 { return 1 }}
	cases := twoShapes(t)
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: cases, OnRow: collect(&rows), Have: func(c result.Case) bool { return c.N == 64 || c.Impl == "standard" }}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 1)
	require.Equal(t, cases[3].Case, rows[0].Case)
}

// TestSweepAsksThePeerForWhatIsMissing: all of a shape that is measured, and else what an earlier run has not, for the passes of all jobs.
func TestSweepAsksThePeerForWhatIsMissing(t *testing.T) {
	jobs := twoShapes(t)
	jobs[3].Passes = both
	var own []int // that are to be measured
	var lacks func(j result.Job) bool
	s := Sweep{Jobs: jobs, Peer: &Peer{}, PeerImpls: []string{"fa2", "cudnn"},
		Have: func(c result.Case) bool {
			return !slices.ContainsFunc(own, func(i int) bool { return jobs[i].Case == c })
		},
		HavePeer: func(j result.Job) bool { return !lacks(j) }}
	asked := func() (out []string) {
		for _, g := range s.groups() {
			for _, j := range slices.Concat(g.own, g.peer) {
				out = append(out, fmt.Sprint(j.Case.Impl, " N", j.Case.N, " ", j.Passes.Bwd))
			}
		}
		return out
	}
	lacks = func(result.Job) bool { return false }
	require.Empty(t, asked())
	lacks = func(j result.Job) bool { return j.Case.Impl == "cudnn" && j.Case.N == 128 }
	require.Equal(t, []string{"cudnn N128 true"}, asked())
	own = []int{0}
	require.Equal(t, []string{"standard N64 false", "fa2 N64 false", "cudnn N64 false", "cudnn N128 true"}, asked())
	s.Peer = nil
	require.Equal(t, []string{"standard N64 false"}, asked())
}

func TestSweepSkipsWhatWouldTakeTooLong(t *testing.T) {
	// 2 ms at N 64 predict 8 ms at N 128.
	b := &fakeBench{ms: func(c result.Case, _ int) float64 { return 2 * float64(c.N*c.N) / (64 * 64) }}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: twoShapes(t), OnRow: collect(&rows), Limit: 5 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	require.Empty(t, rows[0].Error)
	require.Contains(t, rows[2].Error, "skipped: one run is predicted to take 0.008 s at the rate of a row like it, over the limit")
	require.Equal(t, result.ReasonLimit, rows[2].Reason)
	require.InDelta(t, 8, rows[2].PredictedMs, 1e-9)
	require.True(t, rows[2].Skipped())
	require.False(t, rows[2].Failed())

	// What is most like it predicts: the last size, not the fastest; and rows of an earlier run do.
	b = &fakeBench{ms: func(c result.Case, _ int) float64 { return 2 * float64(c.N*c.N*c.N) / (64 * 64 * 64) }}
	rows = nil
	cases, err := result.Grid{Batch: []int{1}, Heads: []int{1}, Seq: []int{64, 128, 256}, Causal: no}.Expand()
	require.NoError(t, err)
	s = Sweep{Bench: b, Jobs: result.JobsOf(cases, result.Passes{}), OnRow: collect(&rows), Limit: 20 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 6)
	require.Empty(t, rows[2].Error)
	require.InDelta(t, 4*16, rows[4].PredictedMs, 1e-9, "at the rate of N 64 it is 32 ms")
	later := rows[4:]
	s = Sweep{Bench: b, Jobs: result.JobsOf(cases[4:], result.Passes{}), OnRow: collect(&later),
		Limit: 20 * time.Millisecond, Known: rows[:4]}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, later, 4)
	require.InDelta(t, 4*16, later[2].PredictedMs, 1e-9)

	// A run that does not fill the device predicts nothing.
	b = &fakeBench{ms: func(c result.Case, _ int) float64 { return float64(c.N*c.N) / (64 * 64) }}
	rows = nil
	s = Sweep{Bench: b, Jobs: twoShapes(t), OnRow: collect(&rows), Limit: 3 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	for _, r := range rows {
		require.Empty(t, r.Error)
	}

	// Nothing has run yet: the device's ceiling predicts.
	b = &fakeBench{ms: b.ms, ceiling: 1e6}
	rows = nil
	s = Sweep{Bench: b, Jobs: twoShapes(t), OnRow: collect(&rows), Limit: 3 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	for _, r := range rows {
		require.Equal(t, result.ReasonLimit, r.Reason)
		require.Contains(t, r.Error, "predicted to take at least ")
		require.Contains(t, r.Error, "at the device's measured peak (no run of "+r.Impl+
			" in float16 that fills the device has been measured yet)")
	}
	require.Empty(t, b.log)
}

func TestSweepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	b := &fakeBench{}
	b.ms = func(c result.Case, _ int) float64 {
		if c.N == 128 {
			cancel()
		}
		return 1
	}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: twoShapes(t), OnRow: collect(&rows)}
	require.ErrorIs(t, s.Run(ctx), context.Canceled)
	require.Len(t, rows, 2, "the first shape is kept")
	require.Zero(t, b.open)
}

func TestSweepStopsWhenRowsCannotBeWritten(t *testing.T) {
	b := &fakeBench{ms: func(result.Case, int) float64 { return 1 }}
	full := errors.New("disk full")
	s := Sweep{Bench: b, Jobs: twoShapes(t), OnRow: func(result.Row) error { return full }}
	require.ErrorIs(t, s.Run(context.Background()), full)
	require.Zero(t, b.open)
}

// TestSweepOfPasses: each job has its own passes, and the shape what any of them needs.
func TestSweepOfPasses(t *testing.T) {
	b := &fakeBench{ms: func(result.Case, int) float64 { return 4 }, slower: 2}
	jobs := twoShapes(t)
	jobs[0].Passes, jobs[1].Passes, jobs[3].Passes = result.Passes{Fwd: true}, result.Passes{Fwd: true, Bwd: true}, result.Passes{Bwd: true}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: jobs, Rounds: 2, OnRow: collect(&rows)}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	for i, want := range [][2]float64{{4, 0}, {4, 8}, {4, 0}, {0, 8}} {
		require.Empty(t, rows[i].Error)
		require.Equal(t, want, [2]float64{rows[i].Fwd.Ms, rows[i].Bwd.Ms}, i)
	}
	require.Equal(t, []float64{8, 8}, rows[1].Bwd.Rounds)
	require.Equal(t, 8.0, rows[1].Bwd.P80)

	// Backward that cannot be does not cost forward.
	b.slower, rows = 0, nil
	require.NoError(t, s.Run(context.Background()))
	require.Equal(t, 4.0, rows[1].Fwd.Ms)
	require.Zero(t, rows[1].Bwd)
	require.Equal(t, "no backward", rows[1].BwdFailure.Error)
	require.False(t, rows[1].Failed())
	require.True(t, jobs[1].Passes.Done(rows[1]))
}

// TestPredictionCountsThePasses: backward is 2.5 times forward's operations, at its own rate where that is known.
func TestPredictionCountsThePasses(t *testing.T) {
	predict := func(b *fakeBench, p result.Passes, limit time.Duration) (rows []result.Row) {
		cases := twoShapes(t)
		jobs := []result.Job{{Case: cases[0].Case, Passes: p}, {Case: cases[2].Case, Passes: p}}
		s := Sweep{Bench: b, Jobs: jobs, OnRow: collect(&rows), Limit: limit}
		require.NoError(t, s.Run(context.Background()))
		require.Len(t, rows, 2)
		return rows
	}
	// The first shape takes 2 ms forward, so the second 8 ms.
	slow := func() *fakeBench {
		return &fakeBench{ms: func(c result.Case, _ int) float64 { return 2 * float64(c.N*c.N) / (64 * 64) }}
	}
	rows := predict(slow(), result.Passes{Fwd: true}, 10*time.Millisecond)
	require.Empty(t, rows[1].Error)
	b := slow()
	b.slower = 2
	for _, p := range []result.Passes{{Fwd: true, Bwd: true}, {Bwd: true}} {
		rows = predict(b, p, 10*time.Millisecond)
		require.Contains(t, rows[1].Error, "skipped: one run forward and backward is predicted to take", "%v", p)
		require.Equal(t, result.ReasonLimit, rows[1].Reason)
		if p.Fwd {
			require.InDelta(t, 8+16, rows[1].PredictedMs, 1e-9, "at the rates of both passes")
		} else { // forward's rate is not known, and it is a smaller part
			require.InDelta(t, (1+1/result.BackwardWork)*16, rows[1].PredictedMs, 1e-9)
		}
		require.Empty(t, predict(b, p, 30*time.Millisecond)[1].Error)
	}
	// No backward has run: at forward's rate.
	b.slower = 0
	rows = predict(b, result.Passes{Fwd: true, Bwd: true}, 10*time.Millisecond)
	require.InDelta(t, 8*(1+result.BackwardWork), rows[1].PredictedMs, 1e-9)
	// Nothing has run: at the device's ceiling.
	b = slow()
	b.ceiling = twoShapes(t)[0].Case.ForwardFLOPs() // a second
	rows = predict(b, result.Passes{Fwd: true, Bwd: true}, 3*time.Second)
	require.InDelta(t, 1e3*(1+result.BackwardWork), rows[0].PredictedMs, 1e-6)
}

// Axes of tests.
var (
	no   = []bool{false}
	both = result.Passes{Fwd: true, Bwd: true}
)
