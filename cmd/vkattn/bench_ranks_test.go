package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/ranks"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestBenchRanks: ranks that share a device, and keys and values from the host, have a line each with figures.
func TestBenchRanks(t *testing.T) {
	vktest.Long(t, "cmd/vkattn/internal/bench/ranks")
	needDevice(t)
	path := filepath.Join(t.TempDir(), "ranks.jsonl")
	sizes := []string{"--heads", "2", "--head-dim", "32", "--seq", "256,300", "--causal", "--pass", "both", "--quiet"}
	status, stdout, stderr := call(append([]string{"bench", "--ranks", "3", "--share-device", "--out", path}, sizes...)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "3 ranks")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	records := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Len(t, records, 3)
	require.Contains(t, records[0], `"vkattn"`)
	records = records[1:]
	status, _, stderr = call(append([]string{"bench", "--ranks", "3", "--share-device", "--out", path, "--append"}, sizes...)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "2 rows of 2 in")
	again, err := result.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, again.Rings, 2)
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
		require.NotNil(t, r.Bwd.Traced)
	}
}

// TestRanksThatMeasureNothing: a run over several devices fails as one on one device does where no row has figures.
func TestRanksThatMeasureNothing(t *testing.T) {
	good := result.RingRow{}
	memory, failed := good, good
	memory.Failure = result.Failure{Error: "no room", Reason: result.ReasonMemory}
	failed.Failure = result.Failure{Error: "lost", Reason: result.ReasonFailed}
	for _, c := range []struct {
		rows []result.RingRow
		kept int
		want []string
	}{
		{[]result.RingRow{good, memory}, 0, nil},
		{[]result.RingRow{memory, memory}, 0, []string{"nothing was measured"}},
		{[]result.RingRow{memory}, 1, nil},
		{nil, 2, nil},
		{[]result.RingRow{good, failed}, 0, []string{"1 row of 2 failed"}},
		{[]result.RingRow{failed}, 0, []string{"1 row of 1 failed", "nothing was measured"}},
	} {
		require.Equal(t, c.want, problemsOf(c.rows, c.kept), c)
	}
}

// TestBenchOver: what is asked for is in the row, with a trace of every rank; a file of links is chosen from.
func TestBenchOver(t *testing.T) {
	vktest.Long(t, "two files that are compared in TestCompare")
	needDevice(t)
	dir := t.TempDir()
	links, trace := filepath.Join(dir, "links.jsonl"), filepath.Join(dir, "trace.json")
	require.NoError(t, os.WriteFile(links, []byte(`{"from":-1,"to":0,"GBps":5,"us":3}`+"\n"+`{"from":0,"to":1,"GBps":1000000000,"us":0}`+
		"\n"), 0o600))
	sizes := []string{"bench", "--ranks", "2", "--share-device", "--heads", "2", "--head-dim", "32", "--seq", "300", "--causal", "--quiet",
		"--format", "json"}
	for _, c := range []struct {
		args   []string
		over   string
		chosen bool
	}{
		{[]string{"--over", "heads", "--trace", trace}, "heads", false},
		{[]string{"--over", "auto", "--links", links}, "heads", true}, // bytes cost nothing, and chunks of 300 tokens are not equal
		{[]string{"--over", "auto"}, "", true},
	} {
		status, stdout, stderr := call(append(sizes, c.args...)...)
		require.Zero(t, status, stderr)
		var r ranks.Result
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		if c.over != "" {
			require.Equal(t, c.over, r.Over)
		}
		require.Equal(t, c.chosen, r.Chosen)
		require.Positive(t, r.LinkGBps)
		require.Positive(t, r.Fwd.Predicted)
		require.Positive(t, r.RingBytes)
		require.Positive(t, r.HeadsBytes)
	}
	var events struct {
		TraceEvents []struct {
			Name, Cat string
			PID       int
			Dur       float64
		}
	}
	data, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &events))
	seen := map[string]bool{}
	for _, e := range events.TraceEvents {
		if e.Dur > 0 {
			seen[fmt.Sprint(e.PID, " ", e.Cat)] = true
		}
	}
	for _, want := range []string{"1 row", "2 compute", "2 copy out", "2 copy in", "3 compute", "3 copy out", "3 copy in"} {
		require.True(t, seen[want], "%s in %v", want, seen)
	}
	require.NoError(t, os.WriteFile(links, []byte("{}\n"), 0o600))
	status, _, stderr := call(append(sizes, "--over", "auto", "--links", links)...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "info --links --json")
}

