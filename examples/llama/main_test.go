package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
	"github.com/vkattn/vkattn/internal/flashtest"
)

func (t *tiny) saved(tb testing.TB) string {
	tb.Helper()
	var b bytes.Buffer
	require.NoError(tb, t.write(&b))
	file := filepath.Join(tb.TempDir(), t.arch+".gguf")
	require.NoError(tb, os.WriteFile(file, b.Bytes(), 0o644))
	return file
}

// TestCommand runs what the command runs, and what it refuses.
func TestCommand(t *testing.T) {
	dev, ctx := flashtest.Own(t), context.Background()
	good := options{model: filepath.Join(t.TempDir(), "tiny.gguf"), prompt: "The sea is", tokens: 5,
		by:    draw.By{Temperature: 0.8, TopK: 9},
		cache: cacheOptions{page: 16, chunk: 8, as: "q8_0"}}
	require.NoError(t, writeTiny(good.model))
	file, err := os.ReadFile(good.model)
	require.NoError(t, err)
	require.Less(t, len(file), 400000)
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, dev, good))
	for _, want := range []string{"── llama: 3 layers of width 64, 4 heads of 64 on 2 key heads, 3", "cache of q8_0: 612 bytes a token",
		" The sea is", "── prompt: 6 tokens, ", "── generated: "} {
		require.Contains(t, out.String(), want)
	}
	text := func(s string) string { return s[:strings.Index(s, "── prompt")] }
	again := out.String()
	out.Reset()
	require.NoError(t, run(ctx, &out, dev, good))
	require.Equal(t, text(again), text(out.String()), "the same seed")

	numbers := good
	numbers.ids, numbers.tokens = "1, 5,7", 0
	out.Reset()
	require.NoError(t, run(ctx, &out, dev, numbers))
	require.Contains(t, out.String(), "── prompt: 3 tokens")
	require.NotContains(t, out.String(), "generated")

	gemma := good
	gemma.model = tinyModel("gemma2").saved(t)
	out.Reset()
	require.NoError(t, run(ctx, &out, dev, gemma))
	require.Contains(t, out.String(), "a window of 9 tokens in layers 0, 2 and so on")
	require.Contains(t, out.String(), "capped at ±2")

	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, file[:len(file)/2], 0o644))
	for want, set := range map[string]func(o *options){
		"no -model":       func(o *options) { o.model = "" },
		"no such file":    func(o *options) { o.model = broken + "er" },
		"shorter":         func(o *options) { o.model = broken },
		"-tokens -1":      func(o *options) { o.tokens = -1 },
		"-tokens 9223":    func(o *options) { o.tokens = math.MaxInt },
		"-temperature":    func(o *options) { o.by.Temperature = math.NaN() },
		"-top-k":          func(o *options) { o.by.TopK = -1 },
		"-room -1":        func(o *options) { o.cache.room = -1 },
		"-room is 3":      func(o *options) { o.cache.room = 3 },
		"-page 0":         func(o *options) { o.cache.page = 0 },
		"power of two":    func(o *options) { o.cache.page = 3 },
		"-chunk 0":        func(o *options) { o.cache.chunk = 0 },
		`-cache "q1"`:     func(o *options) { o.cache.as = "q1" },
		`"x" is no`:       func(o *options) { o.ids = "1,x" },
		"token 5000: the": func(o *options) { o.ids = "5000" },
		"token -1: the":   func(o *options) { o.ids = "-1" },
		"UTF-8":           func(o *options) { o.prompt = "\xff" },
	} {
		bad := good
		set(&bad)
		require.ErrorContains(t, run(ctx, &out, dev, bad), want)
	}
}

