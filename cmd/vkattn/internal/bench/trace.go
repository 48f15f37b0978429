package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// Trace collects profiled runs, one for each row and pass: every dispatch with its name, its device time, and the bytes that its
// kernel's model gives it. Write makes of it what chrome://tracing and ui.perfetto.dev show.
type Trace struct {
	events []traceEvent
	now    float64 // µs: runs are laid one after the other
	ranks  int     // of AddRing, the most
}

// traceEvent is an event of the Trace Event Format: a span with its beginning and length in µs ("X"), or a name ("M").
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	TS    float64        `json:"ts"`
	Dur   float64        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Cat   string         `json:"cat,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Threads of a trace: rows lie above the dispatches that they are made of.
const (
	traceRows       = 1
	traceDispatches = 2
	traceGap        = 10 // µs between runs
)

// add appends a run of a pass of a row. steps are what the model knows of it; nil: nothing.
func (t *Trace) add(row result.Row, backward bool, timings []flash.Timing, steps []tune.Work) {
	name, kernel, ms := row.Case.String(), row.Kernel, row.Fwd.Ms
	if backward {
		name, kernel, ms = name+", backward", row.BwdKernel, row.Bwd.Ms
	}
	began, at := t.now, t.now
	same := map[string]int{} // dispatches of a name: a grid that was split, or slabs
	for _, d := range timings {
		same[d.Label]++
	}
	var spans []traceEvent
	for i, d := range timings {
		us := float64(d.Duration.Nanoseconds()) / 1e3
		args := map[string]any{"dispatch": i, "ns": d.Duration.Nanoseconds()}
		if w, ok := workOf(d.Label, steps); ok {
			n := float64(same[d.Label])
			args["bytes_read"], args["bytes_written"], args["flops"] = w.Read/n, w.Written/n, w.FLOPs/n
			if us > 0 {
				args["GB/s asked for"] = result.Round(w.Bytes() / n / us / 1e3)
				args["TFLOP/s"] = result.Round(w.FLOPs / n / us / 1e6)
			}
		}
		spans = append(spans, traceEvent{Name: d.Label, Phase: "X", TS: at, Dur: us, PID: 1, TID: traceDispatches, Cat: "dispatch",
			Args: args})
		at += us
	}
	t.events = append(t.events, traceEvent{Name: name, Phase: "X", TS: began, Dur: at - began, PID: 1, TID: traceRows, Cat: "row",
		Args: map[string]any{"kernel": kernel, "tier": row.Tier, "median_ms": result.Round(ms), "dispatches": len(timings)}})
	t.events = append(t.events, spans...)
	t.now = at + traceGap
}

// workOf gives the work of the dispatches of a label; false where no step names it.
func workOf(label string, steps []tune.Work) (tune.Work, bool) {
	own := slices.DeleteFunc(slices.Clone(steps), func(s tune.Work) bool { return s.Kernel != label })
	return tune.Total(own), len(own) > 0
}

// Rows is the number of runs in the trace.
func (t *Trace) Rows() int {
	n := 0
	for _, e := range t.events {
		if e.Cat == "row" {
			n++
		}
	}
	return n
}

// Write writes the trace as JSON, and of no runs nothing.
func (t *Trace) Write(w io.Writer, h result.Header) error {
	if len(t.events) == 0 {
		return nil
	}
	name := func(kind string, pid, tid int, text string) traceEvent {
		return traceEvent{Name: kind, Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": text}}
	}
	events := []traceEvent{name("process_name", 1, 0, h.Device), name("thread_name", 1, traceRows, "rows")}
	if t.ranks == 0 {
		events = append(events, name("thread_name", 1, traceDispatches, "dispatches"))
	}
	for rank := range t.ranks {
		events = append(events, name("process_name", traceRanks+rank, 0, fmt.Sprintf("rank %d, by the host's clock", rank)))
		for i, lane := range result.RingLanes {
			events = append(events, name("thread_name", traceRanks+rank, i+1, lane))
		}
	}
	events = append(events, t.events...)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ns",
		"otherData": map[string]any{"device": h.Device, "driver": h.Driver, "vkattn": h.VKAttn,
			"bytes": "as the kernel asks for; a cache may serve part of them"}})
}

// ErrNoTimestamps refuses a trace of a device whose queue has no timestamps.
var ErrNoTimestamps = errors.New("--trace: the device's queue has no timestamps, so its dispatches cannot be timed")

// Profile runs the passes of a measured row once more, after a warm-up, with a timestamp after each dispatch, and adds them to
// the trace.
func (d *Device) Profile(ctx context.Context, t *Trace, row result.Row) error {
	passes := result.Passes{Fwd: true, Bwd: row.Bwd.Ms > 0}
	p, err := d.ready(ctx, row.Case, passes)
	defer p.close()
	if err != nil {
		return err
	}
	steps, err := tune.ForwardModel(p.plan).Work(p.problem, row.Case.Call())
	if err != nil {
		return err
	}
	timings, err := timeDispatches(ctx, p.plan, func(r *flash.Recording) error { return r.Forward(p.forward) })
	if err != nil {
		return err
	}
	if row.Fwd.Ms > 0 {
		t.add(row, false, timings, steps)
	}
	if !passes.Bwd {
		return nil
	}
	model, err := tune.BackwardModel(p.plan)
	if err != nil {
		return err
	}
	if steps, err = model.Work(p.problem, row.Case.Call()); err != nil {
		return err
	}
	if timings, err = timeDispatches(ctx, p.plan, func(r *flash.Recording) error { return r.Backward(p.backward()) },
		flash.ForBackward()); err != nil {
		return err
	}
	t.add(row, true, timings, steps)
	return nil
}

// timeDispatches records a pass and gives the device time of each of its dispatches.
func timeDispatches(ctx context.Context, plan *flash.Plan, record func(*flash.Recording) error,
	opts ...flash.RecordingOption) ([]flash.Timing, error) {
	r, err := plan.NewRecording(append(opts, flash.WithTimestamps())...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !r.HasTimestamps() {
		return nil, ErrNoTimestamps
	}
	if err := record(r); err != nil {
		return nil, err
	}
	var timings []flash.Timing
	for range 2 { // the first run may still load code and touch fresh memory
		pending, err := r.Submit()
		if err != nil {
			return nil, err
		}
		if err := pending.Wait(ctx); err != nil {
			return nil, err
		}
		timings = pending.Timings()
	}
	return timings, nil
}

// traceRanks is the process that the first rank is in a trace; processes before show rows.
const traceRanks = 2

// traceStart is what every file of Trace.Write begins with: encoding/json writes keys in their order.
const traceStart = `{"displayTimeUnit":"ns","otherData":{"bytes":"as the kernel asks for`

// ReplaceableTrace says whether a file holds nothing, or a trace that Trace.Write wrote: what an earlier run of a sweep that is
// continued has left, of which the new trace has all rows.
func ReplaceableTrace(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start, err := io.ReadAll(io.LimitReader(f, int64(len(traceStart))))
	return err == nil && strings.HasPrefix(traceStart, string(start)) && (len(start) == 0 || len(start) == len(traceStart))
}
