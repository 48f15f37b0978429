package bench

import (
	"errors"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/vk"
)

// FailureOf is what a row says of an error of measuring.
func FailureOf(err error) Failure { return Failure{err.Error(), reasonOf(err)} }

func reasonOf(err error) Reason {
	var wrong *wrongError
	switch {
	case errors.As(err, &wrong):
		return ReasonCheck
	case outOfMemory(err):
		return ReasonMemory
	case errors.Is(err, flash.ErrUnsupported):
		return ReasonUnsupported
	}
	return ReasonFailed
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

// fail notes why a row has no figures.
func (r *Row) fail(err error) {
	r.Failure = FailureOf(err)
	r.Fwd, r.Bwd = Pass{}, Pass{}
}
