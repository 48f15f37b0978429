package ranks

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
)

func devices(t *testing.T, n int) []*flash.Device {
	t.Helper()
	all, err := ring.Open(n, true, flash.WithoutDiskCache())
	if err != nil {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		for _, d := range all {
			require.NoError(t, d.Close())
		}
	})
	return all
}

// TestMeasure: a small problem on two ranks, and streamed, has figures, and results that were compared with float64.
func TestMeasure(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 300, HeadDim: 32, DType: flash.F16, Causal: flash.CausalBottomRight}
	for _, stream := range []bool{false, true} {
		lanes := [2][]result.RingLane{}
		r := Measure(t.Context(), devices(t, 2), p, Options{Backward: true, Stream: stream, Runs: 2, Timeout: 5 * time.Minute,
			Lanes: func(backward bool, all []result.RingLane) {
				i := 0
				if backward {
					i = 1
				}
				lanes[i] = all
			}})
		require.Empty(t, r.Error)
		for i, x := range []*result.RingPass{&r.Fwd, &r.Bwd} {
			tr := x.Traced
			require.NotNil(t, tr)
			require.InDelta(t, tr.Ms, tr.Kernels+tr.Sums+tr.Idle, 1e-3*tr.Ms+1e-3)
			require.LessOrEqual(t, tr.Waiting, tr.Idle)
			// Not how long they took: on a busy machine the host may see all of so small a pass end at once.
			require.NotEmpty(t, spansOf(lanes[i], result.WhatKernels))
			require.NotEmpty(t, spansOf(lanes[i], result.WhatCopy))
			share, known := x.HiddenPercent()
			require.Equal(t, tr.Copies > 0, known)
			require.True(t, share >= 0 && share <= 100, share)
			require.NotEmpty(t, tr.Lanes)
			require.GreaterOrEqual(t, len(spansOf(lanes[i], "")), len(spansOf(tr.Lanes, "")))
			for _, l := range tr.Lanes {
				require.Less(t, l.Rank, r.Ranks)
			}
		}
		require.Equal(t, map[bool]string{false: result.OverRing, true: result.OverHost}[stream], r.Over)
		require.Positive(t, r.Fwd.Speed)
		require.Positive(t, r.Bwd.Speed)
		require.Positive(t, r.Both)
		require.Positive(t, r.MemoryOne)
		require.Positive(t, r.MemoryRank)
		require.Positive(t, *r.MaxErr)
		require.Less(t, *r.MaxErr, 5e-3)
		require.Positive(t, r.ErrRows)
	}
	p.Heads = 0
	require.Contains(t, Measure(t.Context(), devices(t, 1), p, Options{}).Error, "Problem.Heads")
}

// spansOf are spans of one kind, of all for "".
func spansOf(lanes []result.RingLane, what string) (of []result.RingSpan) {
	for _, l := range lanes {
		for _, s := range l.Spans {
			if what == "" || s.What == what {
				of = append(of, s)
			}
		}
	}
	return of
}

// TestOver: what is asked for is taken; left to the plan, a link without speed is given as few bytes as can be.
func TestOver(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 2, QueryLen: 256, HeadDim: 32, DType: flash.F16}
	o := Options{Runs: 1, Timeout: time.Minute}
	all := devices(t, 2)
	measure := func(over string, link Link) Result {
		o.Over, o.Link = over, link
		r := Measure(t.Context(), all, p, o)
		require.Empty(t, r.Error)
		require.Equal(t, float64(128*2*2*32*2), r.RingBytes) // keys and values, of two heads
		// Half of the heads of the other's q, k, v; then o in as many bytes, and lse.
		require.Equal(t, float64(128*(4*32*2+4)), r.HeadsBytes)
		return r
	}
	require.Equal(t, result.OverHeads, measure(result.OverHeads, Link{}).Over)
	slow := measure(OverAuto, Link{GBps: 1e-6, Us: 1})
	require.True(t, slow.Chosen)
	require.Equal(t, result.OverRing, slow.Over)
	require.Equal(t, 1e-6, slow.LinkGBps)
	require.Less(t, slow.Fwd.Predicted, 0.1, "the link holds all up")
	require.InDelta(t, 2, measure(result.OverRing, Link{GBps: 1e6}).Fwd.Predicted, 1e-3, "and here nothing")
	p.Heads, p.KeyHeads = 3, 3
	o.Over = result.OverHeads
	require.Contains(t, Measure(t.Context(), all, p, o).Error, "must be a multiple of 2")
}

