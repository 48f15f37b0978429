package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Sentinel errors; match them with errors.Is.
var (
	// ErrArgument marks every error about what the caller passed. The error itself is an *ArgumentError.
	ErrArgument = attn.ErrArgument
	// ErrClosed is returned by any use of a device, tensor, plan or recording after its Close.
	ErrClosed = errors.New("flash: use after Close")
	// ErrNoDevice means that no Vulkan device fits the request.
	ErrNoDevice = errors.New("flash: no usable Vulkan device")
	// ErrUnsupported means that no kernel can run the problem as asked, on this device or on any: see UnsupportedError.Anywhere.
	ErrUnsupported = errors.New("flash: unsupported on this device")
	// ErrDeviceLost is sticky: once a device is lost, every later call on it returns an error that matches.
	ErrDeviceLost = errors.New("flash: device lost")
	// ErrCompileOnly is returned by what would run on a device that was opened with [CompileOnly].
	ErrCompileOnly = pipeline.ErrCompileOnly
	// ErrInFlight is returned when a recording is changed or submitted while the device still runs it.
	ErrInFlight = errors.New("flash: recording is in flight")
)

// ArgumentError names the argument that is wrong, what it was, and the rule it breaks.
type ArgumentError struct {
	Argument string // for example "Problem.HeadDim"
	Value    string // what was passed
	Rule     string // what it must be
}

// Error says which argument is what, and what it must be.
func (e *ArgumentError) Error() string {
	if e == nil {
		return ErrArgument.Error()
	}
	return fmt.Sprintf("flash: %s is %s: %s", e.Argument, e.Value, e.Rule)
}

// Unwrap makes errors.Is(err, ErrArgument) true.
func (e *ArgumentError) Unwrap() error { return ErrArgument }

// public makes an argument error of the layers below this package's own; it keeps others, and nil.
func public(err error) error {
	if err == nil {
		return nil
	}
	if a := (*attn.ArgumentError)(nil); errors.As(err, &a) {
		return (*ArgumentError)(a)
	}
	return err
}

func badArgument(name string, value any, rule string, a ...any) error {
	return &ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

// noDeviceError is an argument that no device fits: ErrArgument and ErrNoDevice at once.
type noDeviceError struct{ error }

func (e *noDeviceError) Unwrap() []error { return []error{e.error, ErrNoDevice} }

// UnsupportedError says why no kernel can run a problem.
type UnsupportedError struct {
	What    string   // the problem, or the option that asks for something this device lacks
	Reasons []string // one line per kernel considered
	Denied  bool     // a kernel of those would run it, and is on the device's deny-list because it failed its self-check
	// Anywhere says that it is not the device's fault: the library has no kernel for this, as it is asked for.
	Anywhere bool
	Remedy   string // what of the call to change so that this device computes the problem; "" where nothing helps
}

// Error says what is not supported, and why each kernel cannot.
func (e *UnsupportedError) Error() string {
	if e == nil {
		return ErrUnsupported.Error()
	}
	s := "flash: " + e.What + " is not supported on this device"
	if e.Anywhere {
		s = "flash: " + e.What + " is supported on no device"
	}
	for i, r := range e.Reasons {
		if i == 0 {
			s += ": " + r
		} else {
			s += "; " + r
		}
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap makes errors.Is(err, ErrUnsupported) true.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }
