package pipeline

// Timing is the GPU time of one operation.
type Timing struct {
	Label string
	GPUns float64 // nanoseconds
}

// A recording of n operations writes n+1 timestamps, all at the bottom of the pipe: one when everything before the recording
// has finished, and one when each operation and everything before it has. The time of an operation is the difference to the
// stamp before it: its own barrier included, and, where independent operations overlap, only what it adds. So the times add
// up to the whole.

// readTicks fetches the timestamps of the last execution.
func (r *Recording) readTicks() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if r.queries == nil || len(r.labels) == 0 || !r.sealed {
		return ErrNoTimestamps
	}
	r.ticks = r.ticks[:len(r.labels)+1]
	return r.queries.Results(0, r.ticks)
}

// Timings returns the GPU time of each operation in the last execution, which must have finished: after Wait, or, when the
// recording was written into another command buffer, after that was waited for. The slice is the recording's and holds until
// the next call.
func (r *Recording) Timings() ([]Timing, error) {
	if err := r.readTicks(); err != nil {
		return nil, err
	}
	r.timings = r.timings[:0]
	for i, label := range r.labels {
		r.timings = append(r.timings, Timing{Label: label, GPUns: r.queries.Nanoseconds(r.ticks[i], r.ticks[i+1])})
	}
	return r.timings, nil
}

// Nanoseconds returns the GPU time of the last execution, from when everything before it had finished to its end. The same
// holds as for Timings.
func (r *Recording) Nanoseconds() (float64, error) {
	if err := r.readTicks(); err != nil {
		return 0, err
	}
	return r.queries.Nanoseconds(r.ticks[0], r.ticks[len(r.labels)]), nil
}
