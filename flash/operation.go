package flash

import (
	"errors"
	"strings"

	"github.com/vkattn/vkattn/vk"
)

// operationError is a failure of the driver, or of memory, with the name of the operation that met it.
type operationError struct {
	operation string
	err       error
}

// Error names the operation and what went wrong.
func (e *operationError) Error() string {
	return "flash: " + e.operation + ": " + strings.TrimPrefix(e.err.Error(), "flash: ")
}

// Unwrap returns what went wrong.
func (e *operationError) Unwrap() error { return e.err }

// during puts the name of an exported operation into an error of the driver or of memory; other errors name what the caller passed.
// Of operations that call one another the name of the outermost stays:
//
//	defer during("Plan", &err)
func during(operation string, err *error) {
	if *err == nil {
		return
	}
	if inner, ok := (*err).(*operationError); ok {
		*err = &operationError{operation, inner.err}
		return
	}
	var call *vk.CallError
	var memory *MemoryError
	if errors.As(*err, &call) || errors.As(*err, &memory) {
		*err = &operationError{operation, *err}
	}
}