// TestBadModel: what a file says of a model is checked, and what this program does not compute is refused by name.
func TestBadModel(t *testing.T) {
	without := func(name string) func(t *tiny) {
		return func(t *tiny) {
			var left []gguf.Values
			for _, v := range t.tensors {
				if v.Name != name {
					left = append(left, v)
				}
			}
			t.tensors = left
		}
	}
	set := func(key string, value any) func(t *tiny) { return func(t *tiny) { t.set(key, value) } }
	for _, c := range []struct {
		want string
		set  func(t *tiny)
	}{
		{`architecture "mamba": not supported: there are gemma2, llama, qwen2, qwen3`, set("general.architecture", "mamba")},
		{"general.architecture: missing", func(t *tiny) { t.metadata = nil }},
		{"llama.block_count: missing", func(t *tiny) { t.metadata = t.metadata[:1] }},
		{"llama.block_count 0: it must be from 1", set("llama.block_count", uint32(0))},
		{"llama.embedding_length -1", set("llama.embedding_length", int32(-1))},
		{"llama.attention.head_count 4294967295", set("llama.attention.head_count", uint32(math.MaxUint32))},
		{"4 query heads cannot share 3 key heads", set("llama.attention.head_count_kv", uint32(3))},
		{"llama.attention.head_count_kv: not supported: layers that differ", set("llama.attention.head_count_kv", []int32{2, 1, 2})},
		{`"many" must be an integer`, set("llama.attention.head_count_kv", "many")},
		{"split.count 3: not supported", set("split.count", uint32(3))},
		{"split.count: malformed", set("split.count", "3")},
		{"llama.expert_count 8: not supported", set("llama.expert_count", uint32(8))},
		{`scaling.type "yarn": not supported`, set("llama.rope.scaling.type", "yarn")},
		{"scaling.factor 0", set("llama.rope.scaling.factor", float32(0))},
		{"NaN must be finite", set("llama.rope.freq_base", float32(math.NaN()))},
		{"freq_base -1", set("llama.rope.freq_base", float32(-1))},
		{"dimension_count 65: it must be even", set("llama.rope.dimension_count", uint32(65))},
		{"dimension_count 66: it must be even", set("llama.rope.dimension_count", uint32(66))},
		{"tensor token_embd.weight: missing", without("token_embd.weight")},
		{"tensor blk.2.ffn_up.weight: missing", without("blk.2.ffn_up.weight")},
		{"tensor blk.3.attn_norm.weight: missing", set("llama.block_count", uint32(1<<20))},
		{"tensor blk.2.attn_k.weight: not supported", set("llama.block_count", uint32(2))},
		{"tensor blk.0.attn_q.weight: dimensions [64 256]: they must be [64 512]", set("llama.attention.head_count", uint32(8))},
		{"tensor blk.0.surprise: not supported", func(t *tiny) { t.vector("blk.0.surprise", 3, 0) }},
	} {
		tiny := tinyModel("llama")
		c.set(tiny)
		_, err := readModel(tiny.file(t))
		require.ErrorContains(t, err, c.want)
	}
	one := tinyModel("llama")
	one.set("llama.attention.head_count_kv", []int32{2, 2, 2})
	_, err := readModel(one.file(t))
	require.NoError(t, err)
}

// TestHeads: the file of -heads holds turned queries and keys of all layers, from which the reference's attention follows, and windows.
func TestHeads(t *testing.T) {
	dev := flashtest.Own(t)
	tiny := tinyModel("gemma2")
	file := filepath.Join(t.TempDir(), "heads.safetensors")
	o := options{model: tiny.saved(t), prompt: "Once upon a time", heads: file, cache: cacheOptions{page: 16, chunk: 5, as: "f32"}}
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out, dev, o))
	require.Contains(t, out.String(), "vkattn view shows them")
	require.Contains(t, out.String(), "capped at ±2: the viewer")

	bytes, err := os.ReadFile(file)
	require.NoError(t, err)
	n := 8 + binary.LittleEndian.Uint64(bytes)
	var header map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(bytes[8:n], &header))
	var about map[string]string
	require.NoError(t, json.Unmarshal(header["__metadata__"], &about))
	require.Equal(t, []string{"8,0", "", "8,0"}, []string{about["layer0.window"], about["layer1.window"], about["layer2.window"]})

	f := tiny.file(t)
	v, err := readVocabulary(f)
	require.NoError(t, err)
	tokens, err := v.encode(o.prompt)
	require.NoError(t, err)
	require.Len(t, []rune(about["text"]), len(tokens))
	var want struct{ q, k []float64 } // of the layers, in the order in which the reference turns them: token by token
	r := &reference{T: t, f: f, arch: tiny.arch, round: func(what byte, row []float64) {
		switch what {
		case 'q':
			want.q = append(want.q, row...)
		case 'k':
			want.k = append(want.k, row...)
		}
	}}
	r.logits(tokens)
	for layer := range tinyLayers {
		for _, part := range []struct {
			name  string
			heads int
			want  []float64
		}{{"q", tinyHeads, want.q}, {"k", tinyKeyHeads, want.k}} {
			var tensor struct {
				Shape   []int  `json:"shape"`
				Offsets [2]int `json:"data_offsets"`
			}
			name := "layer" + string(rune('0'+layer)) + "." + part.name
			require.NoError(t, json.Unmarshal(header[name], &tensor))
			require.Equal(t, []int{part.heads, len(tokens), tinyDim}, tensor.Shape)
			got := make([]float32, part.heads*len(tokens)*tinyDim)
			gguf.F32.Floats(got, bytes[int(n)+tensor.Offsets[0]:int(n)+tensor.Offsets[1]])
			for h := range part.heads {
				for i := range tokens {
					for c := range tinyDim {
						x := part.want[((layer*len(tokens)+i)*part.heads+h)*tinyDim+c]
						require.InDelta(t, x, got[(h*len(tokens)+i)*tinyDim+c], 1e-4, "%s head %d token %d", name, h, i)
					}
				}
			}
		}
	}
}
