package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// readTrace counts the rows of a trace file, and the dispatches by name, each of which must have a time and bytes.
func readTrace(t *testing.T, path string) (rows int, dispatches map[string]int) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var trace struct {
		TraceEvents []struct {
			Name, Cat string
			TS, Dur   float64
			Args      map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(data, &trace))
	dispatches = map[string]int{}
	sum := 0.0
	for _, e := range trace.TraceEvents {
		switch e.Cat {
		case "row":
			rows++
			sum += e.Dur
		case "dispatch":
			dispatches[e.Name]++
			require.Positive(t, e.Dur, e.Name)
			require.Positive(t, e.Args["bytes_read"], e.Name)
			require.Positive(t, e.Args["bytes_written"], e.Name)
			sum -= e.Dur
		}
	}
	require.InDelta(t, 0, sum, 1e-6, "rows are as long as their dispatches")
	return rows, dispatches
}

func TestBenchTrace(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	path, out := filepath.Join(dir, "trace.json"), filepath.Join(dir, "out.jsonl")
	status, _, stderr := call(tiny("--impl", "standard,flash", "--trace", path, "--out", out)...)
	require.Zero(t, status, stderr)
	rows, dispatches := readTrace(t, path)
	require.Equal(t, 4, rows, "two shapes, two implementations")
	for _, name := range []string{"scores", "softmax", "product"} {
		require.Equal(t, 2, dispatches[name], name)
	}
	require.Len(t, dispatches, 4)

	both := filepath.Join(dir, "both.json")
	status, _, stderr = call(tiny("--impl", "flash", "--pass", "both", "--trace", both)...)
	require.Zero(t, status, stderr)
	rows, dispatches = readTrace(t, both)
	require.Equal(t, 4, rows, "two shapes, two passes")
	require.Equal(t, 2, dispatches["backward_delta"])
	require.Len(t, dispatches, 4, "forward's kernel and backward's three")

	status, _, stderr = call(tiny("--impl", "flash", "--trace", path)...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "--trace "+path+" exists already: nothing can be added to a trace")

	// A sweep that is continued has a trace of all of its rows, in place of the earlier one; nothing else is replaced.
	status, _, stderr = call(tiny("--impl", "standard,flash", "--seq", "16", "--trace", path, "--out", out, "--append")...)
	require.Zero(t, status, stderr)
	rows, _ = readTrace(t, path)
	require.Equal(t, 6, rows, "the earlier run's four, and two")
	require.NoError(t, os.WriteFile(path, []byte("{}\n"), 0o644))
	status, _, stderr = call(tiny("--impl", "flash", "--trace", path, "--out", out, "--append")...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "exists already")
}

// What an interrupted sweep has is kept; --append measures the rest, and the next --append nothing.
func TestAppendContinuesAnInterruptedSweep(t *testing.T) {
	needDevice(t)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	status, _, stderr := call(tiny("--impl", "standard,flash", "--out", out)...)
	require.Zero(t, status, stderr)
	whole, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, whole.Rows, 4)

	// As if it had been stopped after the first row, in the middle of writing the second.
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	require.NoError(t, os.WriteFile(out, []byte(lines[0]+lines[1]+lines[2][:100]), 0o644))

	status, _, stderr = call(tiny("--impl", "standard,flash", "--out", out, "--append")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "1 row of 4 in "+out+" already")
	require.Equal(t, 1, strings.Count(stderr, "vkattn: "+out+": the last line was cut off, and is removed\n"), stderr)
	again, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, again.Rows, 4)
	require.Equal(t, whole.Rows[0].Fwd.Ms, again.Rows[0].Fwd.Ms, "the row that was there was not measured again")
	seen := map[result.Case]bool{}
	for _, r := range again.Rows {
		require.False(t, seen[r.Case], r.Case.String())
		seen[r.Case] = true
		require.Positive(t, r.Fwd.Ms)
	}

	status, _, stderr = call(tiny("--impl", "standard,flash", "--out", out, "--append")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "4 rows of 4")
	require.NotContains(t, stderr, "cut off")
	last, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, last.Rows, 4)
}

func TestAnalyzeOnADevice(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	status, stdout, stderr := call("analyze", "--batch", "1", "--heads", "2", "--seq", "64", "--head-dim", "8", "--causal", "--impl",
		"standard,flash", "--out", dir)
	require.Zero(t, status, stderr)
	for _, text := range []string{"measured peaks:", "ridge: ", "Steps, float16 B1 H2 N64 D8 causal", "blocksparse", "_backward kv ",
		"dK = dSᵀ Q", "flash2 bwd", "Operations of a transformer block"} {
		require.Contains(t, stdout, text)
	}
	require.FileExists(t, filepath.Join(dir, "roofline.svg"))
	require.FileExists(t, filepath.Join(dir, "roofline.png"))

	status, stdout, stderr = call("analyze", "--plans", "--batch", "1", "--heads", "2", "--seq", "64", "--format", "json")
	require.Zero(t, status, stderr)
	var r struct {
		Entries []struct {
			Impl, Pass string
			Bytes      float64
			Steps      []map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	passes := map[string]int{}
	for _, e := range r.Entries {
		passes[e.Impl+" "+e.Pass]++
		require.Positive(t, e.Bytes, "%s %s", e.Impl, e.Pass)
		for _, key := range []string{"step", "flops", "read_bytes", "written_bytes"} {
			require.Contains(t, e.Steps[0], key)
		}
	}
	for _, want := range []string{"standard forward", "flash1 forward", "flash2 forward", "flash2 backward", "blocksparse forward"} {
		require.Equal(t, 1, passes[want], want)
	}
}
