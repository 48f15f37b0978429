package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Files that something outside damaged, of a size that can be damaged everywhere.

func testTuning(i int) TuningEntry {
	return TuningEntry{TuningKey: TuningKey{Device: "Some GPU", Driver: "1.0 <beta> & more", Build: "00ff", Kernel: "scalar_forward",
		DType:   "float16",
		HeadDim: i, ValueDim: i, Queries: "many"}, Tuning: map[string]int{"br": 64, "bc": 32}, Tile: "64x32", Gain: 1.234, TFLOPS: 1e-7,
		Problem: "B1 H2"}
}

// TestDamagedTuningFile cuts the file at every length and flips every bit: what is read is what was stored, or an error that names
// the file; and a file that cannot be read is not written to.
func TestDamagedTuningFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(TuningEnv, path)
	require.NoError(t, StoreTunings(testTuning(1), testTuning(2)))
	want, err := loadTunings(path)
	require.NoError(t, err)
	require.Equal(t, []TuningEntry{testTuning(1), testTuning(2)}, want)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	refused := 0
	try := func(what string, file []byte) {
		t.Helper()
		got, err := parseTunings(path, file)
		if err == nil {
			require.Equal(t, want, got, what)
			return
		}
		refused++
		require.ErrorContains(t, err, "tuning file "+path, what)
	}
	for n := range sound {
		try(fmt.Sprintf("cut to %d bytes", n), sound[:n])
	}
	require.GreaterOrEqual(t, refused, len(sound)-1, "all but the one without its last newline")
	for i := range sound {
		for bit := range 8 {
			bad := slices.Clone(sound)
			bad[i] ^= 1 << bit
			try(fmt.Sprintf("byte %d, bit %d", i, bit), bad)
		}
	}
	bad := slices.Clone(sound)
	bad[len(bad)/2] ^= 1
	require.NoError(t, os.WriteFile(path, bad, 0o600))
	require.ErrorContains(t, StoreTunings(testTuning(3)), "is damaged (remove it)")
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, bad, left)

	// Edited by hand, without its checksum.
	edited := strings.ReplaceAll(string(sound), `"br": 64`, `"br": 32`)
	require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
	_, err = loadTunings(path)
	require.ErrorContains(t, err, "remove the line sha256")
	lines := slices.DeleteFunc(strings.Split(edited, "\n"), func(s string) bool { return strings.Contains(s, `"sha256"`) })
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	got, err := loadTunings(path)
	require.NoError(t, err)
	require.Equal(t, 32, got[0].Tuning["br"])
}

// TestDamagedKnownFile does the same with verdicts, which are believed.
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
	t.Setenv(TuningEnv, filepath.Join(dir, "tuning.json"))
	known := filepath.Join(dir, "x.known.json")
	const writers, each = 6, 4
	errs := make(chan error, 2*writers*each)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				errs <- StoreTunings(testTuning(1 + i*each + k))
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
	tunings, err := StoredTunings()
	require.NoError(t, err)
	require.Len(t, tunings, writers*each)
	entries, err := kernel.ReadKnown(known, "a")
	require.NoError(t, err)
	require.Len(t, entries, writers*each)
}

// TestNoticesOfDamagedFiles: a device whose files are damaged works, says so once, and leaves sound files behind.
func TestNoticesOfDamagedFiles(t *testing.T) {
	testDevice(t) // skips where there is none
	t.Setenv(TuningEnv, "off")
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
