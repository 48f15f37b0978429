package flash

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
)

// FuzzHeld: what is remembered of a layout of matrices decodes to a layout that is within its fragment, or is found out again.
func FuzzHeld(f *testing.F) {
	f.Add(`[[[[0,0]],[[1,1]]],[[[0,0]],[[1,1]]]]`, byte(2))
	f.Add(`[[[[0,9]],[[-1,1]]],[[],[[1,1],[1,1]]]]`, byte(2))
	f.Add(`[[],[]]`, byte(0))
	f.Add(`{"a":1}`, byte(4))
	f.Fuzz(func(t *testing.T, text string, lanes byte) {
		s := kernel.Fragment{M: 8, N: 8, K: 8, Lanes: int(lanes)}
		acc, a, err := kernel.ParseHeld(text, s)
		if err != nil {
			return
		}
		layout := kernel.DecodeLayout(s, acc, a)
		require.True(t, layout.Form >= kernel.FormRegisters && layout.Form <= kernel.FormShared)
	})
}

// FuzzKnownFile: of what is remembered about a device, no damaged file is believed.
func FuzzKnownFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "known.json")
	if _, _, err := kernel.AddKnown(path, "id", "key", "passed"); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	require.NoError(f, err)
	want := map[string]string{"key": "passed"}
	f.Add(uint16(0), []byte{})
	f.Add(uint16(40), []byte("\"key\": \"other\""))
	f.Add(uint16(len(good)-3), []byte("}}"))
	f.Fuzz(func(t *testing.T, at uint16, change []byte) {
		text := append([]byte(nil), good...)
		copy(text[int(at)%len(text):], change)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		if entries, err := kernel.ReadKnown(path, "id"); err == nil && !maps.Equal(want, entries) {
			t.Fatalf("%q is believed: %v", text, entries)
		}
	})
}
