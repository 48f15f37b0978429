package pipeline

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvict: beyond the limit what was not read for the longest time goes, of whatever device or driver, and nothing that is not the
// cache's own.
func TestEvict(t *testing.T) {
	root := t.TempDir()
	old := testID
	old.Driver--
	now := time.Now()
	file := func(id cacheID, name string, size int, age time.Duration) string {
		path := filepath.Join(root, id.folder(), name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
		require.NoError(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
		return path
	}
	const day = 24 * time.Hour
	unused := file(old, hashName("x", 1)+".bin", 300, 90*day)
	middle := file(testID, hashName("x", 2)+".bin", 300, 20*day)
	recent := file(testID, hashName("x", 3)+".bin", 300, 0)
	users := file(testID, "notes.bin", 5000, 400*day)
	killed := file(testID, hashName("x", 4)+".bin.123.tmp", 10, 2*time.Hour)
	writing := file(testID, hashName("x", 5)+".bin.124.tmp", 10, time.Minute)

	require.NoError(t, evict(filepath.Join(root, "nothing is there"), 0))
	require.NoError(t, evict(root, 900))
	for _, path := range []string{unused, middle, recent, users, writing} {
		require.FileExists(t, path)
	}
	require.NoFileExists(t, killed)
	require.NoError(t, evict(root, 899))
	require.NoDirExists(t, filepath.Dir(unused), "with the folder of a driver that is gone")
	require.FileExists(t, middle)
	require.NoError(t, evict(root, 599))
	require.NoFileExists(t, middle)
	require.FileExists(t, recent)
	require.NoError(t, evict(root, 0))
	require.NoFileExists(t, recent)
	require.FileExists(t, users)
	require.FileExists(t, writing)
}

// TestReadingKeeps: a file that is read counts as used, and is not written to for that more than once a day.
func TestReadingKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bin")
	require.NoError(t, storeCache(path, encodeCache(testID, keptBy(testID, "a"))))
	for _, age := range []time.Duration{time.Hour, 40 * time.Hour} {
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, at, at))
		_, err := readCache(path, testID)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, age < touchEvery, time.Since(info.ModTime()) > 30*time.Minute, age)
	}
}

// TestCacheStaysSmall: whatever is compiled, by several processes at once, the cache holds no more than its limit, and what is used again
// and again stays.
func TestCacheStaysSmall(t *testing.T) {
	root := t.TempDir()
	const limit = 64 << 10
	var wg sync.WaitGroup
	for process := range 3 {
		wg.Go(func() {
			d := &diskCache{id: testID, limit: limit}
			d.at(root)
			for i := range 100 {
				if err := d.keep(hashName("k", 100*process+i), keptBy(testID, string(make([]byte, 2000)))); err != nil {
					t.Error(err)
				}
			}
			if err := d.save(); err != nil || d.told().Err != nil {
				t.Error(err, d.told().Err)
			}
		})
	}
	wg.Wait()
	d := &diskCache{id: testID, limit: limit}
	d.at(root)
	require.NoError(t, d.keep(hashName("k", 1000), keptBy(testID, "the last")))
	require.NoError(t, d.save())
	files, err := os.ReadDir(d.state.Path)
	require.NoError(t, err)
	sum := int64(0)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		sum += info.Size()
	}
	require.LessOrEqual(t, sum, int64(limit))
	require.Greater(t, sum, int64(limit/2))
	require.NotNil(t, d.load(hashName("k", 1000)))
}
