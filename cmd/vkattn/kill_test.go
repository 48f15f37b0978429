package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash/tune"
)

// kills is how often a command is killed: VKATTN_KILLS (tools/killtest.sh), else a few times.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("VKATTN_KILLS")); err == nil {
		return n
	}
	return 3
}

// long skips what takes long where that is not wanted.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() && os.Getenv("VKATTN_KILLS") == "" {
		t.Skip("takes long (-short)")
	}
}

// home is a user's: folders of the command's own for caches and tunings. The driver's cache of compiled code stays where it is.
type home struct{ dir string }

func newHome(t *testing.T) home {
	if runtime.GOOS != "linux" {
		t.Skip("the folders of a user are set as Linux does")
	}
	return home{t.TempDir()}
}

func (h home) cache() string  { return filepath.Join(h.dir, "cache") }
func (h home) tuning() string { return filepath.Join(h.dir, "config", "vkattn", "tuning.json") }

// command is vkattn as a process of its own in this home.
func (h home) command(args ...string) *exec.Cmd {
	line := append(strings.Fields(os.Getenv("VKATTN_EXEC")), os.Args[0])
	line = append(line, args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "VKATTN_TEST_COMMAND=1", "XDG_CACHE_HOME="+h.cache(), "XDG_CONFIG_HOME="+filepath.Join(h.dir, "config"),
		tune.FileEnv+"=")
	if os.Getenv("MESA_SHADER_CACHE_DIR") == "" {
		if user, err := os.UserCacheDir(); err == nil {
			cmd.Env = append(cmd.Env, "MESA_SHADER_CACHE_DIR="+user)
		}
	}
	return cmd
}

// run runs a command to its end.
func (h home) run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := h.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), aboutFiles(errs.String())
}

// aboutFiles is what a command says on its standard error but for the line that tells that there is no GPU, which is no matter of files.
func aboutFiles(stderr string) string { return noGPU.ReplaceAllString(stderr, "") }

var noGPU = regexp.MustCompile(`(?m)^vkattn: no GPU was found.*\n`)

// killed runs a command and kills it at a random moment up to longest; ended says that it was done before.
func (h home) killed(t *testing.T, longest time.Duration, args ...string) (ended bool, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	cmd := h.command(args...)
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		require.NoError(t, err, errs.String())
		return true, errs.String()
	case <-time.After(rand.N(longest)):
	}
	require.NoError(t, cmd.Process.Kill())
	<-done
	return false, errs.String()
}

// took runs a command and says how long that takes.
func (h home) took(t *testing.T, args ...string) time.Duration {
	t.Helper()
	began := time.Now()
	status, _, stderr := h.run(t, args...)
	require.Zero(t, status, stderr)
	require.NotContains(t, complaints(stderr), "vkattn:")
	return time.Since(began)
}

// noLeftovers checks that there is nothing in the home but what belongs there.
func (h home) noLeftovers(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, err error) error {
		require.NotContains(t, path, ".tmp")
		return err
	}))
}

// TestKilledBench kills sweeps that are appended to a file: rows that were written are kept, byte by byte, and a sweep that is
// left alone measures what is missing and no more.
func TestKilledBench(t *testing.T) {
	needDevice(t)
	h := newHome(t)
	sweep := []string{"bench", "--impl", "flash", "--tier", "scalar", "--batch", "1", "--heads", "2", "--head-dim", "8", "--causal",
		"--rounds", "1", "--seq", "16,17,18,19,20,21", "--limit", "50ms"}
	longest := h.took(t, sweep...)
	h = newHome(t)
	out, sweeps := filepath.Join(h.dir, "0.jsonl"), 1
	appended := func() []string { return append(sweep, "--out", out, "--append") }
	written := ""
	look := func(stderr string) {
		t.Helper()
		require.NotContains(t, stderr, "cannot be used")
		data, err := os.ReadFile(out)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		require.True(t, strings.HasPrefix(string(data), written), "what was written stays")
		written = string(data[:bytes.LastIndexByte(data, '\n')+1])
	}
	finish := func() {
		t.Helper()
		status, _, stderr := h.run(t, appended()...)
		require.Zero(t, status, stderr)
		look(stderr)
		file, err := result.ReadFile(out)
		require.NoError(t, err)
		require.Len(t, file.Rows, 6)
		cases := map[result.Case]bool{}
		for _, row := range file.Rows {
			cases[row.Case] = true
			require.Positive(t, row.Fwd.Ms)
		}
		require.Len(t, cases, 6, "no row twice")
	}
	for range kills() {
		ended, stderr := h.killed(t, longest, appended()...)
		look(stderr)
		if ended {
			finish()
			out, written = filepath.Join(h.dir, strconv.Itoa(sweeps)+".jsonl"), ""
			sweeps++
		}
	}
	finish()
	h.noLeftovers(t)
	t.Logf("%d kills within %v each, %d sweeps", kills(), longest.Round(time.Millisecond), sweeps)
}

