package ranks

import (
	"math"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/ring"
)

// noted is what one rank did in a traced pass.
type noted struct {
	Ms    float64 // from its beginning to its end
	Lanes []result.RingLane
	Waits []interval
}

// interval is from one time of a pass to another, in ms.
type interval struct{ Begin, End float64 }

// notes sorts a rank's events by lane.
func notes(rank int, events []ring.Event, begun, ended time.Time) noted {
	n := noted{Ms: ms(ended.Sub(begun))}
	at := map[string]*result.RingLane{}
	lanes := make([]result.RingLane, len(result.RingLanes))
	for i, name := range result.RingLanes {
		lanes[i] = result.RingLane{Rank: rank, Lane: name}
		at[name] = &lanes[i]
	}
	for _, e := range events {
		s := result.RingSpan{Step: e.Step, Begin: micros(max(0, ms(e.Begin.Sub(begun)))), End: micros(max(0, ms(e.End.Sub(begun)))),
			Bytes: float64(e.Bytes)}
		lane := result.LaneCompute
		switch e.What {
		case ring.Waiting:
			n.Waits = append(n.Waits, interval{s.Begin, s.End})
			continue
		case ring.Kernels:
			s.What = result.WhatKernels
		case ring.Sums:
			s.What = result.WhatSums
		case ring.CopyOut:
			s.What, lane = result.WhatCopy, result.LaneOut
		case ring.CopyIn:
			s.What, lane = result.WhatCopy, result.LaneIn
		}
		at[lane].Spans = append(at[lane].Spans, s)
	}
	for _, l := range lanes {
		if len(l.Spans) > 0 {
			n.Lanes = append(n.Lanes, l)
		}
	}
	return n
}

// micros rounds ms to a tenth of a microsecond.
func micros(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// summary is a pass of all ranks.
func summary(all []noted) *result.RingTrace {
	t := &result.RingTrace{}
	for _, n := range all {
		t.Ms = max(t.Ms, micros(n.Ms))
	}
	hidden, ranks := 0.0, float64(len(all))
	for _, n := range all {
		var computes, copies []interval
		for _, l := range n.Lanes {
			for _, s := range l.Spans {
				x := interval{s.Begin, s.End}
				switch s.What {
				case result.WhatKernels:
					t.Kernels += (x.End - x.Begin) / ranks
				case result.WhatSums:
					t.Sums += (x.End - x.Begin) / ranks
				}
				if l.Lane == result.LaneCompute {
					computes = append(computes, x)
				} else {
					copies = append(copies, x)
					t.Copies += x.End - x.Begin
				}
			}
		}
		for _, c := range copies {
			hidden += covered(c, computes)
		}
		for _, w := range n.Waits {
			t.Waiting += (w.End - w.Begin - covered(w, computes)) / ranks
		}
		t.Lanes = append(t.Lanes, n.Lanes...)
	}
	t.Idle = max(0, t.Ms-t.Kernels-t.Sums)
	t.Waiting = min(t.Waiting, t.Idle)
	if t.Copies > 0 {
		t.Hidden = min(1, hidden/t.Copies)
	}
	for _, v := range []*float64{&t.Kernels, &t.Sums, &t.Idle, &t.Waiting, &t.Copies} {
		*v = micros(*v)
	}
	t.Hidden = micros(t.Hidden)
	return t
}

// covered is how much of an interval lies in others, which do not overlap.
func covered(x interval, in []interval) (sum float64) {
	for _, y := range in {
		sum += max(0, min(x.End, y.End)-max(x.Begin, y.Begin))
	}
	return sum
}

// mostSpans is how many a row of a result file has of a pass.
const mostSpans = 4000

// merged are lanes for a result file: what follows the same at once is one span, and where there are too many, what follows it soon.
func merged(lanes []result.RingLane, of float64) []result.RingLane {
	for gap := of / 2000; ; gap *= 2 {
		out := make([]result.RingLane, len(lanes))
		n := 0
		for i, l := range lanes {
			out[i] = result.RingLane{Rank: l.Rank, Lane: l.Lane}
			for _, s := range l.Spans {
				if k := len(out[i].Spans) - 1; k >= 0 && s.Begin-out[i].Spans[k].End <= gap && (same(out[i].Spans[k], s) || gap > of/200) {
					out[i].Spans[k].End = s.End
					out[i].Spans[k].Bytes += s.Bytes
					continue
				}
				out[i].Spans = append(out[i].Spans, s)
			}
			n += len(out[i].Spans)
		}
		if n <= max(mostSpans, len(lanes)) || gap > of {
			return slices.Clip(out)
		}
	}
}

func same(a, b result.RingSpan) bool { return a.What == b.What && a.Step == b.Step }
