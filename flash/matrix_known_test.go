package flash

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
)

// forgetProcess empties the process's memory, so that findings come from disk or have to be made.
func forgetProcess(t *testing.T) {
	kernel.Known.Clear()
	t.Cleanup(kernel.Known.Clear)
}

// add is kernel.AddKnown.
func add(t *testing.T, path, identity, key, value string) {
	_, _, err := kernel.AddKnown(path, identity, key, value)
	require.NoError(t, err)
}

func TestKnownFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.known.json")
	entries, err := kernel.ReadKnown(path, "a")
	require.NoError(t, err)
	require.Empty(t, entries, "there is no file")
	add(t, path, "a", "one", "1")
	add(t, path, "a", "two", "2")
	entries, err = kernel.ReadKnown(path, "a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"one": "1", "two": "2"}, entries)
	_, err = kernel.ReadKnown(path, "b")
	require.ErrorContains(t, err, "another version or device")
	add(t, path, "a", "one", "")
	entries, err = kernel.ReadKnown(path, "a")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"two": "2"}, entries)

	// What is changed by hand or by a failing disk is not believed, and replaced.
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, bad := range map[string]string{
		"damaged":    strings.Replace(string(raw), `"2"`, `"3"`, 1),
		"breaks off": string(raw[:len(raw)/2]),
		"of":         strings.Replace(string(raw), `"version": 1`, `"version": 9`, 1),
	} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := kernel.ReadKnown(path, "a")
		require.ErrorContains(t, err, name)
		_, damage, err := kernel.AddKnown(path, "a", "three", "3")
		require.NoError(t, err)
		require.ErrorContains(t, damage, name)
		entries, err := kernel.ReadKnown(path, "a")
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
	entries, err := kernel.ReadKnown(d.env.KnownPath(), d.env.Identity())
	require.NoError(t, err)
	require.Len(t, entries, 2, "a layout and a verdict")
	var key string
	for k, v := range entries {
		if strings.HasPrefix(k, "check ") {
			key = k
			require.Equal(t, kernel.Passed, v)
		}
	}
	require.NoError(t, plan.Close())

	// A verdict on disk is what counts: a failed one keeps the kernel out, with its reason, and forgotten it is found again.
	add(t, d.env.KnownPath(), d.env.Identity(), key, "o[0, 0, 0, 0] is 1 and should be 2")
	forgetProcess(t)
	d = open(WithCacheDir(dir))
	_, err = d.Plan(p, WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "deny-list")
	require.ErrorContains(t, err, "o[0, 0, 0, 0] is 1 and should be 2")
	require.ErrorContains(t, err, d.env.KnownPath())
	d.env.Forget(key)
	require.NoError(t, mustPlan(t, d, p, WithTier(TierMatrix)).Close())

	forgetProcess(t)
	d = open(WithoutDiskCache())
	require.Empty(t, d.env.KnownPath())
	require.NoError(t, mustPlan(t, d, p, WithTier(TierMatrix)).Close())
	require.Equal(t, kernel.Passed, d.env.Recall(key))
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
			v, err := d.env.Verdict("one", func() (string, error) {
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
	v, err := d.env.Verdict("another", func() (string, error) { return "", nil })
	require.NoError(t, err)
	require.Equal(t, kernel.Passed, v)
	close(goOn)
	count := map[string]int{}
	for range goroutines {
		count[<-verdicts]++
	}
	require.Equal(t, map[string]int{"no memory": 1, "o is wrong": goroutines - 1}, count)
	require.EqualValues(t, 2, tries.Load())

	// The file has both, and another process's change of it is seen.
	forgetProcess(t)
	require.Equal(t, "o is wrong", d.env.Recall("one"))
	require.Equal(t, kernel.Passed, d.env.Recall("another"))
	add(t, d.env.KnownPath(), d.env.Identity(), "third", kernel.Passed)
	require.Equal(t, kernel.Passed, d.env.Recall("third"))
	require.Empty(t, d.env.Recall("fourth"))
}
