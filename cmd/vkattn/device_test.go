package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// needDevice skips without a Vulkan device, or fails where one is required.
func needDevice(t *testing.T) {
	t.Helper()
	if !haveDevice(t) {
		t.Skip("there is no Vulkan device")
	}
}

// haveDevice says whether there is a Vulkan device, and fails where there is none and one is required.
func haveDevice(t *testing.T) bool {
	t.Helper()
	t.Setenv(tune.FileEnv, "off") // what this machine's user has stored is not what is tested
	_, err := flash.Devices()
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
		t.Fatalf("VKATTN_REQUIRE_DEVICE=1, but: %v", err)
	}
	if errors.Is(err, flash.ErrNoDevice) {
		return false
	}
	require.NoError(t, err)
	return true
}

// TestNoDriver: a machine without a driver says what to install, and what keeps the loader from looking there.
func TestNoDriver(t *testing.T) {
	if err := vk.Load(); err != nil {
		t.Skip(err)
	}
	t.Setenv("VK_DRIVER_FILES", "/no/such/driver.json")
	for _, args := range [][]string{{"info"}, {"bench"}, {"verify", "--quick"}} {
		status, stdout, stderr := call(args...)
		require.Equal(t, exitFailure, status)
		require.Empty(t, stdout)
		require.Regexp(t, `^vkattn: no usable Vulkan device: the Vulkan loader `+regexp.QuoteMeta(vk.LoaderName())+` finds no driver`,
			stderr)
		require.Contains(t, stderr, "vkattn needs a Vulkan loader and a driver:")
		require.Contains(t, stderr, `VK_DRIVER_FILES is set to "/no/such/driver.json"`)
	}
}

// TestDriverThatCannotBeLoaded: where a driver is installed, and a library that it needs is not, the error names the library.
func TestDriverThatCannotBeLoaded(t *testing.T) {
	if err := vk.Load(); err != nil {
		t.Skip(err)
	}
	icd := filepath.Join(t.TempDir(), "icd.json")
	require.NoError(t,
		os.WriteFile(icd,
			[]byte(`{"file_format_version": "1.0.0", "ICD": {"library_path": "/no/such/libdriver.so", "api_version": "1.3.0"}}`), 0o644))
	t.Setenv("VK_DRIVER_FILES", icd)
	status, _, stderr := call("info")
	require.Equal(t, exitFailure, status)
	first, _, _ := strings.Cut(stderr, "\n")
	require.Contains(t, first, "finds no driver that it can load")
	require.Contains(t, first, "/no/such/libdriver.so")
}

// TestPlain: names of packages stand in no message.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"flash: Devices: no usable Vulkan device: vk: vkCreateInstance: VK_ERROR_UNKNOWN": "no usable Vulkan device: vkCreateInstance: " +
			"VK_ERROR_UNKNOWN",
		"--vectors: in x: a.safetensors: safetensors: header: it breaks off": "--vectors: in x: a.safetensors: header: it " +
			"breaks off",
		"flash: flash: Backward: out of memory": "Backward: out of memory",
		"peer: ended before it answered":        "peer: ended before it answered",
	} {
		require.Equal(t, want, plain(text))
	}
}

// TestNoSuchDevice: the error is about the flag, and lists what there is.
func TestNoSuchDevice(t *testing.T) {
	needDevice(t)
	infos, err := flash.Devices()
	require.NoError(t, err)
	status, _, stderr := call("bench", "--device", "no such device")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, `vkattn: --device "no such device": it must be a number or part of a name among: 0 `+infos[0].Name)
	require.NotContains(t, stderr, "needs a Vulkan loader")
}

// tiny is a sweep of two shapes that any device runs in a moment.
func tiny(more ...string) []string {
	return append([]string{"bench", "--batch", "1", "--heads", "4", "--kv-heads", "2", "--seq", "48,80", "--head-dim", "8", "--causal",
		"--rounds", "1", "--limit", "50ms"}, more...)
}

// itself is a shell command line that starts this test binary in a role.
func itself(role string) string {
	return strings.TrimSpace("env " + role + "=1 " + os.Getenv("VKATTN_EXEC") + " '" + os.Args[0] + "'")
}

// fakePeer answers every case with one millisecond.
func fakePeer() {
	fmt.Println(`{"torch": "9.9", "gpu": "Fake"}`)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var row map[string]any
		if json.Unmarshal(in.Bytes(), &row) != nil {
			os.Exit(1)
		}
		delete(row, "passes")
		row["library"], row["fwd_ms"], row["fwd_tflops"] = "torch 9.9", 1.0, 0.5
		text, _ := json.Marshal(row)
		fmt.Println(string(text))
	}
}

