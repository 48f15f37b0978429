package pipeline

import (
	"testing"

	"github.com/vkattn/vkattn/internal/zerotest"
)

// TestZeroErrors: a nil error of a type of its own, as errors.As leaves it where it finds none, can be printed.
func TestZeroErrors(t *testing.T) { zerotest.Only(t, ArgumentError{}, MemoryError{}) }
