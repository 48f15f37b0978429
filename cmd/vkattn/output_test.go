package main

import (
	"bytes"
	"errors"
	"os"
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