func TestBenchEndToEnd(t *testing.T) {
	needDevice(t)
	out := filepath.Join(t.TempDir(), "out.jsonl")

	status, stdout, stderr := call(tiny("--out", out, "--limit", "1m")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "flash2 is ")
	require.Contains(t, stdout, "all rows: float16 · head dim 8 · emb dim 32 · batch 1 · 4 on 2 heads · causal")
	file, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, file.Headers, 1)
	h := file.Headers[0]
	require.NotEmpty(t, h.Device)
	require.NotEmpty(t, h.Extensions)
	require.Positive(t, h.Peaks.FP32TFLOPS)
	require.Positive(t, h.Peaks.CopyGBps)
	require.Positive(t, h.Limits["maxComputeSharedMemorySize"])
	require.Len(t, file.Rows, 4)
	for _, r := range file.Rows {
		require.Empty(t, r.Error)
		require.Equal(t, h.Device, r.Device)
		require.NotEmpty(t, r.Kernel)
		require.Positive(t, r.Fwd.Ms)
		require.LessOrEqual(t, r.Fwd.P20, r.Fwd.Ms)
		require.GreaterOrEqual(t, r.Fwd.P80, r.Fwd.Ms)
		require.GreaterOrEqual(t, r.Fwd.N, 10)
		require.Positive(t, r.Fwd.WallMs)
		require.NotNil(t, r.Fwd.PeakMiB)
		require.NotNil(t, r.MaxErr)
		require.Equal(t, 4*r.Nq, r.ErrRows, "a small problem is checked in full")
		require.Positive(t, *r.MaxErr, "float16 is not exact")
		require.Less(t, *r.MaxErr, *r.ErrMax)
		require.InEpsilon(t, r.ForwardFLOPs()/r.Fwd.Ms/1e9, r.Fwd.TFLOPS, 1e-3)
	}

	// Appending measures what is missing only, and prints all of it.
	status, stdout, stderr = call(tiny("--out", out, "--append", "--format", "csv", "--seq", "16")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "4 rows of 6 in "+out+" already")
	require.Equal(t, 1+6, strings.Count(stdout, "\n"))
	file, err = result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, file.Headers, 2)
	require.Len(t, file.Rows, 6)

	// What is recorded is measured three times, unless one says otherwise.
	require.Equal(t, 1, h.Rounds)
	status, _, _ = call("bench", "--batch", "1", "--heads", "2", "--seq", "48", "--head-dim", "8", "--causal", "--out", out, "--force",
		"--impl", "flash")
	require.Zero(t, status)
	file, err = result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, file.Rows, 1)
	require.Equal(t, 3, file.Headers[0].Rounds)
	require.Len(t, file.Rows[0].Fwd.Rounds, 3)
	require.Equal(t, result.Middle(file.Rows[0].Fwd.Rounds), file.Rows[0].Fwd.Ms)
}

// TestAppendGoesByPassDropoutAndTile: a row is there already when its case is, dropout and tile included, with the passes
// asked for.
func TestAppendGoesByPassDropoutAndTile(t *testing.T) {
	vktest.Long(t, "TestAppendContinuesAnInterruptedSweep")
	needDevice(t)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	measured := 0
	step := func(rows int, flags ...string) []result.Row {
		t.Helper()
		args := append([]string{"bench", "--impl", "flash", "--tier", "scalar", "--batch", "1", "--heads", "2", "--seq", "48", "--head-dim",
			"8", "--causal", "--rounds", "1", "--out", out, "--append"}, flags...)
		status, _, stderr := call(args...)
		require.Zero(t, status, stderr)
		file, err := result.ReadFile(out)
		require.NoError(t, err)
		require.Len(t, file.Rows, measured+rows, flags)
		fresh := file.Rows[measured:]
		measured += rows
		return fresh
	}
	fwd := step(1)[0]
	require.Positive(t, fwd.Fwd.Ms)
	require.Zero(t, fwd.Bwd.Ms)
	step(0)
	bwd := step(1, "--pass", "bwd")[0]
	require.Zero(t, bwd.Fwd.Ms)
	require.Positive(t, bwd.Bwd.Ms)
	require.Positive(t, bwd.ErrRows, "its forward pass was checked")
	require.Positive(t, bwd.BwdCheck.ErrRows)
	step(0, "--pass", "both") // two rows have what is asked for
	both := step(1, "--dropout", "0,0.1", "--pass", "both")[0]
	require.Equal(t, 0.1, both.Dropout)
	require.Positive(t, both.Fwd.Ms)
	require.Positive(t, both.Bwd.Ms)
	tiles := []string{"--tuning", "br=16,bc=16,mr=2,mc=4", "--tuning", "br=32,bc=16,mr=2,mc=4"}
	rows := step(2, tiles...)
	require.Contains(t, rows[0].Kernel, "16x16")
	require.Contains(t, rows[1].Kernel, "32x16")
	require.Equal(t, result.Tuning("bc=16,br=32,mc=4,mr=2"), rows[1].Tuning)
	step(0, tiles...)
	step(0, tiles[2:]...)
}

