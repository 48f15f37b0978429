package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/rows"
)

// TestRows: the table has a line for each row, --json and --out the same rows as lines, each with figures, behind a header with the
// bandwidth that shares are of.
func TestRows(t *testing.T) {
	needDevice(t)
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	status, stdout, stderr := call("rows", "--op", "rotate,merge", "--quiet", "--out", path)
	require.Zero(t, status, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Contains(t, lines[0], "copy ")
	require.Regexp(t, `how +ms +p20 – p80 +MB +GB/s +% copy +max err$`, lines[2])
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	records := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Len(t, records, len(lines)-3, "a header beside the rows")
	var header result.Header
	require.NoError(t, json.Unmarshal([]byte(records[0]), &header))
	require.Positive(t, header.Peaks.CopyGBps)
	cases := rows.Cases(header.CPU, []string{rows.Rotate, rows.Merge})
	require.Len(t, records, len(cases)+1)
	for i, c := range cases {
		var r rows.Result
		require.NoError(t, json.Unmarshal([]byte(records[i+1]), &r))
		require.Equal(t, c, r.Case)
		require.Equal(t, header.Device, r.Device)
		require.Positive(t, r.Ms)
		require.InEpsilon(t, r.GBps/header.Peaks.CopyGBps*100, r.Copy, 1e-3)
		require.Contains(t, lines[i+4], c.How())
	}
	status, _, stderr = call("report", path, "--out", t.TempDir())
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "rows.jsonl:2: a row of 'vkattn rows'")

	status, _, stderr = call("rows", "--out", path)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "exists already: replace it with --force")
	status, stdout, stderr = call("rows", "--op", "rotate", "--run", "× 1 ×", "--json", "--force", "--out", path, "--quiet")
	require.Zero(t, status, stderr)
	require.Equal(t, 2, strings.Count(stdout, "\n"), "a header and one of the two rows")
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(data), stdout)
}

// TestRowsUsage: what is wrong with flags is said before a device is opened, and bench names the command that measures what it does not.
func TestRowsUsage(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"rows --op append,copy", `--op "copy": it must be append, rotate or merge`},
		{"rows --op=", "--op is empty"},
		{"rows --run (", `--run "(": it must be a regular expression`},
		{"rows --force", "--force is about the --out file"},
		{"rows fast", `unexpected argument "fast"`},
		{"bench --suite cache", `--suite "cache": appending to caches, rotation and merging parts are measured by 'vkattn rows'`},
		{"bench --suite merge", "'vkattn rows'"},
	} {
		status, stdout, stderr := call(strings.Fields(test.args)...)
		require.Equal(t, exitUsage, status, test.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, test.want)
	}
	folder := t.TempDir()
	status, _, stderr := call("rows", "--out", folder)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "is a folder")
}
