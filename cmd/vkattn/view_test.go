package main

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestViewOffscreen draws a frame into a file without a window, and tells times.
func TestViewOffscreen(t *testing.T) {
	needDevice(t)
	file := filepath.Join(t.TempDir(), "frame.png")
	args := []string{"view", "--offscreen", file, "--heads", "3", "--kv-heads", "1", "--seq", "96", "--head-dim", "16", "--size", "700x500",
		"--frames", "2", "--press", "l+"}
	status, stdout, stderr := call(args...)
	require.Zero(t, status, stderr)
	for _, want := range []string{"3 heads, 96 queries × 96 keys, head dimension 16", "in 700 × 500 pixels", "attention ",
		"medians of 2 frames"} {
		require.Contains(t, stdout, want)
	}
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	require.Equal(t, [2]int{700, 500}, [2]int{picture.Bounds().Dx(), picture.Bounds().Dy()})
	colors := map[any]bool{}
	for x := range 700 {
		for y := range 500 {
			colors[picture.At(x, y)] = true
		}
	}
	require.Greater(t, len(colors), 50, "a map has colours")

	status, _, stderr = call(args...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "exists already: replace it with --force")
	status, _, _ = call(append(args, "--force")...)
	require.Zero(t, status)
}

// TestViewRefusals: mistakes on the command line are told before anything is opened.
func TestViewRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "frame.png")
	for _, c := range []struct {
		args string
		want string
	}{
		{"--size 10", "--size"}, {"--size 10x10", "from 16"}, {"--dtype q8_0", "--dtype"}, {"--frames 0", "--frames"},
		{"--heads 3 --kv-heads 2", "it must divide --heads, which is 3"},
		{"--press Z", "no key Z"}, {"a b", "unexpected argument"}, {"nothing.safetensors", "nothing.safetensors"},
		{"--heads 2 some.safetensors", "--heads is about random"},
		{"--head-dim 0", "a whole number from 1"}, {"--seq many", "a whole number from 1"},
	} {
		status, _, stderr := call(append([]string{"view", "--offscreen", file}, strings.Fields(c.args)...)...)
		require.NotZero(t, status, c.args)
		require.Contains(t, stderr, c.want, c.args)
		require.NoFileExists(t, file)
	}
	status, _, stderr := call("view", "--frames", "3")
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "--offscreen")
}