func TestBenchFormats(t *testing.T) {
	needDevice(t)
	for format, want := range map[string]string{
		"md":      "| seq | impl | kernel |",
		"jsonl":   `"impl":"flash2","dtype":"float32"`,
		"gobench": "BenchmarkForward/impl=flash2/dtype=float32/B=1/H=4/Hkv=2/Nq=48/N=48/D=8/Dv=8/causal=true ",
	} {
		status, stdout, stderr := call(tiny("--impl", "flash", "--dtype", "fp32", "--format", format)...)
		require.Zero(t, status, stderr)
		require.Contains(t, stdout, want)
	}
}

func TestBenchAgainstAPeer(t *testing.T) {
	needDevice(t)
	if runtime.GOOS == "windows" {
		t.Skip("the fake peer is started by a POSIX shell")
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	status, stdout, stderr := call(tiny("--impl", "flash", "--rounds", "3", "--peer", itself("VKATTN_TEST_PEER"), "--peer-impl",
		"fa2,cudnn", "--out", out)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "× fa2")
	require.Contains(t, stdout, "× cudnn")
	require.Contains(t, stdout, "× the speed of torch 9.9 fa2 (geometric mean of 2 shapes")
	file, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, file.Rows, 2*(1+2))
	for _, r := range file.Rows {
		require.Len(t, r.Fwd.Rounds, 3)
	}
	require.Len(t, file.Other, 1, "what the peer says of itself is kept")
	require.Contains(t, string(file.Other[0]), `"torch":"9.9"`)

	// The same file, compared with.
	status, stdout, stderr = call(tiny("--impl", "flash", "--compare", out)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "geometric mean of 2 shapes")

	status, stdout, stderr = call(tiny("--impl", "flash", "--peer", "false")...)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stdout, "flash2", "our own rows are not lost")
	require.Contains(t, stderr, "peer: ended before it answered (exit status 1)")
}

func TestBenchRowsThatCannotRun(t *testing.T) {
	needDevice(t)
	// 1.5 TB of inputs: refused, with the reason, and the other rows are there.
	status, stdout, stderr := call("bench", "--impl", "flash", "--batch", "1,10000000", "--heads", "4", "--seq", "48", "--head-dim", "64",
		"--causal=false", "--dtype", "fp32", "--limit", "0")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "! flash2 float32 B10000000 H4 N48 D64: ")

	status, _, stderr = call("bench", "--impl", "flash", "--batch", "10000000", "--heads", "4", "--seq", "48", "--head-dim", "64",
		"--causal=false", "--limit", "1us")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "nothing was measured")
}

func TestUnknownDevice(t *testing.T) {
	needDevice(t)
	for _, command := range []string{"bench", "verify", "info"} {
		status, _, stderr := call(command, "--device", "no such device")
		require.Equal(t, exitFailure, status)
		require.Contains(t, stderr, `"no such device"`)
		require.Contains(t, stderr, "must be a number or part of a name among: 0 ")
	}
}

func TestInfo(t *testing.T) {
	needDevice(t)
	status, stdout, stderr := call("info")
	require.Zero(t, status, stderr)
	for _, s := range []string{"chosen: ", "shared memory", "timestamps", "flash2", "standard", "scalar", "float32 float16"} {
		require.Contains(t, stdout, s)
	}
	require.Contains(t, stdout, "backward: scalar_backward")
	reasons := strings.Count(stdout, "float32: matrices take fp16 or bf16")
	require.LessOrEqual(t, reasons, strings.Count(stdout, "  choice "), "a reason is given once a device")

	t.Setenv("COLUMNS", "80")
	status, narrow, _ := call("info")
	require.Zero(t, status)
	for line := range strings.Lines(narrow) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}

	damaged := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, os.WriteFile(damaged, []byte("{"), 0o644))
	t.Setenv(tune.FileEnv, damaged)
	status, _, stderr = call("info")
	require.Zero(t, status)
	require.Equal(t, "vkattn: stored tunings are not used: tuning file "+damaged+" is damaged (remove it): it breaks off\n", stderr)
	t.Setenv(tune.FileEnv, "off")

	args := []string{"info", "--json", "--device", "0"}
	if !testing.Short() { // every kernel of the device is compiled for its self-check; the library's tests have both
		args = append(args, "--measure")
	}
	status, stdout, stderr = call(args...)
	require.Zero(t, status, stderr)
	var devices []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &devices))
	require.Len(t, devices, 1)
	require.Equal(t, true, devices[0]["chosen"])
	if !testing.Short() {
		require.Positive(t, devices[0]["peaks"].(map[string]any)["fp32_tflops"])
	}
}