// TestOverHosts: heads within two hosts of two ranks each, beside what is known of one device.
func TestOverHosts(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 2, QueryLen: 256, HeadDim: 32, DType: flash.F16}
	o := Options{Runs: 1, Timeout: time.Minute, Over: result.OverBoth, PerHost: 2, Backward: true, Link: Link{GBps: 1e6}, Alone: &Alone{}}
	all := devices(t, 4)
	first := Measure(t.Context(), all, p, o)
	require.Empty(t, first.Error)
	require.Equal(t, result.OverBoth, first.Over)
	require.Equal(t, 2, first.PerHost)
	require.Positive(t, *first.MaxErr)
	require.InDelta(t, 4, first.Bwd.Predicted, 1e-2)
	require.False(t, first.Again)
	o.Backward = false // which has less in memory on one device
	second := Measure(t.Context(), all, p, o)
	require.Empty(t, second.Error)
	require.False(t, second.Again)
	// A block of the other host, of one head; the head's part of the neighbour's q, k, v; then o, and lse.
	require.Equal(t, float64(128*2*32*2+64*3*32*2+64*(32*2+4)), second.BothBytes)
	o.Over = result.OverRing
	third := Measure(t.Context(), all, p, o)
	require.Empty(t, third.Error)
	require.True(t, third.Again)
	require.Equal(t, second.Fwd.One, third.Fwd.One)
	require.Equal(t, second.MemoryOne, third.MemoryOne)
	require.Zero(t, third.PerHost)
	require.Zero(t, third.BothBytes)
}

// TestEnough: passes run often enough and long enough, but those that take very long only twice.
func TestEnough(t *testing.T) {
	o := Options{Runs: 5, Least: time.Second, Most: 10 * time.Second}
	for _, c := range []struct {
		n    int
		took time.Duration
		want bool
	}{{4, 9 * time.Second, false}, {5, 500 * time.Millisecond, false}, {5, 1100 * time.Millisecond, true}, {1, time.Minute, false},
		{2, 11 * time.Second, true}} {
		require.Equal(t, c.want, o.enough(c.n, time.Now().Add(-c.took)), c)
	}
	o.Most = 0
	require.False(t, o.enough(4, time.Now().Add(-time.Hour)))
}

// TestSummary: shares of a pass of two ranks, by hand.
func TestSummary(t *testing.T) {
	rank := func(n int, ms float64, waits []interval, lanes ...result.RingLane) noted {
		for i := range lanes {
			lanes[i].Rank = n
		}
		return noted{ms, lanes, waits}
	}
	x := summary([]noted{
		rank(0, 10, []interval{{3, 5}}, result.RingLane{Lane: result.LaneCompute,
			Spans: []result.RingSpan{{What: result.WhatKernels, Begin: 0, End: 4}, {What: result.WhatSums, Begin: 5, End: 6},
				{What: result.WhatKernels, Begin: 6, End: 9}}},
			result.RingLane{Lane: result.LaneIn, Spans: []result.RingSpan{{What: result.WhatCopy, Begin: 2, End: 6}}}),
		rank(1, 9, nil, result.RingLane{Lane: result.LaneCompute, Spans: []result.RingSpan{{What: result.WhatKernels, Begin: 0, End: 6}}},
			result.RingLane{Lane: result.LaneOut, Spans: []result.RingSpan{{What: result.WhatCopy, Begin: 5, End: 9}}}),
	})
	lanes := x.Lanes
	x.Lanes = nil
	require.Equal(t, &result.RingTrace{Ms: 10, Kernels: 6.5, Sums: 0.5, Idle: 3, Waiting: 0.5, Copies: 8, Hidden: 0.5}, x)
	require.Len(t, lanes, 4)
}

// TestMerged: what follows the same at once is one span, and no more are left than a line of a file has room for.
func TestMerged(t *testing.T) {
	lane := result.RingLane{Lane: result.LaneIn, Spans: []result.RingSpan{{What: result.WhatCopy, Begin: 0, End: 1, Bytes: 5},
		{What: result.WhatCopy, Begin: 1, End: 2, Bytes: 6}, {What: result.WhatCopy, Begin: 50, End: 51, Bytes: 7}}}
	require.Equal(t, []result.RingSpan{{What: result.WhatCopy, Begin: 0, End: 2, Bytes: 11},
		{What: result.WhatCopy, Begin: 50, End: 51, Bytes: 7}}, merged([]result.RingLane{lane}, 100)[0].Spans)
	lane.Spans = nil
	for i := range 10 * mostSpans {
		lane.Spans = append(lane.Spans, result.RingSpan{What: []string{result.WhatKernels, result.WhatSums}[i%2], Begin: float64(i),
			End: float64(i) + 0.5})
	}
	out := merged([]result.RingLane{lane}, 10*mostSpans)
	require.LessOrEqual(t, len(out[0].Spans), mostSpans)
	require.Equal(t, lane.Spans[len(lane.Spans)-1].End, out[0].Spans[len(out[0].Spans)-1].End)
}

