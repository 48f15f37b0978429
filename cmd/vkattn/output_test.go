package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a writer with room for some bytes.
type full struct{ room int }

var errFull = errors.New("no space left on device")

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.room {
		return 0, errFull
	}
	f.room -= len(b)
	return len(b), nil
}

// TestFullOutput: a command whose output could not be written fails and says why, whatever it prints with.
func TestFullOutput(t *testing.T) {
	commands := [][]string{{"--help"}, {}, {"--version"}, {"help", "bench"}, {"verify", "--help"}, {"tune", "--list"}}
	commands = append(commands, commandsOnADevice(t)...)
	for _, args := range commands {
		var stderr bytes.Buffer
		require.Equal(t, exitFailure, run(args, &full{}, &stderr), args)
		require.Contains(t, stderr.String(), errFull.Error(), args)
		require.NotContains(t, stderr.String(), "goroutine")
	}
	var stderr bytes.Buffer
	require.Equal(t, exitFailure, run([]string{"--help"}, &full{room: 30}, &stderr))
	if device, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil {
		defer device.Close()
		stderr.Reset()
		require.Equal(t, exitFailure, run([]string{"--version"}, device, &stderr))
		require.Contains(t, stderr.String(), "write /dev/full: no space left on device")
	}
}

// commandsOnADevice are short ones, none without a device.
func commandsOnADevice(t *testing.T) [][]string {
	if !haveDevice(t) {
		return nil
	}
	return [][]string{{"info"}, {"info", "--json"}, {"doctor", "--quiet"}, tiny("--impl", "flash", "--tier", "scalar", "--seq", "16"),
		tiny("--impl", "flash", "--tier", "scalar", "--seq", "16", "--format", "jsonl"),
		{"verify", "--impl", "standard", "--tier", "scalar", "--run", "^core/one/f", "--summary"}}
}

// TestFailedStartsLeaveNoFiles: a call that ends before it has written anything is followed by the corrected one, which no file of its own
// making refuses.
func TestFailedStartsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	out, trace := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "trace.json")
	calls := [][]string{{"bench", "--suite", "first", "--device", "no such device", "--out", out}}
	if haveDevice(t) {
		calls = append(calls, []string{"rows", "--run", "no such row", "--out", out},
			tiny("--trace", trace, "--out", filepath.Join(dir, "none", "x")), tiny("--trace", trace, "--peer", " "),
			tiny("--trace", trace, "--limit", "1ns"),
			[]string{"bench", "--from-host", "--heads", "1", "--head-dim", "8", "--seq", "64", "--out", out, "--trace",
				filepath.Join(dir, "none", "x")})
	}
	for _, args := range calls {
		status, _, stderr := call(args...)
		require.Equal(t, exitFailure, status, args)
		require.NotEmpty(t, stderr)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, args)
	}
}
