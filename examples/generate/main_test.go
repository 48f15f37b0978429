package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/flash"
)

func open(t *testing.T) *flash.Device {
	t.Helper()
	dev, err := flash.Open(flash.WithoutDiskCache())
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func saved(t *testing.T) *model {
	t.Helper()
	m, err := unmarshal(weights)
	require.NoError(t, err)
	return m
}

// TestCommand runs what the command runs, and what it refuses.
func TestCommand(t *testing.T) {
	dev, ctx := open(t), context.Background()
	good := options{prompts: []string{"Love", "O no"}, samples: 2, tokens: 5, by: draw.By{Temperature: 0.8}, kind: "q8_0",
		cache: cacheOptions{batch: 2, room: 64, page: 16, pages: 8}}
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, dev, good))
	for _, want := range []string{"── 1.1\nLove", "── 2.2\nO no", "── 20 characters in 8 passes", " a second",
		"q8_0: 408 bytes a character in 3 layers", "at most 2 of 8 pages in use"} {
		require.Contains(t, out.String(), want)
	}
	again := out.String()
	out.Reset()
	require.NoError(t, run(ctx, &out, dev, good))
	texts := func(s string) string { return s[:strings.Index(s, " characters in")] }
	require.Equal(t, texts(again), texts(out.String()), "the same seed")

	sparse := good
	sparse.cache.keep = 4
	out.Reset()
	require.NoError(t, run(ctx, &out, dev, sparse))
	require.Contains(t, out.String(), "layers that see all, and attend to 4 of them, 1: at most")

	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, weights[:len(weights)-1], 0o644))
	for want, set := range map[string]func(o *options){
		"no -prompt":   func(o *options) { o.prompts = nil },
		"-tokens":      func(o *options) { o.tokens = -1 },
		"-temperature": func(o *options) { o.by.Temperature = math.NaN() },
		"-keep":        func(o *options) { o.cache.keep = -1 },
		"-top-k":       func(o *options) { o.by.TopK = -1 },
		"-samples":     func(o *options) { o.samples = 0 },
		"-batch":       func(o *options) { o.cache.batch = 0 },
		"-room 0":      func(o *options) { o.cache.room = 0 },
		"-room is 8":   func(o *options) { o.cache.room = 8 },
		"-page 0":      func(o *options) { o.cache.page = 0 },
		"power of two": func(o *options) { o.cache.page = 3 },
		"-pages 0":     func(o *options) { o.cache.pages = 0 },
		"-pages is 1":  func(o *options) { o.cache.page, o.cache.pages = 8, 1 },
		"'ß'":          func(o *options) { o.prompts[1] = "ß" },
		"empty":        func(o *options) { o.prompts[1] = "" },
		"q1":           func(o *options) { o.kind = "q1" },
		"no such file": func(o *options) { o.file = broken + "er" },
		"bytes":        func(o *options) { o.file = broken },
	} {
		bad := good
		bad.prompts = append([]string(nil), good.prompts...)
		set(&bad)
		require.ErrorContains(t, run(ctx, &out, dev, bad), want)
	}
}

// TestHeads: the file of -heads holds queries and keys of all heads and layers over the text, with the layers' windows.
func TestHeads(t *testing.T) {
	dev := open(t)
	m := saved(t)
	file := filepath.Join(t.TempDir(), "heads.safetensors")
	var out bytes.Buffer
	o := options{prompts: []string{"Love is not love\n"}, kind: "f16", samples: 1, heads: file,
		cache: cacheOptions{batch: 1, room: 8, page: 1, pages: 1}}
	require.NoError(t, run(context.Background(), &out, dev, o))
	require.Contains(t, out.String(), "3 layers over 17 characters")
	about, tensors := storedHeads(t, file)
	require.Equal(t, o.prompts[0], about["text"])
	require.Equal(t, "bottom-right", about["causal"])
	require.Len(t, tensors, 2*m.config.layers)
	for i := range m.config.layers {
		name := fmt.Sprintf("layer%d.", i)
		require.Len(t, tensors[name+"q"], m.heads*17*m.dim)
		require.Len(t, tensors[name+"k"], m.keyHeads*17*m.dim)
		window, ok := about[name+"window"]
		require.Equal(t, m.seen(i) > 0, ok)
		if ok {
			require.Equal(t, fmt.Sprintf("%d,0", m.seen(i)-1), window)
		}
	}
	// The first layer's key heads are products of what is known: the token's embedding, normed, by the weights; at position 0 nothing is
	// turned.
	x, _ := normalize(m.embed.x[tokenOf(t, m, 'L')*m.width:][:m.width], m.width)
	qkv := multiply(x, m.layers[0].qkv)
	for c := range m.dim {
		require.InDelta(t, qkv[m.heads*m.dim+c], tensors["layer0.k"][c], 1e-5)
		require.InDelta(t, qkv[c], tensors["layer0.q"][c], 1e-5)
	}
	require.Equal(t, 14, strings.Count(firstSonnet(), "\n"))

	// With lists, those of the layer that sees all: its own character, and before there are as many keys every one.
	o.cache.keep = 6
	require.NoError(t, run(context.Background(), &out, dev, o))
	_, tensors = storedHeads(t, file)
	require.Len(t, tensors, 2*m.config.layers+1)
	lists := tensors["layer1.lists"]
	require.Len(t, lists, m.keyHeads*17*6)
	for i := range m.keyHeads * 17 {
		at, listed := i%17, map[float32]bool{}
		for _, key := range lists[6*i:][:6] {
			require.False(t, key >= 0 && listed[key])
			require.LessOrEqual(t, key, float32(at))
			listed[key] = true
		}
		require.True(t, listed[float32(at)])
		delete(listed, -1)
		require.Len(t, listed, min(at+1, 6))
	}
}

// storedHeads reads a file of tensors of fp32 and of lists.
func storedHeads(t *testing.T, file string) (about map[string]string, tensors map[string][]float32) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(data)
	var header map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data[8:8+n], &header))
	require.NoError(t, json.Unmarshal(header[metadataKey], &about))
	delete(header, metadataKey)
	body := data[8+n:]
	tensors = map[string][]float32{}
	for name, raw := range header {
		var s stored
		require.NoError(t, json.Unmarshal(raw, &s))
		require.Equal(t, map[bool]string{false: "F32", true: "I32"}[strings.HasSuffix(name, "lists")], s.DType)
		values := make([]float32, (s.Offsets[1]-s.Offsets[0])/4)
		require.Len(t, values, s.Shape[0]*s.Shape[1]*s.Shape[2])
		for i := range values {
			bits := binary.LittleEndian.Uint32(body[s.Offsets[0]+4*i:])
			if values[i] = math.Float32frombits(bits); s.DType == "I32" {
				values[i] = float32(int32(bits))
			}
		}
		tensors[name] = values
	}
	return about, tensors
}

func tokenOf(t *testing.T, m *model, r rune) int {
	tokens, err := m.encode(string(r))
	require.NoError(t, err)
	return tokens[0]
}
