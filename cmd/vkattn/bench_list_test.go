package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestBenchListsItsCases: --list prints what the same flags would measure, with the keys of result files, and opens no device.
func TestBenchListsItsCases(t *testing.T) {
	t.Setenv("VKATTN_LOADER", "/no/such/loader")
	status, out, stderr := call("bench", "--list", "--suite", "dropout", "--dropout", "0,0.25", "--causal", "false", "--pass", "fwd")
	require.Zero(t, status, stderr)
	require.Equal(t, `{"impl":"standard","dtype":"float16","B":64,"H":16,"Hkv":16,"Nq":1024,"N":1024,"D":64,"Dv":64,"causal":false,"passes":["fwd"]}
{"impl":"flash2","dtype":"float16","B":64,"H":16,"Hkv":16,"Nq":1024,"N":1024,"D":64,"Dv":64,"causal":false,"passes":["fwd"]}
{"impl":"standard","dtype":"float16","B":64,"H":16,"Hkv":16,"Nq":1024,"N":1024,"D":64,"Dv":64,"causal":false,"dropout":0.25,"passes":["fwd"]}
{"impl":"flash2","dtype":"float16","B":64,"H":16,"Hkv":16,"Nq":1024,"N":1024,"D":64,"Dv":64,"causal":false,"dropout":0.25,"passes":["fwd"]}
`, out)

	reports, err := result.FindSuite("reports")
	require.NoError(t, err)
	jobs, err := reports.Jobs(false, result.Grid{})
	require.NoError(t, err)
	status, out, stderr = call("bench", "--list", "--suite", "reports")
	require.Zero(t, status, stderr)
	require.Equal(t, len(jobs), bytes.Count([]byte(out), []byte("\n")))
	for line := range bytes.Lines([]byte(out)) {
		var row result.Row // the keys are those of rows
		require.NoError(t, json.Unmarshal(line, &row))
		require.Equal(t, jobs[0].Case, row.Case)
		jobs = jobs[1:]
	}

	status, _, stderr = call("bench", "--list", "--out", "x.jsonl")
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "--list measures nothing")
	status, _, stderr = call("bench", "--list", "--device", "anything")
	require.Equal(t, exitFailure, status, "which device it is cannot be told")
	require.NotEmpty(t, stderr)
}
