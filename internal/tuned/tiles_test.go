package tuned

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/vk"
)

// filled is a problem with the defaults of what keys ask about.
func filled(p attn.Problem) *attn.Problem {
	p.KeyHeads, p.KeyLen, p.ValueDim = cmp.Or(p.KeyHeads, p.Heads), cmp.Or(p.KeyLen, p.QueryLen), cmp.Or(p.ValueDim, p.HeadDim)
	for _, t := range []*attn.DType{&p.KeyType, &p.ValueType} {
		if !t.Quantised() {
			*t = p.DType
		}
	}
	return &p
}

// TestExportedTiles: what tune stored, written as tiles and read again, is for the same problems and says the same.
func TestExportedTiles(t *testing.T) {
	d := Device{Caps: kerneltest.Hopper(), Driver: "NVIDIA 580"}
	d.Caps.Facts.Name, d.Caps.Facts.DeviceID = "NVIDIA H200", 0x2335
	entry := func(kernel string, p attn.Problem, tuning map[string]int) Entry {
		return Entry{Key: d.Key(kernel, filled(p)), Tuning: tuning, Tile: "a tile", Gain: 1.25, Problem: "seq # 1\nB1"}
	}
	window := attn.NewWindow(100, 0)
	entries := []Entry{
		entry("matrix_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 4096, HeadDim: 64, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.CausalTopLeft}},
			map[string]int{"w": 8, "rm": 2, "parts": 3}),
		entry("matrix_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 4096, HeadDim: 64, DType: attn.F16},
			map[string]int{"w": 4, "rm": 2}),
		entry("matrix_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 64, HeadDim: 64, ValueDim: 128, DType: attn.BF16},
			map[string]int{"w": 2}),
		entry("scalar_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 4, KeyLen: 5000, HeadDim: 128},
			map[string]int{"br": 8, "bc": 64}),
		entry("scalar_decode", attn.Problem{Batch: 1, Heads: 8, QueryLen: 1, KeyLen: 1 << 16, HeadDim: 128, DType: attn.F16},
			map[string]int{"w": 4, "lpr": 8, "u": 4, "parts": 64}),
		entry("scalar_decode", attn.Problem{Batch: 1, Heads: 8, QueryLen: 1, KeyLen: 100, HeadDim: 128, DType: attn.F16},
			map[string]int{"w": 2}),
		// a window has an entry of its own, behind one of the same without, and none beside the causal one above
		entry("scalar_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 4096, HeadDim: 64, DType: attn.F16,
			ByPosition: attn.ByPosition{Causal: attn.CausalTopLeft}},
			map[string]int{"br": 16}),
		entry("scalar_forward", attn.Problem{Batch: 1, Heads: 8, QueryLen: 4096, HeadDim: 64, DType: attn.F16,
			ByPosition: attn.ByPosition{Window: window}},
			map[string]int{"br": 32}),
	}
	other := entries[0]
	other.Device = "another"
	text, err := d.Tiles(append([]Entry{other}, entries...))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(text, "# NVIDIA H200, driver NVIDIA 580: measured by vkattn tune.\nfamily nvidia-h200-tuned\n"+
		"device vendor=nvidia id=0x2335 type=discrete multiprocessors=132 shared=48 lanes=32\n"), text)
	file, err := catalogue.ParseTiles("mine.tiles", text)
	require.NoError(t, err)
	require.Len(t, file.Own(), len(entries))
	c := *d.Caps
	c.Tiles, err = file.Over(c.TilesDevice())
	require.NoError(t, err)
	require.Equal(t, []string{"nvidia-h200-tuned", "hopper", "generic"}, c.Tiles.Names())
	require.Equal(t, tiles.For(c.TilesDevice()).Rows("matrix_forward"), c.Tiles.Rows("matrix_forward"), "tuned rows are no rows of tiles")

	found := 0
	for _, kernel := range []string{"matrix_forward", "scalar_forward", "scalar_decode"} {
		for _, queries := range []int{1, 4, 16, 17, 64, 511, 512, 4096} {
			for _, keys := range []int{1, 100, 1024, 1025, 4096, 4097, 5000, 8192, 8193, 1 << 15, 1<<15 + 1, 1 << 16, 1<<16 + 1} {
				for i := range 2 * 2 * 3 * 3 * 2 {
					p := attn.Problem{Batch: 1, Heads: 8, QueryLen: queries, KeyLen: keys, HeadDim: 64 << (i % 2),
						ValueDim: 64 << (i / 2 % 2),
						DType:    attn.DType(i / 4 % 3), ByPosition: attn.ByPosition{Causal: attn.Causal(i / 12 % 3)}}
					if i >= 36 {
						p.Window = window
					}
					var want map[string]int
					for _, e := range entries {
						if e.Key == d.Key(kernel, filled(p)) {
							want = e.Tuning
							found++
						}
					}
					row := c.TunedRow(kernel, filled(p))
					require.Equal(t, want == nil, row == nil, "%s: %v", kernel, p)
					if row != nil {
						require.Equal(t, want, row.Values)
					}
				}
			}
		}
	}
	require.Greater(t, found, 50)

	long := Device{Caps: kerneltest.Hopper(), Driver: d.Driver} // as names of devices and their numbers may be
	long.Caps.Facts.Name, long.Caps.Facts.DeviceID = strings.Repeat("Long ", 16), 0xa8670000
	text, err = long.Tiles([]Entry{{Key: long.Key("matrix_forward", filled(attn.Problem{Batch: 1, Heads: 8, QueryLen: 64, HeadDim: 64})),
		Tuning: map[string]int{"w": 2}}})
	require.NoError(t, err)
	file, err = catalogue.ParseTiles("mine.tiles", text)
	require.NoError(t, err)
	_, err = file.Over(long.Caps.TilesDevice())
	require.NoError(t, err)
	_, err = file.Over(d.Caps.TilesDevice())
	require.Error(t, err, "they are for another device")

	_, err = d.Tiles([]Entry{other})
	require.ErrorContains(t, err, "no tiles are stored that were measured on NVIDIA H200")
	bad := entries[0]
	bad.Tuning = map[string]int{"w": 1 << 30}
	_, err = d.Tiles([]Entry{bad})
	require.ErrorContains(t, err, "an entry of the tuning file is no row of tiles: the text:6: w=1073741824 must be")
	bad = entries[0]
	bad.Queries = "odd"
	_, err = d.Tiles([]Entry{bad})
	require.ErrorContains(t, err, `no class of queries "odd"`)
}

