//go:build linux || darwin

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const wholeFiles = "VKATTN_TEST_WHOLE_FILES"

// TestWholeFilesChild is the process of TestWholeFiles whose files may not grow beyond a limit; alone it does nothing.
func TestWholeFilesChild(t *testing.T) {
	dir := os.Getenv(wholeFiles)
	if dir == "" {
		t.Skip("only as a child of TestWholeFiles")
	}
	signal.Ignore(syscall.SIGXFSZ)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 100, Max: 100}))
	require.ErrorIs(t, writeWhole(filepath.Join(dir, "new"), false, make([]byte, 200)), syscall.EFBIG)
	require.ErrorIs(t, writeWhole(filepath.Join(dir, "old"), true, make([]byte, 200)), syscall.EFBIG)
	require.NoError(t, writeWhole(filepath.Join(dir, "link"), true, make([]byte, 50)))
}

// TestWholeFiles: where there is no room for a file nothing of it stays, and what was to be replaced is as it was; a file that is replaced
// keeps its mode, and a link to it stays one.
func TestWholeFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("old"), []byte("old"), 0o644))
	require.NoError(t, os.WriteFile(at("target"), []byte("target"), 0o640))
	require.NoError(t, os.Symlink("target", at("link")))
	child := exec.Command(os.Args[0], "-test.run", "^TestWholeFilesChild$", "-test.count", "1")
	child.Env = append(os.Environ(), wholeFiles+"="+dir)
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "old, target and link")
	old, err := os.ReadFile(at("old"))
	require.NoError(t, err)
	require.Equal(t, "old", string(old))
	info, err := os.Lstat(at("target"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	require.EqualValues(t, 50, info.Size())
	info, err = os.Lstat(at("link"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	require.ErrorIs(t, writeWhole(at("old"), false, nil), os.ErrExist)
}
