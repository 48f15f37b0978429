package main

import (
	"bytes"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/examples/internal/draw"
	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/flashtest"
)

// file is the tiny model's file as it is read.
func (t *tiny) file(tb testing.TB) *gguf.File {
	tb.Helper()
	var b bytes.Buffer
	require.NoError(tb, t.write(&b))
	f, err := gguf.Read(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(tb, err)
	return f
}

// variants are tiny models of all kinds, and of what files of one kind differ in.
func variants() map[string]*tiny {
	all := map[string]*tiny{}
	for arch := range kinds {
		all[arch] = tinyModel(arch)
	}
	linear := tinyModel("llama")
	linear.set("llama.rope.scaling.type", "linear")
	linear.set("llama.rope.scaling.factor", float32(4))
	linear.set("llama.rope.dimension_count", uint32(tinyDim/2))
	all["llama, part of a head turned, linear scaling"] = linear
	window := tinyModel("llama")
	window.set("llama.attention.sliding_window", uint32(7))
	window.vector("rope_freqs.weight", tinyDim/2, 3)
	all["llama, a window, divided frequencies"] = window
	return all
}

func newSession(t *testing.T, dev *flash.Device, f *gguf.File, o cacheOptions) *session {
	t.Helper()
	m, err := readModel(f)
	require.NoError(t, err)
	v, err := readVocabulary(f)
	require.NoError(t, err)
	c, err := newCache(dev, &m.config, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.close()) })
	return &session{model: m, cache: c, vocabulary: v}
}

func someTokens(n int) (tokens []int) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range n {
		tokens = append(tokens, rng.IntN(300))
	}
	return tokens
}

// farthest is the largest difference of logits, a row for each token.
func farthest(got []float32, want [][]float64) (worst float64) {
	for t, row := range want {
		for i, x := range row {
			d := math.Abs(float64(got[t*len(row)+i]) - x)
			if !(d <= worst) { // a NaN too
				worst = d
			}
		}
	}
	return worst
}

// rounding is what a cache does to rows: queries, new keys, values and outputs are of one type, and keys and values in the cache of
// another.
func rounding(as string) func(what byte, row []float64) {
	types := stores[as]
	to := func(t flash.DType, row []float64) {
		x, raw := make([]float32, len(row)), make([]byte, t.Bytes(len(row)))
		for i, v := range row {
			x[i] = float32(v)
		}
		attn.Encode(attn.DType(t), raw, x)
		attn.Decode(attn.DType(t), x, raw)
		for i, v := range x {
			row[i] = float64(v)
		}
	}
	return func(what byte, row []float64) {
		to(types[0], row)
		if what == 'k' || what == 'v' {
			to(types[1], row)
		}
	}
}

// TestLogits: logits after each token are those of the reference, over a prompt taken in at once, in chunks, and token by token. A cache of
// fp32 differs by what fp32 sums do; others by no more than twice what their rounding alone does to the reference.
func TestLogits(t *testing.T) {
	dev, ctx := flashtest.Own(t), context.Background()
	tokens := someTokens(40)
	for name, tiny := range variants() {
		t.Run(name, func(t *testing.T) {
			f := tiny.file(t)
			r := &reference{T: t, f: f, arch: tiny.arch}
			want := r.logits(tokens)
			spread := 0.0
			for _, x := range want[len(want)-1] {
				spread = max(spread, math.Abs(x))
			}
			require.Greater(t, spread, 1.0, "logits that differ")
			for _, as := range []string{"f32", "f16", "q8_0"} {
				bound := 1e-4
				if as != "f32" {
					r.round = rounding(as)
					moved, exact := r.logits(tokens), 0.0
					for i := range want {
						for c := range want[i] {
							exact = max(exact, math.Abs(moved[i][c]-want[i][c]))
						}
					}
					bound = 2 * exact
				}
				for _, chunk := range []int{40, 17, 1} {
					s := newSession(t, dev, f, cacheOptions{room: 48, page: 16, chunk: chunk, as: as})
					got, err := s.takeIn(ctx, s.cache, tokens, true)
					require.NoError(t, err)
					require.Equal(t, len(tokens)*s.model.vocabulary, len(got))
					off := farthest(got, want)
					t.Logf("%s, chunks of %d: %.2g of %.2g", as, chunk, off, bound)
					require.LessOrEqual(t, off, bound, "%s, chunks of %d", as, chunk)
					require.NoError(t, s.cache.close())
				}
			}
		})
	}
}

