package door

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
)

// Status is what every function of the C interface returns; vkattn.h has the same numbers.
type Status int32

// The statuses, in the order of vkattn.h.
const (
	OK              Status = iota
	BadArgument            // of the caller: the text names the argument, its value and the rule
	Unsupported            // no kernel of the device takes the problem, or the device lacks something
	NoMemory               // of the device
	NoDevice               // no Vulkan, no device, or none of that name
	DeviceLost             // now and ever after
	Closed                 // a handle that is none, of another kind, or closed
	OutOfPages             // of a cache
	UnknownSequence        // of a cache: never added, or freed
	Failed                 // anything else: of the driver, or of files
	Panicked               // a mistake of this library, or memory that the caller gave and does not have
	statuses
)

// String is the name in vkattn.h without its prefix.
func (s Status) String() string {
	names := [statuses]string{"OK", "BAD_ARGUMENT", "UNSUPPORTED", "NO_MEMORY", "NO_DEVICE", "DEVICE_LOST", "CLOSED", "OUT_OF_PAGES",
		"UNKNOWN_SEQUENCE", "FAILED", "PANICKED"}
	if s < 0 || s >= statuses {
		return fmt.Sprintf("no status %d", int32(s))
	}
	return names[s]
}

var (
	errClosed   = errors.New("vkattn: no such handle")
	errPanicked = errors.New("vkattn: panic")
)

// statusOf orders errors from the most to the least particular: one that no device fits is an argument too, say.
func statusOf(err error) Status {
	var memory *flash.MemoryError
	switch {
	case err == nil:
		return OK
	case errors.Is(err, errPanicked):
		return Panicked
	case errors.Is(err, flash.ErrDeviceLost):
		return DeviceLost
	case errors.Is(err, errClosed), errors.Is(err, flash.ErrClosed):
		return Closed
	case errors.Is(err, flash.ErrNoDevice):
		return NoDevice
	case errors.Is(err, flash.ErrUnsupported):
		return Unsupported
	case errors.As(err, &memory):
		return NoMemory
	case errors.Is(err, kvcache.ErrOutOfPages):
		return OutOfPages
	case errors.Is(err, kvcache.ErrUnknownSequence):
		return UnknownSequence
	case errors.Is(err, flash.ErrArgument):
		return BadArgument
	}
	return Failed
}

// Enter runs what a function of the C interface does. A panic must not cross into C, where it would end the process; a fault on memory that
// the caller gave and does not have becomes a panic first. The text is empty where the status is OK.
func Enter(function string, f func() error) (status Status, text string) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: %v", errPanicked, p)
			}
		}()
		return f()
	}()
	if err == nil {
		return OK, ""
	}
	return statusOf(err), function + ": " + err.Error()
}

// bad is the error of an argument.
func bad(name string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

// Required is the error of a pointer that must not be null.
func Required(name string) error { return bad(name, "null", "must be given") }

// TooMany is the error of a count.
func TooMany(name string, count, most uint32) error {
	return bad(name, count, "must be at most %d", most)
}

// Sized checks the field with which every structure begins. One of an older header is smaller than today's, and will be taken as long as
// it is one that there was; one of a newer header may ask for what this library does not know.
func Sized(name string, got, want uint32) error {
	if got != want {
		return bad(name+".size", got, "must be sizeof of the structure, %d in version %s of vkattn.h", want, Version)
	}
	return nil
}

// Version is that of vkattn.h, where it is VKATTN_VERSION too.
const Version = "1.0"

// never: a C program has no context to cancel.
var never = context.Background()
