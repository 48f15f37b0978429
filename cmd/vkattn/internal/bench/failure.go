package bench

import (
	"errors"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// FailureOf is what a row says of an error of measuring.
func FailureOf(err error) result.Failure {
	return result.Failure{Error: err.Error(), Reason: reasonOf(err)}
}

func reasonOf(err error) result.Reason {
	var wrong *wrongError
	switch {
	case errors.As(err, &wrong):
		return result.ReasonCheck
	case outOfMemory(err):
		return result.ReasonMemory
	case errors.Is(err, flash.ErrUnsupported):
		return result.ReasonUnsupported
	}
	return result.ReasonFailed
}

// wrongError is an output that a check refused.
type wrongError struct{ error }

// Wrong marks an error as that of an output that a check refused.
func Wrong(err error) error { return &wrongError{err} }

// outOfMemory says whether an allocation was refused, or failed.
func outOfMemory(err error) bool {
	var refused *flash.MemoryError
	return errors.As(err, &refused) || errors.Is(err, vk.ErrOutOfDeviceMemory) || errors.Is(err, vk.ErrOutOfHostMemory)
}
