package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeBench measures nothing: times come from a table, and it notes what was asked of it.
type fakeBench struct {
	log     []string
	ms      func(c Case, round int) float64
	rounds  map[Case]int
	fail    map[string]error // by impl
	noShape error
	open    int
	ceiling float64
}

func (b *fakeBench) Row(c Case) Row   { return Row{Library: "vkattn test", Case: c} }
func (b *fakeBench) Ceiling() float64 { return b.ceiling }

func (b *fakeBench) Shape(_ context.Context, c Case) (Shape, error) {
	if b.noShape != nil {
		return nil, b.noShape
	}
	b.open++
	return &fakeShape{b, c}, nil
}

type fakeShape struct {
	b *fakeBench
	c Case
}

func (s *fakeShape) Close() error { s.b.open--; return nil }

func (s *fakeShape) Measure(_ context.Context, impl string, check bool) Row {
	c := s.c
	c.Impl = impl
	s.b.log = append(s.b.log, fmt.Sprintf("%s N%d check=%t", impl, c.N, check))
	row := s.b.Row(c)
	if err := s.b.fail[impl]; err != nil {
		row.fail(err)
		return row
	}
	if s.b.rounds == nil {
		s.b.rounds = map[Case]int{}
	}
	ms := s.b.ms(c, s.b.rounds[c])
	s.b.rounds[c]++
	row.Fwd = Pass{Ms: ms, P20: ms, P80: ms, TFLOPS: c.ForwardFLOPs() / ms / 1e9, N: 10}
	row.samples = []float64{ms, ms}
	return row
}

func twoShapes(t *testing.T) []Case {
	t.Helper()
	cases, err := Grid{Batch: []int{1}, Heads: []int{1}, Seq: []int{64, 128}, Causal: no}.Expand()
	require.NoError(t, err)
	return cases
}

func collect(rows *[]Row) func(Row) error {
	return func(r Row) error { *rows = append(*rows, r); return nil }
}

func TestSweepInterleavesAndTakesMedians(t *testing.T) {
	b := &fakeBench{ms: func(c Case, round int) float64 { return []float64{3, 1, 2}[round] }}
	var rows []Row
	var steps []int
	s := Sweep{Bench: b, Cases: twoShapes(t), Rounds: 3, OnRow: collect(&rows), Progress: func(step, total int, _ string) {
		require.Equal(t, 12, total)
		steps = append(steps, step)
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
	b := &fakeBench{ms: func(Case, int) float64 { return 1 }, fail: map[string]error{"standard": errors.New("broken")}}
	var rows []Row
	s := Sweep{Bench: b, Cases: twoShapes(t), Rounds: 2, OnRow: collect(&rows)}
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
	var rows []Row
	s := Sweep{Bench: b, Cases: twoShapes(t), OnRow: collect(&rows)}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	for _, r := range rows {
		require.Equal(t, "no room", r.Error)
	}
}

func TestSweepLeavesOutWhatIsThere(t *testing.T) {
	b := &fakeBench{ms: func(Case, int) float64 { return 1 }}
	cases := twoShapes(t)
	var rows []Row
	s := Sweep{Bench: b, Cases: cases, OnRow: collect(&rows), Have: func(c Case) bool { return c.N == 64 || c.Impl == "standard" }}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 1)
	require.Equal(t, cases[3], rows[0].Case)
}

func TestSweepSkipsWhatWouldTakeTooLong(t *testing.T) {
	// 2 ms at N 64 predict 8 ms at N 128.
	b := &fakeBench{ms: func(c Case, _ int) float64 { return 2 * float64(c.N*c.N) / (64 * 64) }}
	var rows []Row
	s := Sweep{Bench: b, Cases: twoShapes(t), OnRow: collect(&rows), Limit: 5 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	require.Len(t, rows, 4)
	require.Empty(t, rows[0].Error)
	require.Contains(t, rows[2].Error, "skipped: one run is predicted to take")
	require.Equal(t, ReasonLimit, rows[2].Reason)
	require.InDelta(t, 8, rows[2].PredictedMs, 1e-9)
	require.True(t, rows[2].Skipped())
	require.False(t, rows[2].Failed())

	// A run that does not fill the device predicts nothing.
	b = &fakeBench{ms: func(c Case, _ int) float64 { return float64(c.N*c.N) / (64 * 64) }}
	rows = nil
	s = Sweep{Bench: b, Cases: twoShapes(t), OnRow: collect(&rows), Limit: 3 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	for _, r := range rows {
		require.Empty(t, r.Error)
	}

	// Nothing has run yet: the device's ceiling predicts.
	b = &fakeBench{ms: b.ms, ceiling: 1e6}
	rows = nil
	s = Sweep{Bench: b, Cases: twoShapes(t), OnRow: collect(&rows), Limit: 3 * time.Millisecond}
	require.NoError(t, s.Run(context.Background()))
	for _, r := range rows {
		require.Equal(t, ReasonLimit, r.Reason)
	}
	require.Empty(t, b.log)
}

func TestSweepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	b := &fakeBench{}
	b.ms = func(c Case, _ int) float64 {
		if c.N == 128 {
			cancel()
		}
		return 1
	}
	var rows []Row
	s := Sweep{Bench: b, Cases: twoShapes(t), OnRow: collect(&rows)}
	require.ErrorIs(t, s.Run(ctx), context.Canceled)
	require.Len(t, rows, 2, "the first shape is kept")
	require.Zero(t, b.open)
}

func TestSweepStopsWhenRowsCannotBeWritten(t *testing.T) {
	b := &fakeBench{ms: func(Case, int) float64 { return 1 }}
	full := errors.New("disk full")
	s := Sweep{Bench: b, Cases: twoShapes(t), OnRow: func(Row) error { return full }}
	require.ErrorIs(t, s.Run(context.Background()), full)
	require.Zero(t, b.open)
}