// TestKilledTune kills tune: what was stored is read by whatever comes next, whole.
func TestKilledTune(t *testing.T) {
	long(t)
	needDevice(t)
	h := newHome(t)
	// Entries of another device, so that there is something to lose.
	t.Setenv(tune.FileEnv, h.tuning())
	other := tune.Entry{Key: tune.Key{Device: "another GPU"}, Tuning: map[string]int{"br": 64},
		Tile: "64x32", Gain: 1.5}
	require.NoError(t, tune.Store(other))
	args := []string{"tune", "--batch", "1", "--heads", "1", "--seq", "9", "--head-dim", "8,16", "--tier", "scalar", "--dtype", "fp32",
		"--causal", "--rounds", "1"}
	longest := h.took(t, args...)
	for range kills() {
		_, stderr := h.killed(t, longest, args...)
		require.NotContains(t, stderr, "cannot be used")
		entries, err := tune.Stored()
		require.NoError(t, err)
		require.Contains(t, entries, other)
	}
	require.NoError(t, tune.Store(other))
	h.took(t, args...)
	h.noLeftovers(t)
}

// complaints are what a command said on its standard error, but for the notice that a CPU is the device, which it ends with.
func complaints(stderr string) string {
	var out []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "vkattn: no GPU was found") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// TestKilledVerify kills verify, whose verdicts and compiled kernels are kept: the next one finds them whole.
func TestKilledVerify(t *testing.T) {
	long(t)
	needDevice(t)
	h := newHome(t)
	args := []string{"verify", "--impl", "standard,flash", "--tier", "scalar", "--run", "^core/one/f", "--summary"}
	longest := h.took(t, args...)
	for i := range kills() {
		if i%10 == 0 {
			h = newHome(t) // from nothing
		}
		_, stderr := h.killed(t, longest, args...)
		require.NotContains(t, complaints(stderr), "vkattn:")
	}
	h.took(t, args...)
	h.noLeftovers(t)
}

// TestTwoSweepsAtOnce: of two that append to one file one is refused, and no line is mixed.
func TestTwoSweepsAtOnce(t *testing.T) {
	needDevice(t)
	h := newHome(t)
	out := filepath.Join(h.dir, "out.jsonl")
	first := h.command(tiny("--impl", "flash", "--tier", "scalar", "--rounds", "500", "--out", out)...)
	require.NoError(t, first.Start())
	t.Cleanup(func() { _ = first.Process.Kill(); _ = first.Wait() }) // before the folder that it writes to is removed
	require.Eventually(t, func() bool { info, err := os.Stat(out); return err == nil && info.Size() > 0 }, 5*time.Minute,
		10*time.Millisecond)
	for _, how := range []string{"--append", "--force"} {
		status, stdout, stderr := h.run(t, tiny("--impl", "flash", "--tier", "scalar", "--out", out, how)...)
		require.Equal(t, exitFailure, status)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "vkattn: "+out+" is being written by another process: wait until that ends, or name another file")
	}
	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	status, _, stderr := h.run(t, tiny("--impl", "flash", "--tier", "scalar", "--out", out, "--append")...)
	require.Zero(t, status, stderr)
	file, err := result.ReadFile(out)
	require.NoError(t, err)
	require.Len(t, file.Headers, 2)
	require.Len(t, file.Rows, 2)
}

// TestDamagedFilesAreToldOnce: a command whose files are damaged says so in one line each and works; the next one has nothing to
// say, but of the tuning file, which is the user's.
func TestDamagedFilesAreToldOnce(t *testing.T) {
	long(t)
	needDevice(t)
	h := newHome(t)
	args := tiny("--impl", "flash", "--tier", "scalar", "--seq", "16")
	h.took(t, args...)
	damage := func(path string) {
		t.Helper()
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	compiled, err := filepath.Glob(filepath.Join(h.cache(), "vkattn", "pipelines", "*", "*.bin"))
	require.NoError(t, err)
	require.NotEmpty(t, compiled)
	damage(compiled[0])
	status, stdout, stderr := h.run(t, args...)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "flash2")
	require.Equal(t, 1, strings.Count(stderr, "vkattn: compiled kernels on disk cannot be used ("+compiled[0]+": "), stderr)
	require.Equal(t, 1, strings.Count(stderr, "vkattn:"), stderr)
	h.took(t, args...)

	t.Setenv(tune.FileEnv, h.tuning())
	require.NoError(t, tune.Store(tune.Entry{Key: tune.Key{Device: "another GPU"}, Tile: "64x32"}))
	damage(h.tuning())
	status, _, stderr = h.run(t, args...)
	require.Zero(t, status, stderr)
	require.Equal(t, 1, strings.Count(stderr, "vkattn: stored tunings are not used: tuning file "+h.tuning()+" is damaged"), stderr)
	require.Equal(t, 1, strings.Count(stderr, "vkattn:"), stderr)
	status, _, stderr = h.run(t, "tune")
	require.Equal(t, exitFailure, status, "before anything is measured")
	require.Contains(t, stderr, "is damaged (remove it)")
}
