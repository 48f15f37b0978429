package pipeline

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by every use of a Context, or of what was made from it, after Close.
	ErrClosed = errors.New("pipeline: used after Close")
	// ErrInFlight is returned when a recording is changed or submitted again before it was waited for.
	ErrInFlight = errors.New("pipeline: the recording is in flight; wait for its Pending first")
	// ErrUnended is returned where work that was submitted could not be waited for: the device may still be using its memory.
	ErrUnended = errors.New("pipeline: the work may not have ended")
	// ErrCompileOnly is returned by what would run on the device of a context that compiles alone (Options.CompileOnly).
	ErrCompileOnly = errors.New("pipeline: the context compiles alone, and nothing runs")
	// ErrCompiling is returned where the driver has been compiling a kernel for a minute. It goes on: a later call may find the kernel.
	ErrCompiling = errors.New("pipeline: the driver has been compiling it for more than a minute")
	// ErrNoStats is returned when statistics of a kernel are asked for and were not captured.
	ErrNoStats = errors.New("pipeline: no statistics: they were not captured (Options.CaptureStats), or the driver has none")
	// ErrNoTimestamps is returned when timings are asked for and the recording has none.
	ErrNoTimestamps = errors.New("pipeline: no timestamps: the recording was made without, the queue has none, or nothing was recorded")
)

// ArgumentError is an argument that breaks a rule; nothing was done.
type ArgumentError struct {
	Call  string // the function of this package, with the operation's label where it has one
	Name  string // the argument
	Value any    // what it was
	Rule  string // what it must be
}

// Error names the argument, its value and the rule.
func (e *ArgumentError) Error() string {
	if e == nil {
		return "pipeline: bad argument"
	}
	return fmt.Sprintf("pipeline: %s: %s is %v, but %s", e.Call, e.Name, e.Value, e.Rule)
}

func argErr(call, name string, value any, rule string) error {
	return &ArgumentError{Call: call, Name: name, Value: value, Rule: rule}
}

// MemoryError is an allocation that was refused because it could not succeed, or that failed.
type MemoryError struct {
	Label     string // what the memory was for
	Needed    uint64 // bytes
	Available uint64 // bytes
	Rule      string // what Available is, for example "free in the device's memory"
	Err       error  // what the driver said, where it was asked
}

// Error says how much was needed, how much there is, and by which rule.
func (e *MemoryError) Error() string {
	if e == nil {
		return "pipeline: not enough memory"
	}
	s := fmt.Sprintf("pipeline: allocating %q needs %d bytes (%s), but %d bytes (%s) are %s",
		e.Label, e.Needed, humanBytes(e.Needed), e.Available, humanBytes(e.Available), e.Rule)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what the driver said, if it was asked.
func (e *MemoryError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// humanBytes writes a size in the largest binary unit that keeps it at least 1.
func humanBytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}
