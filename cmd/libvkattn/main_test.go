package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/libvkattn/internal/door"
	"github.com/vkattn/vkattn/flash"
)

// needDevice skips where programs would find no device.
func needDevice(t *testing.T) {
	t.Helper()
	if _, err := flash.Devices(); err != nil {
		if os.Getenv("VKATTN_REQUIRE_DEVICE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// library builds the library once, with vkattn.h beside it, and gives its folder.
var library = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "libvkattn")
	if err != nil {
		return "", err
	}
	header, err := os.ReadFile("vkattn.h")
	if err != nil {
		return dir, err
	}
	if err := os.WriteFile(filepath.Join(dir, "vkattn.h"), header, 0o644); err != nil {
		return dir, err
	}
	out, err := exec.Command("go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "libvkattn.so"), ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	if asked {
		if dir, _ := library(); dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(status)
}

// asked is whether a test wanted the library.
var asked bool

// built is library where there is a C compiler to build it with. Go turns cgo off by itself where it finds none.
func built(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		if os.Getenv("VKATTN_REQUIRE_CC") == "1" {
			t.Fatal("VKATTN_REQUIRE_CC=1, but cgo is off, or has no C compiler")
		}
		t.Skip("the library is built by cgo, which is off or has no C compiler")
	}
	asked = true
	dir, err := library()
	require.NoError(t, err)
	return dir
}

// compiled builds a C program against the library, with every warning an error, and gives its path.
func compiled(t *testing.T, source string, flags ...string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the library is found by rpath")
	}
	dir := built(t)
	program := filepath.Join(t.TempDir(), "program")
	run(t, append([]string{"cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-I" + dir, "-o", program, source,
		"-L" + dir, "-lvkattn", "-lm", "-Wl,-rpath," + dir}, flags...)...)
	return program
}

// run runs a command that must succeed, and gives what it printed.
func run(t *testing.T, line ...string) string {
	t.Helper()
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(line, " "), out)
	return string(out)
}

// onDriver is a command under the prefix that finds the driver of these tests.
func onDriver(line ...string) []string {
	return append(strings.Fields(os.Getenv("VKATTN_EXEC")), line...)
}

// TestCProgram: examples/c computes attention and its gradients as its own loop does.
func TestCProgram(t *testing.T) {
	needDevice(t)
	out := run(t, onDriver(compiled(t, "../../examples/c/attention.c"))...)
	require.Equal(t, 4, strings.Count(out, "largest difference"), out)
	require.NotContains(t, out, "TOO LARGE")
	t.Log(out)
}

// TestCBuffers: the other program of examples/c has a device and buffers of its own, and its queue is locked around submissions.
func TestCBuffers(t *testing.T) {
	needDevice(t)
	if runtime.GOOS != "linux" {
		t.Skip("it opens libvulkan.so.1")
	}
	out := run(t, onDriver(compiled(t, "../../examples/c/buffers.c", "-I../../vk/include", "-ldl"))...)
	require.Contains(t, out, "largest difference")
	t.Log(out)
}

// TestCRefusals: what a C program may do wrong gives it a status and a text, at every function.
func TestCRefusals(t *testing.T) {
	needDevice(t)
	require.Contains(t, run(t, onDriver(compiled(t, "testdata/refuse.c"))...), "0 failures")
}

// TestPythonProgram: examples/python computes attention as NumPy does in float64.
func TestPythonProgram(t *testing.T) {
	needDevice(t)
	python := ""
	for _, name := range []string{"python3", "/usr/bin/python3"} { // one of the user's may lack what the system's has
		if out, err := exec.Command(name, "-c", "import numpy, sys; print(sys.executable)").Output(); err == nil {
			python = strings.TrimSpace(string(out)) // which is a program where python3 is a script
			break
		}
	}
	if python == "" {
		if os.Getenv("VKATTN_REQUIRE_NUMPY") == "1" {
			t.Fatal("VKATTN_REQUIRE_NUMPY=1, but no Python has NumPy: tools/setup.sh --numpy")
		}
		t.Skip("no Python with NumPy")
	}
	dir := built(t)
	out := run(t, onDriver(python, "../../examples/python/attention.py", dir)...)
	require.Contains(t, out, "largest difference")
	t.Log(out)
}

// TestHeader: vkattn.h declares what the library exports, with the same arguments, and has the statuses and the version that package door
// has.
func TestHeader(t *testing.T) {
	dir := built(t)
	header := source(t, "vkattn.h")
	require.Equal(t, prototypes(source(t, filepath.Join(dir, "libvkattn.h"))), prototypes(header))
	require.Len(t, prototypes(header), 18)

	for s := door.OK; ; s++ {
		if strings.HasPrefix(s.String(), "no status") {
			require.Greater(t, s, door.Panicked)
			break
		}
		require.Regexp(t, fmt.Sprintf(`\bVKATTN_%s = %d\b`, s, s), header)
	}
	major, minor, _ := strings.Cut(door.Version, ".")
	require.Regexp(t, `VKATTN_VERSION_MAJOR `+major+`\b`, header)
	require.Regexp(t, `VKATTN_VERSION_MINOR `+minor+`\b`, header)
	for i, name := range []string{"F32", "F16", "BF16", "BOOL", "INT32"} {
		require.Regexp(t, fmt.Sprintf(`\bVKATTN_%s = %d\b`, name, i), header)
	}
}

// source is a file without comments and without const.
func source(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	text := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(string(data), "")
	return regexp.MustCompile(`\bconst\b`).ReplaceAllString(text, "")
}

// prototypes are the functions that a header declares: each one's result and types of arguments.
func prototypes(header string) map[string]string {
	out := map[string]string{}
	name := regexp.MustCompile(`\w+$`)
	for _, m := range regexp.MustCompile(`(?m)^(?:extern )?(\w+) (vkattn_\w+)\(([^)]*)\);`).FindAllStringSubmatch(header, -1) {
		signature := m[1] + "("
		for _, argument := range strings.Split(m[3], ",") {
			argument = strings.Join(strings.Fields(argument), " ")
			if argument != "void" {
				signature += strings.ReplaceAll(name.ReplaceAllString(argument, ""), " ", "") + ","
			}
		}
		out[m[2]] = signature
	}
	return out
}

// TestLinesFit: no line of C or Python here is wider than 140 columns, as none of Go is.
func TestLinesFit(t *testing.T) {
	for _, path := range []string{"vkattn.h", "testdata/refuse.c", "../../examples/c/attention.c", "../../examples/c/buffers.c",
		"../../examples/python/attention.py"} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, line := range strings.Split(string(data), "\n") {
			require.LessOrEqual(t, len(line), 140, "%s:%d", path, i+1)
		}
	}
}
