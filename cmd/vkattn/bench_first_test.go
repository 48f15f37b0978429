package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/first"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestBenchFirst: the suite's steps are done twice in processes of their own, of which the second finds what the first compiled.
func TestBenchFirst(t *testing.T) {
	needDevice(t)
	t.Setenv("VKATTN_TEST_COMMAND", "1")
	path := filepath.Join(t.TempDir(), "first.jsonl")
	status, stdout, stderr := call("bench", "--suite", "first", "--tier", "scalar", "--quiet", "--format", "json", "--out", path)
	require.Zero(t, status, stderr)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(data), stdout)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	var header result.Header
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &header))
	byName := map[bool]map[string]first.Step{false: {}, true: {}}
	var steps []first.Step
	plans := 0
	for _, line := range lines[1:] {
		var s first.Step
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		require.Equal(t, header.Device, s.Device)
		require.Positive(t, s.Seconds, s.Name)
		steps = append(steps, s)
		if s.Name == "plan" {
			plans++
			continue
		}
		require.NotContains(t, byName[s.Cached], s.Name)
		byName[s.Cached][s.Name] = s
	}
	require.Equal(t, 2*11, plans)
	require.Len(t, steps, 2*first.Steps)
	for cached, of := range byName {
		for _, name := range []string{first.Open, first.FirstPlan, first.FirstForward, first.OpenToForward, first.FirstBackward,
			first.Again, first.NewLength, first.Decoding, first.ElevenPlans} {
			require.Contains(t, of, name)
		}
		require.Positive(t, of[first.FirstPlan].Pipelines)
		require.Positive(t, of[first.FirstBackward].Pipelines)
		require.Zero(t, of[first.Again].Pipelines)
		require.InDelta(t, of[first.Open].Seconds+of[first.FirstPlan].Seconds+of[first.FirstForward].Seconds,
			of[first.OpenToForward].Seconds, 1e-9)
		require.Equal(t, 11, of[first.ElevenPlans].N)
		for name, s := range of {
			want := 0
			if cached {
				want = s.Pipelines
			}
			require.Equal(t, want, s.FromDisk, name)
		}
	}
	table := firstTable(steps, 200)
	require.Contains(t, table, "nothing cached")
	require.Equal(t, len(steps)/2+2, strings.Count(table, "\n")+1, "a line has both")

	for _, wrong := range [][]string{{"--seq", "1k"}, {"--format", "md"}, {"--tier", "none"}, {"--ranks", "2"}, {"more"}} {
		status, _, stderr := call(append([]string{"bench", "--suite", "first"}, wrong...)...)
		require.Equal(t, exitUsage, status, stderr)
	}
}
