package flash

import (
	"context"
	"time"
)

// RecordingOption sets up a recording.
type RecordingOption func(*recordingOptions) error

type recordingOptions struct {
	timestamps bool
}

// WithTimestamps times every dispatch on the device.
func WithTimestamps() RecordingOption {
	return func(o *recordingOptions) error { o.timestamps = true; return nil }
}

// Recording holds the commands of one forward pass with their descriptors and workspace.
type Recording struct{}

// Forward prepares the recording for these tensors, in place of what it held before. It does not allocate.
func (r *Recording) Forward(f Forward) error { return errUnfinished }

// Record writes the commands into a command buffer of the caller's (a VkCommandBuffer in the recording state).
func (r *Recording) Record(cmd uintptr) error { return errUnfinished }

// Submit runs the commands on the device's queue.
func (r *Recording) Submit() (*Pending, error) { return nil, errUnfinished }

// Close frees descriptors and workspace, after waiting for the device if it still runs them.
func (r *Recording) Close() error { return nil }

// Pending is work on the device.
type Pending struct{}

// Wait waits for the work. A cancelled context still waits for the device to finish with the memory, then gives ctx.Err().
func (p *Pending) Wait(ctx context.Context) error { return errUnfinished }

// GPUTime is the device time from the first to the last stamp, after Wait; false without timestamps.
func (p *Pending) GPUTime() (time.Duration, bool) { return 0, false }

// Timings gives the device time of each dispatch, after Wait; empty without timestamps.
func (p *Pending) Timings() []Timing { return nil }

// Timing is the device time of one dispatch.
type Timing struct {
	Label    string
	Duration time.Duration
}