// TestTuningKeysHaveTheKeyLength: few queries have tiles that cut the keys into parts, as many as suit the number of keys.
func TestTuningKeysHaveTheKeyLength(t *testing.T) {
	key := func(queries, keys int) Key {
		d := Device{Caps: &kernel.Capabilities{Facts: &vk.Facts{}}}
		return d.Key("scalar_decode", &attn.Problem{QueryLen: queries, KeyLen: keys, DType: attn.F16})
	}
	require.NotEqual(t, key(1, 4096), key(1, 65536))
	require.Equal(t, key(1, 5000), key(1, 8192))
	require.Equal(t, key(1, 7), key(1, 1024))
	require.Equal(t, key(2048, 4096), key(2048, 65536))
	require.NotContains(t, fmt.Sprint(key(2048, 4096)), "up to")
}

// caches are plain keys and values, and the ways in which a cache differs from them.
var caches = []attn.Problem{{},
	{Pages: attn.Pages{Size: 16, Count: 4096, PerSequence: 512}}, {Pages: attn.Pages{Size: 256, Count: 256, PerSequence: 32}},
	{KeyType: attn.Q8_0, ValueType: attn.Q8_0}, {KeyType: attn.Q8_0}, {ValueType: attn.Q8_0}, {KeyType: attn.Q4_0, ValueType: attn.Q4_0},
	{KeyType: attn.Q4_1, ValueType: attn.Q4_1}, {KeyType: attn.F8E5M2, ValueType: attn.F8E4M3},
	{Pages: attn.Pages{Size: 16, Count: 4096, PerSequence: 512}, KeyType: attn.Q8_0, ValueType: attn.Q8_0},
	{Packed: attn.Packed{Queries: 9000, Keys: 9000}},
}

// TestTuningKeysTellCachesApart: what is fastest where keys lie in pages, or are quantised, says nothing of other places, as an entry of
// the tuning file and as a row of a file of tiles.
func TestTuningKeysTellCachesApart(t *testing.T) {
	d := Device{Caps: kerneltest.Hopper()}
	d.Caps.Facts.Name = "GPU"
	problem := func(cache attn.Problem) *attn.Problem {
		p := cache
		p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen, p.HeadDim, p.ValueDim, p.DType = 1, 8, 8, 1, 8192, 128, 128, attn.F16
		for _, t := range []*attn.DType{&p.KeyType, &p.ValueType} {
			if !t.Quantised() {
				*t = p.DType
			}
		}
		return &p
	}
	var entries []Entry
	for i, cache := range caches {
		entries = append(entries, Entry{Key: d.Key("scalar_decode", problem(cache)), Tuning: map[string]int{"w": i + 1}})
	}
	file := filepath.Join(t.TempDir(), "tuning.json")
	t.Setenv(Env, file)
	require.NoError(t, Store(entries...))
	stored, err := Stored()
	require.NoError(t, err)
	require.ElementsMatch(t, entries, stored)

	text, err := d.Tiles(entries)
	require.NoError(t, err)
	exported, err := catalogue.ParseTiles("mine.tiles", text)
	require.NoError(t, err)
	c := *d.Caps
	c.Tiles, err = exported.Over(c.TilesDevice())
	require.NoError(t, err)
	for i, cache := range caches {
		p := problem(cache)
		entry, err := Find(d.Key("scalar_decode", p))
		require.NoError(t, err)
		require.Equal(t, i+1, entry.Tuning["w"], "%v", p)
		row := c.TunedRow("scalar_decode", p)
		require.NotNil(t, row, "%v", p)
		require.Equal(t, i+1, row.Get("w"), "%v", p)
	}

	// What was measured of tensors alone is for these alone.
	require.NoError(t, Remove(entries[1].Key))
	entry, err := Find(d.Key("scalar_decode", problem(caches[1])))
	require.NoError(t, err)
	require.Nil(t, entry)
	text, err = d.Tiles(entries[:1])
	require.NoError(t, err)
	exported, err = catalogue.ParseTiles("mine.tiles", text)
	require.NoError(t, err)
	c.Tiles, err = exported.Over(d.Caps.TilesDevice())
	require.NoError(t, err)
	require.NotNil(t, c.TunedRow("scalar_decode", problem(caches[0])))
	for _, cache := range caches[1:] {
		require.Nil(t, c.TunedRow("scalar_decode", problem(cache)))
	}
}
