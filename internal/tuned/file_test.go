package tuned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
)

func testEntry(i int) Entry {
	return Entry{Key: Key{Device: "Some GPU", Driver: "1.0 <beta> & more", Build: "00ff", Kernel: "scalar_forward",
		DType:   "float16",
		HeadDim: i, ValueDim: i, Queries: "many"}, Tuning: map[string]int{"br": 64, "bc": 32}, Tile: "64x32", Gain: 1.234, TFLOPS: 1e-7,
		Problem: "B1 H2"}
}

// TestStoredTuningsAdd: storing and removing entries leave those of other keys as they are.
func TestStoredTuningsAdd(t *testing.T) {
	t.Setenv(Env, filepath.Join(t.TempDir(), "tuning.json"))
	entry := func(device string, dim int) Entry {
		return Entry{Key: Key{Device: device, Kernel: "scalar_forward", HeadDim: dim}, Tuning: map[string]int{"br": dim},
			Tile: fmt.Sprint(dim), Gain: 1.5}
	}
	stored := func() []Entry {
		all, err := Stored()
		require.NoError(t, err)
		return all
	}
	a, b, c := entry("a", 16), entry("a", 32), entry("b", 16)
	for i, e := range []Entry{a, b, c} {
		require.NoError(t, Store(e))
		require.Equal(t, []Entry{a, b, c}[:i+1], stored(), "one after the other")
	}
	b.Tile = "another"
	require.NoError(t, Store(b))
	require.Equal(t, []Entry{a, b, c}, stored(), "one is replaced")
	require.NoError(t, Remove(b.Key))
	require.Equal(t, []Entry{a, c}, stored())
	require.NoError(t, Remove(b.Key))
	require.Equal(t, []Entry{a, c}, stored(), "it is gone already")
}

// TestDamagedTuningFile cuts the file at every length and flips every bit: what is read is what was stored, or an error that names
// the file; and a file that cannot be read is not written to.
func TestDamagedTuningFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(Env, path)
	require.NoError(t, Store(testEntry(1), testEntry(2)))
	want, err := load(path)
	require.NoError(t, err)
	require.Equal(t, []Entry{testEntry(1), testEntry(2)}, want)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	refused := 0
	try := func(what string, file []byte) {
		t.Helper()
		got, err := parse(path, file)
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
	require.ErrorContains(t, Store(testEntry(3)), "is damaged (remove it)")
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, bad, left)

	// Edited by hand, without its checksum.
	edited := strings.ReplaceAll(string(sound), `"br": 64`, `"br": 32`)
	require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
	_, err = load(path)
	require.ErrorContains(t, err, "remove the line sha256")
	lines := slices.DeleteFunc(strings.Split(edited, "\n"), func(s string) bool { return strings.Contains(s, `"sha256"`) })
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	got, err := load(path)
	require.NoError(t, err)
	require.Equal(t, 32, got[0].Tuning["br"])
}

// TestFilesOfManyWriters: of entries stored at once none is lost.
func TestFilesOfManyWriters(t *testing.T) {
	t.Setenv(Env, filepath.Join(t.TempDir(), "tuning.json"))
	const writers, each = 6, 4
	errs := make(chan error, writers*each)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				errs <- Store(testEntry(1 + i*each + k))
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	tunings, err := Stored()
	require.NoError(t, err)
	require.Len(t, tunings, writers*each)
}

// FuzzTuningFile: a tuning file is read or refused, and what was read can be stored again.
func FuzzTuningFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"entries":[{"device":"d","kernel":"scalar_forward","head_dim":64,"tuning":{"br":-1,"dk":4611686018427387904}}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"entries":[{"tuning":{"br":1e3}}]}`))
	path := filepath.Join(f.TempDir(), "tuning.json")
	f.Setenv(Env, path)
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		entries, err := load(path)
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		for _, e := range entries {
			for _, k := range catalogue.Forward { // never a panic, whatever is stored
				if err := kernel.NewTuning(e.Tuning).Fits(&k.Offer); err != nil {
					var no *kernel.Declined
					require.True(t, errors.Is(err, attn.ErrArgument) || errors.As(err, &no), err)
				}
			}
		}
		require.NoError(t, Store(entries...))
		again, err := load(path)
		require.NoError(t, err)
		require.Len(t, again, len(entries))
	})
}