func TestVerify(t *testing.T) {
	needDevice(t)
	status, stdout, stderr := call("verify", "--quick", "--impl", "flash", "--tier", "scalar", "--run", "^golden/f16_d16")
	require.Zero(t, status, stdout+stderr)
	require.Contains(t, stdout, "flash2/scalar")
	require.Contains(t, stdout, "pass")
	require.NotContains(t, stdout, "FAIL")

	// The same rows in the same order, whatever runs at once; what is skipped is listed unless it is not asked for.
	quick := []string{"verify", "--impl", "flash", "--tier", "scalar", "--run", "^core/one/f|^golden/(f16_d16|f32_softcap)"}
	table := func(more ...string) []string {
		status, stdout, stderr := call(slices.Concat(quick, more)...)
		require.Zero(t, status, stdout+stderr)
		var rows []string
		for _, line := range strings.Split(stdout, "\n") {
			if strings.HasPrefix(line, "core/") || strings.HasPrefix(line, "golden/") {
				rows = append(rows, line)
			}
		}
		return rows
	}
	one := table("--parallel", "1")
	require.Greater(t, len(one), 3)
	require.Equal(t, one, table("--parallel", "5"))
	ran := slices.DeleteFunc(slices.Clone(one), func(row string) bool { return strings.Contains(row, "  skip  ") })
	require.Less(t, len(ran), len(one))
	words := func(rows []string) (out []string) { // columns are as wide as what is listed
		for _, row := range rows {
			out = append(out, strings.Join(strings.Fields(row), " "))
		}
		return out
	}
	require.Equal(t, words(ran), words(table("--no-skipped")))
	require.Empty(t, table("--failed"))
	status, stdout, stderr = call(slices.Concat(quick, []string{"--summary"})...)
	require.Zero(t, status, stdout+stderr)
	require.NotContains(t, stdout, "core/one")
	require.Regexp(t, `(?m)^flash2/scalar/decode=0 +forward +1 +2 +\. +3 +\. +0$`, stdout, "core/one in two types, and a golden vector")
	require.Contains(t, stdout, "cases by option")

	// Each tuning has targets of its own, and one that only other kernels have fails.
	status, stdout, stderr = call("verify", "--impl", "standard", "--tier", "scalar", "--run", "^core/one/f", "--summary", "--tuning",
		"max_slab=4000", "--tuning", "max_slab=8000")
	require.Zero(t, status, stdout+stderr)
	require.Contains(t, stdout, "standard/scalar/max_slab=4000 2 cases passed")
	require.Contains(t, stdout, "standard/scalar/max_slab=8000 2 cases passed")
	status, stdout, stderr = call("verify", "--impl", "standard", "--tier", "scalar", "--run", "^core/one/f", "--tuning", "max_slab=4000",
		"--tuning", "lpr=4")
	require.Equal(t, exitFailure, status, stdout+stderr)
	require.Contains(t, stdout, "WithTuning[lpr] is 4")
	require.Contains(t, stdout, "2 FAILED")
	require.Contains(t, stdout, "standard/scalar/max_slab=4000 2 cases passed")

	status, _, stderr = call("verify", "--run", "no such case")
	require.Equal(t, exitFailure, status)
	require.NotContains(t, stderr, "goroutine")
}

