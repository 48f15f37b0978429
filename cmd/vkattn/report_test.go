package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

const (
	synthetic      = "internal/report/testdata/synthetic.jsonl" // nobody measured them
	syntheticOther = "internal/report/testdata/synthetic_other.jsonl"
)

func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	status, stdout, stderr := call("report", synthetic, syntheticOther, "--out", dir)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, filepath.Join(dir, "index.html")+", with 12 of 12 figures")
	require.FileExists(t, filepath.Join(dir, "index.html"))

	status, stdout, stderr = call("report", syntheticOther, "--compare", synthetic, "--out", dir, "--format", "md")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "README.md")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "× the speed of")
}

func TestReportOfBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	good, err := os.ReadFile(synthetic)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(good), "\n")
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"cut.jsonl": {strings.Join(lines[:5], "") + lines[5][:40] + "\n" + lines[6], "cut.jsonl:6: not a JSON object"},
		"foreign.jsonl": {lines[0] + `{"benchmark": "other", "ms": 3}` + "\n",
			"foreign.jsonl:2: neither a header (vkattn, torch) nor a result row (impl)"},
		"bad.jsonl": {lines[0] + strings.Replace(lines[1], `"fwd_ms": `, `"fwd_ms": -`, 1),
			"bad.jsonl:2: bad result row: fwd_ms is -"},
		"text.jsonl":     {"Hello.\n", "text.jsonl:1: not a JSON object"},
		"empty.jsonl":    {"", "empty.jsonl:1: the file is empty"},
		"unrowed.jsonl":  {lines[0], "unrowed.jsonl: it has no result rows"},
		"nodtype.jsonl":  {lines[0] + strings.Replace(lines[1], `"float16"`, `"int4"`, 1), `nodtype.jsonl:2: bad result row: dtype "int4"`},
		"mistyped.jsonl": {lines[0] + strings.Replace(lines[1], `"B": 16`, `"B": "many"`, 1), "mistyped.jsonl:2: "},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(test.text), 0o644))
		out := filepath.Join(dir, "out")
		for _, args := range [][]string{{"report", path, "--out", out}, {"report", synthetic, "--compare", path, "--out", out},
			{"analyze", path}} {
			if args[0] == "analyze" && name == "unrowed.jsonl" {
				continue // it may do without
			}
			status, _, stderr := call(args...)
			require.Equal(t, exitFailure, status, "%s %s", args[0], name)
			require.Contains(t, stderr, test.want, "%s %s", args[0], name)
			require.NoFileExists(t, filepath.Join(out, "index.html"))
		}
	}
}

// TestReportOfACutFile: a file whose last line a power cut left unfinished is read without it, and that is said.
func TestReportOfACutFile(t *testing.T) {
	dir := t.TempDir()
	good, err := os.ReadFile(synthetic)
	require.NoError(t, err)
	end := strings.LastIndex(strings.TrimSpace(string(good)), "\n") + 1
	path := filepath.Join(dir, "cut.jsonl")
	require.NoError(t, os.WriteFile(path, good[:end+40], 0o644))
	for _, args := range [][]string{{"report", path, "--out", dir}, {"analyze", path}, {"compare", synthetic, path}} {
		status, _, stderr := call(args...)
		require.Zero(t, status, stderr)
		require.Equal(t, "vkattn: "+path+": the last line was cut off, and is left out\n", stderr)
	}
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(syntheticOther)
	require.NoError(t, err)
	slow := filepath.Join(dir, "slow.jsonl")
	// The second row, a time of some milliseconds, becomes ten times as long.
	lines := strings.SplitAfter(string(text), "\n")
	for _, key := range []string{"fwd_ms", "fwd_p20_ms", "fwd_p80_ms"} {
		lines[2] = strings.Replace(lines[2], `"`+key+`": 0.`, `"`+key+`": 9.`, 1)
	}
	lines[2] = strings.Replace(lines[2], `"fwd_rounds_ms"`, `"ignored"`, 1)
	require.NoError(t, os.WriteFile(slow, []byte(strings.Join(lines, "")), 0o644))

	status, stdout, stderr := call("compare", syntheticOther, syntheticOther, "--fail-above", "1.05")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "new / old = 1.000")

	status, stdout, stderr = call("compare", syntheticOther, slow, "--fail-above", "1.05")
	require.Equal(t, exitFailure, status, stdout)
	require.Regexp(t, `1 row of .* slower than 1\.05 × or lost: flash2 .* ×\)`, stderr)
	require.Contains(t, stdout, "percentiles apart")
	status, stdout, stderr = call("compare", "--relative", "--tolerance", "5%", syntheticOther, slow) // peaks are the same
	require.Equal(t, exitFailure, status, stdout)
	require.Contains(t, stderr, "1 row of")
	require.Contains(t, stdout, "peak new / old")
	status, _, stderr = call("compare", "--relative", "--tolerance", "5", syntheticOther, syntheticOther)
	require.Zero(t, status, stderr)
	status, _, stderr = call("compare", syntheticOther, slow)
	require.Zero(t, status, "without --fail-above it only tells: %s", stderr)
	status, _, stderr = call("compare", slow, syntheticOther, "--fail-above", "1.05")
	require.Zero(t, status, "faster is no failure: %s", stderr)

	// A row that is gone is no success, and is named.
	fewer := filepath.Join(dir, "fewer.jsonl")
	require.NoError(t, os.WriteFile(fewer, []byte(strings.Join(slices.Delete(strings.SplitAfter(string(text), "\n"), 2, 3), "")), 0o644))
	status, stdout, stderr = call("compare", syntheticOther, fewer, "--fail-above", "1.05")
	require.Equal(t, exitFailure, status, stdout)
	require.Contains(t, stderr, "1 row of "+syntheticOther+" not in "+fewer)
	require.Contains(t, stdout, "only in the old file: 1\n- ")
	status, _, stderr = call("compare", syntheticOther, fewer, "--fail-above", "1.05", "--subset")
	require.Zero(t, status, stderr)
	status, _, stderr = call("compare", fewer, syntheticOther, "--fail-above", "1.05")
	require.Zero(t, status, "a row more is no loss: %s", stderr)
}

