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

	"github.com/vkattn/vkattn/examples/llama/internal/folder"
	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
	"github.com/vkattn/vkattn/internal/flashtest"
)

// theirs are names in folders, by those in GGUF files.
var theirs = strings.NewReplacer("token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "attn_output.", "self_attn.o_proj.",
	"output.", "lm_head.", "blk.", "model.layers.", "attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.",
	"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.", "attn_q_norm.", "self_attn.q_norm.",
	"attn_k_norm.", "self_attn.k_norm.", "ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.")

// safetensors is a file of tensors. Types that it does not have become F32.
func safetensors(t *testing.T, tensors []gguf.Values) []byte {
	header, body := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte(nil)
	for _, v := range tensors {
		n, shape := 1, []int{}
		for i := range v.Dims {
			shape = append(shape, v.Dims[len(v.Dims)-1-i])
			n *= v.Dims[i]
		}
		from, of := len(body), v.Type.String()
		if strings.HasPrefix(of, "Q") {
			x := make([]float32, n)
			v.Type.Floats(x, v.Data)
			of = "F32"
			for _, f := range x {
				body = binary.LittleEndian.AppendUint32(body, math.Float32bits(f))
			}
		} else {
			body = append(body, v.Data...)
		}
		header[theirs.Replace(v.Name)] = map[string]any{"dtype": of, "shape": shape, "data_offsets": []int{from, len(body)}}
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), body...)
}

// config is the tiny model's config.json.
func (t *tiny) config() map[string]any {
	return map[string]any{"model_type": t.arch, "num_hidden_layers": tinyLayers, "hidden_size": tinyWidth, "intermediate_size": tinyHidden,
		"num_attention_heads": tinyHeads, "num_key_value_heads": tinyKeyHeads, "head_dim": tinyDim, "max_position_embeddings": tinyContext,
		"rms_norm_eps": 1e-5, "rope_theta": 5000, "hidden_act": "silu", "sliding_window": nil, "rope_scaling": map[string]any{
			"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}}
}

// folder writes the tiny model as a folder, in one file or in two.
func (t *tiny) folder(tb *testing.T, config map[string]any, files int) string {
	dir := tb.TempDir()
	write := func(name string, data []byte) {
		require.NoError(tb, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	text, err := json.Marshal(config)
	require.NoError(tb, err)
	write("config.json", text)
	if files == 1 {
		write("model.safetensors", safetensors(tb, t.tensors))
		return dir
	}
	half, of := len(t.tensors)/2, map[string]string{}
	for i, some := range [][]gguf.Values{t.tensors[:half], t.tensors[half:]} {
		name := []string{"model-1.safetensors", "model-2.safetensors"}[i]
		write(name, safetensors(tb, some))
		for _, v := range some {
			of[theirs.Replace(v.Name)] = name
		}
	}
	text, err = json.Marshal(map[string]any{"weight_map": of})
	require.NoError(tb, err)
	write("model.safetensors.index.json", text)
	return dir
}

// TestFolder: logits of a folder's model are those of the reference, which reads the same numbers from a GGUF file and turns and scales as
// folders have it.
func TestFolder(t *testing.T) {
	dev, ctx, tokens := flashtest.Own(t), context.Background(), someTokens(20)
	for files, arch := range map[int]string{1: "llama", 2: "qwen3"} {
		tiny := tinyModelOf(arch, tinyDim)
		want := (&reference{T: t, f: tiny.file(t), arch: arch, folder: true}).logits(tokens)
		f, err := folder.Read(tiny.folder(t, tiny.config(), files))
		require.NoError(t, err)
		m, err := readModel(f.File)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		c, err := newCache(dev, &m.config, cacheOptions{room: 20, page: 16, chunk: 20, as: "f32"})
		require.NoError(t, err)
		s := &session{model: m, cache: c}
		got, err := s.takeIn(ctx, c, tokens, true)
		require.NoError(t, err)
		require.LessOrEqual(t, farthest(got, want), 1e-4, arch)
		require.NoError(t, c.close())
	}
	tiny := tinyModelOf("llama", tinyDim)
	tied := tiny.config()
	tied["tie_word_embeddings"] = true
	o := options{model: tiny.folder(t, tied, 1), ids: "1,2", tokens: 2, cache: cacheOptions{page: 16, chunk: 8, as: "f16"}}
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, dev, o))
	require.Contains(t, out.String(), "\n<1><2><")
	o.ids, o.prompt = "", "text"
	require.ErrorContains(t, run(ctx, &out, dev, o), "give tokens by -ids")
}

// TestBadFolder: what is wrong with a folder is a named error.
func TestBadFolder(t *testing.T) {
	tiny := tinyModelOf("llama", tinyDim)
	for want, set := range map[string]func(c map[string]any){
		`model_type "gpt2": not supported`:     func(c map[string]any) { c["model_type"] = "gpt2" },
		`hidden_act "relu": not supported`:     func(c map[string]any) { c["hidden_act"] = "relu" },
		"use_sliding_window: not supported":    func(c map[string]any) { c["use_sliding_window"] = true },
		"config.json: malformed: json: cannot": func(c map[string]any) { c["hidden_size"] = "wide" },
		"llama.embedding_length: missing":      func(c map[string]any) { delete(c, "hidden_size") },
		"llama.attention.head_count 0":         func(c map[string]any) { c["num_attention_heads"] = 0 },
		"llama.block_count":                    func(c map[string]any) { c["num_hidden_layers"] = int64(1) << 60 },
		`scaling.type "yarn": not supported`:   func(c map[string]any) { c["rope_scaling"] = map[string]any{"type": "yarn"} },
		"llama.rope: ": func(c map[string]any) {
			c["rope_scaling"].(map[string]any)["high_freq_factor"] = 0.5
		},
		"blk.0.attn_q.weight: dimensions [64 256]:": func(c map[string]any) { c["num_attention_heads"] = 8 },
	} {
		c := tiny.config()
		set(c)
		f, err := folder.Read(tiny.folder(t, c, 1))
		if err == nil {
			_, err = readModel(f.File)
			require.NoError(t, f.Close())
		}
		require.ErrorContains(t, err, want)
	}
	untied := tiny.folder(t, tiny.config(), 2)
	require.NoError(t, os.WriteFile(filepath.Join(untied, "model.safetensors.index.json"), []byte(`{"weight_map":{"a":"../x"}}`), 0o644))
	_, err := folder.Read(untied)
	require.ErrorContains(t, err, `"../x" is no file of the folder`)
	require.NoError(t, os.WriteFile(filepath.Join(untied, "model.safetensors.index.json"),
		[]byte(`{"weight_map":{"a":"model-2.safetensors"}}`), 0o644))
	_, err = folder.Read(untied)
	require.ErrorContains(t, err, "tensor lm_head.weight")
	_, err = folder.Read(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}
