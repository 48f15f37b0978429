package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tuned"
)

// Files that something outside damaged, of a size that can be damaged everywhere.

// TestDamagedKnownFile cuts the file at every length and flips every bit: of verdicts, which are believed, what is read is what was stored.
func TestDamagedKnownFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.known.json")
	add(t, path, "a", "check one", kernel.Passed)
	add(t, path, "a", "layout", `[[[0,1]]]`)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	want, err := kernel.ParseKnown(sound, "a")
	require.NoError(t, err)
	try := func(file []byte) {
		if got, err := kernel.ParseKnown(file, "a"); err == nil {
			require.Equal(t, want, got)
		}
	}
	for n := range sound {
		try(sound[:n])
		if n < len(sound)-1 {
			_, err := kernel.ParseKnown(sound[:n], "a")
			require.Error(t, err, "cut to %d bytes", n)
		}
	}
	for i := range sound {
		for bit := range 8 {
			bad := slices.Clone(sound)
			bad[i] ^= 1 << bit
			try(bad)
		}
	}
}

// TestFilesOfManyWriters: of entries stored at once none is lost.
func TestFilesOfManyWriters(t *testing.T) {
	dir := t.TempDir()
	known := filepath.Join(dir, "x.known.json")
	const writers, each = 6, 4
	errs := make(chan error, writers*each)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				_, _, err := kernel.AddKnown(known, "a", fmt.Sprint(i*each+k), "1")
				errs <- err
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	entries, err := kernel.ReadKnown(known, "a")
	require.NoError(t, err)
	require.Len(t, entries, writers*each)
}

// TestNoticesOfDamagedFiles: a device whose files are damaged works, says so once, and leaves sound files behind.
func TestNoticesOfDamagedFiles(t *testing.T) {
	testDevice(t) // skips where there is none
	t.Setenv(tuned.Env, "off")
	dir := t.TempDir()
	work := func() []string {
		forgetProcess(t)
		d, err := Open(WithCacheDir(dir), WithDevice("0"))
		require.NoError(t, err)
		p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}
		require.NoError(t, mustPlan(t, d, p, WithTier(TierScalar)).Close())
		for _, key := range []string{"one", "two"} {
			v, err := d.env.Verdict(key, func() (string, error) { return "", nil })
			require.NoError(t, err)
			require.Equal(t, kernel.Passed, v)
		}
		require.NoError(t, d.Close())
		return d.Notices()
	}
	require.Empty(t, work())
	require.Empty(t, work())
	var files []string
	for _, pattern := range []string{"*.known.json", "*/*.bin"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		files = append(files, found...)
	}
	for _, path := range files {
		sound, err := os.ReadFile(path)
		require.NoError(t, err)
		flipped := slices.Clone(sound)
		flipped[len(flipped)/2] ^= 1
		for _, bad := range [][]byte{nil, sound[:len(sound)/2], flipped} {
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			said := work()
			require.Len(t, said, 1, path)
			require.Contains(t, said[0], path)
			require.Contains(t, said[0], "on disk cannot be used")
			require.Empty(t, work(), "the file is whole again")
		}
	}
}

// TestNoticesOfAPlaceThatCannotBeWritten: the same of a cache directory that cannot be made.
func TestNoticesOfAPlaceThatCannotBeWritten(t *testing.T) {
	testDevice(t) // skips where there is none
	if runtime.GOOS == "windows" {
		t.Skip("a path below a file reads as one that is not there")
	}
	place := filepath.Join(t.TempDir(), "place")
	require.NoError(t, os.WriteFile(place, nil, 0o600))
	forgetProcess(t)
	d, err := Open(WithCacheDir(filepath.Join(place, "below")), WithDevice("0"))
	require.NoError(t, err)
	require.NoError(t, mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}, WithTier(TierScalar)).Close())
	for _, key := range []string{"one", "two", "three"} {
		_, err := d.env.Verdict(key, func() (string, error) { return "", nil })
		require.NoError(t, err)
	}
	require.NoError(t, d.Close())
	said := d.Notices()
	require.Len(t, said, 4)
	for i, want := range []string{"verdicts of self-checks on disk cannot be used", "verdicts of self-checks could not be stored",
		"compiled kernels on disk cannot be used", "compiled kernels could not be stored"} {
		require.Contains(t, said[i], want)
		require.Contains(t, said[i], place)
	}
	require.Empty(t, (*Device)(nil).Notices())
}
