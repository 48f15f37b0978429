package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPasses: both passes of a problem are listed with what stands in the shaders' names, the same each time, and nothing of a tier that
// was not asked for.
func TestPasses(t *testing.T) {
	needDevice(t)
	args := []string{"passes", "--batch", "1", "--heads", "2", "--seq", "64", "--head-dim", "8", "--causal", "--pass", "both",
		"--tier", "scalar"}
	status, stdout, stderr := call(args...)
	require.Zero(t, status, stderr)
	for _, text := range []string{", forward: scalar_forward ", ", backward: scalar_backward ", "kernel scalar_forward",
		"kernel scalar_backward_kv.f16", "constants ", "workgroups", " read qView1|qView16", "operand Q", "operand DK", "workspace 0",
		"before "} {
		require.Contains(t, stdout, text)
	}
	require.NotContains(t, stdout, "matrix_")
	_, again, _ := call(args...)
	require.Equal(t, stdout, again)

	status, stdout, stderr = call("passes", "--batch", "1", "--heads", "2", "--seq", "64", "--head-dim", "8", "--causal=both",
		"--pass", "fwd")
	require.Zero(t, status, stderr)
	require.Equal(t, 2, strings.Count(stdout, ", forward: "))
	require.NotContains(t, stdout, ", backward: ")
}

// TestPassesBeside: what goes with passes is listed behind them, by the same names.
func TestPassesBeside(t *testing.T) {
	needDevice(t)
	status, stdout, stderr := call("passes", "--batch", "1", "--heads", "2", "--q-len", "1", "--seq", "64", "--head-dim", "8", "--causal",
		"--pass", "fwd", "--tier", "scalar", "--beside", "append,merge,accumulate")
	require.Zero(t, status, stderr)
	at := 0
	for _, text := range []string{", forward: ", ", append: append", "kernel append.f16", "At_", ", merge: merge", "kernel merge.f16",
		" read Lse1", ", accumulate: accumulate", "kernel accumulate.f16", " write LseOut"} {
		i := strings.Index(stdout[at:], text)
		require.Positive(t, i, "%q in %s", text, stdout)
		at += i
	}
}

// TestPassesRefuses: what is no problem, and what no kernel takes, is said, and the status says so too.
func TestPassesRefuses(t *testing.T) {
	for _, args := range [][]string{{"passes", "now"}, {"passes", "--seq", "12x"}, {"passes", "--tier", "tensor"},
		{"passes", "--beside", "split"}} {
		status, _, stderr := call(args...)
		require.Equal(t, exitUsage, status, args)
		require.Contains(t, stderr, "vkattn passes --help")
	}
	needDevice(t)
	status, _, stderr := call("passes", "--impl", "flash1", "--batch", "1", "--heads", "1", "--seq", "64", "--head-dim", "8",
		"--pass", "bwd")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "supported on no device")
}

func TestPassesCompile(t *testing.T) {
	needDevice(t)
	status, stdout, stderr := call("passes", "--compile", "--seq", "64", "--head-dim", "16", "--heads", "2", "--pass", "fwd")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "have not proved that they are right: nothing runs.")
	require.Regexp(t, `(?m)^# stage +registers  spills  scratch  shared  occupancy  instructions  cycles  throughput  seconds\n  \w+\.f16 `, stdout)
}
