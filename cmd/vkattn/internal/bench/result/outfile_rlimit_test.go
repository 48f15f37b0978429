//go:build linux || darwin

package result

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const fullDisk = "VKATTN_TEST_FULL_DISK"

// TestFullDiskChild is the process of TestFullDisk whose files may not grow beyond a limit; alone it does nothing.
func TestFullDiskChild(t *testing.T) {
	path, limit, _ := strings.Cut(os.Getenv(fullDisk), "|")
	if path == "" {
		t.Skip("only as a child of TestFullDisk")
	}
	most, err := strconv.ParseUint(limit, 10, 64)
	require.NoError(t, err)
	signal.Ignore(syscall.SIGXFSZ)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: most}))
	f, err := CreateFile(path, Append)
	require.NoError(t, err)
	w := NewWriter(f)
	require.NoError(t, w.Line(sampleRow()))
	err = w.Line(sampleRow())
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorContains(t, err, path)
	require.NoError(t, f.Close())
}

// TestFullDisk: of a row that there is no room for nothing stays, wherever the room ends.
func TestFullDisk(t *testing.T) {
	line := strings.SplitAfter(sampleFile(t), "\n")[1]
	for _, more := range []int{0, 1, len(line) / 2, len(line) - 1} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		child := exec.Command(os.Args[0], "-test.run", "^TestFullDiskChild$", "-test.count", "1")
		child.Env = append(os.Environ(), fullDisk+"="+path+"|"+strconv.Itoa(len(line)+more))
		out, err := child.CombinedOutput()
		require.NoError(t, err, string(out))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, line, string(data))
	}
}
