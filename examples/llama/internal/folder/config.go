package folder

import (
	"fmt"
	"math"
)

// config is what config.json says of a model.
type config struct {
	ModelType         string   `json:"model_type"`
	Layers            *int64   `json:"num_hidden_layers"`
	Width             *int64   `json:"hidden_size"`
	Hidden            *int64   `json:"intermediate_size"`
	Heads             *int64   `json:"num_attention_heads"`
	KeyHeads          *int64   `json:"num_key_value_heads"`
	Dim               *int64   `json:"head_dim"`
	Context           *int64   `json:"max_position_embeddings"`
	Window            *int64   `json:"sliding_window"`
	UseWindow         *bool    `json:"use_sliding_window"`
	Epsilon           *float64 `json:"rms_norm_eps"`
	Base              *float64 `json:"rope_theta"`
	Rope              *rope    `json:"rope_scaling"`
	Parameters        *rope    `json:"rope_parameters"` // in newer folders, in place of the two before
	TieWordEmbeddings bool     `json:"tie_word_embeddings"`
	Act               string   `json:"hidden_act"`
}

type rope struct {
	Type     string   `json:"rope_type"`
	OldType  string   `json:"type"`
	Base     *float64 `json:"rope_theta"`
	Factor   *float64 `json:"factor"`
	Low      *float64 `json:"low_freq_factor"`
	High     *float64 `json:"high_freq_factor"`
	Original *int64   `json:"original_max_position_embeddings"`
}

// archs are the types of models, and the architectures that GGUF files call them.
var archs = map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

func readConfig(path string) (c config, err error) {
	if err := readJSON(path, &c); err != nil {
		return c, err
	}
	switch {
	case archs[c.ModelType] == "":
		return c, fmt.Errorf("config.json: model_type %q: %w: there are llama, mistral, qwen2, qwen3", c.ModelType, ErrUnsupported)
	case c.Act != "" && c.Act != "silu":
		return c, fmt.Errorf("config.json: hidden_act %q: %w: there is silu", c.Act, ErrUnsupported)
	case c.UseWindow != nil && *c.UseWindow:
		return c, fmt.Errorf("config.json: use_sliding_window: %w: windows of some layers", ErrUnsupported)
	}
	if c.UseWindow != nil || c.ModelType != "mistral" { // others have windows where they say so alone: the number has no meaning
		c.Window = nil
	}
	if c.Parameters != nil {
		c.Rope = c.Parameters
		if c.Base == nil {
			c.Base = c.Parameters.Base
		}
	}
	return c, nil
}

// metadata is what a GGUF file says of the model. What config.json does not say is missing there too.
func (c *config) metadata() map[string]any {
	arch := archs[c.ModelType]
	m := map[string]any{"general.architecture": arch, arch + ".rope.halves": true}
	for key, n := range map[string]*int64{"block_count": c.Layers, "embedding_length": c.Width, "feed_forward_length": c.Hidden,
		"attention.head_count": c.Heads, "attention.head_count_kv": c.KeyHeads, "attention.key_length": c.Dim, "context_length": c.Context,
		"attention.sliding_window": c.Window} {
		if n != nil {
			m[arch+"."+key] = *n
		}
	}
	number := func(key string, x *float64) {
		if x != nil && !math.IsNaN(*x) {
			m[arch+"."+key] = *x
		}
	}
	m[arch+".attention.layer_norm_rms_epsilon"] = 1e-6 // theirs, where a file does not say
	number("attention.layer_norm_rms_epsilon", c.Epsilon)
	number("rope.freq_base", c.Base)
	if r := c.Rope; r != nil {
		kind := r.Type
		if kind == "" {
			kind = r.OldType
		}
		if kind == "default" || kind == "" {
			kind = "none"
		}
		m[arch+".rope.scaling.type"] = kind
		number("rope.scaling.factor", r.Factor)
		number("rope.scaling.low_freq_factor", r.Low)
		number("rope.scaling.high_freq_factor", r.High)
		if r.Original != nil {
			m[arch+".rope.scaling.original_context_length"] = *r.Original
		}
	}
	return m
}
