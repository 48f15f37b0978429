package vk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/zerotest"
)

// TestZeroValues: plain values answer every method, and a nil error of a type of its own, as errors.As leaves it where it finds none,
// can be printed.
func TestZeroValues(t *testing.T) {
	zerotest.Only(t, ArgumentError{}, CallError{}, LoaderError{}, ComponentType(0), DeviceType(0), Facts{}, Image{}, MatrixShape{},
		MemoryKind(0), Message{}, PresentMode(0),
		Result(0), Scope(0), Severity(0), Version(0))
}

// TestZeroDevice: memory of a device that no constructor made cannot be asked for.
func TestZeroDevice(t *testing.T) {
	for _, d := range []*Device{nil, {}} {
		_, err := d.HeapBudget()
		require.ErrorIs(t, err, ErrClosed)
	}
}
