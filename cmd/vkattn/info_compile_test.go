package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInfoCompile(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--out", "x"}, "--suite, --out, --against and --validation go with --compile"},
		{[]string{"--compile", "--json"}, "--compile makes a table of kernels"},
		{[]string{"--compile", "--suite", "none"}, `suite "none": it must be one of quick, `},
	} {
		status, _, stderr := call(append([]string{"info"}, c.args...)...)
		require.Equal(t, exitUsage, status)
		require.Contains(t, stderr, c.says)
	}
	needDevice(t)
	folder := t.TempDir()
	table := filepath.Join(folder, "table.txt")
	status, stdout, stderr := call("info", "--compile", "--out", table)
	require.Zero(t, status, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "8 of 8: flash2 float16 B4 H32/8 Nq1 N8192 D128 page 16 q8_0")
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^flash2 float16 B4 H16 N2048 D64, forward: \w+ \d+x\d+.*\n  \w+\.f16 `, string(text))
	require.Regexp(t, `(?m)^flash2 float16 B4 H16 N2048 D256 causal, backward: `, string(text))

	status, _, stderr = call("info", "--compile", "--out", filepath.Join(folder, "again.txt"), "--against", table)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "passes compared with "+table)
	require.NotContains(t, stderr, "another compiler")
	other := strings.Replace(string(text), "; tiles ", "-2; tiles ", 1)
	require.NoError(t, os.WriteFile(table, []byte(other), 0o644))
	status, _, stderr = call("info", "--compile", "--out", filepath.Join(folder, "again.txt"), "--against", table)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "made that table: only what is refused is compared")
	for content, says := range map[string]string{
		"":                          "has none of the suite's problems",
		"what is this":              "line 1: neither PROBLEM: KERNEL nor an indented stage",
		"another problem: a kernel": "has none of the suite's problems",
	} {
		bad := filepath.Join(folder, "bad.txt")
		require.NoError(t, os.WriteFile(bad, []byte(content), 0o644))
		status, _, stderr = call("info", "--compile", "--out", filepath.Join(folder, "again.txt"), "--against", bad)
		require.Equal(t, exitFailure, status)
		require.Contains(t, stderr, says)
	}
	status, _, stderr = call("info", "--compile", "--against", filepath.Join(folder, "missing.txt"))
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "missing.txt: no such file")
}
