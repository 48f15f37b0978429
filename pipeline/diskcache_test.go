package pipeline

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeCache is a driver's cache whose pipelines are words.
type fakeCache struct {
	words  []string
	closed int
}

func (f *fakeCache) Data() ([]byte, error) {
	return driverData(testID, strings.Join(f.words, " ")), nil
}

func (f *fakeCache) Merge(others ...*fakeCache) error {
	for _, o := range others {
		for _, w := range o.words {
			if !slices.Contains(f.words, w) {
				f.words = append(f.words, w)
			}
		}
	}
	slices.Sort(f.words)
	return nil
}

func (f *fakeCache) Close() error { f.closed++; return nil }

var errRefused = errors.New("the driver does not want it")

// fakeDriver makes fake caches, and remembers them; it refuses data with the word "poison".
type fakeDriver struct{ made []*fakeCache }

func (f *fakeDriver) open(data []byte) (*fakeCache, error) {
	c := &fakeCache{}
	if len(data) > 0 {
		c.words = strings.Fields(string(data[32:]))
	}
	if slices.Contains(c.words, "poison") {
		return nil, errRefused
	}
	f.made = append(f.made, c)
	return c, nil
}

// fakeDisk is a process's cache, loaded from path.
func fakeDisk(t *testing.T, path string) (*diskCache[*fakeCache], *fakeDriver) {
	t.Helper()
	driver := &fakeDriver{}
	d := &diskCache[*fakeCache]{id: testID, open: driver.open}
	require.NoError(t, d.load(path))
	return d, driver
}

func (d *diskCache[C]) compiled() { d.dirty.Store(true) }

// wordsIn gives what a cache file holds.
func wordsIn(t *testing.T, path string) []string {
	t.Helper()
	data, err := readCache(path, testID)
	require.NoError(t, err)
	return strings.Fields(string(data[32:]))
}

// TestDiskCacheMerges: what another process stored after this one loaded is in the file beside what this one stores.
func TestDiskCacheMerges(t *testing.T) {
	path := filepath.Join(t.TempDir(), testID.fileName())
	one, _ := fakeDisk(t, path)
	two, driver := fakeDisk(t, path)
	one.cache.words, two.cache.words = []string{"a"}, []string{"b"}

	require.NoError(t, one.save())
	assert.NoFileExists(t, path, "nothing was compiled")
	one.compiled()
	require.NoError(t, one.save())
	two.compiled()
	require.NoError(t, two.save())
	assert.Equal(t, []string{"a", "b"}, wordsIn(t, path))
	require.Len(t, driver.made, 2)
	assert.Equal(t, 1, driver.made[1].closed, "the other's is closed again")
	assert.Zero(t, driver.made[0].closed)

	three, _ := fakeDisk(t, path)
	assert.Equal(t, []string{"a", "b"}, three.cache.words)
	assert.Equal(t, len(driverData(testID, "a b")), three.state.Loaded)
	require.NoError(t, os.Remove(path))
	require.NoError(t, three.save())
	assert.NoFileExists(t, path, "nothing new")
}

// TestDiskCacheOfBadFiles: a file that cannot be used is told, and replaced by the next store whether or not anything was
// compiled; what it held is lost, and nothing else is.
func TestDiskCacheOfBadFiles(t *testing.T) {
	sound := encodeCache(testID, driverData(testID, "a"))
	flipped := slices.Clone(sound)
	flipped[len(flipped)-1] ^= 4
	for want, file := range map[string][]byte{
		"not a pipeline cache file": nil,
		"holds 32 bytes of data":    sound[:len(sound)-1],
		"checksum does not match":   flipped,
		errRefused.Error():          encodeCache(testID, driverData(testID, "poison")),
	} {
		path := filepath.Join(t.TempDir(), testID.fileName())
		require.NoError(t, os.WriteFile(path, file, 0o600))
		d, _ := fakeDisk(t, path)
		assert.ErrorContains(t, d.state.Err, want)
		assert.Zero(t, d.state.Loaded)
		assert.Empty(t, d.cache.words)
		require.NoError(t, d.save())
		assert.Empty(t, wordsIn(t, path), want)
		d, _ = fakeDisk(t, path)
		assert.NoError(t, d.state.Err, "the next run finds it whole")

		// The same when the file is damaged after it was loaded.
		require.NoError(t, os.WriteFile(path, file, 0o600))
		d.cache.words = []string{"mine"}
		d.compiled()
		require.NoError(t, d.save())
		assert.ErrorContains(t, d.state.Err, want)
		assert.Equal(t, []string{"mine"}, wordsIn(t, path))
	}
}

// TestDiskCacheThatCannotBeStored: the error is kept beside what was wrong before, and the next store tries again.
func TestDiskCacheThatCannotBeStored(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "place")
	require.NoError(t, os.WriteFile(place, nil, 0o600)) // a file where the folder should be
	d := &diskCache[*fakeCache]{id: testID, open: (&fakeDriver{}).open}
	require.NoError(t, d.load(filepath.Join(place, testID.fileName())))
	require.Error(t, d.state.Err)
	d.cache.words = []string{"a"}
	d.compiled()
	require.Error(t, d.save())
	assert.Error(t, d.state.StoreErr)
	require.NoError(t, os.Remove(place))
	require.NoError(t, d.save())
	assert.NoError(t, d.state.StoreErr)
	assert.Equal(t, []string{"a"}, wordsIn(t, d.state.Path))
}

// TestDiskCacheInMemoryOnly: without a path nothing is read and nothing written.
func TestDiskCacheInMemoryOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	d, _ := fakeDisk(t, "")
	d.compiled()
	require.NoError(t, d.save())
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, left)
}
