package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/vktest"
)

// mounted runs a shell script where $DISK is a file system of its own, made with these options. Only the superuser of Linux, and
// not in every container, may mount.
func (h home) mounted(t *testing.T, options, script string, args ...string) (stderr string, err error) {
	t.Helper()
	cmd := h.command(args...)
	unshare, missing := exec.LookPath("unshare")
	if missing != nil || os.Getuid() != 0 {
		t.Skip("mounting a small disk takes unshare and a superuser")
	}
	disk := filepath.Join(h.dir, "disk")
	require.NoError(t, os.MkdirAll(disk, 0o700))
	mount := `mount -t tmpfs -o ` + options + ` none "$DISK" || exit 99
` + script
	cmd.Path, cmd.Args = unshare, append([]string{unshare, "-m", "sh", "-c", mount, "sh"}, cmd.Args...)
	cmd.Env = append(cmd.Env, "DISK="+disk, "KEEP="+h.dir, "XDG_CACHE_HOME="+disk)
	var out strings.Builder
	cmd.Stderr = &out
	err = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == 99 || code == 1 && strings.HasPrefix(out.String(), "unshare:") {
		t.Skip("nothing can be mounted here: " + out.String())
	}
	return aboutFiles(out.String()), err
}

// TestFullDisk fills a disk of 64 KiB, which has room for three files, its root among them, with a sweep: the rows for which there is room
// are kept, whole, and printed with the one that was in the way; the error names the file; and that no kernel could be kept is said once.
func TestFullDisk(t *testing.T) {
	vktest.Long(t, "TestFullOutput")
	needDevice(t)
	h := newHome(t)
	var seqs []string
	for n := range 30 {
		seqs = append(seqs, string(rune('1'+n%9))+strings.Repeat("0", n/9))
	}
	stderr, err := h.mounted(t, "size=64k,nr_inodes=3", `head -c 49000 /dev/zero >"$DISK/filler"
: >"$DISK/out.jsonl"
"$@" --append --out "$DISK/out.jsonl"
status=$?
cp "$DISK/out.jsonl" "$KEEP/out.jsonl"
ls "$DISK" >"$KEEP/listing"
exit $status`, "bench", "--impl", "flash", "--tier", "scalar", "--batch", "1", "--heads", "1", "--head-dim", "8", "--causal", "--q-len", "1", "--seq", strings.Join(seqs, ","), "--format", "csv")
	require.Error(t, err)
	require.Contains(t, stderr, filepath.Join(h.dir, "disk", "out.jsonl")+": no space left on device")
	require.Equal(t, 1, strings.Count(stderr, "compiled kernels could not be stored"), stderr)
	require.NotContains(t, stderr, "goroutine")
	data, err := os.ReadFile(filepath.Join(h.dir, "out.jsonl"))
	require.NoError(t, err)
	require.Equal(t, byte('\n'), data[len(data)-1], "the last line is whole")
	file, err := result.ReadFile(filepath.Join(h.dir, "out.jsonl"))
	require.NoError(t, err)
	require.Zero(t, file.Cut)
	require.NotEmpty(t, file.Rows)
	listing, err := os.ReadFile(filepath.Join(h.dir, "listing"))
	require.NoError(t, err)
	require.NotContains(t, string(listing), ".tmp")
}

// TestReadOnlyCache: a home that cannot be written costs time and one line for each file, nothing else.
func TestReadOnlyCache(t *testing.T) {
	long(t)
	needDevice(t)
	h := newHome(t)
	stderr, err := h.mounted(t, "size=64k,ro", `exec "$@"`, tiny("--impl", "flash", "--tier", "scalar", "--seq", "16")...)
	require.NoError(t, err, stderr)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.Contains(t, stderr, "vkattn: compiled kernels could not be stored (")
	require.Contains(t, stderr, "read-only file system")
}
