package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
)

// tiny is a small model of random numbers, the same ones each time: sizes of no more than tens, but all that files of its architecture
// have. Rows of its matrices are of different types. It is what tests run, and what -tiny writes.
type tiny struct {
	arch     string
	metadata []gguf.Entry
	tensors  []gguf.Values
	rng      *rand.Rand
	valueDim int
}

// Sizes of tiny models. Heads are wider than the model's width divided by their number, and values narrower than keys.
const (
	tinyLayers, tinyWidth, tinyHidden  = 3, 64, 96
	tinyHeads, tinyKeyHeads            = 4, 2
	tinyDim, tinyValueDim, tinyContext = 64, 32, 128
)

func tinyModel(arch string) *tiny { return tinyModelOf(arch, tinyValueDim) }

func tinyModelOf(arch string, valueDim int) *tiny {
	t := &tiny{arch: arch, rng: rand.New(rand.NewPCG(11, uint64(len(arch)))), valueDim: valueDim}
	k := kinds[arch]
	t.set("general.architecture", arch)
	for _, size := range []struct {
		key string
		n   uint32
	}{{"block_count", tinyLayers}, {"embedding_length", tinyWidth}, {"feed_forward_length", tinyHidden}, {"context_length", tinyContext},
		{"attention.head_count", tinyHeads}, {"attention.head_count_kv", tinyKeyHeads}, {"attention.key_length", tinyDim},
		{"attention.value_length", uint32(valueDim)}} {
		t.set(arch+"."+size.key, size.n)
	}
	t.set(arch+".attention.layer_norm_rms_epsilon", float32(1e-5))
	t.set(arch+".rope.freq_base", float32(5000))
	if arch == "gemma2" {
		t.set("gemma2.attention.sliding_window", uint32(9))
		t.set("gemma2.attn_logit_softcapping", float32(2))
		t.set("gemma2.final_logit_softcapping", float32(3))
	}
	pieces := t.vocabulary()
	t.matrix("token_embd", gguf.F32, pieces, tinyWidth)
	if arch != "gemma2" { // whose output is its embedding
		t.matrix("output", gguf.F16, pieces, tinyWidth)
	}
	t.vector("output_norm.weight", tinyWidth, 1)
	for i := range tinyLayers {
		name := func(what string) string { return fmt.Sprintf("blk.%d.%s", i, what) }
		t.vector(name("attn_norm.weight"), tinyWidth, 1)
		t.vector(name("ffn_norm.weight"), tinyWidth, 1)
		t.matrix(name("attn_q"), gguf.Q8_0, tinyHeads*tinyDim, tinyWidth)
		t.matrix(name("attn_k"), gguf.F16, tinyKeyHeads*tinyDim, tinyWidth)
		t.matrix(name("attn_v"), gguf.BF16, tinyKeyHeads*valueDim, tinyWidth)
		t.matrix(name("attn_output"), gguf.Q4_0, tinyWidth, tinyHeads*valueDim)
		t.matrix(name("ffn_gate"), gguf.Q8_0, tinyHidden, tinyWidth)
		t.matrix(name("ffn_up"), gguf.Q8_0, tinyHidden, tinyWidth)
		t.matrix(name("ffn_down"), gguf.F16, tinyWidth, tinyHidden)
		if k.biased {
			t.vector(name("attn_q.bias"), tinyHeads*tinyDim, 0)
			t.vector(name("attn_k.bias"), tinyKeyHeads*tinyDim, 0)
			t.vector(name("attn_v.bias"), tinyKeyHeads*valueDim, 0)
		}
		if k.headNorms {
			t.vector(name("attn_q_norm.weight"), tinyDim, 1)
			t.vector(name("attn_k_norm.weight"), tinyDim, 1)
		}
		if k.afterNorms {
			t.vector(name("post_attention_norm.weight"), tinyWidth, 1)
			t.vector(name("post_ffw_norm.weight"), tinyWidth, 1)
		}
	}
	return t
}

func (t *tiny) write(w io.Writer) error { return gguf.Write(w, t.metadata, t.tensors) }

// set sets a metadata entry, in place of an earlier one.
func (t *tiny) set(key string, value any) {
	for i := range t.metadata {
		if t.metadata[i].Key == key {
			t.metadata[i].Value = value
			return
		}
	}
	t.metadata = append(t.metadata, gguf.Entry{Key: key, Value: value})
}

// vocabulary is pieces: control tokens, all bytes, letters, and some words with what they are joined from.
func (t *tiny) vocabulary() int {
	pieces, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, typeControl, typeControl}
	scores := []float32{0, 0, 0}
	for b := range 256 {
		pieces, types, scores = append(pieces, fmt.Sprintf("<0x%02X>", b)), append(types, typeByte), append(scores, 0)
	}
	for _, s := range strings.Fields("▁t he ▁the in on ▁a re ▁s ea ▁sea is ▁is ▁w ▁o nd ▁and er or ▁b en ▁of ▁to ▁on ▁once ce up ▁up " +
		"▁upon im ▁time ime me nc ▁ a b c d e f g h i j k l m n o p q r s t u v w x y z A B O T , . ! ' -") {
		pieces, types, scores = append(pieces, s), append(types, 1), append(scores, -float32(len(scores)))
	}
	t.set("tokenizer.ggml.model", "llama")
	t.set("tokenizer.ggml.tokens", pieces)
	t.set("tokenizer.ggml.scores", scores)
	t.set("tokenizer.ggml.token_type", types)
	t.set("tokenizer.ggml.bos_token_id", uint32(1))
	t.set("tokenizer.ggml.eos_token_id", uint32(2))
	return len(pieces)
}

// vector adds numbers around a mean, within a quarter.
func (t *tiny) vector(name string, n int, mean float32) {
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(mean+(t.rng.Float32()-0.5)/2))
	}
	t.tensors = append(t.tensors, gguf.Values{Name: name, Type: gguf.F32, Dims: []int{n}, Data: data})
}

// matrix adds a matrix of numbers up to about a quarter. They are made as the type stores them: nothing has to be rounded.
func (t *tiny) matrix(name string, of gguf.Type, rows, cols int) {
	var data []byte
	word := func(x uint32) { data = binary.LittleEndian.AppendUint16(data, uint16(x)) }
	block, _ := of.Block()
	for range rows * cols / block {
		random := t.rng.Uint32()
		switch of {
		case gguf.F32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits((t.rng.Float32()-0.5)/2))
		case gguf.BF16:
			word(math.Float32bits((t.rng.Float32()-0.5)/2) >> 16)
		case gguf.F16: // a sign, an exponent from −6 to −3, a mantissa
			word(random&0x8000 | (9+random>>10&3)<<10 | random&0x3ff)
		case gguf.Q8_0: // a scale of 2⁻⁹
			word(6 << 10)
			for range block {
				data = append(data, byte(t.rng.Uint32()))
			}
		case gguf.Q4_0: // a scale of 2⁻⁵
			word(10 << 10)
			for range block / 2 {
				data = append(data, byte(t.rng.Uint32()))
			}
		}
	}
	t.tensors = append(t.tensors, gguf.Values{Name: name + ".weight", Type: of, Dims: []int{cols, rows}, Data: data})
}
