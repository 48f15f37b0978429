package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/bench/ranks"
)

// TestBenchRanks: ranks that share a device, and keys and values from the host, have a line each with figures.
func TestBenchRanks(t *testing.T) {
	needDevice(t)
	path := filepath.Join(t.TempDir(), "ranks.jsonl")
	sizes := []string{"--heads", "2", "--head-dim", "32", "--seq", "256,300", "--causal", "--pass", "both", "--quiet"}
	status, stdout, stderr := call(append([]string{"bench", "--ranks", "3", "--share-device", "--out", path}, sizes...)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "3 ranks")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	records := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Len(t, records, 2)
	status, stdout, stderr = call(append([]string{"bench", "--from-host", "--format", "json"}, sizes...)...)
	require.Zero(t, status, stderr)
	for i, line := range append(records, strings.Split(strings.TrimSpace(stdout), "\n")...) {
		var r ranks.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Empty(t, r.Error)
		require.Equal(t, []int{256, 300}[i%2], r.Tokens)
		require.Equal(t, []int{3, 1}[i/2], r.Ranks)
		require.Positive(t, r.Fwd.Speed)
		require.Positive(t, r.Both)
	}
}

// TestBenchRanksUsage: flags that do not go together are refused in words about them.
func TestBenchRanksUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--ranks is -1":                      {"--ranks", "-1"},
		"--share-device is about --ranks":    {"--share-device"},
		"--suite papers is of one device":    {"--ranks", "2", "--suite", "papers"},
		"--from-host is of one device":       {"--from-host", "--ranks", "2"},
		"--mpi has as many ranks":            {"--mpi", "--ranks", "2"},
		"--device is of one device":          {"--ranks", "2", "--device", "0"},
		"--format csv":                       {"--ranks", "2", "--format", "csv"},
		"do not go with --ranks":             {"--ranks", "2", "--trace", "x.json"},
		"unexpected argument \"everything\"": {"--ranks", "2", "everything"},
	} {
		status, _, stderr := call(append([]string{"bench"}, args...)...)
		require.Equal(t, exitUsage, status, want)
		require.Contains(t, stderr, want)
	}
	needDevice(t)
	status, _, stderr := call("bench", "--ranks", "99", "--quiet")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "a device each, unless ranks share devices")
}

// TestInfoLinks: the host and each device are ends of a link.
func TestInfoLinks(t *testing.T) {
	status, _, stderr := call("info", "--links", "--measure")
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "--links measures every GPU")
	needDevice(t)
	status, stdout, stderr := call("info", "--links", "--json")
	require.Zero(t, status, stderr)
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		var l ranks.Link
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.Positive(t, l.GBps)
	}
}
