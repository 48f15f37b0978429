//go:build view && cgo

package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/displaytest"
)

// TestViewWindow runs the command until q is pressed.
func TestViewWindow(t *testing.T) {
	needDevice(t)
	display := displaytest.Start(t, 900, 700)
	display.Do("mousemove", "300", "300")
	done := make(chan struct{})
	var status int
	var stderr string
	go func() {
		defer close(done)
		runtime.LockOSThread()
		status, _, stderr = call("view", "--seq", "128", "--heads", "2", "--head-dim", "16", "--size", "800x600", "--press", "l")
	}()
	end := time.Now().Add(5 * time.Minute)
	for time.Now().Before(end) && display.Pixels()[10*display.Width+10] == 0 { // until it is drawn
		time.Sleep(50 * time.Millisecond)
	}
	for time.Now().Before(end) {
		display.Do("key", "q")
		select {
		case <-done:
			require.Zero(t, status, stderr)
			require.Empty(t, stderr)
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Fatal("q does not end it")
}

// TestViewNoDisplay: without a display the error names what does without.
func TestViewNoDisplay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one display, or none")
	}
	t.Setenv("DISPLAY", "")
	status, _, stderr := call("view", "--seq", "16")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "no display")
	require.Contains(t, stderr, "vkattn map")
}
