//go:build !mpi || !cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBenchMPIWithout: a program built without MPI says how to get it.
func TestBenchMPIWithout(t *testing.T) {
	needDevice(t)
	status, _, stderr := call("bench", "--mpi", "--quiet")
	require.Equal(t, exitFailure, status)
	for _, want := range []string{"libopenmpi-dev", "-tags mpi", "mpirun"} {
		require.Contains(t, stderr, want)
	}
}
