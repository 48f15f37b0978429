package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestDoctor: on a device that works, a page of 80 columns, a file with more, and the same as JSON.
func TestDoctor(t *testing.T) {
	vktest.Long(t, "TestDoctorOnWrongKernels, TestDoctorsTables and TestDoctorOnALostDevice")
	needDevice(t)
	t.Setenv("COLUMNS", "80")
	out := filepath.Join(t.TempDir(), "doctor.txt")
	status, stdout, stderr := call("doctor", "--limit", "10s", "--out", out, "--quiet")
	require.Zero(t, status, stdout+stderr)
	require.Empty(t, stderr)
	for _, s := range []string{"vkattn doctor\n  vkattn      " + version(), "\nFeatures\n", "\nSelf-checks\n  right ", "\nKernels\n",
		"\nSpeed\n", "\nStored\n  verdicts ", "\nEnvironment\n", "VKATTN_TUNING=off", "\nSummary\n  everything works: ",
		"  to report   attach " + out[:8]} {
		require.Contains(t, stdout, s)
	}
	require.Regexp(t, `(?m)^  forward +fp32 +64 +[0-9.]+ +[0-9.]+ +[0-9.e-]+ +[0-9.]+  arithmetic$`, stdout)
	require.Regexp(t, `(?m)^  backward +fp32 +128 `, stdout)
	require.Regexp(t, `(?m)^  decoding +fp32 +128 .*copying$`, stdout)
	for line := range strings.Lines(stdout) {
		if line = strings.TrimSuffix(line, "\n"); strings.Contains(strings.TrimSpace(line), " ") { // a path is one word
			require.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		}
	}
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	for _, s := range []string{"\nDetails\n", "  extensions ", "backward: scalar_backward", "\nSummary\n  everything works: "} {
		require.Contains(t, string(text), s)
	}

	status, stdout, stderr = call("doctor", "--limit", "1ms", "--json", "--quiet")
	require.Zero(t, status, stderr)
	var page doctorJSON
	require.NoError(t, json.Unmarshal([]byte(stdout), &page))
	require.True(t, page.Works)
	require.NotEmpty(t, page.Device.SelfChecks)
	require.NotEmpty(t, page.Choices)
	require.NotEmpty(t, page.Rows)
	require.Empty(t, page.Wrong)
}

// TestDoctorOnADeniedKernel: a kernel that failed its self-check in an earlier run fails it here, and the exit status says so.
func TestDoctorOnADeniedKernel(t *testing.T) {
	vktest.Long(t, "TestDoctorOnWrongKernels")
	needDevice(t)
	h := newHome(t)
	t.Setenv("XDG_CACHE_HOME", h.cache())
	kernel.Known.Clear()
	t.Cleanup(kernel.Known.Clear)
	dev, err := flash.Open()
	require.NoError(t, err)
	_, err = tune.SelfCheck(t.Context(), dev, []flash.Implementation{flash.Flash}, []flash.Tier{flash.TierMatrix})
	require.NoError(t, err)
	verdicts, err := tune.StoredVerdicts(dev)
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	if verdicts.Passed == 0 {
		t.Skip("the device has no matrices")
	}
	var file struct {
		Identity string            `json:"identity"`
		Entries  map[string]string `json:"entries"`
	}
	data, err := os.ReadFile(verdicts.File)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &file))
	for key := range file.Entries {
		if strings.Contains(key, "matrix_forward.f16") {
			_, _, err := kernel.AddKnown(verdicts.File, file.Identity, key, "o[0, 0, 0, 0] is 1 and should be 2")
			require.NoError(t, err)
		}
	}
	kernel.Known.Clear()
	status, stdout, stderr := call("doctor", "--limit", "1ms", "--quiet")
	require.Equal(t, exitFailure, status, stderr)
	require.Empty(t, stderr)
	text := strings.Join(strings.Fields(stdout), " ")
	require.Contains(t, text, "wrong flash2/matrix float16 matrix_forward")
	require.Contains(t, text, "because its self-check failed: o[0, 0, 0, 0] is 1 and should be 2")
	require.Contains(t, text, "matrix_forward.f16: o[0, 0, 0, 0] is 1 and should be 2")
	require.Contains(t, text, "plans pass the kernel over, so results stay right and are slower")
	require.Regexp(t, `\n  \d+ things do not work\n`, stdout)
}

// TestDoctorOnALostDevice: a driver that gives up ends what needs a device, and the page all the same.
func TestDoctorOnALostDevice(t *testing.T) {
	needDevice(t)
	t.Setenv(vk.FaultEnv, "submit:3=device_lost")
	status, stdout, stderr := call("doctor", "--quiet")
	require.Equal(t, exitFailure, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "\nSelf-checks\n")
	require.NotContains(t, stdout, "\nSpeed\n")
	require.Contains(t, stdout, "VKATTN_FAULT=submit:3=device_lost")
	require.Contains(t, stdout, "\nSummary\n  1 thing does not work\n  wrong       self-checks: SelfCheck: device lost: ")

	t.Setenv(vk.FaultEnv, "device:1")
	status, stdout, stderr = call("doctor", "--quiet")
	require.Equal(t, exitFailure, status)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "no device can be used: opening ")
	require.Contains(t, strings.Join(strings.Fields(stdout), " "), "vkCreateDevice: VK_ERROR_INITIALIZATION_FAILED")
	require.Contains(t, stdout, "\nFeatures\n")
}

// TestDoctorWithoutADevice: without a driver, or a loader, the page says what to install.
func TestDoctorWithoutADevice(t *testing.T) {
	if err := vk.Load(); err != nil {
		t.Skip(err)
	}
	t.Setenv("VK_DRIVER_FILES", "/no/such/driver.json")
	out := filepath.Join(t.TempDir(), "doctor.txt")
	status, stdout, stderr := call("doctor", "--out", out)
	require.Equal(t, exitFailure, status)
	require.Empty(t, stderr)
	require.Regexp(t, `\n  error       no device can be used: the Vulkan loader `+regexp.QuoteMeta(vk.LoaderName())+` finds no driver`, stdout)
	require.Contains(t, stdout, "\nDrivers\n  vkattn needs a Vulkan loader and a driver:\n")
	require.Contains(t, stdout, "\nSummary\n  1 thing does not work\n  wrong       no device can be used\n")
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(text), "1 thing does not work")
	status, _, stderr = call("doctor", "--out", out)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "doctor.txt exists already: replace it with --force")

	status, stdout, _ = call("doctor", "--json")
	require.Equal(t, exitFailure, status)
	var page doctorJSON
	require.NoError(t, json.Unmarshal([]byte(stdout), &page))
	require.False(t, page.Works)
	require.Contains(t, page.Error, "finds no driver")

	line := append(strings.Fields(os.Getenv("VKATTN_EXEC")), os.Args[0], "doctor")
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "VKATTN_TEST_COMMAND=1", "VKATTN_LOADER=/no/such/loader.so")
	output, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "no device can be used: no Vulkan loader found; tried /no/such/loader.so")
	require.Contains(t, string(output), "VKATTN_LOADER=/no/such/loader.so · the Vulkan loader")
}

// TestDoctorOfNoSuchDevice: a name that no device has is a mistake, and no illness.
func TestDoctorOfNoSuchDevice(t *testing.T) {
	needDevice(t)
	status, stdout, stderr := call("doctor", "--device", "no such device")
	require.Equal(t, exitFailure, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, `vkattn: --device "no such device": it must be a number or part of a name among: 0 `)
}
