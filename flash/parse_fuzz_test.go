package flash

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzTiling: a kernel's name in a result file, whoever wrote it, gives a tiling whose bytes can be counted at once, or an error.
func FuzzTiling(f *testing.F) {
	for _, s := range []string{"scalar_forward 64x32", "matrix_forward 128x64 16x16x16 form 1 packed, keys in 3 parts", "scalar_decode 8x4, keys in 99999999999 parts",
		"x 1x1", "x 9223372036854775807x9223372036854775807", "matrix_flash1 16x16 16x9223372036854775807x16", "matrix_backward kv 64x32, q 64x32 16x16x16 form 1", "kv 1x1, q 1x1", "kv"} {
		f.Add(s, byte(0), uint32(512))
		f.Add(s, byte(1), uint32(1<<20))
		f.Add(s, byte(2), uint32(1<<30-1))
	}
	algorithms := []Algorithm{AlgorithmFlash2, AlgorithmFlash1, AlgorithmStandard, AlgorithmBlockSparse, "none"}
	f.Fuzz(func(t *testing.T, kernel string, algorithm byte, keys uint32) {
		p, err := Problem{Batch: 1, Heads: 1, QueryLen: int(max(1, keys%(1<<30))), HeadDim: 1, DType: F16, Causal: Causal(algorithm / 8 % 3)}.Normalize()
		require.NoError(t, err)
		start := time.Now()
		tiling, err := ParseTiling(algorithms[int(algorithm)%len(algorithms)], kernel)
		if err == nil {
			steps, err := tiling.Forward(p)
			if err == nil {
				require.GreaterOrEqual(t, Total(steps).Read, 0.0, kernel)
			}
		}
		if back, err := ParseBackwardTiling(kernel); err == nil {
			steps, err := back.Backward(p)
			if err == nil {
				require.GreaterOrEqual(t, Total(steps).Read, 0.0, kernel)
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("%q takes %v", kernel, took)
		}
	})
}

// FuzzHeld: what is remembered of a layout of matrices decodes to a layout that is within its fragment, or is found out again.
func FuzzHeld(f *testing.F) {
	f.Add(`[[[[0,0]],[[1,1]]],[[[0,0]],[[1,1]]]]`, byte(2))
	f.Add(`[[[[0,9]],[[-1,1]]],[[],[[1,1],[1,1]]]]`, byte(2))
	f.Add(`[[],[]]`, byte(0))
	f.Add(`{"a":1}`, byte(4))
	f.Fuzz(func(t *testing.T, text string, lanes byte) {
		s := matrixShape{M: 8, N: 8, K: 8, Lanes: int(lanes)}
		acc, a, err := parseHeld(text, s)
		if err != nil {
			return
		}
		layout := decodeLayout(s, acc, a)
		require.True(t, layout.Form >= formRegisters && layout.Form <= formShared)
	})
}

// FuzzTuningFile: a tuning file is read or refused, and what was read can be stored again.
func FuzzTuningFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"entries":[{"device":"d","kernel":"scalar_forward","head_dim":64,"tuning":{"br":-1,"dk":4611686018427387904}}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"entries":[{"tuning":{"br":1e3}}]}`))
	path := filepath.Join(f.TempDir(), "tuning.json")
	f.Setenv(TuningEnv, path)
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		entries, err := loadTunings(path)
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		for _, e := range entries {
			for _, k := range kernels { // never a panic, whatever is stored
				if err := newTuning(e.Tuning).fits(&k.offer); err != nil {
					var no *declined
					require.True(t, errors.Is(err, ErrArgument) || errors.As(err, &no), err)
				}
			}
		}
		require.NoError(t, StoreTunings(entries...))
		again, err := loadTunings(path)
		require.NoError(t, err)
		require.Len(t, again, len(entries))
	})
}

// FuzzKnownFile: of what is remembered about a device, no damaged file is believed.
func FuzzKnownFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "known.json")
	if _, _, err := addKnown(path, "id", "key", "passed"); err != nil {
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
		if entries, err := readKnown(path, "id"); err == nil && !maps.Equal(want, entries) {
			t.Fatalf("%q is believed: %v", text, entries)
		}
	})
}
