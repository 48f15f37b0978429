//go:build cgo

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	vulkan "github.com/vulkan-go/vulkan"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestEmbed runs the program, under the validation layer where there is one.
func TestEmbed(t *testing.T) {
	var out bytes.Buffer
	err := run(&out, true)
	if errors.Is(err, vulkan.Error(vulkan.ErrorLayerNotPresent)) {
		if _, why := vk.NewInstance(vk.InstanceOptions{Validation: true}); vktest.Unvalidated(why) {
			out.Reset()
			err = run(&out, false)
		}
	}
	requireDevice(t, err)
	require.Contains(t, out.String(), "largest error")
	t.Log(strings.TrimSpace(out.String()))
}

// requireDevice fails on an error, and skips where the error is that there is no Vulkan device.
func requireDevice(t *testing.T, err error) {
	t.Helper()
	var loader *vk.LoaderError
	if errors.As(err, &loader) || errors.Is(err, errNoDevice) || errors.Is(err, vulkan.Error(vulkan.ErrorIncompatibleDriver)) {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
			t.Fatalf("VKATTN_REQUIRE_DEVICE=1, but: %v", err)
		}
		t.Skipf("no Vulkan device: %v", err)
	}
	require.NoError(t, err)
}

// TestFeatureNotEnabled: the program's device has no features, so fp16 is refused, and the error says what to enable.
func TestFeatureNotEnabled(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // as in run
	g, err := newGPU(false)
	requireDevice(t, err)
	defer func() { require.NoError(t, g.close()) }()
	dev, err := attach(g)
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()

	_, err = dev.Plan(flash.Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: flash.F16})
	require.ErrorIs(t, err, flash.ErrUnsupported)
	require.ErrorContains(t, err, "created without the feature storageBuffer16BitAccess")
	t.Log(err)
}

// TestShadersAreNotStale: the SPIR-V is that of the sources beside it, as tools/glslc.sh left them.
func TestShadersAreNotStale(t *testing.T) {
	sums, err := os.ReadFile("sums.sha256")
	require.NoError(t, err)
	left := map[string]bool{"project.comp": true, "project.spv": true, "residual.comp": true, "residual.spv": true}
	for _, line := range strings.Split(strings.TrimSpace(string(sums)), "\n") {
		want, file, ok := strings.Cut(line, "  ")
		require.True(t, ok, "sums.sha256: %q", line)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(data)), "%s is not what was compiled: run tools/glslc.sh", file)
		delete(left, file)
	}
	require.Empty(t, left, "not in sums.sha256")
}

// TestExpected checks the CPU's side by itself: the first row of a head sees one key only, so o is that key's value.
func TestExpected(t *testing.T) {
	x := make([]float32, elements)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	y := expected(x)
	for head := range batch * heads {
		for d := range dim {
			at := head*length*dim + d
			require.InDelta(t, 1, y[at], 1e-12, "x + (1 − x) at head %d, dimension %d", head, d)
		}
	}
	require.Less(t, largestDifference([]float32{1, 2}, []float64{1, 2.5}), 0.51)
	require.Greater(t, largestDifference([]float32{1, 2}, []float64{1, 2.5}), 0.49)
}
