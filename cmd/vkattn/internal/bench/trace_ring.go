package bench

import (
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// AddRing appends a traced pass of several devices: a process for each rank, whose threads are its lanes. Times are of the host's clock.
func (t *Trace) AddRing(row result.RingRow, backward bool, lanes []result.RingLane) {
	name, pass := row.Problem, row.Fwd
	if backward {
		name, pass = name+", backward", row.Bwd
	}
	args := map[string]any{"ranks": row.Ranks, "over": row.Over, "order": row.Order, "median_ms": result.Round(pass.Ranks),
		"one_device_ms": result.Round(pass.One)}
	end := 0.0
	if hidden, known := pass.HiddenPercent(); known {
		args["hidden_percent"] = result.Round(hidden)
	}
	var spans []traceEvent
	for _, l := range lanes {
		for _, s := range l.Spans {
			e := traceEvent{Name: s.What, Phase: "X", TS: t.now + 1e3*s.Begin, Dur: 1e3 * (s.End - s.Begin), PID: traceRanks + l.Rank,
				TID: slices.Index(result.RingLanes, l.Lane) + 1,
				Cat: l.Lane, Args: map[string]any{"step": s.Step}}
			if l.Lane != result.LaneCompute {
				e.Args = map[string]any{"bytes": s.Bytes}
				if s.End > s.Begin {
					e.Args["GB/s"] = result.Round(s.Bytes / (s.End - s.Begin) / 1e6)
				}
			}
			spans = append(spans, e)
			end = max(end, s.End)
		}
	}
	if pass.Traced != nil {
		end = max(end, pass.Traced.Ms)
	}
	t.events = append(t.events, traceEvent{Name: name, Phase: "X", TS: t.now, Dur: 1e3 * end, PID: 1, TID: traceRows, Cat: "row",
		Args: args})
	t.events = append(t.events, spans...)
	t.now += 1e3*end + traceGap
	t.ranks = max(t.ranks, row.Ranks)
}
