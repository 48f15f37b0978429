package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/vkattn/vkattn/flash"
)

// Trace collects profiled runs, one for each row: every dispatch with its name, its device time, and the bytes that the
// tiling's model gives it. Write makes of it what chrome://tracing and ui.perfetto.dev show.
type Trace struct {
	events []traceEvent
	now    float64 // µs: runs are laid one after the other
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

// add appends a run. steps are what the model knows of it; nil: nothing.
func (t *Trace) add(row Row, timings []flash.Timing, steps []flash.Work) {
	began, at := t.now, t.now
	same := map[string]int{} // dispatches of a name: a grid that was split, or slabs
	for _, d := range timings {
		same[d.Label]++
	}
	var spans []traceEvent
	for i, d := range timings {
		us := float64(d.Duration.Nanoseconds()) / 1e3
		args := map[string]any{"dispatch": i, "ns": d.Duration.Nanoseconds()}
		if w, ok := workOf(d.Label, len(same) == 1, steps); ok {
			n := float64(same[d.Label])
			args["bytes_read"], args["bytes_written"], args["flops"] = w.Read/n, w.Written/n, w.FLOPs/n
			if us > 0 {
				args["GB/s asked for"] = round(w.Bytes() / n / us / 1e3)
				args["TFLOP/s"] = round(w.FLOPs / n / us / 1e6)
			}
		}
		spans = append(spans, traceEvent{Name: d.Label, Phase: "X", TS: at, Dur: us, PID: 1, TID: traceDispatches, Cat: "dispatch", Args: args})
		at += us
	}
	t.events = append(t.events, traceEvent{Name: row.Case.String(), Phase: "X", TS: began, Dur: at - began, PID: 1, TID: traceRows, Cat: "row",
		Args: map[string]any{"kernel": row.Kernel, "tier": row.Tier, "median_ms": round(row.Fwd.Ms), "dispatches": len(timings)}})
	t.events = append(t.events, spans...)
	t.now = at + traceGap
}

// workOf gives the work of the dispatches of a name: the step of standard attention that they are, or, of a kernel that stands
// alone, all of the pass.
func workOf(label string, alone bool, steps []flash.Work) (flash.Work, bool) {
	if len(steps) == 0 {
		return flash.Work{}, false
	}
	names := map[string][]string{"scores": {flash.StepScores}, "softmax": {flash.StepMask, flash.StepSoftmax, flash.StepDropout}, "product": {flash.StepValues}}
	wanted, part := names[label]
	if !part {
		return flash.Total(steps), alone
	}
	var own []flash.Work
	for _, s := range steps {
		for _, name := range wanted {
			if s.Name == name {
				own = append(own, s)
			}
		}
	}
	return flash.Total(own), true
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

// Write writes the trace as JSON.
func (t *Trace) Write(w io.Writer, h Header) error {
	name := func(kind string, tid int, text string) traceEvent {
		return traceEvent{Name: kind, Phase: "M", PID: 1, TID: tid, Args: map[string]any{"name": text}}
	}
	events := append([]traceEvent{name("process_name", 0, h.Device), name("thread_name", traceRows, "rows"), name("thread_name", traceDispatches, "dispatches")}, t.events...)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ns",
		"otherData": map[string]any{"device": h.Device, "driver": h.Driver, "vkattn": h.VKAttn, "bytes": "as the tiling asks for; a cache may serve part of them"}})
}

// errNoTimestamps ends a trace on a device whose queue has no timestamps.
var errNoTimestamps = errors.New("--trace: the device's queue has no timestamps, so its dispatches cannot be timed")

// Profile runs a measured row once more, after a warm-up, with a timestamp after each dispatch, and adds it to the trace.
func (d *Device) Profile(ctx context.Context, t *Trace, row Row) error {
	problem, err := row.Problem()
	if err != nil {
		return err
	}
	opts, err := d.options(row.Case)
	if err != nil {
		return err
	}
	set, err := d.newSet(ctx, row.Case, problem, Passes{Fwd: true}, inputSeed)
	if err != nil {
		return err
	}
	defer set.close()
	lse, err := d.dev.NewLSE(problem.Batch, problem.Heads, problem.QueryLen)
	if err != nil {
		return err
	}
	defer lse.Close()
	plan, err := d.dev.Plan(problem, opts...)
	if err != nil {
		return err
	}
	defer plan.Close()
	r, err := plan.NewRecording(flash.WithTimestamps())
	if err != nil {
		return err
	}
	defer r.Close()
	if !r.HasTimestamps() {
		return errNoTimestamps
	}
	if err := r.Forward(flash.Forward{Q: set.q, K: set.k, V: set.v, O: set.o, LSE: lse}); err != nil {
		return err
	}
	var timings []flash.Timing
	for range 2 { // the first run may still load code and touch fresh memory
		pending, err := r.Submit()
		if err != nil {
			return err
		}
		if err := pending.Wait(ctx); err != nil {
			return err
		}
		timings = pending.Timings()
	}
	var steps []flash.Work
	if tiling, ok := plan.Tiling(); ok {
		if steps, err = tiling.Forward(problem); err != nil {
			return err
		}
	}
	t.add(row, timings, steps)
	return nil
}
