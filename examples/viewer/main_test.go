//go:build view && cgo

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-gl/glfw/v3.3/glfw"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/displaytest"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestViewer runs the program for some frames, under the validation layer, and makes its window larger meanwhile: the display shows a map
// of causal attention, dark above the diagonal and not below it.
func TestViewer(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	display := displaytest.Start(t, 1000, 1000)
	var said atomic.Int32
	shown := 0
	options := vk.InstanceOptions{SyncValidation: true, OnMessage: func(m vk.Message) {
		said.Add(1)
		t.Log(m)
	}}
	after := func(w *glfw.Window) {
		if shown++; shown == 10 {
			w.SetSize(800, 700)
		}
		if shown == 40 {
			pixels := display.Pixels()
			const dark = 0x1a1a1a
			require.EqualValues(t, dark, pixels[100*display.Width+700], "above the diagonal")
			require.NotEqualValues(t, dark, pixels[600*display.Width+200], "below it")
			require.EqualValues(t, 0, pixels[750*display.Width+100], "beside the window")
		}
	}
	err := run(40, options, after)
	if vktest.Unvalidated(err) {
		options.SyncValidation = false
		err = run(40, options, after)
	}
	require.NoError(t, err)
	require.Zero(t, said.Load(), "messages of the validation layer")
}

// TestShaderIsNotStale: the SPIR-V is that of the source beside it, as tools/glslc.sh left it.
func TestShaderIsNotStale(t *testing.T) {
	sums, err := os.ReadFile("sums.sha256")
	require.NoError(t, err)
	for _, file := range []string{"color.comp", "color.spv"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, strings.Contains(string(sums), fmt.Sprintf("%x  %s", sha256.Sum256(data), file)),
			"%s is not what was compiled: run tools/glslc.sh", file)
	}
}

// TestNoDisplay: without a display the program says so.
func TestNoDisplay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one display, or none")
	}
	t.Setenv("DISPLAY", "")
	require.Error(t, run(1, vk.InstanceOptions{}, nil))
}
