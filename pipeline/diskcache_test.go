package pipeline

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/diskfile"
)

// fakeCache is a driver's cache of a kernel, which is a word.
type fakeCache struct {
	word   string
	closed int
	silent error // what Data returns
}

func (f *fakeCache) Data() ([]byte, error) { return driverData(testID, f.word), f.silent }
func (f *fakeCache) Close() error          { f.closed++; return nil }

var errRefused = errors.New("the driver does not want it")

// fakeDriver makes fake caches, and remembers them; it refuses the word "poison".
type fakeDriver struct {
	made   []*fakeCache
	silent error
}

func (f *fakeDriver) open(data []byte) (*fakeCache, error) {
	c := &fakeCache{silent: f.silent}
	if len(data) > 0 {
		c.word = string(data[32:])
	}
	if c.word == "poison" {
		return nil, errRefused
	}
	f.made = append(f.made, c)
	return c, nil
}

// fakeDisk is a process's cache below root.
func fakeDisk(root string) (*diskCache, *fakeDriver) {
	d := &diskCache{id: testID, limit: 1 << 20}
	d.at(root)
	return d, &fakeDriver{}
}

// compile makes a kernel, which is a word.
func (f *fakeDriver) compile(t *testing.T, d *diskCache, word string) (fromDisk bool) {
	t.Helper()
	asked, want := false, keptBy(testID, word).prepared
	prepare := func() (prepared, error) { asked = true; return want, nil }
	fromDisk, err := throughCache(d, hashName(word, 0), prepare, f.open, func(c *fakeCache, of *prepared) error {
		require.Contains(t, []string{"", word}, c.word, "what is stored under its name is its own")
		require.Equal(t, want, *of)
		c.word = word
		return nil
	})
	require.NoError(t, err)
	require.False(t, asked && fromDisk, "nothing is prepared that is on disk")
	for _, c := range f.made {
		require.Equal(t, 1, c.closed)
	}
	return fromDisk
}

func TestDiskCacheByKernel(t *testing.T) {
	root := t.TempDir()
	one, driver := fakeDisk(root)
	require.NoError(t, one.save())
	assert.NoDirExists(t, one.state.Path, "nothing was compiled")
	require.False(t, driver.compile(t, one, "a"))
	require.False(t, driver.compile(t, one, "b"))
	require.NoError(t, one.save())

	two, driver := fakeDisk(root)
	assert.Zero(t, two.state.Loaded, "opening reads nothing")
	require.True(t, driver.compile(t, two, "a"))
	assert.Equal(t, len(driverData(testID, "a")), two.state.Loaded, "only what was asked for")
	require.False(t, driver.compile(t, two, "c"))
	require.NoError(t, two.save())
	files, err := os.ReadDir(two.state.Path)
	require.NoError(t, err)
	require.Len(t, files, 3)

	// What is stored already is not stored again.
	require.NoError(t, os.Remove(two.file(hashName("a", 0))))
	require.NoError(t, two.save())
	assert.NoFileExists(t, two.file(hashName("a", 0)))

	// A kernel that cannot be made is not stored, and one that the driver tells nothing of costs nothing else.
	failed := errors.New("no kernel")
	nothing := func() (prepared, error) { return prepared{}, nil }
	_, err = throughCache(two, hashName("d", 0), nothing, driver.open, func(*fakeCache, *prepared) error { return failed })
	require.ErrorIs(t, err, failed)
	_, err = throughCache(two, hashName("f", 0), func() (prepared, error) { return prepared{}, failed }, driver.open,
		func(*fakeCache, *prepared) error { panic("of what?") })
	require.ErrorIs(t, err, failed)
	driver.silent = errors.New("out of memory")
	require.False(t, driver.compile(t, two, "e"))
	assert.Equal(t, driver.silent, two.told().StoreErr)
	require.NoError(t, two.save())
	for _, word := range []string{"d", "e", "f"} {
		assert.NoFileExists(t, two.file(hashName(word, 0)))
	}
}