// TestCompareOfALostTier: a kernel that fell to the scalar tier does not pass, and neither do rows of a run without peaks.
func TestCompareOfALostTier(t *testing.T) {
	guard := filepath.Join("..", "..", "testdata", "results", "h100-guard.jsonl")
	text, err := os.ReadFile(guard)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	times := regexp.MustCompile(`"(fwd_ms|fwd_p20_ms|fwd_p80_ms)":0\.`)
	lines[1] = times.ReplaceAllString(strings.NewReplacer(`"tier":"matrix"`, `"tier":"scalar"`, `"fwd_rounds_ms"`, `"ignored"`).
		Replace(lines[1]), `"$1":1.`)
	fallen := filepath.Join(t.TempDir(), "fallen.jsonl")
	require.NoError(t, os.WriteFile(fallen, []byte(strings.Join(lines, "")), 0o644))
	status, stdout, stderr := call("compare", "--relative", "--tolerance", "5%", guard, fallen)
	require.Equal(t, exitFailure, status, stdout)
	require.Contains(t, stderr, "slower than 1.05 × or lost: flash2 float16 B4 H16 N2048 D64 causal (")
	require.Contains(t, stdout, "matrix → fp32")

	bare := filepath.Join(t.TempDir(), "bare.jsonl")
	all := strings.Replace(string(text), `"copy_GBps"`, `"unknown"`, 1)
	require.NotEqual(t, string(text), all)
	require.NoError(t, os.WriteFile(bare, []byte(all), 0o644))
	status, stdout, stderr = call("compare", "--relative", "--tolerance", "5%", guard, bare)
	require.Equal(t, exitFailure, status, stdout)
	require.Regexp(t, `^vkattn: \d+ rows cannot be judged, for no peak is known of`, stderr)
	status, _, stderr = call("compare", "--relative", guard, bare)
	require.Zero(t, status, stderr)
}

func TestHelpOfReports(t *testing.T) {
	for _, args := range [][]string{{"report", "--help"}, {"compare", "--help"}, {"analyze", "--help"}} {
		status, stdout, stderr := call(args...)
		require.Zero(t, status, args)
		require.Empty(t, stderr)
		require.Contains(t, stdout, "Examples:", args)
	}
}

func TestAnalyzeOfAFile(t *testing.T) {
	dir := t.TempDir()
	status, stdout, stderr := call("analyze", synthetic, "--batch", "16", "--heads", "32", "--seq", "2k", "--causal", "both", "--impl",
		"standard,flash", "--out", dir)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "Bounds, float16 B16 H32 N2048 D64 causal\n")
	require.Contains(t, stdout, "Bounds, float16 B16 H32 N2048 D64\n")
	require.Regexp(t, `(?m)^flash2 +forward +matrix_forward 128x64 +274\.9 +2554 `, stdout)
	require.NotContains(t, stdout, "N1024 D64")
	require.NotContains(t, stdout, "cudnn")
	require.FileExists(t, filepath.Join(dir, "roofline.png"))
}

func TestReportUsage(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"report", "no result file is given"},
		{"report x.jsonl", "--out is missing"},
		{"report x.jsonl --out y --format pdf", `--format "pdf": it must be one of html, md`},
		{"compare x", "1 file given: it takes two"},
		{"compare x y --fail-above 0.9", "--fail-above 0.9: it must be a number of at least 1"},
		{"compare x y --tolerance -5%", `--tolerance "-5%": it must be a percentage`},
		{"compare x y --tolerance 5% --fail-above 1.05", "both given"},
		{"analyze --nonzero 2", "--nonzero is 2: it must be above 0 and at most 1"},
		{"analyze --format xml", `--format "xml": it must be table or json`},
		{"analyze x y", `unexpected argument "y"`},
		{"analyze --seq 0", `--seq "0"`},
		{"analyze --plans --out x", "--plans measures nothing"},
		{"analyze --pass up", "--pass"},
		{"compare x y --format xml", `--format "xml": it must be one of table, md`},
	} {
		status, stdout, stderr := call(strings.Fields(test.args)...)
		require.Equal(t, exitUsage, status, test.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, test.want)
	}
}

// TestReportLeavesOthersFiles: a report replaces the page of an earlier one, and no other index.html or README.md.
func TestReportLeavesOthersFiles(t *testing.T) {
	vktest.Long(t, "TestReport")
	dir := t.TempDir()
	for format, name := range map[string]string{"html": "index.html", "md": "README.md"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("mine\n"), 0o644))
		status, _, stderr := call("report", synthetic, "--out", dir, "--format", format)
		require.Equal(t, exitFailure, status)
		require.Contains(t, stderr, path+" is no page that this program made, and is left as it is")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "mine\n", string(text))
		require.NoDirExists(t, filepath.Join(dir, "figures"))
	}
	for range 2 {
		status, _, stderr := call("report", synthetic, "--out", filepath.Join(dir, "own"), "--format", "md")
		require.Zero(t, status, stderr)
	}
}
