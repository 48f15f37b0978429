//go:build !view || !cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestViewWithoutWindow: a program built without its window says how to build it, and what does without.
func TestViewWithoutWindow(t *testing.T) {
	status, _, stderr := call("view")
	require.Equal(t, exitFailure, status)
	for _, want := range []string{"make view", "CGO_ENABLED=1", "-tags view", "vkattn map", "--offscreen"} {
		require.Contains(t, stderr, want)
	}
}