func TestTune(t *testing.T) {
	needDevice(t)
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(tune.FileEnv, path)
	// few queries: few tiles
	small := []string{"tune", "--batch", "1", "--heads", "2", "--seq", "9", "--head-dim", "8", "--tier", "scalar", "--dtype", "fp32",
		"--causal", "--rounds", "1", "--limit", "50ms"}
	status, stdout, stderr := call(append(small, "--dry-run", "--statistics")...)
	require.Zero(t, status, stderr)
	require.Regexp(t, `(?m)^ *tile .* registers +spills +at once`, stdout)
	require.Contains(t, stdout, "float32 B1 H2 N9 D8 causal, scalar_forward")
	require.Contains(t, stdout, "built in")
	require.Contains(t, stdout, "taken")
	require.NoFileExists(t, path)

	status, stdout, stderr = call(small...)
	require.Zero(t, status, stderr)
	entries, err := tune.Stored()
	require.NoError(t, err)
	if strings.Contains(stdout, "1 tile in "+path) {
		require.Len(t, entries, 1)
		require.Greater(t, entries[0].Gain, 1.0)
	} else {
		require.Contains(t, stdout, "the built-in tiles are the fastest")
		require.Empty(t, entries)
	}

	// Of what could not be measured nothing is said to be the fastest.
	require.NoError(t, os.RemoveAll(path))
	status, stdout, stderr = call("tune", "--batch", "10000000", "--heads", "4", "--seq", "48", "--head-dim", "64", "--dtype", "fp32")
	require.Equal(t, exitFailure, status, stderr)
	require.Contains(t, stdout, "nothing is stored")
	require.NotContains(t, stdout, "fastest")

	// What is stored is listed, used, and forgotten.
	dev, err := flash.Open()
	require.NoError(t, err)
	name := dev.Info().Name
	key, err := tune.KeyOf(dev, "scalar_forward", flash.Problem{Batch: 1, Heads: 2, QueryLen: 48, HeadDim: 8, DType: flash.F16,
		Causal: flash.CausalBottomRight})
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.NoError(t, tune.Store(tune.Entry{Key: key, Tuning: map[string]int{"br": 8, "bc": 16, "mr": 1, "mc": 4},
		Tile: "8x16", Gain: 1.5}))
	_, stdout, _ = call("tune", "--list")
	require.Contains(t, stdout, name)
	require.Contains(t, stdout, "8x16")
	status, stdout, stderr = call(tiny("--impl", "flash", "--tier", "scalar")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "scalar_forward 8x16")
	status, stdout, stderr = call(tiny("--impl", "flash", "--tier", "scalar", "--tuning", "br=16,bc=64,mr=2,mc=4")...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "scalar_forward 16x64")

	// It is written as tiles, and read again.
	tilesFile := filepath.Join(t.TempDir(), "mine.tiles")
	status, _, stderr = call("tune", "--export", tilesFile)
	require.Zero(t, status, stderr)
	status, stdout, _ = call("tune", "--reset")
	require.Zero(t, status)
	require.Contains(t, stdout, "1 tile forgotten")
	_, stdout, _ = call("tune", "--list")
	require.Contains(t, stdout, "nothing is stored")

	status, _, stderr = call("tune", "--export", "-")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "no tiles are stored that were measured on "+name)
	status, stdout, stderr = call(tiny("--impl", "flash", "--tier", "scalar", "--tiles", tilesFile)...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "scalar_forward 8x16")
	status, stdout, stderr = call("info", "--tiles", tilesFile)
	require.Zero(t, status, stderr)
	require.Regexp(t, `tiles +[a-z0-9-]+-tuned, then `, stdout)
	text, err := os.ReadFile(tilesFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tilesFile, append(text, "kernel scalar_forward tuned\nany : br=0\n"...), 0o644))
	status, _, stderr = call("verify", "--run", "no such case", "--tiles", tilesFile)
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, fmt.Sprintf("%s:%d: scalar_forward: ", tilesFile, strings.Count(string(text), "\n")+2))

	t.Setenv(tune.FileEnv, "off")
	status, _, stderr = call("tune")
	require.Equal(t, exitFailure, status)
	require.Contains(t, stderr, "use --dry-run")
}

// TestInterrupt starts the command as a process of its own and interrupts it
// in the middle of a sweep.
func TestInterrupt(t *testing.T) {
	needDevice(t)
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGINT to send")
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	trace := out + ".trace"
	args := append(strings.Fields(os.Getenv("VKATTN_EXEC")), os.Args[0])
	args = append(args, tiny("--out", out, "--trace", trace, "--rounds", "500", "--format", "csv")...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "VKATTN_TEST_COMMAND=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	deadline := time.Now().Add(5 * time.Minute)
	for { // the header stands when measuring begins
		if data, err := os.ReadFile(out); err == nil && len(data) > 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "the sweep did not begin: %s", stderr.String())
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	err := cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitInterrupted, exit.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "vkattn: interrupted")
	require.Contains(t, stderr.String(), "0 of 4 rows measured")
	require.NotContains(t, stderr.String(), "goroutine")
	require.True(t, strings.HasPrefix(stdout.String(), "library,impl,"), "what there is is printed")
	_, err = result.ReadFile(out)
	require.NoError(t, err, "the file is whole")
	require.NoFileExists(t, trace, "an empty one would stand in the way")
	require.Contains(t, stderr.String(), "no trace was written: the same with --append makes one of all rows")
}