// TestDiskCacheOfBadFiles: a file that cannot be used is told, and replaced; what it held is compiled again, and nothing else is.
func TestDiskCacheOfBadFiles(t *testing.T) {
	sound := encodeCache(testID, keptBy(testID, "a"))
	flip := func(at int) []byte {
		flipped := slices.Clone(sound)
		flipped[at] ^= 4
		return flipped
	}
	poison := keptBy(testID, "a")
	poison.data = driverData(testID, "poison")
	for _, tc := range []struct {
		want string
		file []byte
	}{
		{"not a pipeline cache file", nil},
		{"of words and 33 of data", sound[:len(sound)-1]},
		{"checksum does not match", flip(len(sound) - 1)},
		{"checksum does not match", flip(cacheHeaderSize + 5)}, // a word
		{"checksum does not match", flip(60)},                  // the hash of the module
		{errRefused.Error(), encodeCache(testID, poison)},
	} {
		root := t.TempDir()
		d, driver := fakeDisk(root)
		driver.compile(t, d, "a")
		driver.compile(t, d, "b")
		require.NoError(t, d.save())
		path := d.file(hashName("a", 0))
		require.NoError(t, os.WriteFile(path, tc.file, 0o600))

		d, driver = fakeDisk(root)
		assert.NoError(t, d.told().Err)
		require.True(t, driver.compile(t, d, "b"))
		require.False(t, driver.compile(t, d, "a"))
		assert.ErrorContains(t, d.told().Err, tc.want)
		assert.ErrorContains(t, d.told().Err, path)
		require.NoError(t, d.save())

		d, driver = fakeDisk(root)
		require.True(t, driver.compile(t, d, "a"), "the next run finds it whole")
		require.NoError(t, d.told().Err)
	}
}

// TestDiskCacheThatCannotBeStored: the error is kept beside what was wrong before, and the next store tries again.
func TestDiskCacheThatCannotBeStored(t *testing.T) {
	place := filepath.Join(t.TempDir(), "place")
	require.NoError(t, os.WriteFile(place, nil, 0o600)) // a file where the folder should be
	d, driver := fakeDisk(place)
	require.Error(t, d.told().Err)
	driver.compile(t, d, "a")
	driver.compile(t, d, "b")
	require.Error(t, d.save())
	assert.Error(t, d.told().StoreErr)
	require.NoError(t, os.Remove(place))
	require.NoError(t, d.save())
	assert.NoError(t, d.told().StoreErr)
	for _, word := range []string{"a", "b"} {
		assert.True(t, driver.compile(t, d, word))
	}
}

// TestDiskCacheAfterAKill: what a process that was killed left of a file goes with the next that is written, and what another process is
// about to rename never does.
func TestDiskCacheAfterAKill(t *testing.T) {
	d, driver := fakeDisk(t.TempDir())
	require.NoError(t, os.MkdirAll(d.state.Path, 0o700))
	left := d.file(hashName("a", 0)) + ".77.tmp"
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	unlock, err := diskfile.Lock(filepath.Join(d.root, lockFile)) // another process writes
	require.NoError(t, err)
	driver.compile(t, d, "b")
	time.Sleep(20 * time.Millisecond)
	require.FileExists(t, left)
	unlock()
	require.NoError(t, d.save())
	require.NoFileExists(t, left)
	require.FileExists(t, d.file(hashName("b", 0)))
}

// TestDiskCacheInMemoryOnly: without a folder nothing is read and nothing written.
func TestDiskCacheInMemoryOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	d, _ := fakeDisk("")
	require.Nil(t, d.load(hashName("a", 0)))
	require.NoError(t, d.save())
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestDiskCacheOfOneFile: what earlier versions kept, all of a device's kernels in a file that grew, is removed.
func TestDiskCacheOfOneFile(t *testing.T) {
	root := t.TempDir()
	other := testID
	other.Driver++
	write := func(names ...string) {
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("old"), 0o600))
		}
	}
	mine, others := testID.folder()+".bin", other.folder()+".bin"
	write(mine, mine+".lock", others, others+".lock", testID.folder()+".known.json", "a file of the user's.bin")
	d, driver := fakeDisk(root)
	assert.NoFileExists(t, filepath.Join(root, mine))
	assert.FileExists(t, filepath.Join(root, others), "opening looks at nothing else")
	driver.compile(t, d, "a")
	require.NoError(t, d.save())
	var left []string
	files, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, f := range files {
		left = append(left, f.Name())
	}
	slices.SortFunc(left, strings.Compare)
	require.Equal(t, []string{testID.folder(), testID.folder() + ".known.json", "a file of the user's.bin", lockFile}, left)
}