// TestBenchBoth: several ways in one call have one measurement of one device, which a later call with other ranks takes from the file.
func TestBenchBoth(t *testing.T) {
	vktest.Long(t, "cmd/vkattn/internal/bench/ranks")
	needDevice(t)
	path := filepath.Join(t.TempDir(), "ranks.jsonl")
	bench := func(args ...string) (stdout, stderr string) {
		status, stdout, stderr := call(append([]string{"bench", "--share-device", "--heads", "4", "--head-dim", "16", "--seq", "128",
			"--causal", "--quiet", "--out", path, "--append"}, args...)...)
		require.Zero(t, status, stderr)
		return stdout, stderr
	}
	stdout, _ := bench("--ranks", "4", "--over", "ring,both", "--per-host", "2", "--wide")
	require.Contains(t, stdout, "both, 2 a host")
	require.Contains(t, stdout, "both MB")
	require.Contains(t, stdout, "fwd model ×")
	bench("--ranks", "2", "--over", "heads")
	file, err := result.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, file.Rings, 3)
	for i, r := range file.Rings {
		require.Empty(t, r.Error)
		require.Equal(t, []string{"ring", "both", "heads"}[i], r.Over)
		require.Equal(t, []int{0, 2, 0}[i], r.PerHost)
		require.Equal(t, i > 0, r.Again)
		require.Equal(t, file.Rings[0].Fwd.One, r.Fwd.One)
		require.Equal(t, i == 1, r.BothBytes > 0)
		require.Positive(t, r.Fwd.Predicted)
	}
	_, stderr := bench("--ranks", "4", "--over", "both", "--per-host", "2")
	require.Contains(t, stderr, "1 row of 1 in")
}

// TestBenchRanksUsage: flags that do not go together are refused in words about them.
func TestBenchRanksUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--ranks is -1":                          {"--ranks", "-1"},
		"--share-device is about --ranks":        {"--share-device"},
		"--suite papers is of one device":        {"--ranks", "2", "--suite", "papers"},
		"--from-host is of one device":           {"--from-host", "--ranks", "2"},
		"--mpi has as many ranks":                {"--mpi", "--ranks", "2"},
		"--device is of attention on one device": {"--ranks", "2", "--device", "0"},
		"--format csv":                           {"--ranks", "2", "--format", "csv"},
		"--window is of attention on one device": {"--from-host", "--window", "64"},
		"--limit is of attention on one device":  {"--mpi", "--limit", "3s"},
		"do not go with --from-host":             {"--from-host", "--over", "heads"},
		"--append does not go with --mpi":        {"--mpi", "--out", "x", "--append"},
		"--append does not go with --trace":      {"--ranks", "2", "--out", "x", "--append", "--trace", "y"},
		"result files are JSON lines":            {"--ranks", "2", "--out", "x.csv"},
		"--peer is of attention on one device":   {"--ranks", "2", "--peer", "x"},
		"about --ranks, which is not given":      {"--over", "heads"},
		"--over \"rings\"":                       {"--ranks", "2", "--over", "rings"},
		"names heads twice":                      {"--ranks", "2", "--over", "heads,ring,heads"},
		"both needs --per-host":                  {"--ranks", "4", "--over", "both"},
		"--per-host is about --over both":        {"--ranks", "4", "--per-host", "2"},
		"it must divide the number of ranks, 4":  {"--ranks", "4", "--over", "both", "--per-host", "3"},
		"it must divide the number of ranks, 6":  {"--ranks", "6", "--over", "both", "--per-host", "-2"},
		"hosts of one rank are --over ring":      {"--ranks", "4", "--over", "ring,both", "--per-host", "1"},
		"one host is --over heads":               {"--ranks", "4", "--over", "both", "--per-host", "4"},
		"--over, --per-host and --links are":     {"--per-host", "2"},
		"--over is empty":                        {"--ranks", "2", "--over", ""},
		"about the --out file":                   {"--ranks", "2", "--append"},
		"unexpected argument \"everything\"":     {"--ranks", "2", "everything"},
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
