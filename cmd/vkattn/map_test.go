package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const vectors = "../../internal/conformance/vectors/"

// TestMapPicture: a picture of a file's heads and one of random heads, as PNG and SVG, and in a report.
func TestMapPicture(t *testing.T) {
	needDevice(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	status, stdout, stderr := call("map", vectors+"f16_cross_top_left.safetensors", "--out", at("a.png"))
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "causal top-left")
	data, err := os.ReadFile(at("a.png"))
	require.NoError(t, err)
	_, err = png.Decode(bytes.NewReader(data))
	require.NoError(t, err)

	status, _, stderr = call("map", vectors+"f16_d16.safetensors", "--out", at("a.png"))
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "exists already: replace it with --force")

	results := at("results.jsonl")
	good, err := os.ReadFile(synthetic)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(results, good, 0o644))
	status, stdout, stderr = call("map", "--random", "--seq", "70", "--heads", "3", "--head-dim", "16", "--head", "0,2", "--queries", "3:40", "--window", "9,-1",
		"--linear", "--pool", "sum", "--cells", "20", "--title", "Some <heads>", "--out", at("b.svg"), "--append", results)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "20 × 20 cells")
	svg, err := os.ReadFile(at("b.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "head 2")
	require.NotContains(t, string(svg), "head 1")
	for _, format := range []string{"html", "md"} {
		status, _, stderr = call("report", results, "--out", at("report"), "--format", format)
		require.Zero(t, status, stderr)
		page, err := os.ReadFile(at(map[string]string{"html": "report/index.html", "md": "report/README.md"}[format]))
		require.NoError(t, err)
		require.Contains(t, string(page), map[string]string{"html": `Some &lt;heads&gt;`, "md": "figures/attention-1.png"}[format])
		require.FileExists(t, at("report/figures/attention-1.png"))
	}
	status, _, stderr = call("report", synthetic, "--out", at("report"), "--format", "md")
	require.Zero(t, status, stderr)
	require.NoFileExists(t, at("report/figures/attention-1.png"), "of an earlier report")
}

// TestMapUsage: what is wrong with flags and files is said before a device is opened.
func TestMapUsage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "a.png")
	file := vectors + "f16_d16.safetensors"
	for _, test := range []struct {
		args, want string
		status     int
	}{
		{"map --out " + out, "no FILE is given, and no --random", exitUsage},
		{"map --random", "--out is missing", exitUsage},
		{"map --random --out a.jpg", "must end in .png or .svg", exitUsage},
		{"map --random --pool median --out " + out, `--pool "median"`, exitUsage},
		{"map --random --colors jet --out " + out, `--colors "jet"`, exitUsage},
		{"map --random --seq 0 --out " + out, `--seq "0": it must be a`, exitUsage},
		{"map --random --heads 0 --out " + out, "--heads 0: it must be at least 1", exitUsage},
		{"map --random --cells 0 --out " + out, "--cells 0: it must be from 1", exitUsage},
		{"map --random --keys 9 --out " + out, `--keys "9": it must be first:end`, exitUsage},
		{"map --random --window 3 --out " + out, "--window must be two numbers", exitUsage},
		{"map --random " + file + " --out " + out, "--random stands in the place of a FILE", exitUsage},
		{"map --seq 9 " + file + " --out " + out, "--seq is of --random heads", exitUsage},
		{"map --q query " + file + " --out " + out, `no tensor "query": name another with --q; it has`, exitFailure},
		{"map nothing.safetensors --out " + out, "nothing.safetensors", exitFailure},
	} {
		status, _, stderr := call(strings.Fields(test.args)...)
		require.Equal(t, test.status, status, test.args)
		require.Contains(t, stderr, test.want, test.args)
	}
	require.NoFileExists(t, out)
}
