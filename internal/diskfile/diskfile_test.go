package diskfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// put is an Update to text, whatever there was.
func put(path, text string) error {
	return Update(path, func() ([]byte, error) { return []byte(text), nil })
}

// names lists a folder.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestUpdate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "file")
	require.NoError(t, put(path, "one"))
	require.NoError(t, put(path, "two"))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
	require.Equal(t, []string{"file", "file.lock"}, names(t, dir), "no temporary file stays")
}

// TestUpdateReplacesTheFile: whoever has the old file keeps it whole, for it is not written to.
func TestUpdateReplacesTheFile(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "file"), filepath.Join(dir, "old")
	require.NoError(t, put(path, "one"))
	require.NoError(t, os.Link(path, old))
	require.NoError(t, put(path, "two"))
	got, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	a, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.Stat(old)
	require.NoError(t, err)
	require.False(t, os.SameFile(a, b))
}

// TestUpdateThatFails leaves the file as it is, and nothing beside it but the lock.
func TestUpdateThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, put(path, "one"))
	no := errors.New("no")
	require.ErrorIs(t, Update(path, func() ([]byte, error) { return nil, no }), no)
	// The rename fails: there is a folder by now.
	blocked := filepath.Join(dir, "blocked")
	require.Error(t, Update(blocked, func() ([]byte, error) {
		require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o700))
		return []byte("x"), nil
	}))
	require.Equal(t, []string{"blocked", "blocked.lock", "file", "file.lock"}, names(t, dir))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	require.ErrorContains(t, put(blocked, "x"), "it is not a regular file")
	require.Error(t, put(filepath.Join(path, "below a file"), "x"))
}

// TestUpdateRemovesLeftovers: temporary files of processes that were killed go with the next update; other files stay.
func TestUpdateRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	stay := []string{"file.tmp", "file.1x.tmp", "file.other.77.tmp", "other.77.tmp", "file.77.tmpx"}
	for _, name := range append([]string{"file.77.tmp", "file.4294967295.tmp"}, stay...) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, put(path, "one"))
	require.ElementsMatch(t, append(stay, "file", "file.lock"), names(t, dir))
}

func TestUpdateKeepsALink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making links is a privilege on Windows")
	}
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(real, []byte("one"), 0o600))
	require.NoError(t, os.Symlink(real, link))
	require.NoError(t, put(link, "two"))
	got, err := os.ReadFile(real)
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
}

// TestUpdatesFollowOneAnother: of many at once none is lost.
func TestUpdatesFollowOneAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	const writers, each = 8, 10
	var wg sync.WaitGroup
	errs := make(chan error, writers*each)
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				errs <- Update(path, func() ([]byte, error) {
					old, err := os.ReadFile(path)
					if err != nil && !errors.Is(err, os.ErrNotExist) {
						return nil, err
					}
					return append(old, fmt.Sprintf("%d.%d\n", i, k)...), nil
				})
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, writers*each, strings.Count(string(got), "\n"))
}

func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, two := open(), open()
	got, err := TryLock(one)
	require.NoError(t, err)
	require.True(t, got)
	got, err = TryLock(two)
	require.NoError(t, err)
	require.False(t, got)
	_, err = one.WriteString("whoever holds the lock writes")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err, "and everyone reads")
	require.Len(t, text, 29)
	require.NoError(t, one.Close())
	got, err = TryLock(two)
	require.NoError(t, err)
	require.True(t, got)
}
