package flash

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// forgetProcess empties the process's memory, so that findings come from disk or have to be made.
func forgetProcess(t *testing.T) {
	swap := func() {
		known.mu.Lock()
		defer known.mu.Unlock()
		known.entries = map[string]string{}
	}
	swap()
	t.Cleanup(swap)
}

// add is addKnown.
func add(t *testing.T, path, identity, key, value string) {
	_, _, err := addKnown(path, identity, key, value)
	require.NoError(t, err)
}

func TestKnownFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.known.json")
	entries, err := readKnown(path, "a")
	require.NoError(t, err)
	require.Empty(t, entries, "there is no file")
	add(t, path, "a", "one", "1")
	add(t, path, "a", "two", "2")
	entries, err = readKnown(path, "a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"one": "1", "two": "2"}, entries)
	_, err = readKnown(path, "b")
	require.ErrorContains(t, err, "another version or device")
	add(t, path, "a", "one", "")
	entries, err = readKnown(path, "a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"two": "2"}, entries)

	// What is changed by hand or by a failing disk is not believed, and replaced.
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, bad := range map[string]string{
		"damaged": strings.Replace(string(raw), `"2"`, `"3"`, 1),
		"JSON":    string(raw[:len(raw)/2]),
		"of":      strings.Replace(string(raw), `"version": 1`, `"version": 9`, 1),
	} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := readKnown(path, "a")
		require.ErrorContains(t, err, name)
		_, damage, err := addKnown(path, "a", "three", "3")
		require.NoError(t, err)
		require.ErrorContains(t, damage, name)
		entries, err := readKnown(path, "a")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"three": "3"}, entries)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{path, path + ".lock"}, left, "no temporary files")
}

// TestKnownAcrossDevices: what one device object found out, the next reads from disk, and a process without a disk cache
// keeps to itself.
func TestKnownAcrossDevices(t *testing.T) {
	matrixDevice(t) // skips where there is none
	dir := t.TempDir()
	forgetProcess(t)
	open := func(o ...DeviceOption) *Device {
		d, err := Open(o...)
		require.NoError(t, err)
		t.Cleanup(func() { d.Close() })
		return d
	}
	d := open(WithCacheDir(dir))
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8, DType: F16}
	plan := mustPlan(t, d, p, WithTier(TierMatrix))
	entries, err := readKnown(d.env.knownPath(), d.env.identity())
	require.NoError(t, err)
	require.Len(t, entries, 2, "a layout and a verdict")
	var key string
	for k, v := range entries {
		if strings.HasPrefix(k, "check ") {
			key = k
			require.Equal(t, passed, v)
		}
	}
	require.NoError(t, plan.Close())

	// A verdict on disk is what counts: a failed one keeps the kernel out, with its reason, and forgotten it is found again.
	add(t, d.env.knownPath(), d.env.identity(), key, "o[0, 0, 0, 0] is 1 and should be 2")
	forgetProcess(t)
	d = open(WithCacheDir(dir))
	_, err = d.Plan(p, WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "deny-list")
	require.ErrorContains(t, err, "o[0, 0, 0, 0] is 1 and should be 2")
	require.ErrorContains(t, err, d.env.knownPath())
	d.env.forget(key)
	require.NoError(t, mustPlan(t, d, p, WithTier(TierMatrix)).Close())

	forgetProcess(t)
	d = open(WithoutDiskCache())
	require.Empty(t, d.env.knownPath())
	require.NoError(t, mustPlan(t, d, p, WithTier(TierMatrix)).Close())
	require.Equal(t, passed, d.env.recall(key))
}

// TestVerdictsAreSharedAndDoNotWaitForOthers: of goroutines that use a kernel for the first time at once one tries it, others'
// kernels are tried meanwhile, and a try that could not be made is made again.
func TestVerdictsAreSharedAndDoNotWaitForOthers(t *testing.T) {
	testDevice(t) // skips where there is none
	forgetProcess(t)
	d, err := Open(WithCacheDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	const goroutines = 8
	var tries atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	verdicts := make(chan string, goroutines)
	for range goroutines {
		go func() {
			v, err := d.env.verdict("one", func() (string, error) {
				if tries.Add(1) == 1 {
					close(begun)
					<-goOn
					return "", errors.New("no memory")
				}
				return "o is wrong", nil
			})
			if err != nil {
				v = err.Error()
			}
			verdicts <- v
		}()
	}
	<-begun
	v, err := d.env.verdict("another", func() (string, error) { return "", nil })
	require.NoError(t, err)
	require.Equal(t, passed, v)
	close(goOn)
	count := map[string]int{}
	for range goroutines {
		count[<-verdicts]++
	}
	require.Equal(t, map[string]int{"no memory": 1, "o is wrong": goroutines - 1}, count)
	require.EqualValues(t, 2, tries.Load())

	// The file has both, and another process's change of it is seen.
	forgetProcess(t)
	require.Equal(t, "o is wrong", d.env.recall("one"))
	require.Equal(t, passed, d.env.recall("another"))
	add(t, d.env.knownPath(), d.env.identity(), "third", passed)
	require.Equal(t, passed, d.env.recall("third"))
	require.Empty(t, d.env.recall("fourth"))
}
