package paging

import (
	"errors"
	"fmt"
)

// Sentinel errors; match them with errors.Is. Arguments that break a rule give an attn.ArgumentError.
var (
	// ErrOutOfPages means that too few pages are free. The error itself is an *OutOfPagesError.
	ErrOutOfPages = errors.New("flash: out of cache pages")
	// ErrUnknownSequence means that the cache has no such sequence: it is another cache's, a zero value, or was freed.
	ErrUnknownSequence = errors.New("flash: unknown sequence")
	// ErrFreedSequence is the ErrUnknownSequence of a sequence that this cache had and that was freed, whether or not another has its place
	// now.
	ErrFreedSequence = fmt.Errorf("%w: it was freed", ErrUnknownSequence)
	// ErrTooManySequences means that the cache has as many sequences as it can have.
	ErrTooManySequences = errors.New("flash: too many sequences")
)

// OutOfPagesError says how many pages a batch needs and how many are free.
type OutOfPagesError struct{ Needed, Free int }

// Missing is the number of pages that would have to be given back first.
func (e *OutOfPagesError) Missing() int { return e.Needed - e.Free }

// Error says how many pages are missing.
func (e *OutOfPagesError) Error() string {
	return fmt.Sprintf("%v: %d needed, %d free, %d missing", ErrOutOfPages, e.Needed, e.Free, e.Missing())
}

// Unwrap makes errors.Is(err, ErrOutOfPages) true.
func (e *OutOfPagesError) Unwrap() error { return ErrOutOfPages }
