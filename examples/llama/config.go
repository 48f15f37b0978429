package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/examples/llama/internal/gguf"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/flash/score"
)

// errUnsupported is matched by errors about files that are whole but of models that this program does not compute.
var errUnsupported = errors.New("not supported")

// kind is how models of an architecture differ from those of another.
type kind struct {
	// halves says which columns of queries and keys are turned together: j and j + R/2. Files of the architecture llama have rows of their
	// projections permuted so that neighbours are turned together instead, 2j and 2j + 1.
	halves      bool
	biased      bool // queries, keys and values have a bias
	headNorms   bool // queries and keys are normalised, each head by itself, before they are turned
	afterNorms  bool // what attention and the network give is normalised before it is added
	gelu        bool // in place of silu
	scaledInput bool // embeddings are multiplied by √width
	every       int  // where there is a window, layers have it whose number is a multiple of this
	window      int  // where the file does not say
}

// kinds are the architectures that there are.
var kinds = map[string]kind{
	"llama":  {every: 1}, // Mistral's too
	"qwen2":  {halves: true, biased: true, every: 1},
	"qwen3":  {halves: true, headNorms: true, every: 1},
	"gemma2": {halves: true, afterNorms: true, gelu: true, scaledInput: true, every: 2, window: 4096},
}

func kindNames() string { return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") }

// config is a model's sizes and numbers.
type config struct {
	kind
	arch                  string
	layers, width, hidden int
	heads, keyHeads       int
	dim, valueDim         int
	context               int // tokens that it was trained with; 0 where the file does not say
	epsilon               float64
	rotary                rows.Rotary
	window                int     // keys that a query sees in layers with a window, itself among them; 0: all
	scale                 float64 // of scores
	softcap, finalCap     float64 // of scores and of logits; 0: none
}

// seen is the keys that a query sees in a layer; 0: all.
func (c *config) seen(layer int) int {
	if layer%c.every != 0 {
		return 0
	}
	return c.window
}

// problem is what attention in a layer is besides its sizes.
func (c *config) problem(layer int) flash.Problem {
	p := flash.Problem{Heads: c.heads, Causal: flash.CausalBottomRight, Scale: c.scale}
	if seen := c.seen(layer); seen > 0 {
		p.Window = flash.SlidingWindow(seen-1, 0)
	}
	if c.softcap > 0 {
		p.ScoreFunction = score.Softcap(c.softcap)
	}
	return p
}

// most is the largest size that a file can ask for.
const most = 1 << 20

// readConfig reads the metadata of a file.
func readConfig(f *gguf.File) (c config, err error) {
	if c.arch, err = gguf.Get[string](f, "general.architecture"); err != nil {
		return c, err
	}
	known := false
	if c.kind, known = kinds[c.arch]; !known {
		return c, fmt.Errorf("architecture %q: %w: there are %s", c.arch, errUnsupported, kindNames())
	}
	if parts, err := gguf.Or(f.Int("split.count"))(1); err != nil || parts > 1 {
		return c, errors.Join(err, fmt.Errorf("split.count %d: %w: files that are part of a model; llama-gguf-split --merge joins them",
			parts, errUnsupported))
	}
	m := metadata{f: f, arch: c.arch}
	c.layers, c.width, c.hidden = m.size("block_count", 0), m.size("embedding_length", 0), m.size("feed_forward_length", 0)
	c.heads = m.size("attention.head_count", 0)
	c.keyHeads = m.size("attention.head_count_kv", c.heads)
	c.context = m.size("context_length", most)
	c.epsilon = m.number("attention.layer_norm_rms_epsilon", 1e-5)
	if m.err != nil {
		return c, m.err
	}
	if c.heads%c.keyHeads != 0 {
		return c, fmt.Errorf("%s.attention: %d query heads cannot share %d key heads", c.arch, c.heads, c.keyHeads)
	}
	c.dim = m.size("attention.key_length", max(c.width/c.heads, 1))
	c.valueDim = m.size("attention.value_length", c.dim)
	c.window = m.atLeast("attention.sliding_window", c.kind.window)
	c.softcap, c.finalCap = m.number("attn_logit_softcapping", 0), m.number("final_logit_softcapping", 0)
	if c.arch == "gemma2" && m.err == nil {
		if _, there := f.Metadata["gemma2.attn_logit_softcapping"]; !there {
			c.softcap, c.finalCap = 50, 30
		}
	}
	c.scale = 1 / math.Sqrt(float64(c.dim))
	if c.arch == "gemma2" && c.layers == 46 { // the one of 27 billion parameters, whose file does not say it
		c.scale = 1 / math.Sqrt(float64(c.width)/float64(c.heads))
	}
	if n := m.atLeast("expert_count", 0); n > 0 && m.err == nil {
		return c, fmt.Errorf("%s.expert_count %d: %w: networks of experts", c.arch, n, errUnsupported)
	}
	c.rotary, err = m.rotary(c)
	if m.err != nil {
		return c, m.err
	}
	return c, err
}

// rotary is how queries and keys are turned.
func (m *metadata) rotary(c config) (rows.Rotary, error) {
	r := rows.Rotary{Columns: m.size("rope.dimension_count", c.dim), Base: m.number("rope.freq_base", 10000)}
	key := m.arch + ".rope.scaling.type"
	halves, err := gguf.Or(gguf.Get[bool](m.f, m.arch+".rope.halves"))(c.halves) // which package folder sets
	if err != nil {
		return r, err
	}
	r.Interleaved = !halves
	scaling, err := gguf.Or(gguf.Get[string](m.f, key))("none")
	if err != nil {
		return r, err
	}
	if m.err != nil {
		return r, m.err
	}
	if r.Columns%2 != 0 || r.Columns > c.dim {
		return r, fmt.Errorf("%s.rope.dimension_count %d: it must be even, and at most the %d columns of a head", m.arch, r.Columns, c.dim)
	}
	if !(r.Base > 0) {
		return r, fmt.Errorf("%s.rope.freq_base %v: it must be above 0", m.arch, r.Base)
	}
	switch factor := m.number("rope.scaling.factor", m.number("rope.scale_linear", 1)); {
	case m.err != nil:
	case !(factor > 0):
		return r, fmt.Errorf("%s.rope.scaling.factor %v: it must be above 0", m.arch, factor)
	case scaling == "linear", scaling == "none" && factor == 1:
		r.Scale = 1 / factor
	case scaling == "llama3":
		length := m.size("rope.scaling.original_context_length", 0)
		low, high := m.number("rope.scaling.low_freq_factor", 1), m.number("rope.scaling.high_freq_factor", 4)
		if m.err != nil {
			return r, m.err
		}
		if r.Frequencies, err = rows.ByPartsFrequencies(r.Columns, r.Base, factor, length, low, high); err != nil {
			return r, fmt.Errorf("%s.rope: %w", m.arch, err)
		}
		r.Base = 0
		return r, nil
	case scaling == "none":
		r.Scale = 1
		if _, named := m.f.Metadata[key]; !named { // files that are older than the type
			r.Scale = 1 / factor
		}
	default:
		return r, fmt.Errorf("%s %q: %w: there are none, linear, llama3, and a tensor rope_freqs.weight", key, scaling, errUnsupported)
	}
	return r, nil
}

// metadata reads entries of an architecture, and keeps the first error.
type metadata struct {
	f    *gguf.File
	arch string
	err  error
}

// atLeast is an integer from 0 on.
func (m *metadata) atLeast(key string, otherwise int) int {
	key = m.arch + "." + key
	n, err := m.f.Int(key)
	if all, is := m.f.Metadata[key].([]int32); is && len(all) > 0 { // one for each layer
		if n, err = int(all[0]), nil; slices.ContainsFunc(all, func(x int32) bool { return x != all[0] }) {
			err = fmt.Errorf("%s: %w: layers that differ", key, errUnsupported)
		}
	}
	if errors.Is(err, gguf.ErrMissing) && otherwise >= 0 {
		return otherwise
	}
	if err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("%s %d: it must be from 0 to %d", key, n, most)
	}
	if m.err == nil {
		m.err = err
	}
	return n
}

// size is an integer from 1 on; otherwise 0 means that it must be there.
func (m *metadata) size(key string, otherwise int) int {
	if otherwise == 0 {
		otherwise = -1
	}
	n := m.atLeast(key, otherwise)
	if n < 1 {
		if m.err == nil {
			m.err = fmt.Errorf("%s.%s %d: it must be from 1 to %d", m.arch, key, n, most)
		}
		return 1
	}
	return n
}

func (m *metadata) number(key string, otherwise float64) float64 {
	x, err := gguf.Or(m.f.Float(m.arch + "." + key))(otherwise)
	if m.err == nil {
		m.err = err
	}
	return x
}