// TestGreedy: what is generated is what the reference says, taking its whole text in again for each token.
func TestGreedy(t *testing.T) {
	dev, ctx := flashtest.Own(t), context.Background()
	for _, as := range []string{"f32", "f16"} {
		f := tinyModel("llama").file(t)
		s := newSession(t, dev, f, cacheOptions{room: 32, page: 8, chunk: 8, as: as})
		prompt, err := s.vocabulary.encode("The sea is")
		require.NoError(t, err)
		r, text := &reference{T: t, f: f, arch: "llama"}, append([]int(nil), prompt...)
		if as != "f32" {
			r.round = rounding(as)
		}
		var want, got []int
		for range 12 {
			all := r.logits(text)
			last := all[len(all)-1]
			best := 0
			for id, x := range last {
				if x > last[best] {
					best = id
				}
			}
			text, want = append(text, best), append(want, best)
		}
		logits, err := s.takeIn(ctx, s.cache, prompt, false)
		require.NoError(t, err)
		require.NoError(t, s.generate(ctx, logits, 12, draw.NewSampler(draw.By{}, 1), func(id int) { got = append(got, id) }))
		require.Equal(t, want, got, as)
		require.Equal(t, len(text), s.cache.length())
	}
}

// FuzzModel: whatever a file says in one of its entries, it is an error or a model, and its tokens are no reason to crash either.
func FuzzModel(f *testing.F) {
	var files []*gguf.File
	for _, arch := range slices.Sorted(maps.Keys(kinds)) {
		files = append(files, tinyModel(arch).file(f))
	}
	keys := slices.Sorted(maps.Keys(files[0].Metadata))
	for _, key := range []string{"rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
		"rope.halves", "expert_count", "attention.sliding_window", "attn_logit_softcapping"} {
		keys = append(keys, "gemma2."+key)
	}
	keys = append(keys, "tokenizer.ggml.pre", "tokenizer.ggml.merges", "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix")
	for i := range keys {
		for kind := range uint8(8) {
			f.Add(uint8(i), kind, uint64(i)*3, "llama3")
		}
	}
	f.Fuzz(func(t *testing.T, which, kind uint8, n uint64, s string) {
		file := files[n%uint64(len(files))]
		arch, err := gguf.Get[string](file, "general.architecture")
		require.NoError(t, err)
		values := []any{uint32(n), int64(n), math.Float32frombits(uint32(n)), math.Float64frombits(n), s, []int32{int32(n)},
			[]string{s}, n%2 == 0}
		metadata := maps.Clone(file.Metadata)
		key := strings.Replace(keys[int(which)%len(keys)], "gemma2", arch, 1)
		metadata[key] = values[int(kind)%len(values)]
		changed, err := gguf.New(metadata, file.Tensors)
		require.NoError(t, err)
		if m, err := readModel(changed); err == nil {
			require.Len(t, m.blocks, m.layers)
		}
		if v, err := readVocabulary(changed); err == nil {
			tokens, _ := v.encode("The sea is\n — 123 <s>" + s)
			for _, id := range tokens {
				v.decode(id)
			}
		}
	})
}

// BenchmarkMultiply: what limits tokens a second, by the type of weights: one row, as in generation, and 64, as in a prompt.
func BenchmarkMultiply(b *testing.B) {
	for _, of := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K} {
		for _, n := range []int{1, 64} {
			b.Run(of.String()+"/"+strconv.Itoa(n), func(b *testing.B) {
				block, bytes := of.Block()
				w := newMatrix(of, 2048, 2048, make([]byte, 2048*2048/block*bytes))
				x := make([]float32, n*2048)
				for b.Loop() {
					w.multiply(x, nil)
				}
				b.ReportMetric(float64(b.N)*2048*2048*float64(n)/b.Elapsed().Seconds()/1e9, "Gweights/s")
			})
		}
	}
}