// sending counts the bytes of messages.
type sending struct {
	ring.Comm
	bytes *atomic.Int64
}

func (s sending) Send(ctx context.Context, to int, tag ring.Tag, data []byte) error {
	s.bytes.Add(int64(len(data)))
	return s.Comm.Send(ctx, to, tag, data)
}

// TestMeasureExchange: ranks that map one another's memory have one link, and those that send.
func TestMeasureExchange(t *testing.T) {
	all := devices(t, 2)
	imports := runtime.GOOS == "linux"
	for _, d := range all {
		m, err := hostmem.NewMover(d)
		require.NoError(t, err)
		h, err := hostmem.NewShared(1)
		require.NoError(t, err)
		imports = imports && m.Imports(h)
		require.NoError(t, errors.Join(h.Close(), m.Close()))
	}
	for _, maps := range []bool{true, false} {
		comms, err := ring.Local(2)
		require.NoError(t, err)
		var links [2]Link
		var errs [2]error
		var bytes atomic.Int64
		var wait sync.WaitGroup
		for rank := range all {
			var c ring.Comm = sending{comms[rank], &bytes}
			if !maps {
				c = ring.Record(c)
			}
			wait.Go(func() { links[rank], errs[rank] = MeasureExchange(t.Context(), c, all[rank], 1<<18) })
		}
		wait.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		require.Equal(t, links[0].GBps, links[1].GBps)
		require.Positive(t, links[0].GBps)
		require.Positive(t, links[0].Us)
		require.Equal(t, maps && imports, bytes.Load() == 0, "%d bytes were sent", bytes.Load())
	}
	one, err := ring.Local(1)
	require.NoError(t, err)
	alone, err := MeasureExchange(t.Context(), one[0], all[0], 1<<18)
	require.NoError(t, err)
	require.Positive(t, alone.GBps)
}

// TestSlowest: links between devices count where there are any.
func TestSlowest(t *testing.T) {
	together := []Link{{From: 0, To: 1, GBps: 40, Us: 1}, {From: 0, To: 1, With: Others, GBps: 17, Us: 3}, {From: 1, To: 0, With: Others,
		GBps: 16, Us: 2}, {From: -1, To: 0, With: BothWays, GBps: 5, Us: 9}}
	shared, err := Slowest(together)
	require.NoError(t, err)
	require.Equal(t, Link{GBps: 16, Us: 3}, shared, "what links make while all send")
	l, err := Slowest([]Link{{From: -1, To: 0, GBps: 1, Us: 99}, {From: 0, To: 1, GBps: 20, Us: 5}, {From: 1, To: 0, GBps: 10, Us: 7}})
	require.NoError(t, err)
	require.Equal(t, Link{GBps: 10, Us: 7}, l)
	for _, bad := range [][]Link{nil, {{From: 0, To: 1}}, {{From: 0, To: 1, GBps: -1}}, {{From: 0, To: 1, GBps: 1, Us: -1}}} {
		_, err := Slowest(bad)
		require.ErrorContains(t, err, "info --links --json")
	}
}

// TestCheckFinds: a result that is off is found.
func TestCheckFinds(t *testing.T) {
	d := devices(t, 1)[0]
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 40, HeadDim: 16, DType: flash.F32}.Normalize()
	require.NoError(t, err)
	o, err := d.NewTensor(flash.F32, 1, 1, 40, 16)
	require.NoError(t, err)
	require.NoError(t, o.Upload(t.Context(), make([]float32, o.Elements())))
	_, err = newNoise(flash.F32).check(t.Context(), p, o, []ring.Span{{End: 40}})
	require.ErrorContains(t, err, "should be")
}

// TestLinks: every pair of ends has a rate.
func TestLinks(t *testing.T) {
	links, err := MeasureLinks(t.Context(), devices(t, 2), 1<<20)
	require.NoError(t, err)
	with := map[string]int{}
	for _, l := range links {
		require.Positive(t, l.GBps)
		require.Positive(t, l.Us)
		require.NotEqual(t, l.From, l.To)
		with[l.With]++
	}
	require.Equal(t, map[string]int{"": 6, Others: 6, BothWays: 4}, with)
}
