//go:build !mpi || !cgo

package mpi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithout: a program without MPI says how to get it.
func TestWithout(t *testing.T) {
	c, err := Open(t.Context(), Options{})
	require.Nil(t, c)
	require.ErrorIs(t, err, ErrUnavailable)
	for _, want := range []string{"libopenmpi-dev", "CGO_ENABLED=1", "-tags mpi", "mpirun"} {
		require.ErrorContains(t, err, want)
	}
}
